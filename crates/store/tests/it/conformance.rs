//! The suite, on SQLite.

use std::sync::Arc;

use nuncio_engine::store::Store;
use nuncio_store::{SqliteOptions, SqliteStore};

/// A folder of its own for each check. Opening it again opens the same database.
fn fresh() -> impl AsyncFn() -> Arc<dyn Store> {
    let folder = tempfile::tempdir().unwrap();
    async move || {
        let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
        Arc::new(store) as Arc<dyn Store>
    }
}

nuncio_testkit::conformance!(fresh);
