//! Deliveries that failed, for the people who look after them: lists, and what is done with one of them.

use nuncio_engine::{
    access::tenant_of,
    clock::Timestamp,
    store::{FailedDelivery, FailedDeliveryQuery, TaskNo, WebhookProgress},
};
use rusqlite::{Connection, OptionalExtension as _, Result, params, types::Value};

use super::{
    names::SqliteNameCache,
    outbox::{advance, webhook},
    read,
    write_session::WriteSession,
};

/// Deliveries that wait for a retry, or were given up, newest first.
pub(super) fn list(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &FailedDeliveryQuery,
) -> Result<Vec<FailedDelivery>> {
    let _reading = conn.unchecked_transaction()?;
    let Some(scope) = DeliveryScope::of(conn, names, query)? else { return Ok(vec![]) };
    let (at, task, hook, seq) = match &query.after {
        None => (i64::MAX, i64::MAX, "", 0),
        Some(after) => (after.at.0, after.task.0, after.hook.as_str(), after.seq as i64),
    };
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(&scope.sql(query.dead))?;
    let mut rows = statement.query(params![scope.parameter(), at, task, hook, seq, limit])?;
    let mut found = vec![];
    while let Some(row) = rows.next()? {
        let Some(task) = read::row_no(conn, names, row.get(3)?)? else { continue };
        found.push(FailedDelivery {
            row: task,
            hook: webhook(row, 0)?,
            seq: read::number(row, 4)?,
            attempts: row.get(5)?,
            due_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
            in_progress: row.get(7)?,
            reason: row.get(8)?,
            at: Timestamp(row.get(9)?),
        });
    }
    Ok(found)
}

/// Whose deliveries a list has. Each scope has an index in the order of the list, which holds no others.
enum DeliveryScope<'q> {
    All,
    Tenant(&'q str),
    Owner(i64),
}

impl<'q> DeliveryScope<'q> {
    /// `None`: there is no such owner, or none in that tenant.
    fn of(
        conn: &Connection,
        names: &mut SqliteNameCache,
        query: &'q FailedDeliveryQuery,
    ) -> Result<Option<Self>> {
        match (query.tenant.as_deref(), query.owner.as_deref()) {
            (None, None) => Ok(Some(Self::All)),
            (Some(tenant), None) => Ok(Some(Self::Tenant(tenant))),
            (Some(tenant), Some(owner)) if tenant != tenant_of(owner) => Ok(None),
            (_, Some(owner)) => Ok(names.find_owner(conn, owner)?.map(Self::Owner)),
        }
    }

    /// The first parameter of the list.
    fn parameter(&self) -> Value {
        match self {
            Self::All => Value::Null,
            Self::Tenant(tenant) => Value::Text((*tenant).to_owned()),
            Self::Owner(no) => Value::Integer(*no),
        }
    }

    fn sql(&self, dead: bool) -> String {
        match dead {
            false => {
                let (index, scope) = match self {
                    Self::All => ("webhook_failing", "?1 IS NULL"),
                    Self::Tenant(_) => ("webhook_failing_tenant", "w.tenant = ?1"),
                    Self::Owner(_) => ("webhook_failing_owner", "w.owner = ?1"),
                };
                // A webhook has one delivery that waits, that of the event after its cursor; so its number adds nothing
                // to the order. The bounds are given in any case, so that all lists have the same parameters.
                format!(
                    "SELECT w.id, w.cursor, w.config, w.task, w.cursor + 1, w.attempts, w.due_at,
                       w.node IS NOT NULL, w.reason, w.failing_since
                     FROM webhook AS w INDEXED BY {index}
                     WHERE {scope} AND w.failing_since IS NOT NULL
                       AND (w.failing_since, w.task, w.id, 0) < (?2, ?3, ?4, min(?5, 0))
                     ORDER BY w.failing_since DESC, w.task DESC, w.id DESC LIMIT ?6"
                )
            }
            true => {
                let (index, scope) = match self {
                    Self::All => ("dead_letter_at", "?1 IS NULL"),
                    Self::Tenant(_) => ("dead_letter_tenant", "d.tenant = ?1"),
                    Self::Owner(_) => ("dead_letter_owner", "d.owner = ?1"),
                };
                format!(
                    "SELECT w.id, w.cursor, w.config, d.task, d.seq, d.attempts, d.due_at, d.node IS NOT NULL,
                       d.reason, d.at
                     FROM dead_letter AS d INDEXED BY {index}
                       CROSS JOIN webhook AS w ON w.task = d.task AND w.id = d.webhook
                     WHERE {scope} AND (d.at, d.task, d.webhook, d.seq) < (?2, ?3, ?4, ?5)
                     ORDER BY d.at DESC, d.task DESC, d.webhook DESC, d.seq DESC LIMIT ?6"
                )
            }
        }
    }
}

