//! The folder of agent cards: commands are short, so the next one finds here what this one fetched.
//!
//! `NUNCIO_CARD_CACHE=off` turns it off. A folder that other users can write is not used: a card decides where credentials
//! go.

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt as _, path::PathBuf};

use nuncio_client::a2a::CardCache;

use crate::{client_config::card_folder, config::writable_by_others};

/// The variable that turns the folder off.
pub(crate) const CARD_CACHE: &str = "NUNCIO_CARD_CACHE";

/// The cache of a command.
pub(crate) fn card_cache() -> CardCache {
    match usable_folder() {
        Ok(folder) => CardCache::in_folder(folder),
        Err(why) => {
            tracing::debug!(why, "cards are not stored");
            CardCache::default()
        }
    }
}

fn usable_folder() -> Result<PathBuf, String> {
    if std::env::var_os(CARD_CACHE).is_some_and(|value| value.eq_ignore_ascii_case("off")) {
        return Err(format!("{CARD_CACHE} is off"));
    }
    let folder = card_folder().ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    match writable_by_others(&folder).map_err(failed)? {
        Some(how) => Err(how),
        None => Ok(folder),
    }
}
