//! A store for the tests of other crates: the same tests run on every backend.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_engine::store::Store;
use nuncio_store::{PostgresOptions, PostgresStore, SqliteOpenError, SqliteOptions, SqliteStore};

/// How long the previous holder of a folder may take to close it.
const CLOSING: Duration = Duration::from_secs(60);

/// Opens a store for a test that has this folder to itself: SQLite in it, or, if `NUNCIO_TEST_STORE` is
/// `postgres`, a separate schema in the server that `NUNCIO_TEST_POSTGRES` names. Waits while a previous store
/// of the folder is being closed.
pub async fn open_in(folder: &Path, sqlite: SqliteOptions) -> Arc<dyn Store> {
    // A test that limits the size of the file is about SQLite.
    if std::env::var("NUNCIO_TEST_STORE").as_deref() != Ok("postgres") || sqlite.max_pages.is_some() {
        let deadline = Instant::now() + CLOSING;
        loop {
            match SqliteStore::open(folder, sqlite.clone()) {
                Ok(store) => return Arc::new(store),
                Err(SqliteOpenError::Locked { .. }) if Instant::now() < deadline => {}
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let url = std::env::var("NUNCIO_TEST_POSTGRES").expect("NUNCIO_TEST_POSTGRES names a server");
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.bytes().map(|byte| format!("{byte:02x}"));
    let schema = format!("t_{}", plain.collect::<String>().chars().rev().take(36).collect::<String>());
    let options = PostgresOptions { schema, readers: 4, ..PostgresOptions::default() };
    Arc::new(PostgresStore::open(&url, options).await.expect("the server can be used"))
}
