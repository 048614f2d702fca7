//! Finding the server of this machine: what its data folder says, else the address that servers have by
//! default.

use std::path::PathBuf;

use nuncio::data_dir::PublishedServer;

use super::connection::TargetOrigin;
use crate::config::{self, Config, FlagValues};

/// The address of the local server, how it is known, and what its operator shows.
pub(crate) fn find() -> (String, TargetOrigin, Option<String>) {
    let data = configured().data;
    match PublishedServer::read(&data) {
        Some(published) => {
            (published.url, TargetOrigin::Published(data.join("server.json")), Some(published.admin_token))
        }
        None => (format!("http://{}", Config::default().listen), TargetOrigin::Default, None),
    }
}

/// What the operator shows, where the server of that address is the local one.
pub(crate) fn token_of(address: &str) -> Option<String> {
    let published = PublishedServer::read(&configured().data)?;
    (published.url == address.trim_end_matches('/')).then_some(published.admin_token)
}

/// The configuration that a server in this folder would have. One that cannot be read is the server's
/// concern.
pub(crate) fn configured() -> Config {
    config::load(&FlagValues::new(), None).map(|loaded| loaded.config).unwrap_or_default()
}

/// The configuration for a data folder that may be named.
pub(crate) fn configured_for(data: Option<PathBuf>) -> Config {
    let mut config = configured();
    if let Some(data) = data {
        config.data = data;
        config.store = None;
    }
    config
}