/// The webhooks of a task with the progress of their deliveries, in the order of their ids.
pub(super) fn progress(conn: &Connection, task: TaskNo) -> Result<Vec<WebhookProgress>> {
    conn.prepare_cached(
        "SELECT id, cursor, config, attempts, due_at, node IS NOT NULL, reason, failing_since,
           (SELECT count(*) FROM dead_letter AS d WHERE d.task = w.task AND d.webhook = w.id)
         FROM webhook AS w WHERE w.task = ?1 ORDER BY id",
    )?
    .query_map([task.0], |row| {
        Ok(WebhookProgress {
            hook: webhook(row, 0)?,
            attempts: row.get(3)?,
            due_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
            in_progress: row.get(5)?,
            reason: row.get(6)?,
            failing_since: row.get::<_, Option<i64>>(7)?.map(Timestamp),
            dead: read::number(row, 8)?,
        })
    })?
    .collect()
}

/// Makes one failed delivery due at once.
pub(super) fn replay(
    session: &mut WriteSession,
    task: TaskNo,
    hook: &str,
    seq: u64,
    now: Timestamp,
) -> Result<bool> {
    session.record_time(now);
    let seq = seq as i64;
    let retried = session
        .conn
        .prepare_cached(
            "UPDATE webhook SET due_at = min(due_at, ?4) WHERE task = ?1 AND id = ?2 AND cursor = ?3 - 1
               AND failing_since IS NOT NULL AND node IS NULL",
        )?
        .execute(params![task.0, hook, seq, now.0])?;
    let revived = session
        .conn
        .prepare_cached(
            "UPDATE dead_letter SET due_at = ?4 WHERE task = ?1 AND webhook = ?2 AND seq = ?3 AND due_at IS NULL",
        )?
        .execute(params![task.0, hook, seq, now.0])?;
    Ok(retried + revived > 0)
}

