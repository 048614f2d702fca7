//! Reads of the memory bank: one entry, pages, and sizes. Each is one statement, and so consistent.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{MemoryEntry, MemoryKey, MemoryPageQuery, MemoryStats},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{
    super::{pool::PostgresPool, read::number},
    whole,
};
use crate::knowledge::prefix_end;

/// The columns that `entry` reads, of `memory m`. A macro, because only literals are joined at compile time.
macro_rules! entry_columns {
    () => {
        "m.key, m.version, m.created_at, m.updated_at, m.accessed_at, m.reads, m.size, m.ttl, m.value"
    };
}
pub(super) const ENTRY: &str = entry_columns!();

/// The namespace of a tenant, both by name: the first two parameters.
macro_rules! named_space {
    () => {
        "(SELECT x.* FROM memory_space x
     WHERE x.tenant = (SELECT o.no FROM owner o WHERE o.name = $1) AND x.namespace = $2) s"
    };
}
pub(super) const SPACE: &str = named_space!();

/// Number and size of a namespace: from its counters, less the expired entries. The time is the third parameter.
macro_rules! measured_space {
    () => {
        concat!(
            "SELECT s.tenant, s.no, s.entries - x.entries AS entries, s.bytes - x.bytes AS bytes,
               (SELECT m.created_at FROM memory m WHERE m.tenant = s.tenant AND m.space = s.no AND m.version > 0
                  AND (m.expires_at IS NULL OR m.expires_at > $3) ORDER BY m.created_at LIMIT 1) AS oldest,
               (SELECT m.updated_at FROM memory m WHERE m.tenant = s.tenant AND m.space = s.no AND m.version > 0
                  AND (m.expires_at IS NULL OR m.expires_at > $3) ORDER BY m.updated_at DESC LIMIT 1) AS newest
             FROM ",
            named_space!(),
            " CROSS JOIN LATERAL (
               SELECT count(*) AS entries, coalesce(sum(m.size), 0)::bigint AS bytes FROM memory m
               WHERE m.tenant = s.tenant AND m.space = s.no AND m.expires_at <= $3) x
             WHERE s.entries > x.entries"
        )
    };
}

pub(super) fn entry(row: &Row) -> MemoryEntry {
    MemoryEntry {
        key: row.get(0),
        version: number(row, 1),
        created_at: Timestamp(row.get(2)),
        updated_at: Timestamp(row.get(3)),
        accessed_at: Timestamp(row.get(4)),
        reads: number(row, 5),
        size: number(row, 6),
        ttl_ms: row.get::<_, Option<i64>>(7).map(i64::cast_unsigned),
        value: row.get(8),
    }
}

/// The entry of that key.
pub(super) async fn one(
    pool: &PostgresPool,
    key: &MemoryKey,
    now: Timestamp,
) -> Result<Option<MemoryEntry>, StoreError> {
    let sql = concat!(
        "SELECT ",
        entry_columns!(),
        " FROM ",
        named_space!(),
        " JOIN memory m ON m.tenant = s.tenant AND m.space = s.no AND m.key = $3
         WHERE m.expires_at IS NULL OR m.expires_at > $4"
    );
    let row = pool.read_one(sql, &[&key.tenant, &key.namespace, &key.key, &now.0]).await?;
    Ok(row.as_ref().map(entry))
}

/// A range of keys, ordered by bytes: those that begin with a prefix and come after another key.
pub(super) struct PostgresKeyRange {
    pub(super) from: String,
    pub(super) end: Option<String>,
    without: bool,
}

impl PostgresKeyRange {
    pub(super) fn new(prefix: &str, after: &str) -> Self {
        let without = !after.is_empty() && after >= prefix;
        Self { from: if without { after } else { prefix }.to_owned(), end: prefix_end(prefix), without }
    }

    /// The condition on a column, with `from` and `end` as parameters of these numbers. It contains only the
    /// bounds that exist, so that an index is read from one to the other.
    pub(super) fn holds(&self, column: &str, from: u8, end: u8) -> String {
        let from_is = if self.without { ">" } else { ">=" };
        match self.end {
            Some(_) => format!("{column} {from_is} ${from} AND {column} < ${end}"),
            None => format!("{column} {from_is} ${from} AND ${end}::text IS NULL"),
        }
    }
}

