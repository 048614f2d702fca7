//! Reads of single tasks: rows, logs, journals. Each read is one statement, and so consistent.

use bytes::Bytes;
use nuncio_engine::{
    clock::Timestamp,
    store::{Digest, JournalRecord, NodeId, OpenedTask, StoreError, StoredBatch, TaskKey, TaskNo, TaskRow},
    task::{State, TaskId},
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{pool::PostgresPool, tenant};

/// Maximum rows of a log per read, whatever their size.
const LOG_ROWS: i64 = 1_024;

/// Names the columns of a row in the order that `task_row` reads them; `$tail` follows them.
macro_rules! select_row {
    ($from:literal, $tail:literal) => {
        concat!(
            "SELECT t.no, t.id, o.name, a.name, t.state, t.status_at, t.created_at, t.seq, t.version, t.epoch, \
             t.node, t.attempts, t.cancel, t.context, t.client_id, t.parent, t.head FROM ",
            $from,
            " JOIN owner o ON o.no = t.tenant JOIN agent a ON a.no = t.agent ",
            $tail
        )
    };
}
pub(super) use select_row;

/// Like `select_row`, with the newest snapshot and the log after it.
macro_rules! select_opened {
    ($from:literal, $tail:literal) => {
        concat!(
            "SELECT t.no, t.id, o.name, a.name, t.state, t.status_at, t.created_at, t.seq, t.version, t.epoch, \
             t.node, t.attempts, t.cancel, t.context, t.client_id, t.parent, t.head, s.seq, s.fold, l.seqs, l.bytes \
             FROM ",
            $from,
            " JOIN owner o ON o.no = t.tenant JOIN agent a ON a.no = t.agent \
             LEFT JOIN snapshot s ON t.snap_seq > 0 AND s.tenant = t.tenant AND s.task = t.no \
             LEFT JOIN LATERAL ( \
               SELECT array_agg(g.seq ORDER BY g.seq) AS seqs, array_agg(g.bytes ORDER BY g.seq) AS bytes \
               FROM log g WHERE g.tenant = t.tenant AND g.task = t.no AND t.seq > coalesce(s.seq, 0) \
                 AND g.seq >= CASE WHEN s.seq IS NULL THEN 1 ELSE ( \
                   SELECT max(f.seq) FROM log f \
                   WHERE f.tenant = t.tenant AND f.task = t.no AND f.seq <= s.seq + 1) END \
             ) l ON true ",
            $tail
        )
    };
}
pub(super) use select_opened;

const BY_CLIENT_ID: &str = "t.tenant = (SELECT no FROM owner WHERE name = $1) \
     AND t.no = (SELECT i.task FROM client_id i WHERE i.tenant = (SELECT no FROM owner WHERE name = $1) AND i.id = $2)";

/// The row alone.
pub(super) async fn row(pool: &PostgresPool, key: &TaskKey) -> Result<Option<TaskRow>, StoreError> {
    let found = match key {
        TaskKey::Id(id) => pool.read_one(select_row!("task t", "WHERE t.id = $1"), &[&id.0]).await?,
        TaskKey::Client { owner, id } => {
            let sql = format!("{} WHERE {BY_CLIENT_ID}", select_row!("task t", ""));
            pool.read_one(&sql, &[owner, id]).await?
        }
    };
    found.map(|row| task_row(&row)).transpose()
}

/// The row with its snapshot and the log after it.
pub(super) async fn open(pool: &PostgresPool, key: &TaskKey) -> Result<Option<OpenedTask>, StoreError> {
    let found = match key {
        TaskKey::Id(id) => pool.read_one(select_opened!("task t", "WHERE t.id = $1"), &[&id.0]).await?,
        TaskKey::Client { owner, id } => {
            let sql = format!("{} WHERE {BY_CLIENT_ID}", select_opened!("task t", ""));
            pool.read_one(&sql, &[owner, id]).await?
        }
    };
    found.map(|row| opened(&row)).transpose()
}

/// Batches that hold entries after `after`.
pub(super) async fn log(
    pool: &PostgresPool,
    task: TaskNo,
    after: u64,
    max_bytes: usize,
) -> Result<Vec<StoredBatch>, StoreError> {
    // The batch that ends at `after` does not hold what follows: hence the check of the row.
    let sql = "SELECT seq, bytes FROM (
             SELECT g.seq, g.bytes, sum(length(g.bytes)) OVER (ORDER BY g.seq) AS size,
               row_number() OVER (ORDER BY g.seq) AS place
             FROM (
               SELECT g.seq, g.bytes FROM log g
               WHERE g.tenant = $1 AND g.task = $2
                 AND (SELECT t.seq FROM task t WHERE t.tenant = $1 AND t.no = $2) > $3
                 AND g.seq >= CASE WHEN $3 = 0 THEN 1 ELSE (
                   SELECT max(f.seq) FROM log f WHERE f.tenant = $1 AND f.task = $2 AND f.seq <= $3 + 1) END
               ORDER BY g.seq LIMIT $5
             ) g
           ) g WHERE g.size <= $4 OR g.place = 1 ORDER BY g.seq";
    let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let rows = pool.read(sql, &[&tenant(task), &task.0, &(after as i64), &max_bytes, &LOG_ROWS]).await?;
    Ok(rows.iter().map(|row| StoredBatch { first_seq: number(row, 0), bytes: bytes(row, 1) }).collect())
}

