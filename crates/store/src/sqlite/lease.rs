//! Leases of tasks: heartbeats and claims. Both go through the writer, so two claims never run concurrently.

use std::collections::BTreeMap;

use nuncio_engine::{
    clock::Timestamp,
    store::{ClaimedTask, DueTasks, Load, NodeId, OwnerClaim},
    task::TaskId,
};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{names::SqliteNameCache, read, write_session::WriteSession};

/// Expires every earlier node at open, and the leases of deliveries in progress: only one process can lock the
/// folder, so all of them are dead.
pub(super) fn expire_all_nodes(conn: &Connection) -> Result<()> {
    conn.execute_batch(
        "BEGIN IMMEDIATE;
         DELETE FROM node;
         DELETE FROM probe;
         UPDATE webhook SET due_at = 0, node = NULL WHERE due_at IS NOT NULL AND node IS NOT NULL;
         UPDATE dead_letter SET due_at = 0, node = NULL WHERE due_at IS NOT NULL AND node IS NOT NULL;
         COMMIT;",
    )
}

/// Records that a node is alive until then.
pub(super) fn heartbeat(session: &WriteSession, node: NodeId, until: Timestamp) -> Result<()> {
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
struct ClaimableTask {
    at: i64,
    no: i64,
    /// Whether a node died while it held the task.
    orphan: bool,
}

/// Leases due tasks to a node, oldest due first.
pub(super) fn claim(
    session: &mut WriteSession,
    node: NodeId,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<ClaimedTask>> {
    session.record_time(now);
    let mut due = vec![];
    for holder in holders(session, node, now)? {
        for queue in queues(&session.conn, holder)? {
            due.extend(due_of(session, holder, queue, now, limit)?);
        }
    }
    claim_due(session, node, due, limit)
}

/// Like `claim`, for some owners, up to a limit for each.
pub(super) fn claim_of(
    session: &mut WriteSession,
    node: NodeId,
    now: Timestamp,
    of: &[OwnerClaim],
) -> Result<Vec<ClaimedTask>> {
    session.record_time(now);
    let holders = holders(session, node, now)?;
    let mut claimed = vec![];
    for OwnerClaim { owner, called, limit } in of {
        let Some(owner) = session.names.find_owner(&session.conn, owner)? else { continue };
        let mut due = vec![];
        for holder in &holders {
            due.extend(due_of(session, *holder, queue_of(owner, *called), now, *limit)?);
        }
        claimed.extend(claim_due(session, node, due, *limit)?);
    }
    Ok(claimed)
}

fn claim_due(
    session: &mut WriteSession,
    node: NodeId,
    mut due: Vec<ClaimableTask>,
    limit: usize,
) -> Result<Vec<ClaimedTask>> {
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
        claimed.extend(row.map(|row| ClaimedTask { row }));
    }
    Ok(claimed)
}

/// The holders that a node may claim from: none, and dead nodes.
fn holders(session: &WriteSession, node: NodeId, now: Timestamp) -> Result<Vec<Option<[u8; 16]>>> {
    let dead = dead_nodes(&session.conn, node, now)?;
    Ok(std::iter::once(None).chain(dead.into_iter().map(Some)).collect())
}

/// The number of a queue, as in the column `queue`.
fn queue_of(owner: i64, called: bool) -> i64 {
    owner * 2 + i64::from(called)
}

/// Queues with tasks of that holder (`None`: tasks without a holder), due or not yet.
fn queues(conn: &Connection, holder: Option<[u8; 16]>) -> Result<Vec<i64>> {
    // Skips from one queue to the next in the index: queues are few, their tasks may be many.
    let mut next = conn.prepare_cached(
        "SELECT queue FROM task INDEXED BY task_due WHERE node IS ?1 AND due_at IS NOT NULL AND queue > ?2
         ORDER BY queue LIMIT 1",
    )?;
    let (mut queues, mut last) = (vec![], -1);
    while let Some(queue) = next.query_row(params![holder, last], |row| row.get(0)).optional()? {
        queues.push(queue);
        last = queue;
    }
    Ok(queues)
}

/// The number of tasks that a node could claim, by owner.
pub(super) fn due(
    conn: &Connection,
    names: &mut SqliteNameCache,
    node: NodeId,
    now: Timestamp,
) -> Result<Vec<DueTasks>> {
    let mut count = conn.prepare_cached(
        "SELECT count(*) FROM task INDEXED BY task_due WHERE node IS ?1 AND queue = ?2 AND due_at <= ?3",
    )?;
    let mut found = BTreeMap::<i64, (u64, u64)>::new();
    let dead = dead_nodes(conn, node, now)?;
    for holder in std::iter::once(None).chain(dead.into_iter().map(Some)) {
        for queue in queues(conn, holder)? {
            let tasks = count.query_row(params![holder, queue, now.0], |row| read::number(row, 0))?;
            let counts = found.entry(queue).or_default();
            *(if holder.is_none() { &mut counts.0 } else { &mut counts.1 }) += tasks;
        }
    }
    found.retain(|_, (waiting, orphaned)| *waiting + *orphaned > 0);
    let named = found.into_iter().map(|(queue, (waiting, orphaned))| {
        let owner = names.owner(conn, queue / 2)?;
        Ok(DueTasks { owner, called: queue % 2 == 1, waiting, orphaned })
    });
    named.collect()
}

/// The number of tasks that were created below a task.
pub(super) fn descendants(conn: &Connection, root: TaskId, at_most: u64) -> Result<u64> {
    conn.prepare_cached(
        "WITH RECURSIVE below(id) AS (
           SELECT id FROM task WHERE parent = ?1
           UNION ALL SELECT task.id FROM below JOIN task ON task.parent = below.id
         ) SELECT count(*) FROM (SELECT 1 FROM below LIMIT ?2)",
    )?
    .query_row(params![root.0.as_bytes(), i64::try_from(at_most).unwrap_or(i64::MAX)], |row| {
        read::number(row, 0)
    })
}

