//! Deliveries that failed, for the people who look after them: lists, and what is done with one of them.

use nuncio_engine::{
    clock::Timestamp,
    store::{FailedDelivery, FailedDeliveryQuery, TaskNo, WebhookProgress},
};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use super::{
    names::SqliteNameCache,
    outbox::{advance, webhook},
    read,
    tenants::within,
    write_session::WriteSession,
};

/// Deliveries that wait for a retry, or were given up, newest first.
pub(super) fn list(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &FailedDeliveryQuery,
) -> Result<Vec<FailedDelivery>> {
    let _reading = conn.unchecked_transaction()?;
    let (within, tenant) = within(query.tenant.as_deref());
    let owner = if query.owner.is_some() { "AND owner.name = ?2" } else { "AND ?2 IS NULL" };
    // A webhook has one delivery that waits, that of the event after its cursor; so its number adds nothing to the
    // order. The bounds are given in any case, so that both lists have the same parameters.
    let sql = match query.dead {
        false => format!(
            "SELECT w.id, w.cursor, w.config, w.task, w.cursor + 1, w.attempts, w.due_at, w.node IS NOT NULL,
               w.reason, w.failing_since
             FROM webhook AS w INDEXED BY webhook_failing CROSS JOIN task ON task.no = w.task
               CROSS JOIN owner ON owner.no = task.owner
             WHERE {within} {owner} AND w.failing_since IS NOT NULL
               AND (w.failing_since, w.task, w.id, 0) < (?3, ?4, ?5, min(?6, 0))
             ORDER BY w.failing_since DESC, w.task DESC, w.id DESC LIMIT ?7"
        ),
        true => format!(
            "SELECT w.id, w.cursor, w.config, d.task, d.seq, d.attempts, d.due_at, d.node IS NOT NULL, d.reason, d.at
             FROM dead_letter AS d INDEXED BY dead_letter_at CROSS JOIN task ON task.no = d.task
               CROSS JOIN owner ON owner.no = task.owner
               CROSS JOIN webhook AS w ON w.task = d.task AND w.id = d.webhook
             WHERE {within} {owner} AND (d.at, d.task, d.webhook, d.seq) < (?3, ?4, ?5, ?6)
             ORDER BY d.at DESC, d.task DESC, d.webhook DESC, d.seq DESC LIMIT ?7"
        ),
    };
    let (at, task, hook, seq) = match &query.after {
        None => (i64::MAX, i64::MAX, "", 0),
        Some(after) => (after.at.0, after.task.0, after.hook.as_str(), after.seq as i64),
    };
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![tenant, query.owner, at, task, hook, seq, limit])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let Some(task) = read::row_no(conn, names, row.get(3)?)? else { continue };
        found.push(FailedDelivery {
            row: task,
            hook: webhook(row, 0)?,
            seq: read::number(row, 4)?,
            attempts: row.get(5)?,
            due_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
            in_progress: row.get(7)?,
            reason: row.get(8)?,
            at: Timestamp(row.get(9)?),
        });
    }
    Ok(found)
}

/// The webhooks of a task with the progress of their deliveries, in the order of their ids.
pub(super) fn progress(conn: &Connection, task: TaskNo) -> Result<Vec<WebhookProgress>> {
    conn.prepare_cached(
        "SELECT id, cursor, config, attempts, due_at, node IS NOT NULL, reason, failing_since,
           (SELECT count(*) FROM dead_letter AS d WHERE d.task = w.task AND d.webhook = w.id)
         FROM webhook AS w WHERE w.task = ?1 ORDER BY id",
    )?
    .query_map([task.0], |row| {
        Ok(WebhookProgress {
            hook: webhook(row, 0)?,
            attempts: row.get(3)?,
            due_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
            in_progress: row.get(5)?,
            reason: row.get(6)?,
            failing_since: row.get::<_, Option<i64>>(7)?.map(Timestamp),
            dead: read::number(row, 8)?,
        })
    })?
    .collect()
}

/// Makes one failed delivery due at once.
pub(super) fn replay(
    session: &mut WriteSession,
    task: TaskNo,
    hook: &str,
    seq: u64,
    now: Timestamp,
) -> Result<bool> {
    session.record_time(now);
    let seq = seq as i64;
    let retried = session
        .conn
        .prepare_cached(
            "UPDATE webhook SET due_at = min(due_at, ?4) WHERE task = ?1 AND id = ?2 AND cursor = ?3 - 1
               AND failing_since IS NOT NULL AND node IS NULL",
        )?
        .execute(params![task.0, hook, seq, now.0])?;
    let revived = session
        .conn
        .prepare_cached(
            "UPDATE dead_letter SET due_at = ?4 WHERE task = ?1 AND webhook = ?2 AND seq = ?3 AND due_at IS NULL",
        )?
        .execute(params![task.0, hook, seq, now.0])?;
    Ok(retried + revived > 0)
}

/// Gives one failed delivery up without a trace.
pub(super) fn discard(
    session: &mut WriteSession,
    task: TaskNo,
    hook: &str,
    seq: u64,
    now: Timestamp,
) -> Result<bool> {
    session.record_time(now);
    let deleted = session
        .conn
        .prepare_cached(
            "DELETE FROM dead_letter WHERE task = ?1 AND webhook = ?2 AND seq = ?3 AND node IS NULL",
        )?
        .execute(params![task.0, hook, seq as i64])?
        > 0;
    let waits = session
        .conn
        .prepare_cached(
            "SELECT 1 FROM webhook WHERE task = ?1 AND id = ?2 AND cursor = ?3 - 1
               AND failing_since IS NOT NULL AND node IS NULL",
        )?
        .query_row(params![task.0, hook, seq as i64], |_| Ok(()))
        .optional()?
        .is_some();
    if waits {
        advance(session, task, hook, seq)?;
    }
    Ok(deleted || waits)
}