/// Gives one failed delivery up without a trace.
pub(super) fn discard(
    session: &mut WriteSession,
    task: TaskNo,
    hook: &str,
    seq: u64,
    now: Timestamp,
) -> Result<bool> {
    session.record_time(now);
    let deleted = session
        .conn
        .prepare_cached(
            "DELETE FROM dead_letter WHERE task = ?1 AND webhook = ?2 AND seq = ?3 AND node IS NULL",
        )?
        .execute(params![task.0, hook, seq as i64])?
        > 0;
    let waits = session
        .conn
        .prepare_cached(
            "SELECT 1 FROM webhook WHERE task = ?1 AND id = ?2 AND cursor = ?3 - 1
               AND failing_since IS NOT NULL AND node IS NULL",
        )?
        .query_row(params![task.0, hook, seq as i64], |_| Ok(()))
        .optional()?
        .is_some();
    if waits {
        advance(session, task, hook, seq)?;
    }
    Ok(deleted || waits)
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::sqlite::schema;

    /// Tasks of an owner, each with a webhook that fails and with a dead letter. Later ones are newer.
    fn fail(conn: &mut Connection, owner: &str, tasks: std::ops::Range<i64>) {
        let conn = conn.transaction().unwrap();
        conn.execute("INSERT OR IGNORE INTO agent (no, name) VALUES (1, 'echo')", []).unwrap();
        conn.execute("INSERT OR IGNORE INTO owner (name) VALUES (?1)", [owner]).unwrap();
        for no in tasks {
            conn.execute(
                "INSERT INTO task (no, id, owner, agent, state, status_at, created_at, seq, version, epoch, attempts,
                   cancel, snap_seq, unfolded, journaled, hooks, head)
                 SELECT ?1, ?2, no, 1, 4, ?1, ?1, 2, 1, 1, 0, 0, 0, 0, 0, 1, x'' FROM owner WHERE name = ?3",
                params![no, (no as u128).to_be_bytes(), owner],
            )
            .unwrap();
            let webhook =
                "INSERT INTO webhook (task, id, cursor, attempts, config) VALUES (?1, 'w', 1, 0, x'')";
            conn.execute(webhook, [no]).unwrap();
            conn.execute("UPDATE webhook SET failing_since = ?1, attempts = 1 WHERE task = ?1", [no])
                .unwrap();
            let dead = "INSERT INTO dead_letter (task, webhook, seq, delivery, reason, at)
                 VALUES (?1, 'w', 1, 'd', 'gone', ?1)";
            conn.execute(dead, [no]).unwrap();
        }
        conn.commit().unwrap();
    }

    /// The numbers of the tasks on the first page, and how many steps SQLite took to find them.
    fn first_page(conn: &Connection, query: &FailedDeliveryQuery) -> (Vec<i64>, i32) {
        let mut names = SqliteNameCache::default();
        let sql = DeliveryScope::of(conn, &mut names, query).unwrap().unwrap().sql(query.dead);
        conn.prepare_cached(&sql).unwrap().reset_status(StatementStatus::VmStep);
        let found = list(conn, &mut names, query).unwrap();
        let steps = conn.prepare_cached(&sql).unwrap().get_status(StatementStatus::VmStep);
        (found.iter().map(|failed| failed.row.no.0).collect(), steps)
    }

    #[test]
    fn a_list_reads_no_deliveries_of_other_tenants() {
        let folder = tempfile::tempdir().unwrap();
        let mut conn = schema::open_read_write(&folder.path().join("db")).unwrap();
        schema::migrate(&mut conn).unwrap();
        fail(&mut conn, "acme/ada", 1_000..1_003);
        fail(&mut conn, "ada", 1_003..1_005);
        let lists: Vec<FailedDeliveryQuery> = [false, true]
            .into_iter()
            .flat_map(|dead| {
                let of = move |tenant: Option<&str>, owner: Option<&str>| FailedDeliveryQuery {
                    dead,
                    tenant: tenant.map(str::to_owned),
                    owner: owner.map(str::to_owned),
                    after: None,
                    limit: 10,
                };
                [
                    of(Some("acme"), None),
                    of(Some("acme"), Some("acme/ada")),
                    of(None, Some("acme/ada")),
                    of(Some("home"), None),
                ]
            })
            .collect();
        let before: Vec<_> = lists.iter().map(|query| first_page(&conn, query)).collect();
        for (query, (found, _)) in lists.iter().zip(&before) {
            let expected: &[i64] = match query.tenant.as_deref() {
                Some("home") => &[1_004, 1_003],
                _ => &[1_002, 1_001, 1_000],
            };
            assert_eq!(found, expected, "{query:?}");
        }
        // Older ones and newer ones.
        fail(&mut conn, "evil/eve", 1..1_000);
        fail(&mut conn, "evil/eve", 2_000..3_000);
        let after: Vec<_> = lists.iter().map(|query| first_page(&conn, query)).collect();
        assert_eq!(after, before);
        // All tenants' are read in the order of an index as well.
        for dead in [false, true] {
            let all = FailedDeliveryQuery { dead, tenant: None, owner: None, after: None, limit: 3 };
            let (found, steps) = first_page(&conn, &all);
            assert_eq!(found, [2_999, 2_998, 2_997]);
            assert!(steps < 200, "{steps} steps for a page of three");
            assert!(
                DeliveryScope::of(
                    &conn,
                    &mut SqliteNameCache::default(),
                    &FailedDeliveryQuery {
                        tenant: Some("acme".into()),
                        owner: Some("evil/eve".into()),
                        ..all
                    }
                )
                .unwrap()
                .is_none(),
                "an owner of another tenant"
            );
        }
    }
}
