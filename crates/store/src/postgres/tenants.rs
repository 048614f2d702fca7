//! Operations across all owners of a tenant, for the operator. Owners are `name` in the home tenant and
//! `tenant/name` in any other, so that a tenant is a range of names.

use async_trait::async_trait;
use nuncio_engine::{
    access::{HOME_TENANT, tenant_of},
    clock::Timestamp,
    knowledge::{AuditEntry, Record},
    store::{StoreError, TaskNo, TaskRow},
    tenant_store::{MeasuredTasks, OwnerTasks, TenantRecord, TenantStore, TenantTasks},
};

use super::{
    PostgresStore,
    knowledge::plain,
    read::{bytes, number, select_row, task_row},
};

/// Maximum rows changed in one transaction, so that others do not wait long for its locks.
const CHUNK: usize = 64;

#[async_trait]
impl TenantStore for PostgresStore {
    async fn tenant_names(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT t.name FROM (
               SELECT split_part(o.name, '/', 1) COLLATE \"C\" AS name FROM owner o WHERE strpos(o.name, '/') > 0
               UNION SELECT o.name COLLATE \"C\" FROM owner o WHERE strpos(o.name, '/') = 0 AND (
                 EXISTS (SELECT 1 FROM memory_space s WHERE s.tenant = o.no)
                 OR EXISTS (SELECT 1 FROM record r WHERE r.tenant = o.no))
               UNION SELECT $3::text COLLATE \"C\") t
             WHERE t.name > $1 ORDER BY t.name LIMIT $2";
        let rows = self.pool.read(sql, &[&after, &whole(limit), &HOME_TENANT]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn owners(&self, tenant: &str, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let (within, tenant) = tenant_condition(Some(tenant));
        let sql = format!(
            "SELECT o.name FROM (SELECT no, name COLLATE \"C\" AS name FROM owner) o
             WHERE {within} AND o.name > $2 AND (strpos(o.name, '/') > 0
               OR EXISTS (SELECT 1 FROM tally x WHERE x.tenant = o.no)
               OR EXISTS (SELECT 1 FROM session x WHERE x.tenant = o.no))
             ORDER BY o.name LIMIT $3"
        );
        let rows = self.pool.read(&sql, &[&tenant, &after, &whole(limit)]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn tenant_tasks(&self, query: &TenantTasks) -> Result<Vec<TaskRow>, StoreError> {
        let (within, named) = match (query.tenant.as_deref(), &query.owner) {
            (Some(tenant), Some(owner)) if tenant != tenant_of(owner) => return Ok(vec![]),
            (_, Some(owner)) => ("o.name = $1", owner.clone()),
            (tenant, None) => tenant_condition(tenant),
        };
        let state = query.state.map(|state| i16::from(state.code()));
        let after = query.after.map(|after| (after.status_at.0, after.no.0)).unzip();
        let limit = whole(query.limit);
        let rows = self
            .pool
            .read(&tasks_sql(query, within), &[&named, &state, &query.agent, &after.0, &after.1, &limit])
            .await?;
        rows.iter().map(task_row).collect()
    }

    async fn delete_tasks(&self, tasks: &[TaskNo]) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for chunk in tasks.chunks(CHUNK) {
            let numbers: Vec<i64> = chunk.iter().map(|task| task.0).collect();
            let rows = self.pool.run("SELECT delete_tasks($1)", &[&numbers]).await?;
            deleted += rows.first().map_or(0, |row| number(row, 0));
        }
        Ok(deleted)
    }

    async fn delete_sessions_of(&self, owner: &str, limit: usize) -> Result<u64, StoreError> {
        let sql = "WITH gone AS (DELETE FROM session s WHERE s.id IN (
               SELECT x.id FROM session x WHERE x.tenant = (SELECT o.no FROM owner o WHERE o.name = $1) LIMIT $2)
             RETURNING 1) SELECT count(*) FROM gone";
        let rows = self.pool.run(sql, &[&owner, &whole(limit)]).await?;
        Ok(rows.first().map_or(0, |row| number(row, 0)))
    }

    async fn tenant_records(
        &self,
        tenant: &str,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<TenantRecord>, StoreError> {
        let (kind, id) = after.unwrap_or_default();
        let sql = "SELECT r.kind, r.id, r.body, r.version, r.updated_at, r.expires_at
             FROM owner o JOIN record r ON r.tenant = o.no
             WHERE o.name = $1 AND (r.kind, r.id) > ($2, $3) ORDER BY r.kind, r.id LIMIT $4";
        let rows = self.pool.read(sql, &[&tenant, &kind, &id, &whole(limit)]).await?;
        Ok(rows
            .iter()
            .map(|row| TenantRecord {
                kind: row.get(0),
                record: Record {
                    id: row.get(1),
                    body: bytes(row, 2),
                    version: number(row, 3),
                    updated_at: Timestamp(row.get(4)),
                },
                expires_at: row.get::<_, Option<i64>>(5).map(Timestamp),
            })
            .collect())
    }

    async fn delete_tenant_records(&self, tenant: &str, limit: usize) -> Result<u64, StoreError> {
        let sql = "WITH picked AS (
               SELECT r.tenant, r.kind, r.id FROM record r
               WHERE r.tenant = (SELECT o.no FROM owner o WHERE o.name = $1) LIMIT $2
             ), gone AS (
               DELETE FROM record r USING picked p WHERE r.tenant = p.tenant AND r.kind = p.kind AND r.id = p.id
               RETURNING 1
             ) SELECT count(*) FROM gone";
        let rows = self.pool.run(sql, &[&tenant, &whole(limit)]).await?;
        Ok(rows.first().map_or(0, |row| number(row, 0)))
    }

    async fn delete_usage_of(&self, tenant: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM usage u WHERE starts_with(substr(u.name, strpos(u.name, ' ') + 1), $1)";
        self.pool.run(sql, &[&format!("{tenant}/")]).await.map(drop)
    }

    /// Nothing to do: the indexed words are a column of the row, and were deleted with it.
    async fn purge_deleted_words(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn measure_tasks(&self, after: TaskNo, limit: usize) -> Result<MeasuredTasks, StoreError> {
        // The number of a task begins with that of its owner. `octet_length` does not read values that are
        // stored out of line.
        let sql = "SELECT o.name, count(*), sum(p.bytes)::bigint, sum(p.hooks)::bigint, max(p.no) FROM (
               SELECT t.tenant, t.no, t.hooks, octet_length(t.head)
                 + (SELECT coalesce(sum(octet_length(x.bytes)), 0) FROM log x
                    WHERE x.tenant = t.tenant AND x.task = t.no)
                 + (SELECT coalesce(sum(octet_length(x.bytes)), 0) FROM journal x
                    WHERE x.tenant = t.tenant AND x.task = t.no)
                 + (SELECT coalesce(sum(octet_length(x.fold)), 0) FROM snapshot x
                    WHERE x.tenant = t.tenant AND x.task = t.no) AS bytes
               FROM task t WHERE (t.tenant, t.no) > (($1::bigint >> 40)::integer, $1::bigint)
               ORDER BY t.tenant, t.no LIMIT $2
             ) p JOIN owner o ON o.no = p.tenant GROUP BY o.name";
        let rows = self.pool.read(sql, &[&after.0, &whole(limit)]).await?;
        let owners: Vec<OwnerTasks> = rows
            .iter()
            .map(|row| OwnerTasks {
                owner: row.get(0),
                tasks: number(row, 1),
                bytes: number(row, 2),
                webhooks: number(row, 3),
            })
            .collect();
        let is_full = owners.iter().map(|owner| owner.tasks).sum::<u64>() >= limit as u64;
        let next = rows.iter().map(|row| row.get::<_, i64>(4)).max().filter(|_| is_full).map(TaskNo);
        Ok(MeasuredTasks { owners, next })
    }

    async fn measure_knowledge(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let sql = "SELECT o.name, sum(p.bytes)::bigint FROM (
               SELECT m.tenant, m.bytes + m.names AS bytes FROM memory_tenant m
               UNION ALL SELECT r.tenant, octet_length(r.id) + octet_length(r.body) FROM record r
             ) p JOIN owner o ON o.no = p.tenant GROUP BY o.name HAVING sum(p.bytes) > 0";
        let rows = self.pool.read(sql, &[]).await?;
        Ok(rows.iter().map(|row| (row.get(0), number(row, 1))).collect())
    }

