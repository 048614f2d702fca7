//! Snapshots: the fold of a log up to an event, which saves readers the log before it. Losing one costs only
//! time.

use bytes::Bytes;
use nuncio_engine::store::TaskNo;
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{
    read::{self, MAX_SEQ},
    write_session::WriteSession,
};

/// The first bytes of the newest fold. Incremental blob I/O, so that the pages after them are not read.
pub(super) fn beginning(conn: &Connection, task: TaskNo, max_bytes: usize) -> Result<Option<Bytes>> {
    let blob = match conn.blob_open("main", "snapshot", "fold", task.0, true) {
        Err(rusqlite::Error::SqliteFailure(error, _))
            if error.extended_code == rusqlite::ffi::SQLITE_ERROR =>
        {
            // There is no such row.
            return Ok(None);
        }
        blob => blob?,
    };
    let mut bytes = vec![0; blob.len().min(max_bytes)];
    blob.read_at_exact(&mut bytes, 0)?;
    Ok(Some(bytes.into()))
}

/// Stores a fold, unless there is a newer one or the task's log has not come that far.
pub(super) fn put(session: &WriteSession, task: TaskNo, seq: u64, fold: &[u8]) -> Result<()> {
    let conn = &session.conn;
    let found = conn
        .prepare_cached("SELECT seq, snap_seq FROM task WHERE no = ?1")?
        .query_row([task.0], |row| Ok((read::number(row, 0)?, read::number(row, 1)?)))
        .optional()?;
    let Some((end, snap_seq)) = found else { return Ok(()) };
    if seq > end || seq <= snap_seq {
        return Ok(());
    }
    conn.prepare_cached("INSERT OR REPLACE INTO snapshot (task, seq, fold) VALUES (?1, ?2, ?3)")?
        .execute(params![task.0, seq as i64, fold])?;
    let unfolded: i64 = if seq == end {
        0
    } else {
        conn.prepare_cached("SELECT sum(length(bytes)) FROM log WHERE key BETWEEN ?1 AND ?2")?
            .query_row([read::first_key(conn, task.0, seq)?, read::key(task.0, MAX_SEQ)], |row| row.get(0))?
    };
    conn.prepare_cached("UPDATE task SET snap_seq = ?2, unfolded = ?3 WHERE no = ?1")?
        .execute(params![task.0, seq as i64, unfolded])?;
    Ok(())
}
