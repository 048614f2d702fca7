//! Discovery of the local server: the address in its data folder, else the default address.

use std::path::PathBuf;

use nuncio::data_dir::PublishedServer;

use super::connection::TargetOrigin;
use crate::config::{self, Config, FlagValues};

/// The address of the local server, how it was found, and its operator token.
pub(crate) fn find() -> (String, TargetOrigin, Option<String>) {
    let data = configured().data;
    match PublishedServer::read(&data) {
        Some(published) => {
            (published.url, TargetOrigin::Published(data.join("server.json")), Some(published.admin_token))
        }
        None => (format!("http://{}", Config::default().listen), TargetOrigin::Default, None),
    }
}

/// The operator token, if this is the address of the local server.
pub(crate) fn token_of(address: &str) -> Option<String> {
    let published = PublishedServer::read(&configured().data)?;
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
