//! Webhooks and their deliveries. A webhook is a follower with a cursor: it has to deliver whatever the log
//! holds after the cursor.

use std::{collections::HashMap, time::Duration};

use nuncio_engine::{
    clock::Timestamp,
    store::{
        DeadLetter, DeliveryOutcome, DueWebhook, NodeId, StoreError, TaskNo, TaskRow, Webhook, WebhookError,
    },
    task::TaskId,
};
use tokio_postgres::Row;

use super::{
    clock::DatabaseClock,
    pool::PostgresPool,
    read::{bytes, number, select_row, task_row},
    tenant,
};

/// Adds a webhook, or replaces the one with the same id.
pub(super) async fn put(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    task: TaskNo,
    hook: &Webhook,
    cap: usize,
) -> Result<(), WebhookError> {
    let sql = "SELECT put_webhook($1, $2, $3, $4, $5, $6, $7)";
    let (cursor, limit) = (hook.cursor as i64, cap as i64);
    let rows = pool
        .run(sql, &[&clock.test_time(), &tenant(task), &task.0, &hook.id, &cursor, &&*hook.config, &limit])
        .await?;
    match rows.first().map(|row| row.get::<_, i16>(0)) {
        Some(0) => Ok(()),
        Some(1) => Err(WebhookError::Gone),
        _ => Err(WebhookError::TooMany(cap)),
    }
}

/// The webhooks of a task, in the order of their ids.
pub(super) async fn webhooks(pool: &PostgresPool, task: TaskNo) -> Result<Vec<Webhook>, StoreError> {
    // Ordered by bytes, as in every other store, whatever the collation of the database.
    let sql =
        "SELECT id, cursor, config FROM webhook WHERE tenant = $1 AND task = $2 ORDER BY id COLLATE \"C\"";
    let rows = pool.read(sql, &[&tenant(task), &task.0]).await?;
    Ok(rows.iter().map(|row| webhook(row, 0)).collect())
}

pub(super) fn webhook(row: &Row, from: usize) -> Webhook {
    Webhook { id: row.get(from), cursor: number(row, from + 1), config: bytes(row, from + 2) }
}

