//! `nuncio push …`: webhook deliveries that were given up. For the operator: the data folder is the key.
//!
//! A running server holds the folder, so it is asked; without one the store is opened here.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use nuncio::{StorePlace, data_dir::Published};
use nuncio_engine::{
    clock::{Clock as _, SystemClock},
    store::Store,
};
use nuncio_store::{PostgresStore, SqliteOptions, SqliteStore};
use serde_json::{Value, json};

use super::{
    error::CliError,
    local_server,
    output::{self, Format},
    text::{Text, plain},
};
use crate::config::Config;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List deliveries that were given up, newest first
    List(Flags),
    /// Try such deliveries again
    Replay {
        /// The delivery; without one, all of them
        #[arg(value_name = "ID")]
        delivery: Option<String>,
        #[command(flatten)]
        flags: Flags,
    },
}

#[derive(Args)]
pub(crate) struct Flags {
    /// The data folder of the server. Default: as `nuncio serve` here would have it
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The form of the output
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    format: Format,
}

/// How many are listed; a server shows as many.
const MOST: usize = 1000;
/// How long a server on this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

impl Command {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::List(flags) | Self::Replay { flags, .. } => flags.format,
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        let format = self.format();
        let (delivery, flags) = match self {
            Self::List(flags) => (None, flags),
            Self::Replay { delivery, flags } => (Some(delivery), flags),
        };
        let desk = Desk::find(&local_server::configured_for(flags.data)).await?;
        let answer = match &delivery {
            None => desk.dead_letters().await?,
            Some(delivery) => desk.replay(delivery.as_deref()).await?,
        };
        desk.close().await;
        if format == Format::Json {
            return output::json_text(&answer.to_string());
        }
        let mut text = Text::default();
        match delivery {
            None => show(&mut text, &answer["deadLetters"]),
            Some(_) => text.field("Replayed", &answer["replayed"].to_string()),
        }
        output::text(&text.0)
    }
}

/// Where dead letters are asked for.
enum Desk {
    Server { published: Published, http: reqwest::Client },
    Store(Box<dyn Store>),
}

impl Desk {
    async fn find(config: &Config) -> Result<Self, CliError> {
        if let Some(published) = Published::read(&config.data) {
            // An error means that one is installed already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().map_err(admin)?;
            if http.get(format!("{}/healthz", published.url)).send().await.is_ok() {
                return Ok(Self::Server { published, http });
            }
        }
        let broken = |error: &dyn std::fmt::Display| CliError::Store(error.to_string());
        let store: Box<dyn Store> = match config.place() {
            StorePlace::Postgres { url, options } => {
                Box::new(PostgresStore::open(&url, options).await.map_err(|error| broken(&error))?)
            }
            StorePlace::Sqlite(dir) => {
                if !dir.join("nuncio.db").is_file() {
                    return Err(CliError::Store(format!(
                        "there is no server and no store in {}: --data names another folder",
                        dir.display()
                    )));
                }
                let store = SqliteStore::open(&dir, SqliteOptions::default());
                Box::new(store.map_err(|error| broken(&error))?)
            }
        };
        Ok(Self::Store(store))
    }

    async fn dead_letters(&self) -> Result<Value, CliError> {
        match self {
            Self::Server { published, http } => {
                let request = http.get(format!("{}/admin/dead-letters", published.url));
                ask(request.bearer_auth(&published.admin_token)).await
            }
            Self::Store(store) => match store.dead_letters(MOST).await {
                Ok(letters) => Ok(json!({ "deadLetters": letters })),
                Err(error) => Err(CliError::Store(error.to_string())),
            },
        }
    }

    async fn replay(&self, delivery: Option<&str>) -> Result<Value, CliError> {
        match self {
            Self::Server { published, http } => {
                let request = http.post(format!("{}/admin/dead-letters/replay", published.url));
                let request = request.json(&json!({ "delivery": delivery }));
                ask(request.bearer_auth(&published.admin_token)).await
            }
            Self::Store(store) => match store.replay_dead_letters(delivery, SystemClock.now()).await {
                Ok(replayed) => Ok(json!({ "replayed": replayed })),
                Err(error) => Err(CliError::Store(error.to_string())),
            },
        }
    }

    async fn close(self) {
        if let Self::Store(store) = self {
            let _ = store.close().await;
        }
    }
}

async fn ask(request: reqwest::RequestBuilder) -> Result<Value, CliError> {
    let response = request.send().await.map_err(admin)?;
    let (status, body) = (response.status(), response.text().await.map_err(admin)?);
    if !status.is_success() {
        return Err(CliError::Admin(format!(
            "the server answered HTTP {}: {}",
            status.as_u16(),
            plain(body.trim())
        )));
    }
    serde_json::from_str(&body)
        .map_err(|error| CliError::Admin(format!("the server's answer is not JSON: {error}")))
}

fn admin(error: reqwest::Error) -> CliError {
    CliError::Admin(format!("the server did not answer: {}", error.without_url()))
}

fn show(text: &mut Text, letters: &Value) {
    let letters = letters.as_array().map(Vec::as_slice).unwrap_or_default();
    for letter in letters {
        for (label, member) in [
            ("Delivery", "delivery"),
            ("Task", "task"),
            ("Webhook", "webhook"),
            ("Event", "seq"),
            ("Reason", "reason"),
        ] {
            let value = &letter[member];
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
