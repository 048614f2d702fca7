//! The search for tasks by the age of their status, of all owners, in pages.

use std::time::Duration;

use nuncio_engine::{
    clock::Timestamp,
    store::{AgedPhase, AgedTask, AgedTaskCursor, AgedTaskQuery, TaskNo},
    task::{State, TaskId},
};
use rusqlite::{Connection, Result, Row, params};

use super::{names::SqliteNameCache, read};

/// Selects what `found` reads, by owner, time and number. Both indexes hold all of it but the id, and both have that order
/// within one owner.
macro_rules! select_aged {
    ($index:literal, $rest:literal) => {
        concat!(
            "SELECT task.owner, task.status_at, task.no, task.id, task.state, task.agent
             FROM owner CROSS JOIN task INDEXED BY ",
            $index,
            " ON task.owner = owner.no WHERE task.status_at < ?1 AND ",
            $rest,
            " ORDER BY task.owner, task.status_at, task.no LIMIT ?3"
        )
    };
}

const ENDED: &str = select_aged!("task_list", "task.state >= 4 AND ?2 IS NULL AND owner.no > ?4");
const ENDED_OF: &str = select_aged!(
    "task_list",
    "task.state >= 4 AND ?2 IS NULL AND owner.no = ?4 AND (task.status_at, task.no) > (?5, ?6)"
);
const LIVE: &str = select_aged!("task_live", "task.state < 4 AND task.state = ?2 AND owner.no > ?4");
const LIVE_OF: &str = select_aged!(
    "task_live",
    "task.state < 4 AND task.state = ?2 AND owner.no = ?4 AND (task.status_at, task.no) > (?5, ?6)"
);

/// A page: first the rest of the owner at which the last page ended, then the owners after it.
pub(super) fn tasks(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &AgedTaskQuery,
) -> Result<Vec<AgedTask>> {
    let (of_one, of_all, state) = match query.phase {
        AgedPhase::Ended => (ENDED_OF, ENDED, None),
        AgedPhase::Live(state) => (LIVE_OF, LIVE, Some(state.code())),
    };
    let before = query.now.before(query.older_than).0;
    let limit = |found: usize| i64::try_from(query.limit - found).unwrap_or(i64::MAX);
    let mut rows: Vec<AgedRow> = match query.after {
        None => vec![],
        Some(AgedTaskCursor { owner, status_at, no }) => conn
            .prepare_cached(of_one)?
            .query_map(params![before, state, limit(0), owner, status_at.0, no.0], AgedRow::read)?
            .collect::<Result<_>>()?,
    };
    if rows.len() < query.limit {
        let after = query.after.map_or(i64::MIN, |after| after.owner);
        let mut rest = conn.prepare_cached(of_all)?;
        let rest = rest.query_map(params![before, state, limit(rows.len()), after], AgedRow::read)?;
        rows.extend(rest.collect::<Result<Vec<_>>>()?);
    }
    rows.into_iter().map(|row| row.named(conn, names, query.now)).collect()
}

/// A row whose agent is still a number.
struct AgedRow {
    cursor: AgedTaskCursor,
    id: TaskId,
    state: State,
    agent: i64,
}

impl AgedRow {
    fn read(row: &Row<'_>) -> Result<Self> {
        let (status_at, no) = (Timestamp(row.get(1)?), TaskNo(row.get(2)?));
        Ok(Self {
            cursor: AgedTaskCursor { owner: row.get(0)?, status_at, no },
            id: read::task_id(row, 3)?,
            state: read::state(row, 4)?,
            agent: row.get(5)?,
        })
    }

    fn named(self, conn: &Connection, names: &mut SqliteNameCache, now: Timestamp) -> Result<AgedTask> {
        let Self { cursor, id, state, agent } = self;
        let age = u64::try_from(now.0.saturating_sub(cursor.status_at.0)).unwrap_or(0);
        let agent = names.agent(conn, agent)?;
        Ok(AgedTask { id, agent, state, age: Duration::from_millis(age), cursor })
    }
}
