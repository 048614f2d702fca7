//! The operator's list of tasks: those of the owners of a tenant, or of all owners, merged from the list of each owner.
//!
//! Lists have an index by owner and none across owners, which every commit would pay for. So a page costs one search in an
//! index for each owner that has matching tasks, and its own rows. How many tasks the owners have makes no difference.

use std::collections::{BinaryHeap, VecDeque};

use nuncio_engine::{
    access::tenant_of,
    clock::Timestamp,
    store::{ListCursor, TaskNo, TaskRow},
    task::State,
    tenant_store::TenantTasks,
};
use rusqlite::{Connection, Result, params};

use super::{names::SqliteNameCache, read, tenants::within};

/// A page of tasks, newest status first.
pub(super) fn list(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &TenantTasks,
) -> Result<Vec<TaskRow>> {
    let _reading = conn.unchecked_transaction()?;
    let agent = match &query.agent {
        None => None,
        Some(agent) => match names.find_agent(conn, agent)? {
            None => return Ok(vec![]),
            found => found,
        },
    };
    let merge = OwnerMerge { conn, query, agent };
    let mut rows = vec![];
    for found in merge.page(merge.sources()?)? {
        rows.extend(read::row_no(conn, names, found.no.0)?);
    }
    Ok(rows)
}

/// The merge of the lists of several owners.
struct OwnerMerge<'a> {
    conn: &'a Connection,
    query: &'a TenantTasks,
    agent: Option<i64>,
}

/// The list of one owner; of tasks that live, that of one of their states, in whose order the index of those is.
struct OwnerTaskList {
    owner: i64,
    state: Option<u8>,
    /// How many tasks it has, so that the search for a rare kind stops at the last of them.
    left: u64,
    /// The position of the last one that was read.
    after: Option<ListCursor>,
    /// What was read and not merged yet.
    read: VecDeque<ListCursor>,
    /// How many the next read takes.
    chunk: u64,
}

impl OwnerTaskList {
    /// The position of its next task, comparable with that of others.
    fn next(&self) -> Option<(i64, i64)> {
        self.read.front().map(|next| (next.status_at.0, next.no.0))
    }
}

