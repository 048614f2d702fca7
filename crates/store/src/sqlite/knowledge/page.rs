//! Reads of the memory bank: one entry, pages, sizes, and the entries to sweep.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{MemoryEntry, MemoryKey, MemoryPageQuery, MemoryStats},
};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, ToSql, params, types::Value};

use super::{
    super::{names::SqliteNameCache, read::number},
    memory::{NamespaceRow, count_expired, space},
    whole,
};
use crate::knowledge::prefix_end;

/// The columns that `entry` reads, with this expression for the value. A macro, because only literals are joined at
/// compile time: a statement that is run for each request is not put together for each.
macro_rules! entry_columns {
    ($value:literal) => {
        concat!("memory.key, version, created_at, updated_at, accessed_at, reads, size, ttl, ", $value)
    };
}
pub(super) use entry_columns;

pub(super) fn entry(row: &Row<'_>) -> Result<MemoryEntry> {
    Ok(MemoryEntry {
        key: row.get(0)?,
        version: number(row, 1)?,
        created_at: Timestamp(row.get(2)?),
        updated_at: Timestamp(row.get(3)?),
        accessed_at: Timestamp(row.get(4)?),
        reads: number(row, 5)?,
        size: number(row, 6)?,
        ttl_ms: row.get::<_, Option<i64>>(7)?.map(i64::cast_unsigned),
        value: row.get(8)?,
    })
}

/// The entry of that key.
pub(super) fn one(
    conn: &Connection,
    names: &mut SqliteNameCache,
    key: &MemoryKey,
    now: Timestamp,
) -> Result<Option<MemoryEntry>> {
    let Some(owner) = names.find_owner(conn, &key.tenant)? else { return Ok(None) };
    conn.prepare_cached(concat!(
        "SELECT ",
        entry_columns!("value"),
        " FROM memory JOIN memory_value USING (no)
         WHERE space = (SELECT no FROM memory_space WHERE owner = ?1 AND namespace = ?2) AND key = ?3
           AND (expires_at IS NULL OR expires_at > ?4)"
    ))?
    .query_row(params![owner, key.namespace, key.key, now.0], entry)
    .optional()
}

/// A range of keys, ordered by bytes: those that begin with a prefix and come after another key.
pub(super) struct SqliteKeyRange {
    pub(super) from: String,
    /// Whether `from` itself is excluded.
    without: bool,
    end: Option<String>,
}

impl SqliteKeyRange {
    pub(super) fn new(prefix: &str, after: &str) -> Self {
        let without = !after.is_empty() && after >= prefix;
        Self { from: if without { after } else { prefix }.to_owned(), without, end: prefix_end(prefix) }
    }

    /// A range of one key.
    pub(super) fn only(text: &str) -> Self {
        Self { from: text.to_owned(), without: false, end: Some(format!("{text}\0")) }
    }

    /// The comparison operator for `from`.
    pub(super) fn above(&self) -> &'static str {
        if self.without { ">" } else { ">=" }
    }

    /// The end of the range. Without one it is a blob, because SQLite orders every text before every blob.
    pub(super) fn end(&self) -> Value {
        self.end.clone().map_or(Value::Blob(vec![]), Value::Text)
    }
}

/// Entries in the order of their keys.
pub(super) fn page(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &MemoryPageQuery,
) -> Result<Vec<MemoryEntry>> {
    // Rolled back on drop, which for a read is the same as a commit.
    let _reading = conn.unchecked_transaction()?;
    match find_space(conn, names, &query.tenant, &query.namespace)? {
        Some(space) => entries(conn, space.no, query),
        None => Ok(vec![]),
    }
}

/// The namespace of that tenant, if it holds any entries.
fn find_space(
    conn: &Connection,
    names: &mut SqliteNameCache,
    tenant: &str,
    namespace: &str,
) -> Result<Option<NamespaceRow>> {
    match names.find_owner(conn, tenant)? {
        Some(owner) => space(conn, owner, namespace),
        None => Ok(None),
    }
}

