//! Webhooks and their deliveries. A webhook is a follower with a cursor: it has to deliver whatever the log
//! holds after the cursor, so the outbox stores numbers and no bodies.

use std::{collections::HashSet, time::Duration};

use nuncio_engine::{
    clock::Timestamp,
    store::{DeadLetter, DeliveryOutcome, DueWebhook, NodeId, TaskNo, Webhook, WebhookError},
};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{read, write_session::WriteSession};

/// Adds a webhook, or replaces the one with the same id.
pub(super) fn put(
    session: &WriteSession,
    task: TaskNo,
    hook: &Webhook,
    cap: usize,
) -> Result<Result<(), WebhookError>> {
    let seq = session
        .conn
        .prepare_cached("SELECT seq FROM task WHERE no = ?1")?
        .query_row([task.0], |row| read::number(row, 0))
        .optional()?;
    let Some(seq) = seq else { return Ok(Err(WebhookError::Gone)) };
    let hooks = std::slice::from_ref(hook);
    if count_with(session, task, hooks)? > cap {
        return Ok(Err(WebhookError::TooMany(cap)));
    }
    add(session, task, seq, hooks)?;
    Ok(Ok(()))
}

/// How many webhooks a task would have with these, which replace those with the same ids.
pub(super) fn count_with(session: &WriteSession, task: TaskNo, added: &[Webhook]) -> Result<usize> {
    let mut ids: HashSet<String> = session
        .conn
        .prepare_cached("SELECT id FROM webhook WHERE task = ?1")?
        .query_map([task.0], |row| row.get(0))?
        .collect::<Result<_>>()?;
    ids.extend(added.iter().map(|hook| hook.id.clone()));
    Ok(ids.len())
}

/// Adds webhooks to a task whose log ends at `seq`, or replaces those with the same ids.
pub(super) fn add(session: &WriteSession, task: TaskNo, seq: u64, hooks: &[Webhook]) -> Result<()> {
    for hook in hooks {
        insert(session, task.0, seq, hook)?;
    }
    recount(session, task)
}

/// Writes a webhook of a task whose log ends at `seq`. Discards what it had to deliver before.
pub(super) fn insert(session: &WriteSession, task: i64, seq: u64, hook: &Webhook) -> Result<()> {
    let due_at = (seq > hook.cursor).then_some(session.now().0);
    session
        .conn
        .prepare_cached(
            "INSERT OR REPLACE INTO webhook (task, id, cursor, attempts, due_at, node, config)
             VALUES (?1, ?2, ?3, 0, ?4, NULL, ?5)",
        )?
        .execute(params![task, hook.id, hook.cursor as i64, due_at, &*hook.config])?;
    Ok(())
}

/// Makes the webhooks of a task due after new events. One that is being delivered, waits for its retry or is
/// due already keeps its time: its cursor reaches the new events in order.
pub(super) fn schedule_delivery(session: &WriteSession, task: i64) -> Result<()> {
    session
        .conn
        .prepare_cached("UPDATE webhook SET due_at = ?1 WHERE task = ?2 AND due_at IS NULL")?
        .execute(params![session.now().0, task])?;
    Ok(())
}

/// Deletes a webhook with its dead letters; returns whether there was one.
pub(super) fn delete(session: &WriteSession, task: TaskNo, id: &str) -> Result<bool> {
    let there = session
        .conn
        .prepare_cached("DELETE FROM webhook WHERE task = ?1 AND id = ?2")?
        .execute(params![task.0, id])?
        > 0;
    if there {
        session
            .conn
            .prepare_cached("DELETE FROM dead_letter WHERE task = ?1 AND webhook = ?2")?
            .execute(params![task.0, id])?;
        recount(session, task)?;
    }
    Ok(there)
}

fn recount(session: &WriteSession, task: TaskNo) -> Result<()> {
    session
        .conn
        .prepare_cached(
            "UPDATE task SET hooks = (SELECT count(*) FROM webhook WHERE task = ?1) WHERE no = ?1",
        )?
        .execute([task.0])?;
    Ok(())
}

/// The webhooks of a task, in the order of their ids.
pub(super) fn webhooks(conn: &Connection, task: TaskNo) -> Result<Vec<Webhook>> {
    conn.prepare_cached("SELECT id, cursor, config FROM webhook WHERE task = ?1 ORDER BY id")?
        .query_map([task.0], |row| webhook(row, 0))?
        .collect()
}

