//! `nuncio push …`: webhook deliveries that failed for good, and the signing keys. For the operator: access
//! to the data folder is the credential.
//!
//! A running server holds the folder, so the command calls it; without one it opens the store itself.

use clap::Subcommand;
use nuncio_engine::{
    admin::list_dead_letters,
    clock::{Clock as _, SystemClock},
};
use serde_json::{Value, json};

use super::{
    config::Config,
    error::CliError,
    operator::{OperatorBackend, OperatorFlags},
    output::{self, Format},
    server,
    text::TextOutput,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List deliveries that failed for good, newest first
    List(OperatorFlags),
    /// Retry such deliveries
    Replay {
        /// The delivery. Default: all of them
        #[arg(value_name = "ID")]
        delivery: Option<String>,
        #[command(flatten)]
        flags: OperatorFlags,
    },
    /// Show the key that signs a tenant's webhooks, for their receivers
    Key {
        /// The tenant. Default: home
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        flags: OperatorFlags,
    },
    /// Create a new key for a tenant: during the overlap, deliveries carry both signatures
    RotateKey {
        /// The tenant. Default: home
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// How long the previous key stays valid
        #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = crate::duration::parse)]
        overlap: std::time::Duration,
        #[command(flatten)]
        flags: OperatorFlags,
    },
}

/// The most deliveries listed, as on the server.
const MOST: usize = 1000;

impl Command {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::List(flags)
            | Self::Replay { flags, .. }
            | Self::Key { flags, .. }
            | Self::RotateKey { flags, .. } => flags.format,
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let format = self.format();
        let (delivery, flags) = match self {
            Self::List(flags) => (None, flags),
            Self::Replay { delivery, flags } => (Some(delivery), flags),
            Self::Key { tenant, flags } => return key(flags, tenant, None).await,
            Self::RotateKey { tenant, overlap, flags } => return key(flags, tenant, Some(overlap)).await,
        };
        let config = server::configured_for(flags.data);
        let backend = OperatorBackend::find(&config).await?;
        let answer = match &delivery {
            None => dead_letters(&backend, &config).await?,
            Some(delivery) => replay(&backend, delivery.as_deref()).await?,
        };
        backend.close().await;
        if let Some(Some(delivery)) = &delivery
            && answer["replayed"] == 0
        {
            let why =
                format!("no delivery {delivery:?} failed for good: nuncio push list shows those that did");
            return Err(CliError::Admin(why));
        }
        if format == Format::Json {
            return output::json_text(&answer.to_string());
        }
        let mut text = TextOutput::default();
        match delivery {
            None => show(&mut text, &answer["deadLetters"]),
            Some(_) => text.field("Replayed", &answer["replayed"].to_string()),
        }
        output::text(&text.0)
    }
}

/// Prints a tenant's key, or creates a new one.
async fn key(
    flags: OperatorFlags,
    tenant: Option<String>,
    rotate: Option<std::time::Duration>,
) -> Result<(), CliError> {
    let server = OperatorBackend::find(&server::configured_for(flags.data)).await?.server().await?;
    let answer = match rotate {
        None => {
            let query: Vec<_> = tenant.map(|tenant| ("tenant", tenant)).into_iter().collect();
            server.get("/admin/webhook-key", &query).await?
        }
        Some(overlap) => {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.append_pair("overlapSeconds", &overlap.as_secs().to_string());
            if let Some(tenant) = &tenant {
                query.append_pair("tenant", tenant);
            }
            server.post(&format!("/admin/webhook-key/rotate?{}", query.finish()), &Value::Null).await?
        }
    };
    if flags.format == Format::Json {
        return output::json_text(&answer.to_string());
    }
    let mut text = TextOutput::default();
    for (label, member) in
        [("Tenant", "tenant"), ("Key", "secret"), ("Before", "previous"), ("Until", "previousUntil")]
    {
        if let Some(value) = answer[member].as_str() {
            text.field(label, value);
        }
    }
    output::text(&text.0)
}

async fn dead_letters(backend: &OperatorBackend, config: &Config) -> Result<Value, CliError> {
    match backend {
        OperatorBackend::Server(server) => server.get("/admin/dead-letters", &[]).await,
        OperatorBackend::Store(store) => {
            match list_dead_letters(&**store, &config.engine.access.redactor, MOST).await {
                Ok(letters) => Ok(json!({ "deadLetters": letters })),
                Err(error) => Err(CliError::Store(error.to_string())),
            }
        }
    }
}

async fn replay(backend: &OperatorBackend, delivery: Option<&str>) -> Result<Value, CliError> {
    match backend {
        OperatorBackend::Server(server) => {
            server.post("/admin/dead-letters/replay", &json!({ "delivery": delivery })).await
        }
        OperatorBackend::Store(store) => match store.replay_dead_letters(delivery, SystemClock.now()).await {
            Ok(replayed) => Ok(json!({ "replayed": replayed })),
            Err(error) => Err(CliError::Store(error.to_string())),
        },
    }
}

fn show(text: &mut TextOutput, letters: &Value) {
    let letters = letters.as_array().map(Vec::as_slice).unwrap_or_default();
    for letter in letters {
        for (label, member) in [
            ("Delivery", "delivery"),
            ("Task", "task"),
            ("Webhook", "webhook"),
            ("URL", "url"),
            ("Event", "seq"),
            ("Reason", "reason"),
        ] {
            let value = &letter[member];
            if value.is_null() {
                continue;
            }
            text.field(label, value.as_str().map_or_else(|| value.to_string(), str::to_owned).as_str());
        }
        let at = letter["at"].as_i64().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
        if let Some(at) = at {
            text.field("Given up", &at.to_string());
        }
        text.gap();
    }
    text.field("Total", &letters.len().to_string());
}
