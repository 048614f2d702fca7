//! Operations across all owners of a tenant, for the operator. Owners are `name` in the home tenant and
//! `tenant/name` in any other, so that a tenant is a range of names.

use async_trait::async_trait;
use nuncio_engine::{
    access::HOME_TENANT,
    clock::Timestamp,
    knowledge::{AuditEntry, Record},
    store::{StoreError, TaskNo, TaskRow},
    tenant_store::{MeasuredTasks, OwnerTasks, TenantRecord, TenantStore, TenantTasks},
};
use rusqlite::{Connection, Result, params};

use super::{
    SqliteStore, expire,
    names::SqliteNameCache,
    read::{bytes, number},
    tenant_tasks,
    write_session::WriteSession,
};

/// Maximum rows changed in one job, so that commits in the same batch do not wait long.
const CHUNK: usize = 64;
/// Maximum pages of the full-text index that are merged in one job, for the same reason.
const WORD_PAGES: i64 = 64;

#[async_trait]
impl TenantStore for SqliteStore {
    async fn tenant_names(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let after = after.to_owned();
        self.scan(move |conn, _| tenant_names(conn, &after, limit)).await
    }

    async fn owners(&self, tenant: &str, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let (tenant, after) = (tenant.to_owned(), after.to_owned());
        self.scan(move |conn, _| owners(conn, &tenant, &after, limit)).await
    }

    async fn tenant_tasks(&self, query: &TenantTasks) -> Result<Vec<TaskRow>, StoreError> {
        let query = query.clone();
        self.scan(move |conn, names| tenant_tasks::list(conn, names, &query)).await
    }

