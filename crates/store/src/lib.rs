//! Where tasks live: SQLite (embedded), and one conformance suite that every backend passes.
//!
//! The contract is `nuncio_engine::store::Store`. A backend interprets no event and knows no protocol.

pub mod conformance;
mod sqlite;

pub use sqlite::{OpenError, SqliteOptions, SqliteStore};
