//! Pages of an owner's tasks, each in one statement with the total over all pages.

use nuncio_engine::{
    store::{ListCursor, ListPage, ListQuery, StoreError, TaskTally},
    task::{State, TaskId},
};

use super::{
    names::{NameKind, PostgresNameCache},
    pool::PostgresPool,
    read::{number, opened, select_opened, select_row},
};

/// Reads a page, consistently.
pub(super) async fn list(
    pool: &PostgresPool,
    names: &PostgresNameCache,
    query: &ListQuery,
) -> Result<ListPage, StoreError> {
    let nothing = ListPage { tasks: vec![], next: None, total: 0 };
    let Some(tenant) = names.find(pool, NameKind::Owner, &query.owner).await? else { return Ok(nothing) };
    let agent = match &query.agent {
        None => None,
        Some(agent) => match names.find(pool, NameKind::Agent, agent).await? {
            None => return Ok(nothing),
            found => found,
        },
    };
    // The task that opened the requested context has no context stored.
    let opener = query.context.as_deref().and_then(TaskId::of_own_context).map(|id| id.0);
    let state = query.state.map(|state| i16::from(state.code()));
    let since = query.since.map(|since| since.0);
    let after = query.after.map(|after| (after.status_at.0, after.no.0)).unzip();
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX).saturating_add(1);
    let sql = sql(query);
    let rows = pool
        .read(&sql, &[&tenant, &query.context, &opener, &state, &agent, &since, &after.0, &after.1, &limit])
        .await?;
    let total = rows.first().map_or(0, |row| number(row, 22));
    // The first row has the total, and nothing else if the page is empty.
    let mut tasks = rows
        .iter()
        .filter(|row| row.get::<_, Option<i64>>(0).is_some())
        .map(opened)
        .collect::<Result<Vec<_>, _>>()?;
    let more = tasks.len() > query.limit;
    tasks.truncate(query.limit);
    let next = tasks.last().filter(|_| more);
    let next = next.map(|last| ListCursor { status_at: last.row.status_at, no: last.row.no });
    Ok(ListPage { tasks, next, total })
}

/// Counts an owner's tasks by agent and state.
pub(super) async fn tally(
    pool: &PostgresPool,
    names: &PostgresNameCache,
    owner: &str,
) -> Result<Vec<TaskTally>, StoreError> {
    let Some(tenant) = names.find(pool, NameKind::Owner, owner).await? else { return Ok(vec![]) };
    let sql = "SELECT a.name, t.state, sum(t.n)::bigint FROM tally t JOIN agent a ON a.no = t.agent \
         WHERE t.tenant = $1 AND t.state <> 8 GROUP BY a.name, t.state HAVING sum(t.n) > 0 \
         ORDER BY a.name COLLATE \"C\", t.state";
    let rows = pool.read(sql, &[&tenant]).await?;
    let known = |row: &tokio_postgres::Row| {
        let code = u8::try_from(row.get::<_, i16>(1)).ok()?;
        Some(TaskTally { agent: row.get(0), state: State::from_code(code)?, count: number(row, 2) })
    };
    Ok(rows.iter().filter_map(known).collect())
}

/// The statement for a query: unneeded comparisons are left out, so that an index can be used.
fn sql(query: &ListQuery) -> String {
    let live = query.state.is_some_and(|state| !state.is_terminal());
    let mut which = String::from("t.tenant = $1");
    which.push_str(match &query.context {
        Some(_) => " AND (t.context = $2 OR (t.id = $3 AND t.context IS NULL))",
        None => " AND $2::text IS NULL AND $3::uuid IS NULL",
    });
    which.push_str(match query.state {
        Some(_) if live => " AND t.state < 4 AND t.state = $4",
        Some(_) => " AND t.state = $4",
        // All states but one: an answer by a message is no task.
        None => " AND $4::smallint IS NULL AND t.state <> 8",
    });
    which.push_str(if query.agent.is_some() { " AND t.agent = $5" } else { " AND $5::integer IS NULL" });
    which.push_str(if query.since.is_some() { " AND t.status_at >= $6" } else { " AND $6::bigint IS NULL" });
    let after = match query.after {
        Some(_) => "(t.status_at, t.no) < ($7, $8)",
        None => "$7::bigint IS NULL AND $8::bigint IS NULL",
    };
    // From the counters where they cover the filter.
    let total = match query.context.is_some() || query.since.is_some() {
        true => format!("SELECT count(*) AS total FROM task t WHERE {which}"),
        false => "SELECT coalesce(sum(n), 0)::bigint AS total FROM tally WHERE tenant = $1 \
             AND ($5::integer IS NULL OR agent = $5) AND (state = $4 OR ($4::smallint IS NULL AND state <> 8))"
            .to_owned(),
    };
    let page = match query.only_rows {
        false => select_opened!("page t", "").to_owned(),
        true => select_row!("page t", "").replacen(
            " FROM page t",
            ", NULL::bigint, NULL::bytea, NULL::bigint[], NULL::bytea[] FROM page t",
            1,
        ),
    };
    let page = page.replacen(" FROM page t", ", t.status_at AS at FROM page t", 1);
    format!(
        "WITH page AS MATERIALIZED (SELECT t.* FROM task t WHERE {which} AND {after} \
         ORDER BY t.status_at DESC, t.no DESC LIMIT $9), total AS ({total}) \
         SELECT p.*, total.total FROM total LEFT JOIN ({page}) p({COLUMNS}) ON true \
         ORDER BY p.at DESC, p.no DESC"
    )
}

/// Names for the columns of `select_opened`, and one more to sort by.
const COLUMNS: &str = "no, id, owner, agent, state, status_at, created_at, seq, version, epoch, node, attempts, \
     cancel, context, client_id, parent, head, snap, fold, seqs, bytes, at";