pub(super) fn webhook(row: &Row<'_>, from: usize) -> Result<Webhook> {
    Ok(Webhook {
        id: row.get(from)?,
        cursor: read::number(row, from + 1)?,
        config: read::bytes(row, from + 2)?,
    })
}

/// A delivery that is due.
struct DueDelivery {
    at: i64,
    task: i64,
    hook: String,
    /// The sequence number of a dead letter that is replayed.
    replay: Option<u64>,
}

/// Leases due webhooks and dead letters to a node, oldest due first.
pub(super) fn claim(
    session: &mut WriteSession,
    node: NodeId,
    now: Timestamp,
    lease: Duration,
    limit: usize,
) -> Result<Vec<DueWebhook>> {
    session.record_time(now);
    let mut due = due(
        session,
        "SELECT due_at, task, id, NULL FROM webhook INDEXED BY webhook_due WHERE due_at <= ?1
         ORDER BY due_at LIMIT ?2",
        now,
        limit,
    )?;
    due.extend(self::due(
        session,
        "SELECT due_at, task, webhook, seq FROM dead_letter INDEXED BY dead_letter_due WHERE due_at <= ?1
         ORDER BY due_at LIMIT ?2",
        now,
        limit,
    )?);
    due.sort_by_key(|delivery| delivery.at);
    due.truncate(limit);
    let until = now.after(lease);
    let mut claimed = Vec::with_capacity(due.len());
    for DueDelivery { task, hook, replay, .. } in due {
        match replay {
            None => session
                .conn
                .prepare_cached("UPDATE webhook SET due_at = ?1, node = ?2 WHERE task = ?3 AND id = ?4")?
                .execute(params![until.0, node.0.as_bytes(), task, hook])?,
            Some(seq) => session
                .conn
                .prepare_cached(
                    "UPDATE dead_letter SET due_at = ?1, node = ?2 WHERE task = ?3 AND webhook = ?4 AND seq = ?5",
                )?
                .execute(params![until.0, node.0.as_bytes(), task, hook, seq as i64])?,
        };
        claimed.extend(delivery(session, task, &hook, replay)?);
    }
    Ok(claimed)
}

fn due(session: &WriteSession, sql: &str, now: Timestamp, limit: usize) -> Result<Vec<DueDelivery>> {
    session
        .conn
        .prepare_cached(sql)?
        .query_map(params![now.0, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            let replay: Option<i64> = row.get(3)?;
            Ok(DueDelivery {
                at: row.get(0)?,
                task: row.get(1)?,
                hook: row.get(2)?,
                replay: replay.map(i64::cast_unsigned),
            })
        })?
        .collect()
}

fn delivery(
    session: &mut WriteSession,
    task: i64,
    hook: &str,
    replay: Option<u64>,
) -> Result<Option<DueWebhook>> {
    let Some(row) = read::row_no(&session.conn, &mut session.names, task)? else { return Ok(None) };
    session
        .conn
        .prepare_cached("SELECT id, cursor, config, attempts FROM webhook WHERE task = ?1 AND id = ?2")?
        .query_row(params![task, hook], |found| {
            // The attempts are the webhook's own, not those of the dead letter.
            let attempts = if replay.is_some() { 0 } else { found.get(3)? };
            Ok(DueWebhook { row, hook: webhook(found, 0)?, attempts, replay })
        })
        .optional()
}

/// When the next delivery becomes due: a first one, a retry, a replay, or one whose lease expires.
pub(super) fn next_due(conn: &Connection) -> Result<Option<Timestamp>> {
    conn.prepare_cached(
        "SELECT min(at) FROM (
           SELECT min(due_at) AS at FROM webhook INDEXED BY webhook_due WHERE due_at IS NOT NULL
           UNION ALL
           SELECT min(due_at) FROM dead_letter INDEXED BY dead_letter_due WHERE due_at IS NOT NULL)",
    )?
    .query_row([], |row| Ok(row.get::<_, Option<i64>>(0)?.map(Timestamp)))
}