/// The first bytes of the newest snapshot.
pub(super) async fn snapshot_beginning(
    pool: &PostgresPool,
    task: TaskNo,
    max_bytes: usize,
) -> Result<Option<Bytes>, StoreError> {
    let sql = "SELECT substring(fold FROM 1 FOR $3) FROM snapshot WHERE tenant = $1 AND task = $2";
    let max_bytes = i32::try_from(max_bytes).unwrap_or(i32::MAX);
    let found = pool.read_one(sql, &[&tenant(task), &task.0, &max_bytes]).await?;
    Ok(found.map(|row| bytes(&row, 0)))
}

/// All journal records, in the order of their commits.
pub(super) async fn journal(pool: &PostgresPool, task: TaskNo) -> Result<Vec<JournalRecord>, StoreError> {
    let sql = "SELECT bytes FROM journal WHERE tenant = $1 AND task = $2 ORDER BY n";
    let rows = pool.read(sql, &[&tenant(task), &task.0]).await?;
    Ok(rows.iter().map(|row| JournalRecord(bytes(row, 0))).collect())
}

/// The task that was created under an idempotency key.
pub(super) async fn idempotent(
    pool: &PostgresPool,
    owner: &str,
    key: &str,
) -> Result<Option<(TaskId, Digest)>, StoreError> {
    let sql = "SELECT t.id, i.digest FROM idempotency i JOIN task t ON t.tenant = i.tenant AND t.no = i.task
         WHERE i.tenant = (SELECT no FROM owner WHERE name = $1) AND i.key = $2";
    let Some(row) = pool.read_one(sql, &[&owner, &key]).await? else { return Ok(None) };
    let digest: &[u8] = row.get(1);
    let digest =
        digest.try_into().map_err(|_| StoreError::Broken("a digest has another length".to_owned()))?;
    Ok(Some((TaskId(row.get(0)), digest)))
}

/// Children of a task that are not terminal.
pub(super) async fn live_children(pool: &PostgresPool, parent: TaskId) -> Result<Vec<TaskId>, StoreError> {
    let rows = pool.read("SELECT id FROM task WHERE parent = $1 AND state < 4", &[&parent.0]).await?;
    Ok(rows.iter().map(|row| TaskId(row.get(0))).collect())
}

/// The rows of all children, oldest first.
pub(super) async fn children(
    pool: &PostgresPool,
    parent: TaskId,
    limit: usize,
) -> Result<Vec<TaskRow>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = select_row!("task t", "WHERE t.parent = $1 ORDER BY t.created_at, t.no LIMIT $2");
    let rows = pool.read(sql, &[&parent.0, &limit]).await?;
    rows.iter().map(task_row).collect()
}

/// Parses a row with the columns of `select_row`.
pub(super) fn task_row(row: &Row) -> Result<TaskRow, StoreError> {
    let id = TaskId(row.get(1));
    let context: Option<String> = row.get(13);
    let code: i16 = row.get(4);
    let state = u8::try_from(code).ok().and_then(State::from_code);
    Ok(TaskRow {
        no: TaskNo(row.get(0)),
        id,
        owner: row.get(2),
        agent: row.get(3),
        state: state.ok_or_else(|| StoreError::Broken(format!("{code} is no state")))?,
        status_at: Timestamp(row.get(5)),
        created_at: Timestamp(row.get(6)),
        seq: number(row, 7),
        version: number(row, 8),
        epoch: number(row, 9),
        node: row.get::<_, Option<Uuid>>(10).map(NodeId),
        attempts: row.get::<_, i32>(11).cast_unsigned(),
        cancel: row.get(12),
        context: context.unwrap_or_else(|| id.own_context()),
        client_id: row.get(14),
        parent: row.get::<_, Option<Uuid>>(15).map(TaskId),
        head: bytes(row, 16),
    })
}

/// Parses a row with the columns of `select_opened`.
pub(super) fn opened(row: &Row) -> Result<OpenedTask, StoreError> {
    let snapshot = row.get::<_, Option<i64>>(17).map(|seq| (seq.cast_unsigned(), bytes(row, 18)));
    let seqs: Vec<i64> = row.get::<_, Option<_>>(19).unwrap_or_default();
    let batches: Vec<&[u8]> = row.get::<_, Option<_>>(20).unwrap_or_default();
    let log = seqs.into_iter().zip(batches).map(|(seq, bytes)| StoredBatch {
        first_seq: seq.cast_unsigned(),
        bytes: Bytes::copy_from_slice(bytes),
    });
    Ok(OpenedTask { row: task_row(row)?, snapshot, log: log.collect() })
}

/// A count or a sequence number: never negative.
pub(super) fn number(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).cast_unsigned()
}

/// A column of bytes.
pub(super) fn bytes(row: &Row, column: usize) -> Bytes {
    Bytes::copy_from_slice(row.get(column))
}
