//! Leases of tasks: heartbeats and claims, and the tasks that are due or expired.

use nuncio_engine::{
    clock::Timestamp,
    store::{ClaimedTask, DueTasks, Load, NodeId, OwnerClaim, StoreError, TaskNo},
    task::TaskId,
};

use super::{
    clock::DatabaseClock,
    pool::PostgresPool,
    read::{number, select_row, task_row},
    tenant,
};

/// Records that a node is alive until then; returns the number of other live nodes.
pub(super) async fn heartbeat(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    node: NodeId,
    until: Timestamp,
) -> Result<i64, StoreError> {
    let sql = "WITH me AS (
             INSERT INTO node (id, alive_until) VALUES ($1, time_or($2) + $3)
             ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until
           ), gone AS (
             -- A node without a row counts as dead, so rows that expired a day ago can go.
             DELETE FROM node WHERE id <> $1 AND alive_until < time_or($2) - 86400000
           ), idle AS (
             DELETE FROM writer WHERE at < time_or($2) - 86400000
           )
           SELECT count(*) FROM node WHERE id <> $1 AND alive_until >= time_or($2)";
    let row = pool.read_one(sql, &[&node.0, &clock.test_time(), &clock.distance(until)]).await?;
    Ok(row.map_or(0, |row| row.get(0)))
}

/// Leases due tasks to a node.
pub(super) async fn claim(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    node: NodeId,
    limit: usize,
) -> Result<Vec<ClaimedTask>, StoreError> {
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let sql = select_row!("claim_tasks($1, $2, $3) t", "ORDER BY t.due_at, t.no");
    let rows = pool.run(sql, &[&node.0, &clock.test_time(), &limit]).await?;
    rows.iter().map(|row| task_row(row).map(|row| ClaimedTask { row })).collect()
}

/// Leases due tasks of some owners to a node, up to a limit for each.
pub(super) async fn claim_of(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    node: NodeId,
    of: &[OwnerClaim],
) -> Result<Vec<ClaimedTask>, StoreError> {
    let owners: Vec<&str> = of.iter().map(|of| of.owner.as_str()).collect();
    let called: Vec<bool> = of.iter().map(|of| of.called).collect();
    let limits: Vec<i32> = of.iter().map(|of| i32::try_from(of.limit).unwrap_or(i32::MAX)).collect();
    let sql = select_row!("claim_tasks_of($1, $2, $3, $4, $5) t", "ORDER BY t.due_at, t.no");
    let rows = pool.run(sql, &[&node.0, &clock.test_time(), &owners, &called, &limits]).await?;
    rows.iter().map(|row| task_row(row).map(|row| ClaimedTask { row })).collect()
}

/// The number of tasks that a node could claim, by owner.
pub(super) async fn due(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    node: NodeId,
) -> Result<Vec<DueTasks>, StoreError> {
    let sql = "WITH due AS (
             SELECT t.tenant, t.parent IS NOT NULL AS called, 1 AS waiting, 0 AS orphaned FROM task t
             WHERE t.node IS NULL AND t.due_at <= time_or($2)
             UNION ALL
             SELECT t.tenant, t.parent IS NOT NULL, 0, 1 FROM task t
             WHERE t.node = ANY (ARRAY(SELECT dead_nodes($1, time_or($2)))) AND t.due_at <= time_or($2)
           )
           SELECT o.name, d.called, sum(d.waiting)::bigint, sum(d.orphaned)::bigint
           FROM due d JOIN owner o ON o.no = d.tenant GROUP BY 1, 2 ORDER BY 1, 2";
    let rows = pool.read(sql, &[&node.0, &clock.test_time()]).await?;
    let counted = rows.iter().map(|row| DueTasks {
        owner: row.get(0),
        called: row.get(1),
        waiting: number(row, 2),
        orphaned: number(row, 3),
    });
    Ok(counted.collect())
}

