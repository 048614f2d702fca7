//! Figures of the whole store for its gauges.

use std::time::Duration;

use nuncio_engine::{
    clock::Timestamp,
    store::{StoreError, StoreFigures},
};

use super::{clock::DatabaseClock, pool::PostgresPool, read::number};

/// Counts, ages, and the size of the tables. Times of tasks are those of nodes, times of webhooks those of the database.
pub(super) async fn read(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    now: Timestamp,
) -> Result<StoreFigures, StoreError> {
    // The states input-required and auth-required; the index of live tasks holds all but the parent.
    let sql = "SELECT
           (SELECT count(*) FROM task WHERE state < 4 AND state IN (2, 3) AND parent IS NULL),
           (SELECT $2 - min(status_at) FROM task WHERE state < 4 AND state IN (2, 3) AND parent IS NULL),
           (SELECT count(*) FROM webhook
            WHERE due_at <= time_or($1) AND node IS NULL AND failing_since IS NULL),
           (SELECT count(*) FROM webhook WHERE failing_since IS NOT NULL),
           (SELECT $2 - min(nullif(failing_since, 0)) FROM webhook WHERE failing_since IS NOT NULL),
           (SELECT count(*) FROM dead_letter),
           (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
            WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(current_schema()::text))";
    let row = pool.read_one(sql, &[&clock.test_time(), &now.0]).await?;
    let Some(row) = row else { return Ok(StoreFigures::default()) };
    let age = |column: usize| {
        let ms: Option<i64> = row.get(column);
        ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default()))
    };
    Ok(StoreFigures {
        waiting_for_answer: number(&row, 0),
        oldest_question: age(1),
        webhooks_due: number(&row, 2),
        webhooks_failing: number(&row, 3),
        oldest_failure: age(4),
        dead_letters: number(&row, 5),
        bytes: number(&row, 6),
        free_bytes: None,
    })
}