fn due_of(
    session: &WriteSession,
    holder: Option<[u8; 16]>,
    queue: i64,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<ClaimableTask>> {
    session
        .conn
        .prepare_cached(
            "SELECT due_at, no FROM task INDEXED BY task_due WHERE node IS ?1 AND queue = ?2 AND due_at <= ?3
             ORDER BY due_at, no LIMIT ?4",
        )?
        .query_map(params![holder, queue, now.0, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(ClaimableTask { at: row.get(0)?, no: row.get(1)?, orphan: holder.is_some() })
        })?
        .collect()
}

/// Nodes that hold tasks and whose heartbeat has expired. The claiming node is alive, whatever its last
/// heartbeat.
fn dead_nodes(conn: &Connection, claiming: NodeId, now: Timestamp) -> Result<Vec<[u8; 16]>> {
    // Skips from one holder to the next in the index: holders are few, their tasks may be many.
    let mut next_holder = conn.prepare_cached(
        "SELECT node FROM task INDEXED BY task_due WHERE due_at IS NOT NULL AND node > ?1 ORDER BY node LIMIT 1",
    )?;
    let mut alive = conn.prepare_cached("SELECT 1 FROM node WHERE id = ?1 AND alive_until >= ?2")?;
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
pub(super) fn held_tasks(conn: &Connection, node: NodeId) -> Result<Vec<TaskId>> {
    conn.prepare_cached(
        "SELECT id FROM task INDEXED BY task_due WHERE node = ?1 AND due_at IS NOT NULL ORDER BY due_at",
    )?
    .query_map([node.0.as_bytes()], |row| read::task_id(row, 0))?
    .collect()
}

/// When the next task without a holder becomes due.
pub(super) fn next_due(conn: &Connection) -> Result<Option<Timestamp>> {
    let mut first = conn.prepare_cached(
        "SELECT min(due_at) FROM task INDEXED BY task_due WHERE node IS NULL AND queue = ?1 AND due_at IS NOT NULL",
    )?;
    let mut next: Option<i64> = None;
    for queue in queues(conn, None)? {
        let due: Option<i64> = first.query_row([queue], |row| row.get(0))?;
        next = next.into_iter().chain(due).min();
    }
    Ok(next.map(Timestamp))
}

/// The number of live and queued tasks. A task that sleeps until later is live, not queued.
pub(super) fn load(conn: &Connection, now: Timestamp) -> Result<Load> {
    conn.prepare_cached(
        "SELECT (SELECT count(*) FROM task INDEXED BY task_due WHERE node IS NULL AND due_at <= ?1),
           (SELECT ifnull(sum(n), 0) FROM tally WHERE state < 4)",
    )?
    .query_row([now.0], |row| Ok(Load { queued: read::number(row, 0)?, live: read::number(row, 1)? }))
}
