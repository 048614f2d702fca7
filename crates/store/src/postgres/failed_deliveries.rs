//! Deliveries that failed, for the people who look after them: lists, and what is done with one of them.

use std::collections::HashMap;

use nuncio_engine::{
    access::tenant_of,
    clock::Timestamp,
    store::{FailedDelivery, FailedDeliveryQuery, StoreError, TaskNo, TaskRow, WebhookProgress},
};
use tokio_postgres::Row;

use super::{
    clock::DatabaseClock,
    outbox::webhook,
    pool::PostgresPool,
    read::{number, select_row, task_row},
    tenant,
};

/// Deliveries that wait for a retry, or were given up, newest first.
pub(super) async fn list(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    query: &FailedDeliveryQuery,
) -> Result<Vec<FailedDelivery>, StoreError> {
    // Each scope has an index in the order of the list, which holds no other deliveries.
    let (scope, named) = match (&query.tenant, &query.owner) {
        (None, None) => ("$1::text IS NULL", None),
        (Some(tenant), None) => ("x.tenant_name = $1", Some(tenant)),
        (Some(tenant), Some(owner)) if tenant != tenant_of(owner) => return Ok(vec![]),
        (_, Some(owner)) => ("x.tenant = (SELECT o.no FROM owner o WHERE o.name = $1)", Some(owner)),
    };
    // Times of retries follow the database's clock; all others are compared with themselves only.
    let sql = match query.dead {
        false => format!(
            "SELECT x.id, x.cursor, x.config, x.task, x.cursor + 1, x.attempts, x.due_at - time_or($7),
               x.node IS NOT NULL, x.reason, x.failing_since
             FROM webhook x
             WHERE {scope} AND x.failing_since IS NOT NULL
               AND (x.failing_since, x.task, x.id COLLATE \"C\", 0) < ($2, $3, $4::text, least($5::bigint, 0))
             ORDER BY x.failing_since DESC, x.task DESC, x.id COLLATE \"C\" DESC LIMIT $6"
        ),
        true => format!(
            "SELECT w.id, w.cursor, w.config, x.task, x.seq, x.attempts, x.due_at - time_or($7),
               x.node IS NOT NULL, x.reason, x.at
             FROM dead_letter x JOIN webhook w ON w.tenant = x.tenant AND w.task = x.task AND w.id = x.webhook
             WHERE {scope} AND (x.at, x.task, x.webhook COLLATE \"C\", x.seq) < ($2, $3, $4::text, $5)
             ORDER BY x.at DESC, x.task DESC, x.webhook COLLATE \"C\" DESC, x.seq DESC LIMIT $6"
        ),
    };
    let (at, task, hook, seq) = match &query.after {
        None => (i64::MAX, i64::MAX, "", 0),
        Some(after) => (after.at.0, after.task.0, after.hook.as_str(), after.seq as i64),
    };
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let found = pool.read(&sql, &[&named, &at, &task, &hook, &seq, &limit, &clock.test_time()]).await?;
    let tasks: Vec<i64> = found.iter().map(|row| row.get(3)).collect();
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
    let delivery = |row: &Row| {
        Some(FailedDelivery {
            row: rows.get(&row.get(3))?.clone(),
            hook: webhook(row, 0),
            seq: number(row, 4),
            attempts: row.get::<_, i32>(5).cast_unsigned(),
            due_at: row.get::<_, Option<i64>>(6).map(|distance| clock.at(distance)),
            in_progress: row.get(7),
            reason: row.get(8),
            at: Timestamp(row.get(9)),
        })
    };
    Ok(found.iter().filter_map(delivery).collect())
}

/// The webhooks of a task with the progress of their deliveries, in the order of their ids.
pub(super) async fn progress(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    task: TaskNo,
) -> Result<Vec<WebhookProgress>, StoreError> {
    let sql =
        "SELECT w.id, w.cursor, w.config, w.attempts, w.due_at - time_or($3), w.node IS NOT NULL, w.reason,
           w.failing_since, (SELECT count(*) FROM dead_letter d
             WHERE d.tenant = w.tenant AND d.task = w.task AND d.webhook = w.id)
         FROM webhook w WHERE w.tenant = $1 AND w.task = $2 ORDER BY w.id COLLATE \"C\"";
    let rows = pool.read(sql, &[&tenant(task), &task.0, &clock.test_time()]).await?;
    let progress = |row: &Row| WebhookProgress {
        hook: webhook(row, 0),
        attempts: row.get::<_, i32>(3).cast_unsigned(),
        due_at: row.get::<_, Option<i64>>(4).map(|distance| clock.at(distance)),
        in_progress: row.get(5),
        reason: row.get(6),
        failing_since: row.get::<_, Option<i64>>(7).map(Timestamp),
        dead: number(row, 8),
    };
    Ok(rows.iter().map(progress).collect())
}

/// Makes one failed delivery due at once.
pub(super) async fn replay(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    task: TaskNo,
    hook: &str,
    seq: u64,
) -> Result<bool, StoreError> {
    let sql = "WITH retried AS (
             UPDATE webhook SET due_at = least(due_at, time_or($5)) WHERE tenant = $1 AND task = $2 AND id = $3
               AND cursor = $4::bigint - 1 AND failing_since IS NOT NULL AND node IS NULL RETURNING 1
           ), revived AS (
             UPDATE dead_letter SET due_at = time_or($5) WHERE tenant = $1 AND task = $2 AND webhook = $3
               AND seq = $4 AND due_at IS NULL RETURNING 1
           ) SELECT (SELECT count(*) FROM retried) + (SELECT count(*) FROM revived)";
    let rows = pool.run(sql, &[&tenant(task), &task.0, &hook, &(seq as i64), &clock.test_time()]).await?;
    Ok(rows.first().is_some_and(|row| number(row, 0) > 0))
}

/// Gives one failed delivery up without a trace.
pub(super) async fn discard(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    task: TaskNo,
    hook: &str,
    seq: u64,
) -> Result<bool, StoreError> {
    let sql = "SELECT discard_delivery($1, $2, $3, $4, $5)";
    let rows = pool.run(sql, &[&clock.test_time(), &tenant(task), &task.0, &hook, &(seq as i64)]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}