/// Records the outcome of a delivery. The cursor never goes back, so a late outcome (after the lease expired
/// and another node delivered) does no harm.
pub(super) fn record_delivery(
    session: &mut WriteSession,
    task: TaskNo,
    hook: &str,
    settled: &DeliveryOutcome,
) -> Result<()> {
    match settled {
        DeliveryOutcome::Delivered { up_to } => advance(session, task, hook, *up_to),
        DeliveryOutcome::Retry { up_to, at, reason } => {
            session
                .conn
                .prepare_cached(
                    "UPDATE webhook SET cursor = max(cursor, ?1), due_at = ?2, node = NULL, reason = ?5,
                       attempts = CASE WHEN ?1 > cursor THEN 1 ELSE attempts + 1 END,
                       failing_since = CASE WHEN ?1 > cursor THEN ?6 ELSE ifnull(failing_since, ?6) END
                     WHERE task = ?3 AND id = ?4",
                )?
                .execute(params![*up_to as i64, at.0, task.0, hook, reason, session.now().0])?;
            Ok(())
        }
        DeliveryOutcome::Dead { seq, delivery, reason, at } => {
            session.record_time(*at);
            let dead_before = session
                .conn
                .prepare_cached(
                    "UPDATE dead_letter SET reason = ?4, at = ?5, due_at = NULL, node = NULL, attempts = attempts + 1
                     WHERE task = ?1 AND webhook = ?2 AND seq = ?3",
                )?
                .execute(params![task.0, hook, *seq as i64, reason, at.0])?
                > 0;
            if dead_before {
                // A replay that failed. It was out of order and affects no cursor.
                return Ok(());
            }
            session
                .conn
                .prepare_cached(
                    // The webhook counts the attempts at the event after its cursor.
                    "INSERT INTO dead_letter (task, webhook, seq, delivery, reason, at, attempts)
                     SELECT ?1, ?2, ?3, ?4, ?5, ?6, CASE WHEN ?3 > cursor + 1 THEN 1 ELSE attempts + 1 END
                     FROM webhook WHERE task = ?1 AND id = ?2",
                )?
                .execute(params![task.0, hook, *seq as i64, delivery, reason, at.0])?;
            advance(session, task, hook, *seq)
        }
        DeliveryOutcome::Replayed { seq } => {
            session
                .conn
                .prepare_cached("DELETE FROM dead_letter WHERE task = ?1 AND webhook = ?2 AND seq = ?3")?
                .execute(params![task.0, hook, *seq as i64])?;
            Ok(())
        }
    }
}

pub(super) fn advance(session: &WriteSession, task: TaskNo, hook: &str, up_to: u64) -> Result<()> {
    session
        .conn
        .prepare_cached(
            "UPDATE webhook SET cursor = max(cursor, ?1), attempts = 0, node = NULL, reason = NULL,
               failing_since = NULL,
               due_at = CASE WHEN (SELECT seq FROM task WHERE no = ?3) > max(cursor, ?1) THEN ?2 END
             WHERE task = ?3 AND id = ?4",
        )?
        .execute(params![up_to as i64, session.now().0, task.0, hook])?;
    Ok(())
}

/// Deliveries that were given up, newest first.
pub(super) fn dead_letters(conn: &Connection, limit: usize) -> Result<Vec<DeadLetter>> {
    conn.prepare_cached(
        "SELECT delivery, task.id, webhook, dead_letter.seq, reason, at, dead_letter.attempts
         FROM dead_letter INDEXED BY dead_letter_at CROSS JOIN task ON task.no = dead_letter.task
         ORDER BY at DESC, dead_letter.task DESC, webhook DESC, dead_letter.seq DESC LIMIT ?1",
    )?
    .query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
        Ok(DeadLetter {
            delivery: row.get(0)?,
            task: read::task_id(row, 1)?,
            webhook: row.get(2)?,
            seq: read::number(row, 3)?,
            reason: row.get(4)?,
            at: Timestamp(row.get(5)?),
            attempts: row.get(6)?,
        })
    })?
    .collect()
}

/// Makes dead letters due again, except those in progress; returns how many.
pub(super) fn replay(session: &mut WriteSession, delivery: Option<&str>, now: Timestamp) -> Result<u64> {
    session.record_time(now);
    let changed = session
        .conn
        .prepare_cached(match delivery {
            Some(_) => "UPDATE dead_letter SET due_at = ?2 WHERE delivery = ?1 AND due_at IS NULL",
            None => "UPDATE dead_letter SET due_at = ?2 WHERE ?1 IS NULL AND due_at IS NULL",
        })?
        .execute(params![delivery, now.0])?;
    Ok(changed as u64)
}
