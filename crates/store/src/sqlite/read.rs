//! Reads of single tasks: rows, logs, journals. Used by the readers, and by the writer inside its batch.
//!
//! A read of several statements is consistent because the first of them stays open until the last is done:
//! SQLite's read transaction ends with the last open statement. This saves a BEGIN and a COMMIT.

use bytes::Bytes;
use nuncio_engine::{
    clock::Timestamp,
    store::{Digest, JournalRecord, NodeId, OpenedTask, StoredBatch, TaskKey, TaskNo, TaskRow},
    task::{State, TaskId},
};
use rusqlite::{Connection, Error, OptionalExtension, Result, Row, Statement, ToSql};
use uuid::Uuid;

use super::names::SqliteNameCache;

/// A task's number takes the upper bits of its log keys, the sequence number these lower ones.
const SEQ_BITS: u32 = 20;
/// The last sequence number that a log key can hold, and with it the cap on a task's log.
pub(super) const MAX_SEQ: u64 = (1 << SEQ_BITS) - 1;

/// The key of a log row or of a journal row.
pub(super) fn key(no: i64, seq: u64) -> i64 {
    no << SEQ_BITS | seq as i64
}

/// Selects whole rows in the order that `seen` reads them.
macro_rules! select_task {
    ($rest:literal) => {
        concat!(
            "SELECT no, id, owner, agent, state, status_at, created_at, seq, version, epoch, node, attempts, \
             cancel, snap_seq, context, client_id, parent, head FROM task ",
            $rest
        )
    };
}

const BY_ID: &str = select_task!("WHERE id = ?1");
const BY_NO: &str = select_task!("WHERE no = ?1");
const BY_CLIENT_ID: &str = select_task!(
    "WHERE no = (SELECT task FROM client_id
     WHERE owner = (SELECT no FROM owner WHERE name = ?1) AND id = ?2)"
);

/// A row, with the position of its snapshot.
struct RowWithSnapshot {
    row: TaskRow,
    snap_seq: u64,
}

/// The row alone.
pub(super) fn row(conn: &Connection, names: &mut SqliteNameCache, key: &TaskKey) -> Result<Option<TaskRow>> {
    with_row(conn, names, key, |_, seen| Ok(seen.row))
}

/// The row with its snapshot and the log after it.
pub(super) fn open(
    conn: &Connection,
    names: &mut SqliteNameCache,
    key: &TaskKey,
) -> Result<Option<OpenedTask>> {
    with_row(conn, names, key, complete)
}

/// Like `open`, by number.
pub(super) fn open_no(conn: &Connection, names: &mut SqliteNameCache, no: i64) -> Result<Option<OpenedTask>> {
    first(conn, names, &mut *conn.prepare_cached(BY_NO)?, &[&no], complete)
}

/// The row of that number.
pub(super) fn row_no(conn: &Connection, names: &mut SqliteNameCache, no: i64) -> Result<Option<TaskRow>> {
    first(conn, names, &mut *conn.prepare_cached(BY_NO)?, &[&no], |_, seen| Ok(seen.row))
}

fn with_row<T>(
    conn: &Connection,
    names: &mut SqliteNameCache,
    key: &TaskKey,
    then: impl FnOnce(&Connection, RowWithSnapshot) -> Result<T>,
) -> Result<Option<T>> {
    match key {
        TaskKey::Id(id) => first(conn, names, &mut *conn.prepare_cached(BY_ID)?, &[id.0.as_bytes()], then),
        TaskKey::Client { owner, id } => {
            first(conn, names, &mut *conn.prepare_cached(BY_CLIENT_ID)?, &[owner, id], then)
        }
    }
}

/// Runs `then` on the first row, while the statement keeps its read transaction open.
fn first<T>(
    conn: &Connection,
    names: &mut SqliteNameCache,
    statement: &mut Statement<'_>,
    params: &[&dyn ToSql],
    then: impl FnOnce(&Connection, RowWithSnapshot) -> Result<T>,
) -> Result<Option<T>> {
    let mut rows = statement.query(params)?;
    match rows.next()? {
        Some(row) => then(conn, seen(conn, names, row)?).map(Some),
        None => Ok(None),
    }
}

fn complete(conn: &Connection, RowWithSnapshot { row, snap_seq }: RowWithSnapshot) -> Result<OpenedTask> {
    let snapshot = match snap_seq {
        0 => None,
        _ => conn
            .prepare_cached("SELECT seq, fold FROM snapshot WHERE task = ?1")?
            .query_row([row.no.0], |row| Ok((number(row, 0)?, bytes(row, 1)?)))
            .optional()?,
    };
    let after = snapshot.as_ref().map_or(0, |(seq, _)| *seq);
    let log = if after < row.seq { batches(conn, row.no.0, after, usize::MAX)? } else { vec![] };
    Ok(OpenedTask { row, snapshot, log })
}

/// Batches that hold entries after `after`.
pub(super) fn log(conn: &Connection, no: TaskNo, after: u64, max_bytes: usize) -> Result<Vec<StoredBatch>> {
    let mut statement = conn.prepare_cached("SELECT seq FROM task WHERE no = ?1")?;
    let mut rows = statement.query([no.0])?;
    let Some(row) = rows.next()? else { return Ok(vec![]) };
    // Without this check the batch that ends at `after` would be read as the one that holds what follows.
    if after >= number(row, 0)? {
        return Ok(vec![]);
    }
    batches(conn, no.0, after, max_bytes)
}

