//! `nuncio tenant …`: tenants, for the operator. Calls the server of the data folder with the operator token.

use std::{io::Write as _, path::PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    error::CliError,
    operator::{OperatorBackend, OperatorFlags, OperatorServer},
    output::{self, Format},
    server,
    table::{Table, age, bytes, cell, table},
    text::TextOutput,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List tenants, and their state
    List(OperatorFlags),
    /// Show the current usage and the stored data of tenants
    Usage {
        /// The tenant. Default: all of them
        #[arg(value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        flags: OperatorFlags,
    },
    /// Refuse a tenant's callers, and cancel its running tasks; tasks that wait for an answer keep waiting
    Suspend {
        /// The tenant
        #[arg(value_name = "TENANT")]
        tenant: String,
        /// The reason, for other operators
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        flags: OperatorFlags,
    },
    /// Serve a suspended tenant again, or release the name of an erased one
    Resume(TenantFlags),
    /// Write all data of a tenant to a file: tasks, memory, workflows; one JSON object per line
    Export {
        /// The tenant
        #[arg(value_name = "TENANT")]
        tenant: String,
        /// The file, which must not exist; - for the standard output
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        flags: OperatorFlags,
    },
    /// Delete all data of a tenant permanently: tasks, memory, workflows, sessions, tokens. The audit log
    /// stays, without names
    Erase {
        #[command(flatten)]
        one: TenantFlags,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args)]
pub(crate) struct TenantFlags {
    /// The tenant
    #[arg(value_name = "TENANT")]
    tenant: String,
    #[command(flatten)]
    flags: OperatorFlags,
}

