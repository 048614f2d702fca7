//! The audit, and the usage counters that all nodes share. Triggers refuse to change an audit line, and to
//! delete one unless a sweep has set the age from which lines may be deleted.

use std::sync::Arc;

use nuncio_engine::{
    access::{AccessKind, Action},
    clock::Timestamp,
    knowledge::{AuditEntry, AuditPage, AuditQuery},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{
    super::{
        pool::{Param, PostgresPool},
        read::number,
    },
    whole,
};

/// A counter without additions for this long is deleted, and starts at zero if it is used again.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// Appends lines in order.
pub(super) async fn append(pool: &PostgresPool, entries: &[AuditEntry]) -> Result<(), StoreError> {
    let texts =
        |of: fn(&AuditEntry) -> &str| entries.iter().map(|entry| plain(of(entry))).collect::<Vec<_>>();
    let maybe = |of: fn(&AuditEntry) -> Option<&str>| {
        entries.iter().map(|entry| of(entry).map(plain)).collect::<Vec<_>>()
    };
    let times: Vec<i64> = entries.iter().map(|entry| entry.at.0).collect();
    pool.run(
        "SELECT append_audit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &[
            &times,
            &texts(|entry| &entry.tenant),
            &texts(|entry| &entry.caller),
            &maybe(|entry| entry.from.as_deref()),
            &texts(|entry| &entry.operation),
            &texts(|entry| entry.action.name()),
            &texts(|entry| entry.kind.name()),
            &texts(|entry| &entry.resource),
            &maybe(|entry| entry.refused.as_deref()),
            &maybe(|entry| entry.credential.as_deref()),
        ],
    )
    .await
    .map(drop)
}

/// Replaces NULs, which PostgreSQL text cannot hold: a line must not be lost because of what a caller wrote
/// into a URI.
pub(in crate::postgres) fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The columns that `line` reads, of `audit a` and `owner o`.
pub(super) const LINE: &str = "a.no, a.at, o.name, a.caller, a.origin, a.operation, a.action, a.kind, a.resource, a.refused, \
     a.credential";

/// A page of the audit.
pub(super) async fn query(pool: &PostgresPool, query: &AuditQuery) -> Result<AuditPage, StoreError> {
    // Unneeded comparisons are left out, so that the right index gives the order.
    let when =
        |given: bool, condition: &'static str, unused: &'static str| if given { condition } else { unused };
    let filters = [
        when(query.caller.is_some(), "a.caller = $3", "$3::text IS NULL"),
        when(query.kind.is_some(), "a.kind = $4", "$4::text IS NULL"),
        when(query.since.is_some(), "a.at >= $5", "$5::bigint IS NULL"),
        when(query.refused, "a.refused IS NOT NULL", "true"),
        when(query.until.is_some(), "a.at < $7", "$7::bigint IS NULL"),
        when(query.resource.is_some(), "strpos(a.resource, $8) > 0", "$8::text IS NULL"),
    ]
    .join(" AND ");
    let of_tenant = when(
        query.tenant.is_some(),
        "a.tenant = (SELECT x.no FROM owner x WHERE x.name = $2)",
        "$2::text IS NULL",
    );
    // The first row has the count of the lines that were read and the last of them, and nothing else if no line matches.
    let sql = format!(
        "WITH scanned AS MATERIALIZED (
           SELECT a.* FROM audit a WHERE a.no < $1 AND {of_tenant} ORDER BY a.no DESC LIMIT $9
         ), ends AS (SELECT count(*) AS lines, min(s.no) AS last FROM scanned s)
         SELECT f.*, ends.lines, ends.last FROM ends LEFT JOIN (
           SELECT {LINE} FROM scanned a JOIN owner o ON o.no = a.tenant
           WHERE {filters} ORDER BY a.no DESC LIMIT $6
         ) f ON true ORDER BY f.no DESC"
    );
    let before = query.before.map_or(i64::MAX, whole);
    let (kind, since) = (query.kind.map(AccessKind::name), query.since.map(|since| since.0));
    let limit = whole(query.limit as u64);
    let (until, resource) = (query.until.map(|until| until.0), query.resource.as_deref().map(plain));
    // Without a filter each line that is read is on the page.
    let most = match query.is_filtered() {
        true => query.max_read,
        false => Some(query.max_read.map_or(query.limit, |most| most.min(query.limit))),
    };
    let most = most.map(|most| whole(most as u64));
    let params: [Param<'_>; 9] =
        [&before, &query.tenant, &query.caller, &kind, &since, &limit, &until, &resource, &most];
    let rows = pool.read(&sql, &params).await?;
    let found = rows.iter().filter(|row| row.get::<_, Option<i64>>(0).is_some());
    let entries = found.map(line).collect::<Result<Vec<_>, _>>()?;
    let read_until = rows.first().filter(|row| most.is_some_and(|most| row.get::<_, i64>(11) >= most));
    let next = match entries.last() {
        Some((last, _)) if entries.len() >= query.limit => Some(*last),
        _ => read_until.map(|row| number(row, 12)),
    };
    Ok(AuditPage { entries, next })
}

pub(super) fn line(row: &Row) -> Result<(u64, AuditEntry), StoreError> {
    let (action, kind): (&str, &str) = (row.get(6), row.get(7));
    let unknown = |name: &str| StoreError::Broken(format!("the audit says {name:?}"));
    let entry = AuditEntry {
        at: Timestamp(row.get(1)),
        tenant: row.get::<_, String>(2).into(),
        caller: row.get::<_, &str>(3).into(),
        from: row.get::<_, Option<&str>>(4).map(Arc::from),
        operation: row.get::<_, String>(5).into(),
        action: Action::ALL
            .into_iter()
            .find(|known| known.name() == action)
            .ok_or_else(|| unknown(action))?,
        kind: AccessKind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(|| unknown(kind))?,
        resource: row.get(8),
        refused: row.get(9),
        credential: row.get::<_, Option<&str>>(10).map(Arc::from),
    };
    Ok((number(row, 0), entry))
}

/// Adds to counters; returns their totals, in the order of the arguments.
pub(super) async fn add_usage(
    pool: &PostgresPool,
    uses: &[(String, u64)],
    now: Timestamp,
) -> Result<Vec<u64>, StoreError> {
    let (names, more): (Vec<&str>, Vec<i64>) =
        uses.iter().map(|(name, uses)| (name.as_str(), whole(*uses))).unzip();
    let forget = now.0.saturating_sub(KEPT_MS);
    let sql = "SELECT total FROM add_usage($1, $2, $3, $4) ORDER BY place";
    let rows = pool.run(sql, &[&names, &more, &now.0, &forget]).await?;
    Ok(rows.iter().map(|row| number(row, 0)).collect())
}
