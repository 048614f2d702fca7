//! `nuncio store copy`: all that a store holds, and the secrets that sign for it, into another one.

use std::{path::Path, sync::Arc};

use nuncio::{
    PostgresOptions, StoreLocation,
    data_dir::{self, SIGNING_SECRETS},
};
use nuncio_store::archive::{self, Archive};

use super::failed;
use crate::{
    error::CliError,
    output::{self, note},
};

pub(super) async fn run(from: &str, to: &str, schema: &str) -> Result<(), CliError> {
    let (from, to) = (location(from, schema)?, location(to, schema)?);
    let (source, target) = (open(&from, true).await?, open(&to, false).await?);
    let done = copied(&from, &*source, &to, &*target).await;
    let _ = source.close().await;
    let _ = target.close().await;
    output::text(&done?)
}

async fn copied(
    from: &StoreLocation,
    source: &dyn Archive,
    to: &StoreLocation,
    target: &dyn Archive,
) -> Result<String, CliError> {
    let done = archive::copy(source, target, |_| {}).await.map_err(failed)?;
    let secrets = copy_secrets(from, source, to, target).await?;
    if let StoreLocation::Sqlite(folder) = from
        && folder.join(data_dir::AGENT_TOKENS).is_dir()
    {
        note(&format!(
            "note: {} stays in {}: copy it into the data folder of the server that uses it",
            data_dir::AGENT_TOKENS,
            folder.display()
        ));
    }
    Ok(format!(
        "Copied {} tasks ({} were there already); {} compared, all the same.\n\
         With them {} sessions, {} entries of memory, {} records, {} lines of the audit.\n{secrets}",
        done.copied, done.there, done.verified, done.sessions, done.memory, done.records, done.audit
    ))
}

/// Copies the signing secrets: receivers of webhooks know one of them, and clients carry state that the other has
/// signed. A secret that the destination has already stays.
async fn copy_secrets(
    from: &StoreLocation,
    source: &dyn Archive,
    to: &StoreLocation,
    target: &dyn Archive,
) -> Result<String, CliError> {
    let mut copied = vec![];
    for (file, name) in SIGNING_SECRETS {
        let Some(secret) = secret_of(from, source, file, name).await? else { continue };
        let arrived = match to {
            StoreLocation::Sqlite(folder) => match read(folder, file)? {
                Some(other) => other,
                None => {
                    data_dir::write_secret(folder, file, &secret).map_err(failed)?;
                    secret.clone()
                }
            },
            StoreLocation::Postgres { .. } => {
                target.shared_secret(name, &secret).await.map_err(failed)?.unwrap_or_else(|| secret.clone())
            }
        };
        if arrived == secret {
            copied.push(file);
        } else {
            note(&format!(
                "warning: the destination has a {file} of its own, which stays: {}",
                if file == "webhook-secret" {
                    "receivers of webhooks have to learn it (nuncio push key)"
                } else {
                    "questions that MCP clients carry have to be asked again"
                }
            ));
        }
    }
    Ok(match &copied[..] {
        [] => String::new(),
        names => format!("And the secrets {}.\n", names.join(", ")),
    })
}

async fn secret_of(
    from: &StoreLocation,
    source: &dyn Archive,
    file: &str,
    name: &str,
) -> Result<Option<String>, CliError> {
    match from {
        StoreLocation::Sqlite(folder) => read(folder, file),
        // A database that no server has used has none; the candidate becomes it.
        StoreLocation::Postgres { .. } => {
            let candidate = data_dir::new_secret()?;
            source.shared_secret(name, &candidate).await.map_err(failed)
        }
    }
}

fn read(folder: &Path, file: &str) -> Result<Option<String>, CliError> {
    data_dir::read_secret(folder, file)
        .map_err(|error| failed(format!("{}: {error}", folder.join(file).display())))
}

fn location(url: &str, schema: &str) -> Result<StoreLocation, CliError> {
    let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::default() };
    StoreLocation::parse(url, options).map_err(|error| CliError::Usage(error.to_string()))
}

async fn open(place: &StoreLocation, must_exist: bool) -> Result<Arc<dyn Archive>, CliError> {
    if let StoreLocation::Sqlite(dir) = place
        && must_exist
        && !dir.join("nuncio.db").is_file()
    {
        return Err(CliError::Store(format!("there is no store in {}", dir.display())));
    }
    place.open().await.map_err(failed)
}