fn entries(conn: &Connection, space: i64, query: &MemoryPageQuery) -> Result<Vec<MemoryEntry>> {
    let span = SqliteKeyRange::new(&query.prefix, &query.after);
    macro_rules! page_from {
        ($value:literal, $join:literal, $above:literal) => {
            concat!(
                "SELECT ",
                entry_columns!($value),
                " FROM memory INDEXED BY memory_key ",
                $join,
                " WHERE space = ?1 AND key ",
                $above,
                " ?2 AND key < ?3 AND (expires_at IS NULL OR expires_at > ?4) ORDER BY key LIMIT ?5"
            )
        };
    }
    let sql = match (query.values, span.without) {
        (true, true) => page_from!("value", "JOIN memory_value USING (no)", ">"),
        (true, false) => page_from!("value", "JOIN memory_value USING (no)", ">="),
        (false, true) => page_from!("''", "", ">"),
        (false, false) => page_from!("''", "", ">="),
    };
    conn.prepare_cached(sql)?
        .query_map(params![space, span.from, span.end(), query.now.0, whole(query.limit as u64)], entry)?
        .collect()
}

/// The size of a namespace: from its counters, less the expired entries.
pub(super) fn stats(
    conn: &Connection,
    names: &mut SqliteNameCache,
    tenant: &str,
    namespace: &str,
    now: Timestamp,
) -> Result<Option<MemoryStats>> {
    let _reading = conn.unchecked_transaction()?;
    match find_space(conn, names, tenant, namespace)? {
        Some(space) => measure(conn, &space, now),
        None => Ok(None),
    }
}

/// The size of a namespace and a page of it, in one consistent read.
pub(super) fn stats_and_page(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &MemoryPageQuery,
) -> Result<Option<(MemoryStats, Vec<MemoryEntry>)>> {
    let _reading = conn.unchecked_transaction()?;
    let Some(space) = find_space(conn, names, &query.tenant, &query.namespace)? else { return Ok(None) };
    let Some(stats) = measure(conn, &space, query.now)? else { return Ok(None) };
    Ok(Some((stats, entries(conn, space.no, query)?)))
}

fn measure(conn: &Connection, space: &NamespaceRow, now: Timestamp) -> Result<Option<MemoryStats>> {
    let (entries, bytes) = count_expired(conn, space.no, now)?;
    if entries >= space.entries {
        return Ok(None);
    }
    let edge = |sql: &str| {
        conn.prepare_cached(sql)?.query_row(params![space.no, now.0], |row| row.get(0)).map(Timestamp)
    };
    let oldest = edge(
        "SELECT created_at FROM memory INDEXED BY memory_created
         WHERE space = ?1 AND (expires_at IS NULL OR expires_at > ?2) ORDER BY created_at LIMIT 1",
    )?;
    let newest = edge(
        "SELECT updated_at FROM memory INDEXED BY memory_updated
         WHERE space = ?1 AND (expires_at IS NULL OR expires_at > ?2) ORDER BY updated_at DESC LIMIT 1",
    )?;
    Ok(Some(MemoryStats {
        entries: space.entries - entries,
        bytes: space.bytes.saturating_sub(bytes),
        oldest,
        newest,
    }))
}

/// Namespaces that hold entries.
pub(super) fn namespaces(
    conn: &Connection,
    names: &mut SqliteNameCache,
    tenant: &str,
    prefix: &str,
    after: &str,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<String>> {
    let Some(owner) = names.find_owner(conn, tenant)? else { return Ok(vec![]) };
    let span = SqliteKeyRange::new(prefix, after);
    macro_rules! names_from {
        ($above:literal) => {
            concat!(
                "SELECT namespace FROM memory_space WHERE owner = ?1 AND namespace ",
                $above,
                " ?2 AND namespace < ?3
                   AND EXISTS (SELECT 1 FROM memory INDEXED BY memory_created
                     WHERE space = memory_space.no AND (expires_at IS NULL OR expires_at > ?4))
                 ORDER BY namespace LIMIT ?5"
            )
        };
    }
    let sql = if span.without { names_from!(">") } else { names_from!(">=") };
    conn.prepare_cached(sql)?
        .query_map(
            [&owner as &dyn ToSql, &span.from, &span.end(), &now.0, &whole(limit as u64)].as_slice(),
            |row| row.get(0),
        )?
        .collect()
}

/// Expired entries, oldest first.
pub(super) fn expired_entries(conn: &Connection, now: Timestamp, limit: usize) -> Result<Vec<i64>> {
    conn.prepare_cached(
        "SELECT no FROM memory INDEXED BY memory_expiry WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
    )?
    .query_map(params![now.0, whole(limit as u64)], |row| row.get(0))?
    .collect()
}