    async fn delete_tasks(&self, tasks: &[TaskNo]) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for chunk in tasks.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            deleted += self
                .writer
                .write(0, move |session| {
                    let mut deleted = 0;
                    for TaskNo(no) in &chunk {
                        deleted += u64::from(expire::delete_whole(session, *no)?);
                    }
                    Ok(deleted)
                })
                .await?;
        }
        Ok(deleted)
    }

    async fn delete_sessions_of(&self, owner: &str, limit: usize) -> Result<u64, StoreError> {
        let owner = owner.to_owned();
        let delete = move |session: &mut WriteSession| {
            let WriteSession { conn, names, .. } = session;
            let Some(owner) = names.find_owner(conn, &owner)? else { return Ok(0) };
            let sql = "DELETE FROM session WHERE rowid IN (
                   SELECT rowid FROM session INDEXED BY session_owner WHERE owner = ?1 LIMIT ?2)";
            Ok(conn.prepare_cached(sql)?.execute(params![owner, whole(limit)])? as u64)
        };
        self.writer.write(0, delete).await
    }

    async fn tenant_records(
        &self,
        tenant: &str,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Vec<TenantRecord>, StoreError> {
        let tenant = tenant.to_owned();
        let (kind, id) = after.unwrap_or_default();
        let (kind, id) = (kind.to_owned(), id.to_owned());
        self.scan(move |conn, names| records(conn, names, &tenant, (&kind, &id), limit)).await
    }

    async fn delete_tenant_records(&self, tenant: &str, limit: usize) -> Result<u64, StoreError> {
        let tenant = tenant.to_owned();
        let delete = move |session: &mut WriteSession| {
            let WriteSession { conn, names, .. } = session;
            let Some(owner) = names.find_owner(conn, &tenant)? else { return Ok(0) };
            let sql = "DELETE FROM record WHERE no IN (SELECT no FROM record WHERE owner = ?1 LIMIT ?2)";
            Ok(conn.prepare_cached(sql)?.execute(params![owner, whole(limit)])? as u64)
        };
        self.writer.write(0, delete).await
    }

    async fn delete_usage_of(&self, tenant: &str) -> Result<(), StoreError> {
        let owners = format!("{tenant}/");
        let delete = move |session: &mut WriteSession| {
            let sql = "DELETE FROM usage WHERE substr(name, instr(name, ' ') + 1, length(?1)) = ?1";
            session.conn.prepare_cached(sql)?.execute([&owners]).map(drop)
        };
        self.writer.write(0, delete).await
    }

    async fn purge_deleted_words(&self) -> Result<(), StoreError> {
        // A negative number starts one merge of all segments; positive ones continue it, so that concurrent
        // writes do not restart it.
        let mut pages = -WORD_PAGES;
        loop {
            let merge = move |session: &mut WriteSession| {
                let before = session.conn.total_changes();
                let sql = "INSERT INTO memory_words (memory_words, rank) VALUES ('merge', ?1)";
                session.conn.prepare_cached(sql)?.execute([pages])?;
                // The statement itself counts as one change.
                Ok(session.conn.total_changes() - before > 1)
            };
            if !self.writer.write(0, merge).await? {
                return Ok(());
            }
            pages = WORD_PAGES;
        }
    }

    async fn measure_tasks(&self, after: TaskNo, limit: usize) -> Result<MeasuredTasks, StoreError> {
        self.scan(move |conn, _| measure_tasks(conn, after, limit)).await
    }

    async fn measure_knowledge(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.scan(|conn, _| measure_knowledge(conn)).await
    }

    async fn rewrite_audit(&self, tenant: &str, lines: Vec<(u64, AuditEntry)>) -> Result<(), StoreError> {
        let tenant = tenant.to_owned();
        self.writer.write(0, move |session| rewrite_audit(session, &tenant, &lines)).await
    }

    async fn rename_owner(&self, owner: &str, name: &str) -> Result<(), StoreError> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        let rename = move |session: &mut WriteSession| {
            let sql = "UPDATE OR IGNORE owner SET name = ?2 WHERE name = ?1";
            session.conn.prepare_cached(sql)?.execute([&owner, &name])?;
            session.names = SqliteNameCache::default();
            Ok(())
        };
        self.writer.write(0, rename).await
    }

    async fn forget_names(&self) {
        let forget = |session: &mut WriteSession| {
            session.names = SqliteNameCache::default();
            Ok(())
        };
        // An error means that the store is closed, and a closed store has no cache.
        let _ = self.writer.write(0, forget).await;
        self.points.forget_names();
        self.scans.forget_names().await;
        self.searches.forget_names().await;
    }
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn tenant_names(conn: &Connection, after: &str, limit: usize) -> Result<Vec<String>> {
    conn.prepare_cached(
        "SELECT tenant FROM (
           SELECT substr(name, 1, instr(name, '/') - 1) AS tenant FROM owner WHERE instr(name, '/') > 0
           UNION SELECT name FROM owner WHERE instr(name, '/') = 0 AND (
             no IN (SELECT owner FROM memory_tenant WHERE spaces > 0) OR no IN (SELECT owner FROM record))
           UNION SELECT ?3)
         WHERE tenant > ?1 ORDER BY tenant LIMIT ?2",
    )?
    .query_map(params![after, whole(limit), HOME_TENANT], |row| row.get(0))?
    .collect()
}

/// A condition on `owner.name` that matches the owners of a tenant; its parameter is ?1.
pub(super) fn within(tenant: Option<&str>) -> (&'static str, String) {
    match tenant {
        None => ("?1 IS NOT NULL", String::new()),
        Some(HOME_TENANT) => ("instr(owner.name, '/') = 0 AND ?1 IS NOT NULL", String::new()),
        // '0' is the character right after '/'.
        Some(tenant) => ("owner.name > ?1 || '/' AND owner.name < ?1 || '0'", tenant.to_owned()),
    }
}

fn owners(conn: &Connection, tenant: &str, after: &str, limit: usize) -> Result<Vec<String>> {
    let (within, tenant) = within(Some(tenant));
    conn.prepare_cached(&format!(
        "SELECT name FROM owner WHERE {within} AND name > ?2
           AND (instr(name, '/') > 0 OR no IN (SELECT owner FROM tally) OR no IN (SELECT owner FROM session))
         ORDER BY name LIMIT ?3"
    ))?
    .query_map(params![tenant, after, whole(limit)], |row| row.get(0))?
    .collect()
}

