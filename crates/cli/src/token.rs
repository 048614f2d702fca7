//! `nuncio token …`: tokens for callers, for the operator. A token is shown once, when it is created.

use std::sync::Arc;

use clap::Subcommand;
use nuncio::{engine::Caller, security::ServerTokens};
use nuncio_engine::{
    AccessKind, Action,
    clock::{Clock as _, SystemClock},
    knowledge::AuditEntry,
    store::Store,
};
use nuncio_server::auth::{NewToken, TokenAdminError};
use serde_json::{Value, json};

use super::{
    error::CliError,
    operator::{OperatorBackend, OperatorFlags},
    output::{self, Format, note},
    server,
    table::table,
    text::TextOutput,
};
use crate::duration;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a token, which is shown only now
    Create {
        /// The name of the caller that uses it
        #[arg(long, value_name = "NAME")]
        name: String,
        /// The tenant: callers of one tenant share data, and see nothing of other tenants. Default: home
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// What the token allows, as ACTIONS:TYPE[:NAMES], such as read,write:memory:team-*. Default: *:*,
        /// everything except administration
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// How long the token is valid, such as 30d, or never for no expiry
        #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = lifetime)]
        expires: u64,
        #[command(flatten)]
        flags: OperatorFlags,
    },
    /// List all tokens, without their secrets
    List(OperatorFlags),
    /// Revoke a token: it is refused from now on, on all nodes within 5 seconds
    Revoke {
        /// The token's id: the part between the first two underscores
        #[arg(value_name = "ID")]
        id: String,
        /// Also cancel all work that it started: tasks, the tasks they called, and those they wait for. Needs
        /// a running server
        #[arg(long)]
        stop: bool,
        #[command(flatten)]
        flags: OperatorFlags,
    },
}

/// Seconds; 0 means no expiry.
fn lifetime(text: &str) -> Result<u64, String> {
    if text == "never" {
        return Ok(0);
    }
    match duration::parse(text)?.as_secs() {
        0 => Err("at least one second, or never".into()),
        seconds => Ok(seconds),
    }
}

impl Command {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Create { flags, .. } | Self::Revoke { flags, .. } | Self::List(flags) => flags.format,
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let format = self.format();
        let (Self::Create { flags, .. } | Self::Revoke { flags, .. } | Self::List(flags)) = &self;
        let backend = OperatorBackend::find(&server::configured_for(flags.data.clone())).await?;
        let answer = self.ask(&backend).await;
        if let (Self::Create { .. }, Ok(_), OperatorBackend::Server(server)) = (&self, &answer, &backend)
            && format != Format::Json
            && !server.requires_tokens().await
        {
            note(
                "note: the server of this folder requires no token: a request without one acts in the operator's name. \
                 To require them, set auth = \"on\"",
            );
        }
        backend.close().await;
        let answer = answer?;
        if format == Format::Json {
            return output::json_text(&answer.to_string());
        }
        output::text(&self.show(&answer))
    }

    async fn ask(&self, backend: &OperatorBackend) -> Result<Value, CliError> {
        match (self, backend) {
            (Self::Create { .. }, OperatorBackend::Server(server)) => {
                server.post("/admin/tokens", &json!(self.new_token())).await
            }
            (Self::List(_), OperatorBackend::Server(server)) => server.get("/admin/tokens", &[]).await,
            (Self::Revoke { stop: true, .. }, OperatorBackend::Store(_)) => Err(CliError::Admin(
                "no server runs on this data folder, and --stop needs one: start it, or leave out --stop to \
                 only revoke the token"
                    .into(),
            )),
            (Self::Revoke { id, stop, .. }, OperatorBackend::Server(server)) => {
                let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
                let stop = if *stop { "?stop=true" } else { "" };
                server.delete(&format!("/admin/tokens/{id}{stop}")).await
            }
            (_, OperatorBackend::Store(store)) => self.do_here(store).await,
        }
    }

    fn new_token(&self) -> NewToken {
        match self {
            Self::Create { name, tenant, scopes, expires, .. } => NewToken {
                name: name.clone(),
                tenant: tenant.clone(),
                scopes: scopes.clone(),
                expires_in: Some(*expires),
            },
            Self::List(_) | Self::Revoke { .. } => NewToken::default(),
        }
    }

    /// Without a server: a process that can open the store acts as the operator.
    async fn do_here(&self, store: &Arc<dyn Store>) -> Result<Value, CliError> {
        let (operator, clock) = (Caller::local(), Arc::new(SystemClock));
        let tokens = ServerTokens::new(Arc::clone(store), clock);
        let (done, operation, action, resource) = match self {
            Self::Create { .. } => {
                let done = tokens.create(&operator, self.new_token()).await;
                let made = |member: &str| {
                    done.as_ref().ok().and_then(|made| made[member].as_str()).unwrap_or_default()
                };
                let address = ServerTokens::created_address(made("id"), made("tenant"));
                (done, "token.create", Action::Write, address)
            }
            Self::List(_) => {
                (tokens.list(&operator).await, "token.list", Action::Read, "admin://tokens".to_owned())
            }
            Self::Revoke { id, .. } => {
                let done = tokens.revoke(&operator, id).await;
                (done, "token.revoke", Action::Write, format!("admin://tokens/{id}"))
            }
        };
        let done = done.map_err(|error| match error {
            TokenAdminError::Invalid(_) | TokenAdminError::NoSuchToken(_) => {
                CliError::Admin(error.to_string())
            }
            TokenAdminError::Engine(error) => CliError::Store(error.to_string()),
        })?;
        if action == Action::Write {
            let line = AuditEntry {
                at: SystemClock.now(),
                tenant: operator.tenant().to_owned().into(),
                caller: operator.owner().into(),
                from: None,
                operation: operation.into(),
                action,
                kind: AccessKind::Admin,
                resource,
                refused: None,
                credential: None,
            };
            let noted = store.knowledge().append_audit([line].into()).await;
            noted.map_err(|error| CliError::Store(error.to_string()))?;
        }
        Ok(done)
    }

    fn show(&self, answer: &Value) -> String {
        match self {
            Self::List(_) => {
                let tokens = answer["tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
                let columns = [
                    ("ID", "id"),
                    ("NAME", "name"),
                    ("TENANT", "tenant"),
                    ("STATE", "state"),
                    ("EXPIRES", "expiresAt"),
                    ("LAST USED", "lastUsedAt"),
                    ("SCOPES", "scopes"),
                ];
                table(&columns, tokens)
            }
            Self::Create { .. } | Self::Revoke { .. } => {
                let mut text = TextOutput::default();
                for (label, member) in [
                    ("Id", "id"),
                    ("Name", "name"),
                    ("Tenant", "tenant"),
                    ("State", "state"),
                    ("Expires", "expiresAt"),
                ] {
                    text.field(label, answer[member].as_str().unwrap_or("never"));
                }
                let scopes = answer["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
                text.field("Scopes", &scopes.collect::<Vec<_>>().join(" "));
                if let Some(canceled) = answer["stopped"]["counts"]["canceled"].as_u64() {
                    text.field("Canceled", &canceled.to_string());
                }
                if let Some(token) = answer["token"].as_str() {
                    text.field("Token", token);
                    text.gap();
                    text.0.push_str("Save it now: it is not shown again. Clients send it as Authorization: Bearer TOKEN.\n");
                }
                text.0
            }
        }
    }
}