/// The number of tasks that were created below a task.
pub(super) async fn descendants(pool: &PostgresPool, root: TaskId, at_most: u64) -> Result<u64, StoreError> {
    let sql = "WITH RECURSIVE below(id) AS (
             SELECT id FROM task WHERE parent = $1
             UNION ALL SELECT t.id FROM below b JOIN task t ON t.parent = b.id
           ) SELECT count(*) FROM (SELECT 1 FROM below LIMIT $2) counted";
    let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
    let row = pool.read_one(sql, &[&root.0, &at_most]).await?;
    Ok(row.map_or(0, |row| number(&row, 0)))
}

/// Tasks that a node holds.
pub(super) async fn held_tasks(pool: &PostgresPool, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
    let rows = pool.read("SELECT id FROM task WHERE node = $1 AND due_at IS NOT NULL", &[&node.0]).await?;
    Ok(rows.iter().map(|row| TaskId(row.get(0))).collect())
}

/// Tasks of a node that others have written to since their runner's last commit.
pub(super) async fn externally_written_tasks(
    pool: &PostgresPool,
    node: NodeId,
) -> Result<Vec<TaskId>, StoreError> {
    let rows = pool.read("SELECT id FROM task WHERE node = $1 AND stirred", &[&node.0]).await?;
    Ok(rows.iter().map(|row| TaskId(row.get(0))).collect())
}

/// The last sequence numbers of tasks.
pub(super) async fn seqs(pool: &PostgresPool, tasks: &[TaskNo]) -> Result<Vec<(TaskNo, u64)>, StoreError> {
    let numbers: Vec<i64> = tasks.iter().map(|task| task.0).collect();
    let tenants: Vec<i32> = tasks.iter().map(|task| tenant(*task)).collect();
    let sql = "SELECT t.no, t.seq FROM unnest($1::integer[], $2::bigint[]) w(tenant, no)
         JOIN task t ON t.tenant = w.tenant AND t.no = w.no";
    let rows = pool.read(sql, &[&tenants, &numbers]).await?;
    Ok(rows.iter().map(|row| (TaskNo(row.get(0)), number(row, 1))).collect())
}

/// When the next task without a holder becomes due.
pub(super) async fn next_due(
    pool: &PostgresPool,
    clock: &DatabaseClock,
) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT min(due_at) - time_or($1) FROM task WHERE node IS NULL AND due_at IS NOT NULL";
    let row = pool.read_one(sql, &[&clock.test_time()]).await?;
    Ok(row.and_then(|row| row.get::<_, Option<i64>>(0)).map(|distance| clock.at(distance)))
}

/// The number of live and queued tasks. A task that sleeps until later is live, not queued.
pub(super) async fn load(pool: &PostgresPool, clock: &DatabaseClock) -> Result<Load, StoreError> {
    let sql = "SELECT (SELECT count(*) FROM task WHERE node IS NULL AND due_at <= time_or($1)),
           (SELECT coalesce(sum(n), 0)::bigint FROM tally WHERE state < 4)";
    let row = pool.read_one(sql, &[&clock.test_time()]).await?;
    Ok(row.map_or_else(Load::default, |row| Load { queued: number(&row, 0), live: number(&row, 1) }))
}

/// Deletes tasks that ended before that time; returns how many.
pub(super) async fn expire(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    before: Timestamp,
    limit: usize,
) -> Result<u64, StoreError> {
    /// Maximum tasks deleted in one transaction.
    const CHUNK: usize = 64;
    let mut deleted = 0;
    while deleted < limit as u64 {
        let chunk = CHUNK.min(limit - deleted as usize);
        let sql = "SELECT expire_tasks(time_or($1) + $2, $3)";
        let params = (clock.test_time(), clock.distance(before), chunk as i32);
        let gone = pool.run(sql, &[&params.0, &params.1, &params.2]).await?;
        let gone = gone.first().map_or(0, |row| number(row, 0));
        deleted += gone;
        if gone < chunk as u64 {
            break;
        }
    }
    Ok(deleted)
}
