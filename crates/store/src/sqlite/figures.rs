//! Figures of the whole store for its gauges: counts that an index holds, and the size of the files.

use std::{fs, path::Path};

use nuncio_engine::{clock::Timestamp, store::StoreFigures};
use rusqlite::{Connection, Result, params};

use super::read;

/// The counts; the sizes are those of [`sizes`].
pub(super) fn count(conn: &Connection, now: Timestamp) -> Result<StoreFigures> {
    let age = |since: Option<i64>| since.map(|since| now.since(Timestamp(since)));
    // The states input-required and auth-required. The index of live tasks holds all but the parent.
    let (waiting_for_answer, oldest_question) = conn
        .prepare_cached(
            "SELECT count(*), min(status_at) FROM task INDEXED BY task_live
             WHERE state < 4 AND state IN (2, 3) AND parent IS NULL",
        )?
        .query_row([], |row| Ok((read::number(row, 0)?, age(row.get(1)?))))?;
    let webhooks_due = conn
        .prepare_cached(
            "SELECT count(*) FROM webhook WHERE due_at <= ?1 AND node IS NULL AND failing_since IS NULL",
        )?
        .query_row(params![now.0], |row| read::number(row, 0))?;
    // 0: it failed before the time was recorded.
    let (webhooks_failing, oldest_failure) = conn
        .prepare_cached(
            "SELECT count(*), min(nullif(failing_since, 0)) FROM webhook INDEXED BY webhook_failing
             WHERE failing_since IS NOT NULL",
        )?
        .query_row([], |row| Ok((read::number(row, 0)?, age(row.get(1)?))))?;
    let dead_letters =
        conn.prepare_cached("SELECT count(*) FROM dead_letter")?.query_row([], |row| read::number(row, 0))?;
    Ok(StoreFigures {
        waiting_for_answer,
        oldest_question,
        webhooks_due,
        webhooks_failing,
        oldest_failure,
        dead_letters,
        bytes: 0,
        free_bytes: None,
    })
}

/// The bytes of the store's files, and those that the disk has left for this user.
pub(super) fn sizes(dir: &Path) -> (u64, Option<u64>) {
    let files = ["nuncio.db", "nuncio.db-wal", "nuncio.db-shm"];
    let size = |name: &&str| fs::metadata(dir.join(name)).map_or(0, |metadata| metadata.len());
    let free = rustix::fs::statvfs(dir).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    (files.iter().map(size).sum(), free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_folder_are_added_up_and_its_disk_has_room() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(sizes(folder.path()).0, 0);
        fs::write(folder.path().join("nuncio.db"), [0; 10]).unwrap();
        fs::write(folder.path().join("nuncio.db-wal"), [0; 5]).unwrap();
        fs::write(folder.path().join("something-else"), [0; 100]).unwrap();
        let (bytes, free) = sizes(folder.path());
        assert_eq!(bytes, 15);
        assert!(free.is_some_and(|free| free > 0), "{free:?}");
    }
}
