//! Maintenance of a folder's database by a process of its own: statistics, compaction and the database's own check.

use std::{fs, path::Path};

use rusqlite::Connection;

use super::{
    SqliteOpenError,
    lock::FolderLock,
    schema::{self, KNOWN_SCHEMA},
};
use crate::statistics::{CompactionReport, KINDS, STATES, StoreStatistics, state_count};

const DATABASE: &str = "nuncio.db";

/// Reads statistics, also while a server uses the folder.
pub(crate) fn statistics(dir: &Path) -> Result<StoreStatistics, SqliteOpenError> {
    let conn = schema::open_read_only(&existing(dir)?)?;
    let mut kinds = vec![];
    for kind in &KINDS {
        let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)";
        if !conn.query_row(exists, [kind.table], |row| row.get::<_, bool>(0))? {
            continue;
        }
        kinds.push(conn.query_row(&kind.sql(), [], |row| {
            Ok(kind.read(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?);
    }
    let mut states = vec![];
    let mut statement = conn.prepare(STATES)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        states.extend(state_count(row.get(0)?, row.get(1)?));
    }
    let (page, free) = (number(&conn, "page_size")?, number(&conn, "freelist_count")?);
    Ok(StoreStatistics {
        bytes: size(dir, DATABASE),
        log_bytes: Some(size(dir, "nuncio.db-wal")),
        free_bytes: Some(page * free),
        schema: u32::try_from(number(&conn, "user_version")?).unwrap_or(u32::MAX),
        known_schema: KNOWN_SCHEMA as u32,
        kinds,
        states,
    })
}

/// Writes the database anew without the room that holds nothing. No other process may use the folder.
pub(crate) fn compact(dir: &Path) -> Result<CompactionReport, SqliteOpenError> {
    let path = existing(dir)?;
    let _lock = FolderLock::take(dir)?;
    let before = size(dir, DATABASE) + size(dir, "nuncio.db-wal");
    let conn = schema::open_read_write(&path)?;
    conn.execute_batch("VACUUM")?;
    // The new pages are in the write-ahead log until they are copied back.
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    drop(conn);
    Ok(CompactionReport { before, after: size(dir, DATABASE) + size(dir, "nuncio.db-wal") })
}

/// What the database itself finds wrong with its file; nothing if all is well. Also while a server uses the folder.
pub(crate) fn check(dir: &Path) -> Result<Vec<String>, SqliteOpenError> {
    let conn = schema::open_read_only(&existing(dir)?)?;
    let mut statement = conn.prepare("PRAGMA integrity_check")?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut problems = vec![];
    for line in found {
        problems.push(line?);
    }
    problems.retain(|line| line != "ok");
    Ok(problems)
}

/// The path of the database, which must be there: SQLite would create it.
fn existing(dir: &Path) -> Result<std::path::PathBuf, SqliteOpenError> {
    let path = dir.join(DATABASE);
    match path.is_file() {
        true => Ok(path),
        false => Err(SqliteOpenError::NoStore(dir.to_owned())),
    }
}

fn number(conn: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    let value: i64 = conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))?;
    Ok(value.unsigned_abs())
}

fn size(dir: &Path, name: &str) -> u64 {
    fs::metadata(dir.join(name)).map_or(0, |about| about.len())
}
