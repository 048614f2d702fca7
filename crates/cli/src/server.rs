//! The local server: the one that holds a data folder. It is found by the file that it publishes there, or started in
//! this process where none runs.
//!
//! A process that can read the folder acts as the operator, because the file has the operator's token.

use std::path::{Path, PathBuf};

use nuncio::{RunningServer, StartError, data_dir::PublishedServer};
use nuncio_outbound::TlsClientOptions;
use tokio::net::TcpStream;

use super::{connection::TargetOrigin, error::CliError, serve};
use crate::config::{self, Config, ConfigError, FlagValues};

/// The server that holds a data folder.
pub(crate) enum LocalServer {
    /// It runs in this process.
    Own(Box<RunningServer>),
    /// It runs in another process.
    Other(PublishedServer),
}

impl LocalServer {
    pub(crate) fn published(&self) -> &PublishedServer {
        match self {
            Self::Own(running) => running.published(),
            Self::Other(published) => published,
        }
    }
}

/// Why no server runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalServerError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(StartError),
}

impl From<LocalServerError> for CliError {
    fn from(error: LocalServerError) -> Self {
        match error {
            LocalServerError::Config(error) => Self::Config(error),
            LocalServerError::Start(error) => Self::Start(error),
        }
    }
}

/// The server of the configuration's data folder; starts one if none runs.
pub(crate) async fn find_or_start(config: &Config) -> Result<LocalServer, LocalServerError> {
    match find_running(&config.data).await {
        Some(other) => Ok(LocalServer::Other(other)),
        None => start_or_find(config).await,
    }
}

/// Starts a server, unless another process holds the folder. The folder's lock decides that: a published address may be
/// left over from a crash.
pub(crate) async fn start_or_find(config: &Config) -> Result<LocalServer, LocalServerError> {
    match serve::server(config.clone())?.start().await {
        Ok(running) => Ok(LocalServer::Own(Box::new(running))),
        Err(error) => {
            let other = find_running(&config.data).await;
            other.map(LocalServer::Other).ok_or(LocalServerError::Start(error))
        }
    }
}

/// The server that another process runs on the folder.
pub(crate) async fn find_running(data: &Path) -> Option<PublishedServer> {
    let published = published(data)?;
    is_listening(&published).await.then_some(published)
}

/// Whether a process listens at the published address.
pub(crate) async fn is_listening(published: &PublishedServer) -> bool {
    let Some((_, address)) = published.url.split_once("://") else { return false };
    TcpStream::connect(address).await.is_ok()
}

/// Trusts the certificate that the folder's server has now, whatever name it bears: a process that can read the folder
/// knows it. Other certificates are verified as usual.
pub(crate) fn trust_published(tls: TlsClientOptions, data: &Path) -> TlsClientOptions {
    let data = data.to_owned();
    // Read at each handshake: the server may have another certificate by then.
    tls.accept_known(move |digest| {
        published(&data).is_some_and(|published| published.certificate.as_deref() == Some(digest))
    })
}

/// The server that published its address in the folder last. It may have ended.
pub(crate) fn published(data: &Path) -> Option<PublishedServer> {
    PublishedServer::read(data)
}

/// The address of the folder's server, or the one that it would have.
pub(crate) fn address_of(data: &Path) -> String {
    published(data).map_or_else(default_address, |published| published.url)
}

/// The address of the local server, how it was found, and its operator token. Without network access.
pub(crate) fn locate() -> (String, TargetOrigin, Option<String>) {
    let data = configured().data;
    match published(&data) {
        Some(published) => {
            (published.url, TargetOrigin::Published(data.join("server.json")), Some(published.admin_token))
        }
        None => (default_address(), TargetOrigin::Default, None),
    }
}

/// The operator token, if this is the address of the local server.
pub(crate) fn token_of(address: &str) -> Option<String> {
    let published = published(&configured().data)?;
    (published.url == address.trim_end_matches('/')).then_some(published.admin_token)
}

/// The configuration that a server in this folder would have. An invalid one is left for the server to
/// report.
pub(crate) fn configured() -> Config {
    config::load(&FlagValues::new(), None).map(|loaded| loaded.config).unwrap_or_default()
}

/// The configuration, with the data folder if one is given.
pub(crate) fn configured_for(data: Option<PathBuf>) -> Config {
    let mut config = configured();
    if let Some(data) = data {
        config.data = data;
        config.store = None;
    }
    config
}

fn default_address() -> String {
    format!("http://{}", Config::default().listen)
}