    async fn rewrite_audit(&self, tenant: &str, lines: Vec<(u64, AuditEntry)>) -> Result<(), StoreError> {
        let numbers: Vec<i64> = lines.iter().map(|(no, _)| i64::try_from(*no).unwrap_or(i64::MAX)).collect();
        let texts =
            |of: fn(&AuditEntry) -> &str| lines.iter().map(|(_, line)| plain(of(line))).collect::<Vec<_>>();
        let maybe = |of: fn(&AuditEntry) -> Option<&str>| {
            lines.iter().map(|(_, line)| of(line).map(plain)).collect::<Vec<_>>()
        };
        self.pool
            .run(
                "SELECT rewrite_audit($1, $2, $3, $4, $5, $6, $7, $8)",
                &[
                    &tenant,
                    &numbers,
                    &texts(|line| &line.tenant),
                    &texts(|line| &line.caller),
                    &maybe(|line| line.from.as_deref()),
                    &texts(|line| &line.resource),
                    &maybe(|line| line.refused.as_deref()),
                    &maybe(|line| line.credential.as_deref()),
                ],
            )
            .await
            .map(drop)
    }

    async fn rename_owner(&self, owner: &str, name: &str) -> Result<(), StoreError> {
        let sql = "UPDATE owner SET name = $2 WHERE name = $1
             AND NOT EXISTS (SELECT 1 FROM owner x WHERE x.name = $2)";
        self.pool.run(sql, &[&owner, &name]).await?;
        self.names.forget();
        Ok(())
    }

