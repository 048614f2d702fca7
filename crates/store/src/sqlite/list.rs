//! Pages of an owner's tasks. Every filter is evaluated inside one index; only the rows of the page are read.

use nuncio_engine::{
    clock::Timestamp,
    store::{ListCursor, ListPage, ListQuery, OpenedTask, TaskNo, TaskTally},
    task::{REPLIED, State, TaskId},
};
use rusqlite::{Connection, OptionalExtension, Result, ToSql, params};

use super::{names::SqliteNameCache, read};

/// Reads a page with the total over all pages, consistently.
pub(super) fn list(conn: &Connection, names: &mut SqliteNameCache, query: &ListQuery) -> Result<ListPage> {
    // Rolled back on drop, which for a read is the same as a commit.
    let _reading = conn.unchecked_transaction()?;
    let nothing = ListPage { tasks: vec![], next: None, total: 0 };
    let Some(owner) = names.find_owner(conn, &query.owner)? else { return Ok(nothing) };
    let agent = match &query.agent {
        None => None,
        Some(agent) => match names.find_agent(conn, agent)? {
            None => return Ok(nothing),
            found => found,
        },
    };
    let filter = ListFilter { owner, agent, query };
    let opener = filter.opener(conn)?;
    let total = filter.total(conn)? + u64::from(opener.is_some());
    let mut places = filter.places(conn, total)?;
    if let Some(opener) = opener
        && query.after.is_none_or(|after| order(&opener) < order(&after))
    {
        places.push(opener);
        places.sort_by_key(|place| std::cmp::Reverse(order(place)));
    }
    let more = places.len() > query.limit;
    places.truncate(query.limit);
    let next = places.last().copied().filter(|_| more);
    let mut tasks = Vec::with_capacity(places.len());
    for place in places {
        match query.only_rows {
            false => tasks.extend(read::open_no(conn, names, place.no.0)?),
            true => {
                let row = read::row_no(conn, names, place.no.0)?;
                tasks.extend(row.map(|row| OpenedTask { row, snapshot: None, log: vec![] }));
            }
        }
    }
    Ok(ListPage { tasks, next, total })
}

/// Counts an owner's tasks by agent and state.
pub(super) fn tally(conn: &Connection, names: &mut SqliteNameCache, owner: &str) -> Result<Vec<TaskTally>> {
    let Some(owner) = names.find_owner(conn, owner)? else { return Ok(vec![]) };
    let counted = conn
        .prepare_cached(
            "SELECT a.name, t.state, t.n FROM tally t JOIN agent a ON a.no = t.agent
             WHERE t.owner = ?1 AND t.n > 0 AND t.state <> ?2 ORDER BY a.name, t.state",
        )?
        .query_map(params![owner, REPLIED], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, u8>(1)?, read::number(row, 2)?))
        })?
        .collect::<Result<Vec<_>>>()?;
    let known = |(agent, state, count)| Some(TaskTally { agent, state: State::from_code(state)?, count });
    Ok(counted.into_iter().filter_map(known).collect())
}

fn order(place: &ListCursor) -> (Timestamp, TaskNo) {
    (place.status_at, place.no)
}

struct ListFilter<'q> {
    owner: i64,
    agent: Option<i64>,
    query: &'q ListQuery,
}

