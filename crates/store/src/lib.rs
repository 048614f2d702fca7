//! The storage backends: SQLite (embedded), PostgreSQL (many nodes), and one conformance suite that every
//! backend passes.
//!
//! The contract is `nuncio_engine::store::Store`. A backend interprets no event and knows no protocol.

pub mod archive;
pub mod conformance;
mod knowledge;
mod postgres;
mod sqlite;

pub use postgres::{PostgresOpenError as PostgresError, PostgresOptions, PostgresStore, TimeSource};
pub use sqlite::{SqliteOpenError, SqliteOptions, SqliteStore};
