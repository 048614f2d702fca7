//! The backend of the operator's commands: the running server that holds the data folder, or the store itself
//! where no server runs.

use std::{sync::Arc, time::Duration};

use nuncio::{StoreLocation, data_dir::PublishedServer};
use nuncio_engine::store::Store;
use serde_json::Value;

use super::{error::CliError, text::plain};
use crate::config::Config;

/// The timeout of a request to the local server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The timeout of a long response.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) enum OperatorBackend {
    /// The server that holds the folder.
    Server(OperatorServer),
    /// No server runs, so this process opens the store.
    Store(Arc<dyn Store>),
}

/// A server, called with the operator token.
pub(super) struct OperatorServer {
    published: PublishedServer,
    http: reqwest::Client,
}

impl OperatorBackend {
    pub(super) async fn find(config: &Config) -> Result<Self, CliError> {
        if let Some(published) = PublishedServer::read(&config.data) {
            // An error means that a provider is installed already, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().map_err(admin)?;
            if http.get(format!("{}/healthz", published.url)).send().await.is_ok() {
                return Ok(Self::Server(OperatorServer { published, http }));
            }
        }
        let place = config.store_location();
        if let StoreLocation::Sqlite(dir) = &place
            && !dir.join("nuncio.db").is_file()
        {
            return Err(CliError::Store(format!(
                "there is no server and no store in {}: --data names another folder",
                dir.display()
            )));
        }
        let store = place.open().await.map_err(|error| CliError::Store(error.to_string()))?;
        Ok(Self::Store(store))
    }

    /// The server, for commands that need a running one.
    pub(super) async fn server(self) -> Result<OperatorServer, CliError> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Store(store) => {
                let _ = store.close().await;
                Err(CliError::Admin(
                    "no server runs on this data folder, and this needs one: start it with nuncio serve, or name \
                     another folder with --data"
                        .into(),
                ))
            }
        }
    }

    pub(super) async fn close(self) {
        if let Self::Store(store) = self {
            let _ = store.close().await;
        }
    }
}

impl OperatorServer {
    pub(super) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, CliError> {
        let mut url = url::Url::parse(&format!("{}{path}", self.published.url))
            .map_err(|error| CliError::Admin(error.to_string()))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.ask(self.http.get(url)).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.ask(self.http.post(format!("{}{path}", self.published.url)).json(body)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        self.ask(self.http.delete(format!("{}{path}", self.published.url))).await
    }

    /// Reads a long response in pieces.
    pub(super) async fn lines(&self, path: &str) -> Result<OperatorResponseStream, CliError> {
        let url = format!("{}{path}", self.published.url);
        // A day, so in practice unbounded: the response ends when it is complete, or when the server stops.
        let request = self.http.get(url).timeout(LONG).bearer_auth(&self.published.admin_token);
        let response = request.send().await.map_err(admin)?;
        match response.status().is_success() {
            true => Ok(OperatorResponseStream(response)),
            false => {
                let (status, body) = (response.status(), response.text().await.map_err(admin)?);
                Err(refused(status.as_u16(), &body))
            }
        }
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<Value, CliError> {
        let response = request.bearer_auth(&self.published.admin_token).send().await.map_err(admin)?;
        let (status, body) = (response.status(), response.text().await.map_err(admin)?);
        if !status.is_success() {
            return Err(refused(status.as_u16(), &body));
        }
        serde_json::from_str(&body)
            .map_err(|error| CliError::Admin(format!("the server's answer is not JSON: {error}")))
    }
}

pub(super) struct OperatorResponseStream(reqwest::Response);

impl OperatorResponseStream {
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, CliError> {
        Ok(self.0.chunk().await.map_err(admin)?.map(|bytes| bytes.to_vec()))
    }
}

fn refused(status: u16, body: &str) -> CliError {
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let why = said["error"]["message"].as_str().unwrap_or(body.trim());
    CliError::Admin(format!("the server answered HTTP {status}: {}", plain(why)))
}

fn admin(error: reqwest::Error) -> CliError {
    CliError::Admin(format!("the server did not answer: {}", error.without_url()))
}
