//! The errors of the embedded store: at open, texts for the operator; afterwards, the variants of `StoreError`.

use std::path::{Path, PathBuf};

use nuncio_engine::store::StoreError;
use rusqlite::{Error, ErrorCode};

/// Why the embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// The folder cannot be created, or its lock file cannot be used.
    #[error("cannot use the data folder {}: {source}", dir.display())]
    Folder {
        /// The data folder.
        dir: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// There is no database in the folder.
    #[error("there is no store in {}: name the folder that has one", .0.display())]
    NoStore(PathBuf),
    /// Another process has locked the folder.
    #[error("the data folder {} is in use by {}; stop that server first, or give this one another folder",
        dir.display(), holder.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    Locked {
        /// The data folder.
        dir: PathBuf,
        /// The process id of the holder, if the lock file names it.
        holder: Option<u32>,
    },
    /// The database cannot guarantee that acknowledged writes survive a crash.
    #[error("the store would not be durable: {0}")]
    NotDurable(String),
    /// The database was written by a newer version.
    #[error(
        "the database has schema {found}, and this version knows schemas up to {known}: run a newer nuncio"
    )]
    NewerSchema {
        /// The schema version of the file.
        found: i64,
        /// The newest schema version that this version supports.
        known: i64,
    },
    /// The database cannot be opened or migrated.
    #[error("cannot open the database: {0}")]
    Database(#[from] Error),
    /// A thread could not be started.
    #[error("cannot start a thread of the store: {0}")]
    Thread(std::io::Error),
}

/// Below this many free bytes, an IO error is treated as a full disk.
const NO_ROOM: u64 = 1 << 20;

/// Maps a failure of the database in `dir` to a `StoreError`.
pub(super) fn store_error(error: &Error, dir: &Path) -> StoreError {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(text),
        // SQLite reports IOERR where it could not extend its shared memory file, among others.
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