impl OwnerMerge<'_> {
    /// Whether only tasks are listed that have not ended.
    fn is_live(&self) -> bool {
        self.query.live || self.query.state.is_some_and(|state| !state.is_terminal())
    }

    /// The lists of all owners that have matching tasks, by the counters.
    fn sources(&self) -> Result<Vec<OwnerTaskList>> {
        let (condition, name) = match (self.query.tenant.as_deref(), &self.query.owner) {
            (Some(tenant), Some(owner)) if tenant != tenant_of(owner) => return Ok(vec![]),
            (_, Some(owner)) => ("owner.name = ?1", owner.clone()),
            (tenant, None) => within(tenant),
        };
        let live = if self.is_live() { "AND tally.state < 4" } else { "" };
        let mut statement = self.conn.prepare_cached(&format!(
            "SELECT tally.owner, tally.state, tally.n FROM owner CROSS JOIN tally ON tally.owner = owner.no
             WHERE {condition} AND tally.n > 0 {live}
               AND (?2 IS NULL OR tally.state = ?2) AND (?3 IS NULL OR tally.agent = ?3)"
        ))?;
        let mut rows = statement.query(params![name, self.query.state.map(State::code), self.agent])?;
        let mut sources: Vec<OwnerTaskList> = vec![];
        while let Some(row) = rows.next()? {
            let (owner, state, count): (i64, u8, u64) = (row.get(0)?, row.get(1)?, read::number(row, 2)?);
            let state = self.is_live().then_some(state);
            // The counters of an owner follow each other.
            let mut known = sources.iter_mut().rev().take_while(|source| source.owner == owner);
            match known.find(|source| source.state == state) {
                Some(source) => source.left += count,
                None => sources.push(OwnerTaskList {
                    owner,
                    state,
                    left: count,
                    after: self.query.after,
                    read: VecDeque::new(),
                    chunk: 0,
                }),
            }
        }
        Ok(sources)
    }

    fn page(&self, mut sources: Vec<OwnerTaskList>) -> Result<Vec<ListCursor>> {
        let limit = self.query.limit;
        let first = limit.div_ceil(sources.len().max(1)) as u64 + 1;
        let mut heads = BinaryHeap::with_capacity(sources.len());
        for (index, source) in sources.iter_mut().enumerate() {
            source.chunk = first;
            self.read_on(source)?;
            heads.extend(source.next().map(|next| (next, index)));
        }
        let mut page = vec![];
        while page.len() < limit
            && let Some((_, index)) = heads.pop()
        {
            let source = &mut sources[index];
            page.extend(source.read.pop_front());
            if source.read.is_empty() {
                source.chunk = (2 * source.chunk).min((limit - page.len()) as u64);
                self.read_on(source)?;
            }
            heads.extend(source.next().map(|next| (next, index)));
        }
        Ok(page)
    }

    /// Reads the next tasks of a list.
    fn read_on(&self, source: &mut OwnerTaskList) -> Result<()> {
        let wanted = source.chunk.min(source.left);
        if wanted == 0 {
            return Ok(());
        }
        let state = source.state.or(self.query.state.map(State::code));
        let mut statement = self.conn.prepare_cached(&self.sql(source.after.is_some()))?;
        let found = statement.query_map(
            params![
                source.owner,
                state,
                self.agent,
                source.after.map(|after| after.status_at.0),
                source.after.map(|after| after.no.0),
                wanted.cast_signed()
            ],
            |row| Ok(ListCursor { status_at: Timestamp(row.get(0)?), no: TaskNo(row.get(1)?) }),
        )?;
        source.read = found.collect::<Result<_>>()?;
        source.left = if (source.read.len() as u64) < wanted { 0 } else { source.left - wanted };
        source.after = source.read.back().copied().or(source.after);
        Ok(())
    }

    /// Reads one list in the order of its index, in which all filters are decided.
    fn sql(&self, is_continued: bool) -> String {
        let when = |given: bool, condition: &'static str| if given { condition } else { "" };
        format!(
            "SELECT status_at, no FROM task INDEXED BY {} WHERE owner = ?1 {} {} {} {}
             ORDER BY status_at DESC, no DESC LIMIT ?6",
            if self.is_live() { "task_live" } else { "task_list" },
            when(self.is_live(), "AND state < 4"),
            when(self.is_live() || self.query.state.is_some(), "AND state = ?2"),
            when(self.agent.is_some(), "AND agent = ?3"),
            when(is_continued, "AND (status_at, no) < (?4, ?5)"),
        )
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::sqlite::schema;

    fn store() -> (tempfile::TempDir, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let mut conn = schema::open_read_write(&folder.path().join("db")).unwrap();
        schema::migrate(&mut conn).unwrap();
        (folder, conn)
    }

    /// Tasks of ten owners in turn, at these times; every other one has ended.
    fn fill(conn: &mut Connection, times: std::ops::Range<i64>) {
        let transaction = conn.transaction().unwrap();
        transaction.execute("INSERT OR IGNORE INTO agent (no, name) VALUES (1, 'echo')", []).unwrap();
        for at in times {
            let (owner, state) = (1 + at % 10, if at % 20 < 10 { 1 } else { 4 });
            let named = "INSERT OR IGNORE INTO owner (no, name) VALUES (?1, 'acme/' || ?1)";
            transaction.execute(named, [owner]).unwrap();
            let task =
                "INSERT INTO task (no, id, owner, agent, state, status_at, created_at, seq, version, epoch,
                   attempts, cancel, snap_seq, unfolded, journaled, hooks, head)
                 VALUES (?1, ?2, ?3, 1, ?4, ?1, ?1, 2, 1, 1, 0, 0, 0, 0, 0, 0, x'')";
            transaction.execute(task, params![at, (at as u128).to_be_bytes(), owner, state]).unwrap();
            let counted = "INSERT INTO tally (owner, agent, state, n) VALUES (?1, 1, ?2, 1)
                 ON CONFLICT DO UPDATE SET n = n + 1";
            transaction.execute(counted, [owner, state]).unwrap();
        }
        transaction.commit().unwrap();
    }

    fn queries() -> Vec<TenantTasks> {
        let mut queries = vec![];
        for (tenant, owner) in [(None, None), (Some("acme"), None), (Some("acme"), Some("acme/3"))] {
            for (live, state) in
                [(false, None), (true, None), (false, Some(State::Working)), (false, Some(State::Completed))]
            {
                for (agent, after) in [(None, None), (Some("echo"), Some(9_990))] {
                    queries.push(TenantTasks {
                        tenant: tenant.map(str::to_owned),
                        owner: owner.map(str::to_owned),
                        live,
                        state,
                        agent: agent.map(str::to_owned),
                        after: after.map(|at| ListCursor { status_at: Timestamp(at), no: TaskNo(at) }),
                        limit: 15,
                    });
                }
            }
        }
        queries
    }

    /// The page, and how many steps SQLite took to find it.
    fn page(conn: &Connection, query: &TenantTasks) -> (Vec<i64>, i32) {
        let merge = OwnerMerge { conn, query, agent: query.agent.as_ref().map(|_| 1) };
        let statements = [merge.sql(false), merge.sql(true)];
        for sql in &statements {
            conn.prepare_cached(sql).unwrap().reset_status(StatementStatus::VmStep);
        }
        let found = list(conn, &mut SqliteNameCache::default(), query).unwrap();
        let steps = |sql: &String| conn.prepare_cached(sql).unwrap().get_status(StatementStatus::VmStep);
        (found.iter().map(|row| row.no.0).collect(), statements.iter().map(steps).sum())
    }

    #[test]
    fn a_page_costs_no_more_where_owners_have_more_tasks() {
        let (_folder, mut conn) = store();
        fill(&mut conn, 9_000..10_000);
        let expected = |query: &TenantTasks| -> Vec<i64> {
            let ended = |at: i64| at % 20 >= 10;
            let fits = |at: &i64| {
                (query.owner.is_none() || at % 10 == 2)
                    && !(query.live && ended(*at))
                    && query.state.is_none_or(|state| state.is_terminal() == ended(*at))
                    && query.after.is_none_or(|after| *at < after.no.0)
            };
            (9_000..10_000).rev().filter(fits).take(15).collect()
        };
        let before: Vec<_> = queries().iter().map(|query| page(&conn, query)).collect();
        for (query, (found, _)) in queries().iter().zip(&before) {
            assert_eq!(*found, expected(query), "{query:?}");
        }
        fill(&mut conn, 1..9_000);
        let after: Vec<_> = queries().iter().map(|query| page(&conn, query)).collect();
        assert_eq!(after, before);
    }

    #[test]
    fn every_filter_is_decided_in_an_index_in_its_order() {
        let (_folder, conn) = store();
        for query in queries() {
            let merge = OwnerMerge { conn: &conn, query: &query, agent: query.agent.as_ref().map(|_| 1) };
            let mut explain =
                conn.prepare(&format!("EXPLAIN QUERY PLAN {}", merge.sql(query.after.is_some()))).unwrap();
            let steps = explain.query_map([1; 6], |row| row.get::<_, String>(3)).unwrap();
            let plan = steps.collect::<Result<Vec<_>>>().unwrap().join("; ");
            assert!(plan.contains("COVERING INDEX"), "{query:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{query:?}: {plan}");
        }
    }
}
