//! Deliveries that failed, for the people who look after them: lists, and what is done with one of them.

use std::collections::HashMap;

use nuncio_engine::{
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
    tenants::tenant_condition,
};

/// Deliveries that wait for a retry, or were given up, newest first.
pub(super) async fn list(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    query: &FailedDeliveryQuery,
) -> Result<Vec<FailedDelivery>, StoreError> {
    let (within, of_tenant) = tenant_condition(query.tenant.as_deref());
    let within = within.replace("o.name", "o.name COLLATE \"C\"");
    let owner = if query.owner.is_some() { "o.name = $2" } else { "$2::text IS NULL" };
    // Times of retries follow the database's clock; all others are compared with themselves only.
    let sql = match query.dead {
        false => format!(
            "SELECT w.id, w.cursor, w.config, w.task, w.cursor + 1, w.attempts, w.due_at - time_or($8),
               w.node IS NOT NULL, w.reason, w.failing_since
             FROM webhook w JOIN owner o ON o.no = w.tenant
             WHERE {within} AND {owner} AND w.failing_since IS NOT NULL
               AND (w.failing_since, w.task, w.id COLLATE \"C\", 0) < ($3, $4, $5::text, least($6::bigint, 0))
             ORDER BY w.failing_since DESC, w.task DESC, w.id COLLATE \"C\" DESC LIMIT $7"
        ),
        true => format!(
            "SELECT w.id, w.cursor, w.config, d.task, d.seq, d.attempts, d.due_at - time_or($8),
               d.node IS NOT NULL, d.reason, d.at
             FROM dead_letter d JOIN owner o ON o.no = d.tenant
               JOIN webhook w ON w.tenant = d.tenant AND w.task = d.task AND w.id = d.webhook
             WHERE {within} AND {owner}
               AND (d.at, d.task, d.webhook COLLATE \"C\", d.seq) < ($3, $4, $5::text, $6)
             ORDER BY d.at DESC, d.task DESC, d.webhook COLLATE \"C\" DESC, d.seq DESC LIMIT $7"
        ),
    };
    let (at, task, hook, seq) = match &query.after {
        None => (i64::MAX, i64::MAX, "", 0),
        Some(after) => (after.at.0, after.task.0, after.hook.as_str(), after.seq as i64),
    };
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let found = pool
        .read(&sql, &[&of_tenant, &query.owner, &at, &task, &hook, &seq, &limit, &clock.test_time()])
        .await?;
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
