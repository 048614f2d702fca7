//! SQLite's own limit: how often a second it commits what L2 writes for a task, one commit after the other.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;
use uuid::Uuid;

use crate::log_store;

/// A task, about as long as an echo.
const TASK_BYTES: usize = 600;

/// Prints one JSON line.
pub(crate) fn measure(dir: &Path, long: Duration) -> anyhow::Result<()> {
    let dir = dir.join("commits-probe");
    let mut conn = log_store::connect(&dir)?;
    let json = "x".repeat(TASK_BYTES);
    let (start, mut done) = (Instant::now(), 0_i64);
    while start.elapsed() < long {
        done += 1;
        let transaction = conn.transaction()?;
        log_store::insert(&transaction, done, (Uuid::now_v7(), Uuid::now_v7()), &json)?;
        transaction.commit()?;
    }
    let per_s = done as f64 / start.elapsed().as_secs_f64();
    drop(conn);
    fs::remove_dir_all(dir)?;
    println!("{}", json!({ "commits_per_s": per_s.round() }));
    Ok(())
}