impl ListFilter<'_> {
    /// The task that opened the requested context: it is in no context index, because it has no context stored.
    fn opener(&self, conn: &Connection) -> Result<Option<ListCursor>> {
        let Some(id) = self.query.context.as_deref().and_then(TaskId::of_own_context) else {
            return Ok(None);
        };
        conn.prepare_cached(
            "SELECT status_at, no FROM task WHERE id = ?1 AND owner = ?2 AND context IS NULL
               AND state IS ifnull(?3, nullif(state, ?6)) AND (?4 IS NULL OR agent = ?4) AND (?5 IS NULL OR status_at >= ?5)",
        )?
        .query_row(
            params![
                id.0.as_bytes(),
                self.owner,
                self.query.state.map(State::code),
                self.agent,
                self.query.since.map(|since| since.0),
                REPLIED
            ],
            list_cursor,
        )
        .optional()
    }

    /// The number of matching tasks without the opener of the context: from the counters where they cover the
    /// filter.
    fn total(&self, conn: &Connection) -> Result<u64> {
        if self.query.context.is_some() || self.query.since.is_some() {
            let sql = format!("SELECT count(*) {} LIMIT ?9", self.condition());
            return self.with_params(None, 1, |params| {
                conn.prepare_cached(&sql)?.query_row(params, |row| read::number(row, 0))
            });
        }
        conn.prepare_cached(
            "SELECT ifnull(sum(n), 0) FROM tally
             WHERE owner = ?1 AND (?2 IS NULL OR agent = ?2) AND state IS ifnull(?3, nullif(state, ?4))",
        )?
        .query_row(params![self.owner, self.agent, self.query.state.map(State::code), REPLIED], |row| {
            read::number(row, 0)
        })
    }

    /// The cursors of this page, and one more if there is one.
    fn places(&self, conn: &Connection, total: u64) -> Result<Vec<ListCursor>> {
        // No more than exist, so that the search for a rare kind stops at the last of them.
        let limit = (self.query.limit as u64).saturating_add(1).min(total);
        self.with_params(self.query.after, i64::try_from(limit).unwrap_or(i64::MAX), |params| {
            conn.prepare_cached(&self.page())?.query_map(params, list_cursor)?.collect()
        })
    }

    fn page(&self) -> String {
        let after = if self.query.after.is_some() { "AND (status_at, no) < (?6, ?7)" } else { "" };
        format!("SELECT status_at, no {} {after} ORDER BY status_at DESC, no DESC LIMIT ?9", self.condition())
    }

    /// Names the index and the comparisons in it. A comparison that is left out costs nothing.
    fn condition(&self) -> String {
        let live = self.query.state.is_some_and(|state| !state.is_terminal());
        let index = match (&self.query.context, live) {
            (Some(_), _) => "task_context WHERE owner = ?1 AND context = ?2",
            (None, true) => "task_live WHERE owner = ?1 AND state < 4",
            (None, false) => "task_list WHERE owner = ?1",
        };
        // Without a filter all states but one: an answer by a message is no task.
        let state = if self.query.state.is_some() { "AND state = ?3" } else { "AND state <> ?8" };
        let agent = if self.agent.is_some() { "AND agent = ?4" } else { "" };
        let since = if self.query.since.is_some() { "AND status_at >= ?5" } else { "" };
        format!("FROM task INDEXED BY {index} {state} {agent} {since}")
    }

    fn with_params<T>(
        &self,
        after: Option<ListCursor>,
        limit: i64,
        run: impl FnOnce(&[&dyn ToSql]) -> Result<T>,
    ) -> Result<T> {
        run(params![
            self.owner,
            self.query.context,
            self.query.state.map(State::code),
            self.agent,
            self.query.since.map(|since| since.0),
            after.map(|after| after.status_at.0),
            after.map(|after| after.no.0),
            REPLIED,
            // The highest number, so that there are as many parameters whatever the filter.
            limit,
        ])
    }
}

fn list_cursor(row: &rusqlite::Row<'_>) -> Result<ListCursor> {
    Ok(ListCursor { status_at: Timestamp(row.get(0)?), no: TaskNo(row.get(1)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;

    /// Whatever the filter, a page is read from one index in order: no row is read to decide, and nothing is
    /// sorted.
    #[test]
    fn every_filter_is_decided_in_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let mut conn = schema::open_read_write(&folder.path().join("db")).unwrap();
        schema::migrate(&mut conn).unwrap();
        for bits in 0..32 {
            let on = |bit: u32| bits & 1 << bit != 0;
            for state in [State::Working, State::Failed] {
                let query = ListQuery {
                    owner: "alice".into(),
                    context: on(0).then(|| "talk".into()),
                    state: on(1).then_some(state),
                    agent: on(2).then(|| "echo".into()),
                    since: on(3).then_some(Timestamp(1)),
                    after: on(4).then_some(ListCursor { status_at: Timestamp(1), no: TaskNo(1) }),
                    limit: 1,
                    only_rows: false,
                };
                let filter = ListFilter { owner: 1, agent: on(2).then_some(1), query: &query };
                let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", filter.page())).unwrap();
                let steps = filter
                    .with_params(query.after, 1, |params| {
                        explain.query_map(params, |row| row.get::<_, String>(3))?.collect::<Result<Vec<_>>>()
                    })
                    .unwrap();
                let plan = steps.join("; ");
                assert!(plan.contains("COVERING INDEX"), "{query:?}: {plan}");
                assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{query:?}: {plan}");
            }
        }
    }
}
