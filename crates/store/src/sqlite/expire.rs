//! The deletion of tasks past their retention. The search runs beside the writer; the writer checks again
//! before it deletes.

use nuncio_engine::{clock::Timestamp, store::TaskNo};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{read, write_session::WriteSession};

/// Maximum tasks deleted in one job, so that commits in the same batch do not wait long.
pub(super) const CHUNK: usize = 64;

/// Finds tasks that ended before that time, through the list index of each owner.
pub(super) fn find(conn: &Connection, before: Timestamp, limit: usize) -> Result<Vec<i64>> {
    conn.prepare_cached(
        "SELECT task.no FROM owner CROSS JOIN task INDEXED BY task_list
           ON task.owner = owner.no AND task.status_at < ?1 AND task.state >= 4
         LIMIT ?2",
    )?
    .query_map(params![before.0, i64::try_from(limit).unwrap_or(i64::MAX)], |row| row.get(0))?
    .collect()
}

/// Deletes those tasks with all their data; returns how many still existed.
pub(super) fn delete(session: &mut WriteSession, before: Timestamp, tasks: &[i64]) -> Result<u64> {
    let mut deleted = 0;
    for no in tasks {
        deleted += u64::from(delete_one(session, before, *no)?);
    }
    Ok(deleted)
}

/// Deletes those of the tasks that ended at the time given with them; returns how many. The number of a deleted task may be
/// another's by now.
pub(super) fn delete_ended(session: &mut WriteSession, tasks: &[(TaskNo, Timestamp)]) -> Result<u64> {
    let mut deleted = 0;
    for (TaskNo(no), ended_at) in tasks {
        let found = session
            .conn
            .prepare_cached("SELECT 1 FROM task WHERE no = ?1 AND state >= 4 AND status_at = ?2")?
            .exists(params![no, ended_at.0])?;
        deleted += u64::from(found && delete_whole(session, *no)?);
    }
    Ok(deleted)
}

/// Deletes a task that ended before that time.
fn delete_one(session: &mut WriteSession, before: Timestamp, no: i64) -> Result<bool> {
    let ended = session
        .conn
        .prepare_cached("SELECT 1 FROM task WHERE no = ?1 AND state >= 4 AND status_at < ?2")?
        .query_row(params![no, before.0], |_| Ok(()))
        .optional()?;
    match ended {
        Some(()) => delete_whole(session, no),
        None => Ok(false),
    }
}

/// Deletes a task in any state with all its data; returns whether there was one.
pub(super) fn delete_whole(session: &mut WriteSession, no: i64) -> Result<bool> {
    let found = session
        .conn
        .prepare_cached("SELECT owner, agent, state, client_id, idempotency FROM task WHERE no = ?1")?
        .query_row([no], |row| {
            let client_id: Option<String> = row.get(3)?;
            let idempotency: Option<String> = row.get(4)?;
            Ok((row.get(0)?, row.get(1)?, read::state(row, 2)?, client_id, idempotency))
        })
        .optional()?;
    let Some((owner, agent, state, client_id, idempotency)) = found else { return Ok(false) };
    session.count(owner, agent, state, -1);
    let conn = &session.conn;
    let keys = params![read::key(no, 1), read::key(no, read::MAX_SEQ)];
    conn.prepare_cached("DELETE FROM log WHERE key BETWEEN ?1 AND ?2")?.execute(keys)?;
    conn.prepare_cached("DELETE FROM journal WHERE key BETWEEN ?1 AND ?2")?.execute(keys)?;
    conn.prepare_cached("DELETE FROM snapshot WHERE task = ?1")?.execute([no])?;
    conn.prepare_cached("DELETE FROM webhook WHERE task = ?1")?.execute([no])?;
    conn.prepare_cached("DELETE FROM dead_letter WHERE task = ?1")?.execute([no])?;
    if let Some(id) = client_id {
        conn.prepare_cached("DELETE FROM client_id WHERE owner = ?1 AND id = ?2")?
            .execute(params![owner, id])?;
    }
    if let Some(key) = idempotency {
        conn.prepare_cached("DELETE FROM idempotency WHERE owner = ?1 AND key = ?2")?
            .execute(params![owner, key])?;
    }
    conn.prepare_cached("DELETE FROM task WHERE no = ?1")?.execute([no])?;
    Ok(true)
}
