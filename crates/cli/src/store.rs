//! `nuncio store …`: whole stores in the operator's hands: copies, backups, sizes and checks.

mod backup;
mod check;
mod copy;
mod statistics;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use nuncio::{PostgresOptions, StoreLocation};

use super::{error::CliError, output::Format, server};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Copy all tasks from one store to another, and compare them afterwards
    ///
    /// The secrets that sign webhooks and questions are copied with them. No server may use either store meanwhile. An
    /// interrupted copy can be started again: tasks that were copied already are not copied twice.
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
    /// Copy the SQLite store of a server, which may be running, into an empty folder, with its secrets
    ///
    /// The copy is a snapshot. `nuncio store restore` puts it back; a server started with `--data` on it has the tasks of
    /// that moment, too.
    Backup {
        /// The folder to create
        #[arg(value_name = "TO")]
        to: PathBuf,
        /// The data folder of the server. Default: the one that `nuncio serve` would use here
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Put a backup into an empty data folder, with its secrets
    Restore {
        /// The backup
        #[arg(value_name = "FROM")]
        from: PathBuf,
        /// The data folder to restore. Default: the one that `nuncio serve` would use here
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Show the size of the store and what it holds
    Stats(StoreFlags),
    /// Return the room of what was deleted. A folder must not be in use; a PostgreSQL database may be
    Compact(StoreFlags),
    /// Read everything in the store and check it; the exit code is 1 if anything is wrong
    ///
    /// The database file is checked also while a server uses it; the tasks of an SQLite store only while none does.
    Check(StoreFlags),
}

/// The flags that name a store.
#[derive(Args)]
pub(crate) struct StoreFlags {
    /// The store: sqlite:DIR or postgres://USER@HOST/DATABASE. Default: the one that `nuncio serve` would use here
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    store: Option<String>,
    /// The schema of a PostgreSQL database
    #[arg(long, value_name = "NAME")]
    store_schema: Option<String>,
    /// The data folder. Default: the one that `nuncio serve` would use here
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The output format
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    format: Format,
}

impl StoreFlags {
    fn location(&self) -> Result<StoreLocation, CliError> {
        let mut config = server::configured_for(self.data.clone());
        if let Some(schema) = &self.store_schema {
            config.postgres.schema.clone_from(schema);
        }
        match &self.store {
            Some(url) => {
                StoreLocation::parse(url, config.postgres).map_err(|error| CliError::Usage(error.to_string()))
            }
            None => Ok(config.store_location()),
        }
    }
}

impl Command {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Copy { .. } | Self::Backup { .. } | Self::Restore { .. } => Format::Text,
            Self::Stats(flags) | Self::Compact(flags) | Self::Check(flags) => flags.format,
        }
    }

    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        let done = match self {
            Self::Copy { from, to, store_schema } => copy::run(&from, &to, &store_schema).await,
            Self::Backup { to, data } => backup::run(data, &to),
            Self::Restore { from, data } => backup::restore(&from, data),
            Self::Stats(flags) => statistics::show(&flags.location()?, flags.format).await,
            Self::Compact(flags) => statistics::compact(&flags.location()?, flags.format).await,
            Self::Check(flags) => return check::run(&flags.location()?, flags.format).await,
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Store(error.to_string())
}
