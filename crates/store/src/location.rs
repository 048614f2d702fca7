//! Where a store is, and how it is opened.

use std::{fmt, path::PathBuf, sync::Arc};

use crate::{
    CompactionReport, PostgresError, PostgresOptions, PostgresStore, SqliteOpenError, SqliteOptions,
    SqliteStore, StoreStatistics, archive::Archive, postgres, sqlite,
};

/// Where tasks are stored.
#[derive(Debug, Clone)]
pub enum StoreLocation {
    /// In an SQLite database in this folder, for one server.
    Sqlite(PathBuf),
    /// In a PostgreSQL database, which any number of servers share.
    Postgres {
        /// The database's address: `postgres://user@host:5432/database`.
        url: String,
        /// The schema, pool sizes, timeout and durability checks.
        options: PostgresOptions,
    },
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The text is no store URL.
    #[error("expected sqlite:DIR or postgres://USER@HOST/DATABASE, not {0:?}")]
    Url(String),
    /// The SQLite database.
    #[error(transparent)]
    Sqlite(#[from] SqliteOpenError),
    /// The PostgreSQL database.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
}

impl StoreLocation {
    /// The store that a URL names: `sqlite:DIR`, `postgres://USER@HOST/DATABASE`. The options are for the latter.
    pub fn parse(url: &str, options: PostgresOptions) -> Result<Self, StoreOpenError> {
        match url.split_once(':') {
            Some(("sqlite", dir)) if !dir.is_empty() => {
                Ok(Self::Sqlite(PathBuf::from(dir.strip_prefix("//").unwrap_or(dir))))
            }
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                Ok(Self::Postgres { url: url.to_owned(), options })
            }
            _ => Err(StoreOpenError::Url(url.to_owned())),
        }
    }

    /// Reads the store's size and what it holds. It may be in use; nothing is created or migrated.
    pub async fn statistics(&self) -> Result<StoreStatistics, StoreOpenError> {
        match self {
            Self::Sqlite(dir) => Ok(sqlite::maintenance::statistics(dir)?),
            Self::Postgres { url, options } => Ok(postgres::maintenance::statistics(url, options).await?),
        }
    }

    /// Returns the room that holds nothing. A folder must not be in use; a database may be.
    pub async fn compact(&self) -> Result<CompactionReport, StoreOpenError> {
        match self {
            Self::Sqlite(dir) => Ok(sqlite::maintenance::compact(dir)?),
            Self::Postgres { url, options } => Ok(postgres::maintenance::compact(url, options).await?),
        }
    }

    /// What the database itself finds wrong with its file. PostgreSQL checks its pages as it reads them, so there is
    /// nothing to ask it.
    pub fn file_problems(&self) -> Result<Vec<String>, StoreOpenError> {
        match self {
            Self::Sqlite(dir) => Ok(sqlite::maintenance::check(dir)?),
            Self::Postgres { .. } => Ok(vec![]),
        }
    }

    /// Opens the store, and creates what is missing.
    pub async fn open(&self) -> Result<Arc<dyn Archive>, StoreOpenError> {
        Ok(match self {
            Self::Sqlite(dir) => Arc::new(SqliteStore::open(dir, SqliteOptions::default())?),
            Self::Postgres { url, options } => Arc::new(PostgresStore::open(url, options.clone()).await?),
        })
    }
}

/// The URL.
impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(dir) => write!(f, "sqlite:{}", dir.display()),
            Self::Postgres { url, .. } => f.write_str(url),
        }
    }
}

/// Opens the store that a URL names, with default options: `sqlite:DIR`, `postgres://USER@HOST/DATABASE`.
pub async fn open(url: &str) -> Result<Arc<dyn Archive>, StoreOpenError> {
    StoreLocation::parse(url, PostgresOptions::default())?.open().await
}
