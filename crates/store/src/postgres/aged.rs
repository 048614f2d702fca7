//! The search for tasks by the age of their status, of all owners, in pages. The age is by the database's clock.

use std::time::Duration;

use nuncio_engine::{
    clock::Timestamp,
    store::{AgedPhase, AgedTask, AgedTaskCursor, AgedTaskQuery, StoreError, TaskNo},
    task::{State, TaskId},
};
use tokio_postgres::Row;

use super::{clock::DatabaseClock, pool::PostgresPool};

/// Ended tasks, by time: one index of all owners has that order.
const ENDED: &str = "WITH clock AS MATERIALIZED (SELECT time_or($1) AS now)
     SELECT t.tenant, t.status_at, t.no, t.id, t.state, a.name, (SELECT now FROM clock) - t.status_at
     FROM task t JOIN agent a ON a.no = t.agent
     WHERE t.state >= 4 AND $3::smallint IS NULL AND $4::integer IS NOT NULL
       AND t.status_at < (SELECT now FROM clock) - $2
       AND t.status_at >= $5 AND (t.status_at, t.no) > ($5, $6)
     ORDER BY t.status_at, t.no LIMIT $7";

/// Tasks in one state, by owner and then by time: the index of live tasks has that order within an owner.
const LIVE: &str = "WITH clock AS MATERIALIZED (SELECT time_or($1) AS now)
     SELECT t.tenant, t.status_at, t.no, t.id, t.state, a.name, (SELECT now FROM clock) - t.status_at
     FROM owner o CROSS JOIN LATERAL (
       SELECT x.* FROM task x WHERE x.tenant = o.no AND x.state = $3 AND x.state < 4
         AND x.status_at < (SELECT now FROM clock) - $2
         AND (o.no > $4 OR (x.status_at, x.no) > ($5, $6))
       ORDER BY x.status_at, x.no LIMIT $7
     ) t JOIN agent a ON a.no = t.agent
     WHERE o.no >= $4
     ORDER BY t.tenant, t.status_at, t.no LIMIT $7";

/// A page of tasks.
pub(super) async fn tasks(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    query: &AgedTaskQuery,
) -> Result<Vec<AgedTask>, StoreError> {
    clock.record_time(query.now);
    let (sql, state) = match query.phase {
        AgedPhase::Ended => (ENDED, None),
        AgedPhase::Live(state) => (LIVE, Some(i16::from(state.code()))),
    };
    let after = query.after.map_or((i32::MIN, i64::MIN, i64::MIN), |after| {
        (i32::try_from(after.owner).unwrap_or(i32::MAX), after.status_at.0, after.no.0)
    });
    let older_than = i64::try_from(query.older_than.as_millis()).unwrap_or(i64::MAX);
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let rows = pool
        .read(sql, &[&clock.test_time(), &older_than, &state, &after.0, &after.1, &after.2, &limit])
        .await?;
    Ok(rows.iter().filter_map(aged_task).collect())
}

fn aged_task(row: &Row) -> Option<AgedTask> {
    let cursor = AgedTaskCursor {
        owner: row.get::<_, i32>(0).into(),
        status_at: Timestamp(row.get(1)),
        no: TaskNo(row.get(2)),
    };
    let state = u8::try_from(row.get::<_, i16>(4)).ok().and_then(State::from_code)?;
    let age = Duration::from_millis(u64::try_from(row.get::<_, i64>(6)).unwrap_or(0));
    Some(AgedTask { id: TaskId(row.get(3)), agent: row.get(5), state, age, cursor })
}