    async fn forget_names(&self) {
        self.names.forget();
    }
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A page of the tasks of several owners, merged from the list of each: that has an index, and one across owners would cost
/// every commit. Only the owners with the newest tasks can be on the page, so first those are found by their newest one.
fn tasks_sql(query: &TenantTasks, within: &str) -> String {
    let live = query.live || query.state.is_some_and(|state| !state.is_terminal());
    let when = |given: bool, condition: &'static str, unused: &'static str| {
        if given { condition } else { unused }
    };
    // Of tasks that live each state is a list of its own, in whose order their index is.
    let matching = [
        "t.tenant = l.tenant",
        when(live, "t.state < 4 AND t.state = l.state", "true"),
        when(!live && query.state.is_some(), "t.state = $2", "true"),
        when(query.agent.is_some(), "t.agent = (SELECT g.no FROM agent g WHERE g.name = $3)", "true"),
        when(query.after.is_some(), "(t.status_at, t.no) < ($4, $5)", "true"),
    ]
    .join(" AND ");
    let counted = [
        when(live, "x.state < 4", "true"),
        when(query.state.is_some(), "x.state = $2", "$2::smallint IS NULL"),
        when(
            query.agent.is_some(),
            "x.agent = (SELECT g.no FROM agent g WHERE g.name = $3)",
            "$3::text IS NULL",
        ),
        when(query.after.is_some(), "true", "$4::bigint IS NULL AND $5::bigint IS NULL"),
    ]
    .join(" AND ");
    let state = when(live, "x.state", "NULL::smallint");
    // Ranges of names are those of bytes; one name is found by its index.
    let within = match query.owner {
        Some(_) => within.to_owned(),
        None => within.replace("o.name", "o.name COLLATE \"C\""),
    };
    let page = select_row!("page p JOIN task t ON t.tenant = p.tenant AND t.no = p.no", "");
    format!(
        "WITH list AS MATERIALIZED (
           SELECT DISTINCT o.no AS tenant, {state} AS state FROM owner o JOIN tally x ON x.tenant = o.no
           WHERE {within} AND x.n > 0 AND {counted}
         ), newest AS MATERIALIZED (
           SELECT l.tenant, l.state FROM list l CROSS JOIN LATERAL (
             SELECT t.status_at, t.no FROM task t WHERE {matching} ORDER BY t.status_at DESC, t.no DESC LIMIT 1) h
           ORDER BY h.status_at DESC, h.no DESC LIMIT $6
         ), page AS MATERIALIZED (
           SELECT h.tenant, h.no FROM newest l CROSS JOIN LATERAL (
             SELECT t.tenant, t.no, t.status_at FROM task t WHERE {matching}
             ORDER BY t.status_at DESC, t.no DESC LIMIT $6) h
           ORDER BY h.status_at DESC, h.no DESC LIMIT $6
         ) {page} ORDER BY t.status_at DESC, t.no DESC"
    )
}

/// A condition on `o.name`, ordered by bytes, that matches the owners of a tenant; its parameter is $1.
fn tenant_condition(tenant: Option<&str>) -> (&'static str, String) {
    match tenant {
        None => ("$1::text IS NOT NULL", String::new()),
        Some(HOME_TENANT) => ("strpos(o.name, '/') = 0 AND $1::text IS NOT NULL", String::new()),
        // '0' is the character right after '/'.
        Some(tenant) => ("o.name > $1::text || '/' AND o.name < $1::text || '0'", tenant.to_owned()),
    }
}