impl Command {
    fn flags(&self) -> &OperatorFlags {
        match self {
            Self::List(flags)
            | Self::Usage { flags, .. }
            | Self::Suspend { flags, .. }
            | Self::Export { flags, .. } => flags,
            Self::Resume(one) | Self::Erase { one, .. } => &one.flags,
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.flags().format
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let format = self.format();
        if let Self::Erase { one, yes: false } = &self {
            return Err(CliError::Usage(format!(
                "this deletes all that the tenant {:?} has, for ever: export it first, then say --yes",
                one.tenant
            )));
        }
        let server =
            OperatorBackend::find(&server::configured_for(self.flags().data.clone())).await?.server().await?;
        let answer = match &self {
            Self::List(_) | Self::Usage { tenant: None, .. } => server.get("/admin/tenants", &[]).await?,
            Self::Usage { tenant: Some(tenant), .. } => server.get(&path(tenant), &[]).await?,
            Self::Suspend { tenant, reason, .. } => {
                server.post(&path_of(tenant, "suspend"), &json!({ "reason": reason })).await?
            }
            Self::Resume(one) => server.post(&path_of(&one.tenant, "resume"), &Value::Null).await?,
            Self::Erase { one, .. } => server.post(&path_of(&one.tenant, "erase"), &Value::Null).await?,
            Self::Export { tenant, file, .. } => return export(&server, tenant, file, format).await,
        };
        if format == Format::Json {
            return output::json_text(&answer.to_string());
        }
        output::text(&match self {
            Self::List(_) => {
                let tenants = answer["tenants"].as_array().map(Vec::as_slice).unwrap_or_default();
                let columns =
                    [("TENANT", "tenant"), ("STATE", "state"), ("SINCE", "since"), ("REASON", "reason")];
                table(&columns, tenants)
            }
            Self::Usage { .. } => usage_table(&answer),
            _ => show(&answer),
        })
    }
}

fn path(tenant: &str) -> String {
    let tenant: String = url::form_urlencoded::byte_serialize(tenant.as_bytes()).collect();
    format!("/admin/tenants/{tenant}")
}

fn path_of(tenant: &str, what: &str) -> String {
    format!("{}/{what}", path(tenant))
}

/// The columns of the usage table: a heading, the member, and whether it is bytes.
const USAGE: [(&str, &str, bool); 10] = [
    ("RUNNING ", "runningTasks", false),
    ("WAITING ", "waitingTasks", false),
    ("STREAMS ", "streams", false),
    ("SESSIONS ", "sessions", false),
    ("SCANS ", "scans", false),
    ("LISTS ", "lists", false),
    ("IN FLIGHT ", "bytesInFlight", true),
    ("STORED ", "storedBytes", true),
    ("WEBHOOKS ", "webhooks", false),
    ("TOKENS ", "tokens", false),
];

fn usage_table(answer: &Value) -> String {
    let one = std::slice::from_ref(answer);
    let tenants = answer["tenants"].as_array().map_or(one, Vec::as_slice);
    let heads: Vec<&'static str> = [&["TENANT"][..], &USAGE.map(|(heading, ..)| heading)].concat();
    let mut table = Table::new(&heads);
    for tenant in tenants {
        let amounts = USAGE.iter().map(|(_, member, is_bytes)| match &tenant["usage"][*member] {
            amount if *is_bytes => bytes(amount),
            amount => cell(amount),
        });
        table.row(std::iter::once(cell(&tenant["tenant"])).chain(amounts));
    }
    let measured = match &answer["measuredAt"] {
        Value::Null => "What is stored has not been measured yet.".to_owned(),
        at => format!("What is stored was measured {}.", age(at)),
    };
    format!("{}\n{measured}\n", table.show())
}

fn show(answer: &Value) -> String {
    let mut text = TextOutput::default();
    for (label, member) in
        [("Tenant", "tenant"), ("State", "state"), ("Since", "since"), ("Reason", "reason")]
    {
        if let Some(value) = answer[member].as_str() {
            text.field(label, value);
        }
    }
    for (label, member) in [
        ("Canceled", "canceled"),
        ("Tasks", "tasks"),
        ("Sessions", "sessions"),
        ("Memory", "memory"),
        ("Records", "records"),
        ("Tokens", "tokens"),
        ("Audit lines", "auditLines"),
    ] {
        if let Some(count) = answer["counts"][member].as_u64().filter(|count| *count > 0) {
            text.field(label, &count.to_string());
        }
    }
    if answer["done"] == false {
        text.gap();
        text.0.push_str(
            "It goes on in the server, also after a restart; nuncio tenant list shows when it is done.\n",
        );
    }
    text.0
}

async fn export(
    server: &OperatorServer,
    tenant: &str,
    file: &PathBuf,
    format: Format,
) -> Result<(), CliError> {
    let mut lines = server.lines(&path_of(tenant, "export")).await?;
    let to_terminal = file.as_os_str() == "-";
    let unwritable = |error: std::io::Error| CliError::Admin(format!("{}: {error}", file.display()));
    let mut out: Box<dyn std::io::Write> = match to_terminal {
        true => Box::new(std::io::stdout()),
        false => {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            Box::new(std::io::BufWriter::new(options.open(file).map_err(unwritable)?))
        }
    };
    // The last line of the file confirms that it is complete.
    let (mut tail, mut bytes) = (Vec::new(), 0);
    while let Some(chunk) = lines.chunk().await? {
        out.write_all(&chunk).map_err(unwritable)?;
        bytes += chunk.len();
        tail.extend_from_slice(&chunk);
        let from = tail.len().saturating_sub(256);
        tail.drain(..from);
    }
    out.flush().map_err(unwritable)?;
    let tail = String::from_utf8_lossy(&tail).into_owned();
    let end: Value =
        tail.trim_end().lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    if end["type"] != "end" {
        return Err(CliError::Admin(format!(
            "the export was cut after {bytes} bytes: {} is not whole; try again",
            file.display()
        )));
    }
    match (to_terminal, format) {
        (true, _) => Ok(()),
        (false, Format::Json) => {
            output::json_text(&json!({ "tenant": tenant, "items": end["items"], "bytes": bytes }).to_string())
        }
        (false, _) => {
            let mut text = TextOutput::default();
            text.field("Tenant", tenant);
            text.field("Items", &end["items"].to_string());
            text.field("File", &file.display().to_string());
            output::text(&text.0)
        }
    }
}