/// The first key to read for the entries after `after`: that of the batch which holds `after + 1`. The caller
/// knows that there is one.
pub(super) fn first_key(conn: &Connection, no: i64, after: u64) -> Result<i64> {
    if after == 0 {
        return Ok(key(no, 1));
    }
    conn.prepare_cached("SELECT max(key) FROM log WHERE key BETWEEN ?1 AND ?2")?
        .query_row([key(no, 1), key(no, after + 1)], |row| row.get(0))
}

fn batches(conn: &Connection, no: i64, after: u64, max_bytes: usize) -> Result<Vec<StoredBatch>> {
    let from = first_key(conn, no, after)?;
    let mut statement =
        conn.prepare_cached("SELECT key, bytes FROM log WHERE key BETWEEN ?1 AND ?2 ORDER BY key")?;
    let mut rows = statement.query([from, key(no, MAX_SEQ)])?;
    let (mut found, mut size) = (vec![], 0);
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        let bytes = row.get_ref(1)?.as_blob()?;
        size += bytes.len();
        if size > max_bytes && !found.is_empty() {
            break;
        }
        found.push(StoredBatch { first_seq: key as u64 & MAX_SEQ, bytes: Bytes::copy_from_slice(bytes) });
    }
    Ok(found)
}

/// All journal records, in the order of their commits.
pub(super) fn journal(conn: &Connection, no: TaskNo) -> Result<Vec<JournalRecord>> {
    conn.prepare_cached("SELECT bytes FROM journal WHERE key BETWEEN ?1 AND ?2 ORDER BY key")?
        .query_map([key(no.0, 1), key(no.0, MAX_SEQ)], |row| bytes(row, 0).map(JournalRecord))?
        .collect()
}

/// The task that was created under an idempotency key.
pub(super) fn idempotent(conn: &Connection, owner: &str, key: &str) -> Result<Option<(TaskId, Digest)>> {
    conn.prepare_cached(
        "SELECT task.id, digest FROM idempotency JOIN task ON task.no = idempotency.task
         WHERE idempotency.owner = (SELECT no FROM owner WHERE name = ?1) AND key = ?2",
    )?
    .query_row([owner, key], |row| Ok((task_id(row, 0)?, row.get(1)?)))
    .optional()
}

/// Children of a task that are not terminal.
pub(super) fn live_children(conn: &Connection, parent: TaskId) -> Result<Vec<TaskId>> {
    conn.prepare_cached("SELECT id FROM task INDEXED BY task_parent WHERE parent = ?1 AND state < 4")?
        .query_map([parent.0.as_bytes()], |row| task_id(row, 0))?
        .collect()
}

/// The rows of all children, oldest first. The index ends with the task's number.
pub(super) fn children(
    conn: &Connection,
    names: &mut SqliteNameCache,
    parent: TaskId,
    limit: usize,
) -> Result<Vec<TaskRow>> {
    let _reading = conn.unchecked_transaction()?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let numbers = conn
        .prepare_cached("SELECT no FROM task INDEXED BY task_parent WHERE parent = ?1 ORDER BY no LIMIT ?2")?
        .query_map(rusqlite::params![parent.0.as_bytes(), limit], |row| row.get(0))?
        .collect::<Result<Vec<i64>>>()?;
    let mut rows = Vec::with_capacity(numbers.len());
    for no in numbers {
        rows.extend(row_no(conn, names, no)?);
    }
    Ok(rows)
}

fn seen(conn: &Connection, names: &mut SqliteNameCache, row: &Row<'_>) -> Result<RowWithSnapshot> {
    let id = task_id(row, 1)?;
    let context: Option<String> = row.get(14)?;
    let snap_seq = number(row, 13)?;
    let row = TaskRow {
        no: TaskNo(row.get(0)?),
        id,
        owner: names.owner(conn, row.get(2)?)?,
        agent: names.agent(conn, row.get(3)?)?,
        state: state(row, 4)?,
        status_at: Timestamp(row.get(5)?),
        created_at: Timestamp(row.get(6)?),
        seq: number(row, 7)?,
        version: number(row, 8)?,
        epoch: number(row, 9)?,
        node: row.get::<_, Option<[u8; 16]>>(10)?.map(|id| NodeId(Uuid::from_bytes(id))),
        attempts: row.get(11)?,
        cancel: row.get(12)?,
        context: context.unwrap_or_else(|| id.own_context()),
        client_id: row.get(15)?,
        parent: row.get::<_, Option<[u8; 16]>>(16)?.map(|id| TaskId(Uuid::from_bytes(id))),
        head: bytes(row, 17)?,
    };
    Ok(RowWithSnapshot { row, snap_seq })
}

/// A task state, from its stored form.
pub(super) fn state(row: &Row<'_>, column: usize) -> Result<State> {
    let code: u8 = row.get(column)?;
    State::from_code(code).ok_or(Error::IntegralValueOutOfRange(column, code.into()))
}

/// A count or a sequence number: never negative.
pub(super) fn number(row: &Row<'_>, column: usize) -> Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// A column of bytes.
pub(super) fn bytes(row: &Row<'_>, column: usize) -> Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

/// A task's id.
pub(super) fn task_id(row: &Row<'_>, column: usize) -> Result<TaskId> {
    row.get(column).map(|id: [u8; 16]| TaskId(Uuid::from_bytes(id)))
}