/// Deletes a webhook with its dead letters; returns whether there was one.
pub(super) async fn delete(pool: &PostgresPool, task: TaskNo, id: &str) -> Result<bool, StoreError> {
    let rows = pool.run("SELECT delete_webhook($1, $2, $3)", &[&tenant(task), &task.0, &id]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Leases due webhooks and dead letters to a node, oldest due first.
pub(super) async fn claim(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    node: NodeId,
    lease: Duration,
    limit: usize,
) -> Result<Vec<DueWebhook>, StoreError> {
    let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let sql = "SELECT task, hook, cursor, config, attempts, replay \
         FROM claim_deliveries($1, $2, $3, $4) ORDER BY due_at";
    let claimed = pool.run(sql, &[&node.0, &clock.test_time(), &lease, &limit]).await?;
    if claimed.is_empty() {
        return Ok(vec![]);
    }
    let tasks: Vec<i64> = claimed.iter().map(|row| row.get(0)).collect();
    let tenants: Vec<i32> = tasks.iter().map(|task| tenant(TaskNo(*task))).collect();
    let sql = select_row!(
        "task t JOIN unnest($1::integer[], $2::bigint[]) w(tenant, no) ON t.tenant = w.tenant AND t.no = w.no",
        ""
    );
    let mut rows: HashMap<i64, TaskRow> = HashMap::new();
    for row in pool.read(sql, &[&tenants, &tasks]).await? {
        let row = task_row(&row)?;
        rows.insert(row.no.0, row);
    }
    let delivery = |found: &Row| {
        Some(DueWebhook {
            row: rows.get(&found.get(0))?.clone(),
            hook: webhook(found, 1),
            attempts: found.get::<_, i32>(4).cast_unsigned(),
            replay: found.get::<_, Option<i64>>(5).map(i64::cast_unsigned),
        })
    };
    Ok(claimed.iter().filter_map(delivery).collect())
}

/// When the next delivery becomes due: a first one, a retry, a replay, or one whose lease expires.
pub(super) async fn next_due(
    pool: &PostgresPool,
    clock: &DatabaseClock,
) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT least((SELECT min(due_at) FROM webhook WHERE due_at IS NOT NULL),
           (SELECT min(due_at) FROM dead_letter WHERE due_at IS NOT NULL)) - time_or($1)";
    let row = pool.read_one(sql, &[&clock.test_time()]).await?;
    Ok(row.and_then(|row| row.get::<_, Option<i64>>(0)).map(|distance| clock.at(distance)))
}

/// Records the outcome of a delivery.
pub(super) async fn record_delivery(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    task: TaskNo,
    hook: &str,
    settled: &DeliveryOutcome,
) -> Result<(), StoreError> {
    let tenant = tenant(task);
    match settled {
        DeliveryOutcome::Delivered { up_to } => {
            let sql = "SELECT advance_webhook($1, $2, $3, $4, $5)";
            pool.run(sql, &[&clock.test_time(), &tenant, &task.0, &hook, &(*up_to as i64)]).await
        }
        DeliveryOutcome::Retry { up_to, at, reason } => {
            let sql =
                "UPDATE webhook SET cursor = greatest(cursor, $1), due_at = time_or($2) + $3, node = NULL,
                   attempts = CASE WHEN $1 > cursor THEN 1 ELSE attempts + 1 END, reason = $7,
                   failing_since = CASE WHEN $1 > cursor THEN time_or($2) ELSE coalesce(failing_since, time_or($2)) END
                 WHERE tenant = $4 AND task = $5 AND id = $6";
            let (up_to, distance) = (*up_to as i64, clock.distance(*at));
            pool.run(sql, &[&up_to, &clock.test_time(), &distance, &tenant, &task.0, &hook, reason]).await
        }
        DeliveryOutcome::Dead { seq, delivery, reason, at } => {
            clock.record_time(*at);
            let sql = "SELECT bury_delivery($1, $2, $3, $4, $5, $6, $7, $8)";
            let seq = *seq as i64;
            pool.run(sql, &[&clock.test_time(), &tenant, &task.0, &hook, &seq, delivery, reason, &at.0]).await
        }
        DeliveryOutcome::Replayed { seq } => {
            let sql = "DELETE FROM dead_letter WHERE tenant = $1 AND task = $2 AND webhook = $3 AND seq = $4";
            pool.run(sql, &[&tenant, &task.0, &hook, &(*seq as i64)]).await
        }
    }
    .map(drop)
}

/// Deliveries that were given up, newest first.
pub(super) async fn dead_letters(pool: &PostgresPool, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
    let sql = "SELECT d.delivery, t.id, d.webhook, d.seq, d.reason, d.at, d.attempts
         FROM dead_letter d JOIN task t ON t.tenant = d.tenant AND t.no = d.task
         ORDER BY d.at DESC, d.task DESC, d.webhook COLLATE \"C\" DESC, d.seq DESC LIMIT $1";
    let rows = pool.read(sql, &[&i64::try_from(limit).unwrap_or(i64::MAX)]).await?;
    Ok(rows
        .iter()
        .map(|row| DeadLetter {
            delivery: row.get(0),
            task: TaskId(row.get(1)),
            webhook: row.get(2),
            seq: number(row, 3),
            reason: row.get(4),
            at: Timestamp(row.get(5)),
            attempts: row.get::<_, i32>(6).cast_unsigned(),
        })
        .collect())
}

/// Makes dead letters due again, except those in progress; returns how many.
pub(super) async fn replay(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    delivery: Option<&str>,
) -> Result<u64, StoreError> {
    let sql = "WITH again AS (
             UPDATE dead_letter SET due_at = time_or($2)
             WHERE due_at IS NULL AND ($1::text IS NULL OR delivery = $1) RETURNING 1
           ) SELECT count(*) FROM again";
    let rows = pool.run(sql, &[&delivery, &clock.test_time()]).await?;
    Ok(rows.first().map_or(0, |row| number(row, 0)))
}
