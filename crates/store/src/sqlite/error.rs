//! What can go wrong: at open, for people; afterwards, in the words of the trait.

use std::path::{Path, PathBuf};

use nuncio_engine::store::StoreError;
use rusqlite::{Error, ErrorCode};

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// The folder cannot be made, or its lock file not be used.
    #[error("cannot use the data folder {}: {source}", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process has the folder.
    #[error("the data folder {} is in use by {}; stop that server first, or give this one another folder",
        dir.display(), holder.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    Locked {
        /// The folder.
        dir: PathBuf,
        /// The process that holds it, where it left its number.
        holder: Option<u32>,
    },
    /// What is acknowledged would not survive a crash.
    #[error("the store would not be durable: {0}")]
    NotDurable(String),
    /// A newer version has been here.
    #[error(
        "the database has schema {found}, and this version knows schemas up to {known}: run a newer nuncio"
    )]
    NewerSchema {
        /// What the file says.
        found: i64,
        /// The newest that this version knows.
        known: i64,
    },
    /// The database cannot be opened or brought up to date.
    #[error("cannot open the database: {0}")]
    Database(#[from] Error),
    /// A thread could not be started.
    #[error("cannot start a thread of the store: {0}")]
    Thread(std::io::Error),
}

/// Less free space than this, and an IO error is taken for a lack of it.
const NO_ROOM: u64 = 1 << 20;

/// The trait's word for a failure of the database in `dir`.
pub(super) fn store_error(error: &Error, dir: &Path) -> StoreError {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(text),
        // SQLite says IOERR where it could not extend its shared memory file, among others.
        Some(ErrorCode::SystemIoFailure) if free_bytes(dir).is_some_and(|free| free < NO_ROOM) => {
            StoreError::Full(text)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::SystemIoFailure) => {
            StoreError::Unavailable(text)
        }
        _ => StoreError::Broken(text),
    }
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
