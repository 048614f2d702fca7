//! The local server: the one that holds a data folder. It is found by the file that it publishes there, or started in
//! this process where none runs.
//!
//! A process that can read the folder acts as the operator, because the file has the operator's token.

use std::path::{Path, PathBuf};

use nuncio::{RunningServer, StartError, StoreLocation, data_dir::PublishedServer};
use nuncio_outbound::TlsClientOptions;
use tokio::net::TcpStream;

use super::{connection::TargetOrigin, error::CliError, serve};
use crate::config::{self, Config, ConfigError, FlagValues, LoadedConfig};

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

/// The variable that names the server of all commands.
pub(crate) const SERVER_VARIABLE: &str = "NUNCIO_SERVER";

/// The configuration of the service that the packages install.
const SERVICE_CONFIG: &str = "/etc/nuncio/nuncio.toml";

/// The server that the environment names.
pub(crate) fn from_environment() -> Option<String> {
    std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty())
}

/// The configuration that a server in this folder would have, or the data folder of the installed service. An invalid
/// one is left for the server to report.
pub(crate) fn configured() -> Config {
    let Ok(loaded) = config::load(&FlagValues::new(), None) else { return Config::default() };
    let service = service_folder(&loaded);
    let mut config = loaded.config;
    if let Some(folder) = service {
        config.data = folder;
        config.store = None;
    }
    config
}

/// The data folder of the installed service, where nothing here names another one and its server has published its
/// address to this user. A folder without a server is left to the service: a store that another user opens has files
/// that the service cannot write.
pub(crate) fn service_folder(loaded: &LoadedConfig) -> Option<PathBuf> {
    service_folder_of(loaded, Path::new(SERVICE_CONFIG))
}

fn service_folder_of(loaded: &LoadedConfig, file: &Path) -> Option<PathBuf> {
    if loaded.names_data() || loaded.config.data.exists() || !file.is_file() {
        return None;
    }
    if config::writable_by_others(file).ok()?.is_some() {
        return None;
    }
    let data = config::load(&FlagValues::new(), Some(file)).ok()?.config.data;
    // A relative one is relative to the service's folder.
    (data.is_absolute() && published(&data).is_some()).then_some(data)
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

/// The note of a command that works on a store without a server.
pub(crate) fn note_of_direct_access(place: &StoreLocation) -> String {
    let place = match place {
        StoreLocation::Sqlite(folder) => folder.display().to_string(),
        // Its address may have a password.
        StoreLocation::Postgres { .. } => "the database".to_owned(),
    };
    format!("note: no server runs: this command works on {place} itself")
}

fn default_address() -> String {
    format!("http://{}", Config::default().listen)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A client command finds the installed service from any folder, and only while its server runs.
    #[test]
    fn the_installed_service_is_found_while_it_publishes_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let (data, file) = (dir.path().join("lib"), dir.path().join("nuncio.toml"));
        fs::create_dir(&data).unwrap();
        let named = format!("data = {:?}\n", data.display().to_string());
        fs::write(&file, &named).unwrap();
        let here = |folder: &str| {
            let flags = FlagValues::new();
            let mut loaded = config::load(&flags, Some(&dir.path().join("empty.toml"))).unwrap();
            loaded.config.data = dir.path().join(folder);
            loaded
        };
        fs::write(dir.path().join("empty.toml"), "").unwrap();
        assert_eq!(service_folder_of(&here("none"), &file), None, "no server has published itself");
        let published = r#"{"url":"http://127.0.0.1:1","pid":1,"adminToken":"t"}"#;
        fs::write(data.join("server.json"), published).unwrap();
        assert_eq!(service_folder_of(&here("none"), &file), Some(data.clone()));
        assert_eq!(service_folder_of(&here("lib"), &file), None, "there is a data folder here");
        let loaded = config::load(&FlagValues::new(), Some(&file)).unwrap();
        assert_eq!(service_folder_of(&loaded, &file), None, "the data folder is named here");
        fs::write(&file, "data = \"lib\"\n").unwrap();
        assert_eq!(service_folder_of(&here("none"), &file), None, "a relative folder is the service's own");
    }
}
