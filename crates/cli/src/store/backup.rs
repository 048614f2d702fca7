//! `nuncio store backup` and `nuncio store restore`: the database of a data folder with every secret that it needs.
//!
//! A backup is a data folder. One of an older version has fewer secrets, and is restored all the same.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nuncio::{
    StoreLocation,
    data_dir::{self, AGENT_TOKENS, SIGNING_SECRETS},
};
use nuncio_store::SqliteStore;

use super::failed;
use crate::{
    error::CliError,
    output::{self, note},
    server,
};

const DATABASE: &str = "nuncio.db";

pub(super) fn run(data: Option<PathBuf>, to: &Path) -> Result<(), CliError> {
    let config = server::configured_for(data);
    let StoreLocation::Sqlite(store) = config.store_location() else {
        return Err(CliError::Store(format!(
            "the store is a PostgreSQL database, which holds the secrets as well: back it up with pg_dump or its own tools, \
             and copy {} if there is one",
            config.data.join(AGENT_TOKENS).display()
        )));
    };
    if !store.join(DATABASE).is_file() {
        return Err(CliError::Store(format!(
            "there is no store in {}: --data names another folder",
            store.display()
        )));
    }
    let secrets = copy_folder(&store, &config.data, to)?;
    output::text(&format!(
        "Backed up {} to {}.\nIn it: {}.\nNot in it: nuncio.toml, the files that it names, and the environment.\n",
        store.display(),
        to.display(),
        contents(&secrets)
    ))
}

pub(super) fn restore(from: &Path, data: Option<PathBuf>) -> Result<(), CliError> {
    let config = server::configured_for(data);
    let StoreLocation::Sqlite(store) = config.store_location() else {
        return Err(CliError::Store(
            "the configured store is a PostgreSQL database: restore it with pg_restore or its own tools; --data names a \
             folder"
                .into(),
        ));
    };
    if !from.join(DATABASE).is_file() {
        return Err(CliError::Store(format!("{} is no backup: it has no {DATABASE}", from.display())));
    }
    if store != config.data {
        return Err(CliError::Store(format!(
            "the store is in {} and the secrets are in {}: restore with --data, or copy the files yourself",
            store.display(),
            config.data.display()
        )));
    }
    let secrets = copy_folder(from, from, &store)?;
    for (file, _) in SIGNING_SECRETS {
        if !secrets.contains(&file) {
            note(&format!("warning: the backup has no {file}: the server makes a new one at its next start"));
        }
    }
    output::text(&format!(
        "Restored {} to {}.\nIn it: {}.\n",
        from.display(),
        store.display(),
        contents(&secrets)
    ))
}

fn contents(secrets: &[&str]) -> String {
    [&[DATABASE], secrets].concat().join(", ")
}

/// Copies the database of one folder and the secrets of another into an empty folder. What was copied is removed if the
/// rest cannot be: half a backup must not look like one.
fn copy_folder(store: &Path, data: &Path, to: &Path) -> Result<Vec<&'static str>, CliError> {
    let existed = to.exists();
    data_dir::make(to).map_err(failed)?;
    if !is_empty(to).map_err(|error| failed(format!("{}: {error}", to.display())))? {
        return Err(CliError::Store(format!(
            "{} is not empty: name another folder, or move it away",
            to.display()
        )));
    }
    let copied = SqliteStore::back_up(store, &to.join(DATABASE)).map_err(failed).and_then(|()| {
        data_dir::copy_secrets(data, to)
            .map_err(|error| failed(format!("cannot copy the secrets of {}: {error}", data.display())))
    });
    if copied.is_err() {
        remove_copy(to, existed);
    }
    copied
}

/// Removes what a failed copy has left in a folder that was empty.
fn remove_copy(folder: &Path, existed: bool) {
    if !existed {
        let _ = fs::remove_dir_all(folder);
        return;
    }
    for name in [DATABASE].into_iter().chain(SIGNING_SECRETS.map(|(file, _)| file)) {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir_all(folder.join(AGENT_TOKENS));
}

/// Whether a folder has no files. A file system's own folder for recovered files is none.
fn is_empty(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        if entry?.file_name() != "lost+found" {
            return Ok(false);
        }
    }
    Ok(true)
}
