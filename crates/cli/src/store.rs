//! `nuncio store …`: copies and backups of whole stores, for the operator.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Subcommand;
use nuncio::{PostgresOptions, StoreLocation};
use nuncio_store::{
    SqliteStore,
    archive::{Archive, copy},
};

use super::{error::CliError, output, server};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Copy all tasks from one store to another, and compare them afterwards
    ///
    /// No server may use either store meanwhile. An interrupted copy can be started again: tasks that were
    /// copied already are not copied twice.
    Copy {
        /// The source: sqlite:DIR or postgres://USER@HOST/DATABASE
        #[arg(value_name = "FROM")]
        from: String,
        /// The destination, in the same form
        #[arg(value_name = "TO")]
        to: String,
        /// The schema of a PostgreSQL database
        #[arg(long, value_name = "NAME", default_value_t = PostgresOptions::default().schema)]
        store_schema: String,
    },
    /// Copy the SQLite store of a server, which may be running, into an empty folder
    ///
    /// The copy is a snapshot. A server started with `--data` on it has the tasks of that moment.
    Backup {
        /// The folder to create
        #[arg(value_name = "TO")]
        to: PathBuf,
        /// The data folder of the server. Default: the one that `nuncio serve` would use here
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

impl Command {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Copy { from, to, store_schema } => {
                let (from, to) =
                    (open(&from, &store_schema, true).await?, open(&to, &store_schema, false).await?);
                let done = copy(&*from, &*to, |_| {}).await;
                let _ = from.close().await;
                let _ = to.close().await;
                let done = done.map_err(|error| CliError::Store(error.to_string()))?;
                output::text(&format!(
                    "Copied {} tasks ({} were there already); {} compared, all the same.\n\
                     With them {} sessions, {} entries of memory, {} records, {} lines of the audit.\n",
                    done.copied,
                    done.there,
                    done.verified,
                    done.sessions,
                    done.memory,
                    done.records,
                    done.audit
                ))
            }
            Self::Backup { to, data } => {
                let config = server::configured_for(data);
                let StoreLocation::Sqlite(dir) = config.store_location() else {
                    return Err(CliError::Store(
                        "the store is a PostgreSQL database: back it up with pg_dump or its own tools".into(),
                    ));
                };
                back_up(&dir, &config.data, &to)?;
                output::text(&format!("Backed up {} to {}.\n", dir.display(), to.display()))
            }
        }
    }
}

async fn open(url: &str, schema: &str, must_exist: bool) -> Result<Arc<dyn Archive>, CliError> {
    let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::default() };
    let place = StoreLocation::parse(url, options).map_err(|error| CliError::Usage(error.to_string()))?;
    if let StoreLocation::Sqlite(dir) = &place
        && must_exist
        && !dir.join("nuncio.db").is_file()
    {
        return Err(CliError::Store(format!("there is no store in {}", dir.display())));
    }
    place.open().await.map_err(|error| CliError::Store(error.to_string()))
}

/// Copies the database, and the secret that signs webhooks.
fn back_up(dir: &Path, data: &Path, to: &Path) -> Result<(), CliError> {
    let failed = |what: &Path, error: io::Error| CliError::Store(format!("{}: {error}", what.display()));
    if !dir.join("nuncio.db").is_file() {
        return Err(CliError::Store(format!(
            "there is no store in {}: --data names another folder",
            dir.display()
        )));
    }
    nuncio::data_dir::make(to).map_err(|error| CliError::Store(error.to_string()))?;
    if fs::read_dir(to).map_err(|error| failed(to, error))?.next().is_some() {
        return Err(CliError::Store(format!("{} is not empty", to.display())));
    }
    SqliteStore::back_up(dir, &to.join("nuncio.db")).map_err(|error| CliError::Store(error.to_string()))?;
    nuncio::data_dir::copy_secret(data, to).map_err(|error| failed(to, error))
}