fn records(
    conn: &Connection,
    names: &mut SqliteNameCache,
    tenant: &str,
    after: (&str, &str),
    limit: usize,
) -> Result<Vec<TenantRecord>> {
    let Some(owner) = names.find_owner(conn, tenant)? else { return Ok(vec![]) };
    conn.prepare_cached(
        "SELECT kind, id, body, version, updated_at, expires_at FROM record
         WHERE owner = ?1 AND (kind, id) > (?2, ?3) ORDER BY kind, id LIMIT ?4",
    )?
    .query_map(params![owner, after.0, after.1, whole(limit)], |row| {
        let record = Record {
            id: row.get(1)?,
            body: bytes(row, 2)?,
            version: number(row, 3)?,
            updated_at: Timestamp(row.get(4)?),
        };
        Ok(TenantRecord {
            kind: row.get(0)?,
            record,
            expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
        })
    })?
    .collect()
}

fn measure_tasks(conn: &Connection, after: TaskNo, limit: usize) -> Result<MeasuredTasks> {
    // SQLite knows the length of a blob without reading its overflow pages. The keys of a task are those
    // between its number and the next, see `read::key`.
    let mut statement = conn.prepare_cached(
        "SELECT owner.name, count(*), sum(bytes), sum(hooks), max(page.no) FROM (
           SELECT no, owner, hooks, length(head)
             + (SELECT ifnull(sum(length(bytes)), 0) FROM log WHERE key >= no << 20 AND key < (no + 1) << 20)
             + (SELECT ifnull(sum(length(bytes)), 0) FROM journal WHERE key >= no << 20 AND key < (no + 1) << 20)
             + (SELECT ifnull(sum(length(fold)), 0) FROM snapshot WHERE task = no) AS bytes
           FROM task WHERE no > ?1 ORDER BY no LIMIT ?2
         ) AS page JOIN owner ON owner.no = page.owner GROUP BY owner.name",
    )?;
    let rows = statement.query_map(params![after.0, whole(limit)], |row| {
        let owner = OwnerTasks {
            owner: row.get(0)?,
            tasks: number(row, 1)?,
            bytes: number(row, 2)?,
            webhooks: number(row, 3)?,
        };
        Ok((owner, row.get::<_, i64>(4)?))
    })?;
    let rows: Vec<(OwnerTasks, i64)> = rows.collect::<Result<_>>()?;
    let is_full = rows.iter().map(|(owner, _)| owner.tasks).sum::<u64>() >= limit as u64;
    let next = rows.iter().map(|(_, last)| TaskNo(*last)).max_by_key(|last| last.0).filter(|_| is_full);
    Ok(MeasuredTasks { owners: rows.into_iter().map(|(owner, _)| owner).collect(), next })
}

fn measure_knowledge(conn: &Connection) -> Result<Vec<(String, u64)>> {
    conn.prepare_cached(
        "SELECT owner.name, sum(part.bytes) FROM (
           SELECT owner, bytes + names AS bytes FROM memory_tenant
           UNION ALL SELECT owner, octet_length(id) + length(body) FROM record
         ) AS part JOIN owner ON owner.no = part.owner GROUP BY owner.name HAVING sum(part.bytes) > 0",
    )?
    .query_map([], |row| Ok((row.get(0)?, number(row, 1)?)))?
    .collect()
}

/// Rewrites audit lines of an erased tenant. `audit_erasure` permits that only while it names the owner, and is
/// reset before any other statement runs.
fn rewrite_audit(session: &mut WriteSession, tenant: &str, lines: &[(u64, AuditEntry)]) -> Result<()> {
    let WriteSession { conn, names, .. } = session;
    let Some(erased) = names.find_owner(conn, tenant)? else { return Ok(()) };
    let window = |owner: Option<i64>| {
        conn.prepare_cached("UPDATE audit_erasure SET owner = ?1")?.execute([owner]).map(drop)
    };
    window(Some(erased))?;
    for (no, line) in lines {
        let owner = names.owner_no(conn, &line.tenant)?;
        conn.prepare_cached(
            "UPDATE audit SET owner = ?3, tenant = ?3, caller = ?4, origin = ?5, resource = ?6, refused = ?7,
               credential = ?8 WHERE no = ?1 AND owner = ?2",
        )?
        .execute(params![
            i64::try_from(*no).unwrap_or(i64::MAX),
            erased,
            owner,
            line.caller,
            line.from,
            line.resource,
            line.refused,
            line.credential
        ])?;
    }
    window(None)
}
