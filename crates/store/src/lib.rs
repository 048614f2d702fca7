//! The storage backends: SQLite (embedded) and PostgreSQL (many nodes).
//!
//! The contract is `nuncio_engine::store::Store`; the conformance suite that every backend passes is in
//! `nuncio-testkit`. A backend interprets no event and knows no protocol.

pub mod archive;
mod commit_metrics;
mod knowledge;
mod location;
mod postgres;
mod sqlite;
mod statistics;

pub use location::{StoreLocation, StoreOpenError, open};
pub use postgres::{PostgresOpenError as PostgresError, PostgresOptions, PostgresStore, TimeSource};
pub use sqlite::{SqliteOpenError, SqliteOptions, SqliteStore};
#[cfg(feature = "testing")]
pub use sqlite::{StatementUse, record_statements, take_statements};
pub use statistics::{CompactionReport, KindStatistics, StoreStatistics};