/// Entries in the order of their keys.
pub(super) async fn page(
    pool: &PostgresPool,
    query: &MemoryPageQuery,
) -> Result<Vec<MemoryEntry>, StoreError> {
    let span = PostgresKeyRange::new(&query.prefix, &query.after);
    let columns = if query.values { ENTRY.to_owned() } else { ENTRY.replace("m.value", "''") };
    let sql = format!(
        "SELECT {columns} FROM {SPACE} JOIN memory m ON m.tenant = s.tenant AND m.space = s.no
         WHERE {} AND (m.expires_at IS NULL OR m.expires_at > $5) ORDER BY m.key LIMIT $6",
        span.holds("m.key", 3, 4)
    );
    let limit = whole(query.limit as u64);
    let rows = pool
        .read(&sql, &[&query.tenant, &query.namespace, &span.from, &span.end, &query.now.0, &limit])
        .await?;
    Ok(rows.iter().map(entry).collect())
}

/// The size of a namespace: from its counters, less the expired entries.
pub(super) async fn stats(
    pool: &PostgresPool,
    tenant: &str,
    namespace: &str,
    now: Timestamp,
) -> Result<Option<MemoryStats>, StoreError> {
    let row = pool.read_one(measured_space!(), &[&tenant, &namespace, &now.0]).await?;
    Ok(row.map(|row| stats_of(&row, 2)))
}

/// The size of a namespace, from four columns.
fn stats_of(row: &Row, first: usize) -> MemoryStats {
    MemoryStats {
        entries: number(row, first),
        bytes: number(row, first + 1),
        oldest: Timestamp(row.get(first + 2)),
        newest: Timestamp(row.get(first + 3)),
    }
}

/// The size of a namespace and a page of it, in one statement. The size is materialized: otherwise it is measured
/// anew for each entry of the page.
pub(super) async fn stats_and_page(
    pool: &PostgresPool,
    query: &MemoryPageQuery,
) -> Result<Option<(MemoryStats, Vec<MemoryEntry>)>, StoreError> {
    let span = PostgresKeyRange::new(&query.prefix, &query.after);
    let columns = if query.values { ENTRY.to_owned() } else { ENTRY.replace("m.value", "''") };
    let sql = format!(
        "WITH t AS MATERIALIZED ({})
         SELECT {columns}, t.entries, t.bytes, t.oldest, t.newest FROM t LEFT JOIN LATERAL (
           SELECT m.* FROM memory m WHERE m.tenant = t.tenant AND m.space = t.no AND {}
             AND (m.expires_at IS NULL OR m.expires_at > $3) ORDER BY m.key LIMIT $6) m ON true
         ORDER BY m.key",
        measured_space!(),
        span.holds("m.key", 4, 5)
    );
    let limit = whole(query.limit as u64);
    let rows = pool
        .read(&sql, &[&query.tenant, &query.namespace, &query.now.0, &span.from, &span.end, &limit])
        .await?;
    let Some(first) = rows.first() else { return Ok(None) };
    // A page without entries is one row that has nothing but the size.
    let entries = rows.iter().filter(|row| row.get::<_, Option<&str>>(0).is_some()).map(entry);
    Ok(Some((stats_of(first, 9), entries.collect())))
}

/// Namespaces that hold entries.
pub(super) async fn namespaces(
    pool: &PostgresPool,
    tenant: &str,
    prefix: &str,
    after: &str,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let span = PostgresKeyRange::new(prefix, after);
    let sql = format!(
        "SELECT s.namespace FROM owner o JOIN memory_space s ON s.tenant = o.no
         WHERE o.name = $1 AND {} AND EXISTS (SELECT 1 FROM memory m WHERE m.tenant = s.tenant AND m.space = s.no
           AND (m.expires_at IS NULL OR m.expires_at > $4))
         ORDER BY s.namespace LIMIT $5",
        span.holds("s.namespace", 2, 3)
    );
    let limit = whole(limit as u64);
    let rows = pool.read(&sql, &[&tenant, &span.from, &span.end, &now.0, &limit]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
