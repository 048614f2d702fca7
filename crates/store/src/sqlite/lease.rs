//! Who runs what: heartbeats and claims. Both go through the writer, so two claims never meet.

use nuncio_engine::{
    clock::Timestamp,
    store::{Claimed, Load, NodeId},
    task::TaskId,
};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{read, session::Session};

/// Only one process can hold the folder, so at open every node that was ever here is dead, and whatever was
/// being delivered is to be delivered again.
pub(super) fn bury_all_nodes(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "BEGIN IMMEDIATE;
         DELETE FROM node;
         DELETE FROM probe;
         UPDATE webhook SET due_at = 0, node = NULL WHERE due_at IS NOT NULL AND node IS NOT NULL;
         UPDATE dead_letter SET due_at = 0, node = NULL WHERE due_at IS NOT NULL AND node IS NOT NULL;
         COMMIT;",
    )
}

/// Notes that a node is alive until then.
pub(super) fn heartbeat(session: &Session, node: NodeId, until: Timestamp) -> Result<()> {
    session
        .conn
        .prepare_cached(
            "INSERT INTO node (id, alive_until) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET alive_until = excluded.alive_until",
        )?
        .execute(params![node.0.as_bytes(), until.0])?;
    Ok(())
}

/// A task that may be claimed.
struct Due {
    at: i64,
    no: i64,
    /// Whether a node died over it.
    orphan: bool,
}

/// Leases due tasks to a node, oldest due first.
pub(super) fn claim(
    session: &mut Session,
    node: NodeId,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Claimed>> {
    session.told(now);
    let mut due = due_of(session, None, now, limit)?;
    for dead in dead_nodes(session, node, now)? {
        due.extend(due_of(session, Some(dead), now, limit)?);
    }
    due.sort_by_key(|task| (task.at, task.no));
    due.truncate(limit);
    let mut claimed = Vec::with_capacity(due.len());
    for task in due {
        session
            .conn
            .prepare_cached(
                "UPDATE task SET node = ?1, epoch = epoch + 1, version = version + 1, attempts = attempts + ?2
                 WHERE no = ?3",
            )?
            .execute(params![node.0.as_bytes(), task.orphan, task.no])?;
        let row = read::row_no(&session.conn, &mut session.names, task.no)?;
        claimed.extend(row.map(|row| Claimed { row }));
    }
    Ok(claimed)
}

fn due_of(session: &Session, node: Option<[u8; 16]>, now: Timestamp, limit: usize) -> Result<Vec<Due>> {
    session
        .conn
        .prepare_cached(
            "SELECT due_at, no FROM task INDEXED BY task_due WHERE node IS ?1 AND due_at <= ?2
             ORDER BY due_at, no LIMIT ?3",
        )?
        .query_map(params![node, now.0, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(Due { at: row.get(0)?, no: row.get(1)?, orphan: node.is_some() })
        })?
        .collect()
}

/// Nodes that hold tasks and are past their time. Whoever claims is alive, whatever its last heartbeat said.
fn dead_nodes(session: &Session, claiming: NodeId, now: Timestamp) -> Result<Vec<[u8; 16]>> {
    // From one holder to the next in the index: they are few, their tasks may be many.
    let mut next_holder = session.conn.prepare_cached(
        "SELECT node FROM task INDEXED BY task_due WHERE due_at IS NOT NULL AND node > ?1 ORDER BY node LIMIT 1",
    )?;
    let mut alive = session.conn.prepare_cached("SELECT 1 FROM node WHERE id = ?1 AND alive_until >= ?2")?;
    let (mut dead, mut last) = (vec![], vec![]);
    while let Some(node) = next_holder.query_row([&last], |row| row.get::<_, [u8; 16]>(0)).optional()? {
        if node != *claiming.0.as_bytes() && !alive.exists(params![node, now.0])? {
            dead.push(node);
        }
        last = node.to_vec();
    }
    Ok(dead)
}

/// Tasks that a node holds.
pub(super) fn held(conn: &Connection, node: NodeId) -> Result<Vec<TaskId>> {
    conn.prepare_cached(
        "SELECT id FROM task INDEXED BY task_due WHERE node = ?1 AND due_at IS NOT NULL ORDER BY due_at",
    )?
    .query_map([node.0.as_bytes()], |row| read::task_id(row, 0))?
    .collect()
}

/// When the next task becomes due that nobody holds.
pub(super) fn next_due(conn: &Connection) -> Result<Option<Timestamp>> {
    conn.prepare_cached(
        "SELECT min(due_at) FROM task INDEXED BY task_due WHERE node IS NULL AND due_at IS NOT NULL",
    )?
    .query_row([], |row| Ok(row.get::<_, Option<i64>>(0)?.map(Timestamp)))
}

/// How much there is to do. Tasks that sleep until later are live, not queued.
pub(super) fn load(conn: &Connection, now: Timestamp) -> Result<Load> {
    conn.prepare_cached(
        "SELECT (SELECT count(*) FROM task INDEXED BY task_due WHERE node IS NULL AND due_at <= ?1),
           (SELECT ifnull(sum(n), 0) FROM tally WHERE state < 4)",
    )?
    .query_row([now.0], |row| Ok(Load { queued: read::number(row, 0)?, live: read::number(row, 1)? }))
}
