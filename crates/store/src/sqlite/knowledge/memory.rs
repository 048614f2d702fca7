//! The writes of memory entries. The counters of their namespace and tenant change in the same job, so that no
//! query has to count; both include expired entries that are not swept yet.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{
        ENTRY_OVERHEAD, ExpectedVersion, MemoryError, MemoryKey, MemoryPut, MemoryReads, MemoryWriteResult,
    },
};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use super::{
    super::{read::number, write_session::WriteSession},
    whole,
};
use crate::{archive::MemoryDump, knowledge::tokenize_in_namespace};

/// A namespace as it is stored.
pub(super) struct NamespaceRow {
    pub(super) no: i64,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// The namespace of that name, if it holds any entries.
pub(super) fn space(conn: &Connection, owner: i64, namespace: &str) -> Result<Option<NamespaceRow>> {
    conn.prepare_cached("SELECT no, entries, bytes FROM memory_space WHERE owner = ?1 AND namespace = ?2")?
        .query_row(params![owner, namespace], |row| {
            Ok(NamespaceRow { no: row.get(0)?, entries: number(row, 1)?, bytes: number(row, 2)? })
        })
        .optional()
}

/// The number of expired entries of a namespace that are not swept yet, and their bytes.
pub(super) fn count_expired(conn: &Connection, space: i64, now: Timestamp) -> Result<(u64, u64)> {
    conn.prepare_cached(
        "SELECT count(*), ifnull(sum(size), 0) FROM memory INDEXED BY memory_over
         WHERE space = ?1 AND expires_at <= ?2",
    )?
    .query_row(params![space, now.0], |row| Ok((number(row, 0)?, number(row, 1)?)))
}

/// A stored row, expired or not.
struct MemoryRow {
    no: i64,
    version: u64,
    created_at: Timestamp,
    size: u64,
    over: bool,
    /// Whether it has no expiry.
    lasts: bool,
}

fn row(conn: &Connection, space: i64, key: &str, now: Timestamp) -> Result<Option<MemoryRow>> {
    conn.prepare_cached(
        "SELECT no, version, created_at, size, ifnull(expires_at <= ?3, 0), expires_at IS NULL
         FROM memory WHERE space = ?1 AND key = ?2",
    )?
    .query_row(params![space, key, now.0], |row| {
        Ok(MemoryRow {
            no: row.get(0)?,
            version: number(row, 1)?,
            created_at: Timestamp(row.get(2)?),
            size: number(row, 3)?,
            over: row.get(4)?,
            lasts: row.get(5)?,
        })
    })
    .optional()
}

/// Writes an entry, if it is at its expected version and within the caps. A refused write changes nothing.
pub(super) fn put(
    session: &mut WriteSession,
    put: &MemoryPut,
) -> Result<Result<MemoryWriteResult, MemoryError>> {
    let WriteSession { conn, names, .. } = session;
    let MemoryKey { tenant, namespace, key } = &put.key;
    let owner = names.find_owner(conn, tenant)?;
    let space = match owner {
        Some(owner) => space(conn, owner, namespace)?,
        None => None,
    };
    let there = match &space {
        Some(space) => row(conn, space.no, key, put.now)?,
        None => None,
    };
    let live = there.as_ref().filter(|row| !row.over);
    let found = live.map(|row| row.version);
    let as_expected = match put.expected {
        ExpectedVersion::Any => true,
        ExpectedVersion::Absent => found.is_none(),
        ExpectedVersion::Version(version) => found == Some(version),
    };
    if !as_expected {
        return Ok(Err(MemoryError::Moved { found }));
    }
    let size = put.value.len() as u64;
    if live.is_none()
        && let Some(space) = &space
        && let Some(entries) = entries_over_cap(conn, space, there.is_some(), put)?
    {
        return Ok(Err(MemoryError::TooManyEntries(entries)));
    }
    if live.is_none_or(|row| size > row.size) {
        let held = tenant_use(conn, owner)?;
        if space.is_none() && held.spaces >= put.max_namespaces {
            return Ok(Err(MemoryError::TooManyNamespaces(held.spaces)));
        }
        if let Some(bytes) = bytes_over_cap(conn, owner, held.bytes, there.as_ref(), put)? {
            return Ok(Err(MemoryError::TooManyBytes(bytes)));
        }
    }

    let owner = names.owner_no(conn, tenant)?;
    let (version, created_at) = live.map_or((1, put.now), |row| (row.version + 1, row.created_at));
    let space = match &space {
        Some(space) => space.no,
        None => insert_space(conn, owner, namespace)?,
    };
    let columns = MemoryColumns {
        version,
        created_at,
        updated_at: put.now,
        accessed_at: put.now,
        reads: 0,
        size,
        ttl_ms: put.ttl_ms,
        expires_at: put.ttl_ms.map(|ttl| put.now.0.saturating_add(whole(ttl))),
    };
    match &there {
        None => insert(conn, owner, space, key, &columns, (&put.value, &put.text))?,
        Some(row) => {
            update(conn, row, &columns)?;
            replace_value(conn, space, row.no, (&put.value, &put.text))?;
            count(conn, owner, space, 0, whole(size) - whole(row.size))?;
        }
    }
    Ok(Ok(MemoryWriteResult { version, created_at }))
}

/// The number of entries of the namespace, if one more exceeds the cap. Only then are expired ones counted.
fn entries_over_cap(
    conn: &Connection,
    space: &NamespaceRow,
    replaces: bool,
    put: &MemoryPut,
) -> Result<Option<u64>> {
    if space.entries + u64::from(!replaces) <= put.max_entries {
        return Ok(None);
    }
    let entries = space.entries.saturating_sub(count_expired(conn, space.no, put.now)?.0);
    Ok((entries >= put.max_entries).then_some(entries))
}

/// The entries and bytes of a tenant, expired ones included.
#[derive(Default)]
struct TenantMemoryUse {
    bytes: u64,
    spaces: u64,
}

fn tenant_use(conn: &Connection, owner: Option<i64>) -> Result<TenantMemoryUse> {
    let held = conn
        .prepare_cached("SELECT bytes + names, spaces FROM memory_tenant WHERE owner = ?1")?
        .query_row([owner], |row| Ok(TenantMemoryUse { bytes: number(row, 0)?, spaces: number(row, 1)? }))
        .optional()?;
    Ok(held.unwrap_or_default())
}

/// The tenant's live bytes, if the new entry would exceed the cap. Only then are expired ones subtracted.
fn bytes_over_cap(
    conn: &Connection,
    owner: Option<i64>,
    bytes: u64,
    there: Option<&MemoryRow>,
    put: &MemoryPut,
) -> Result<Option<u64>> {
    let replaced = |row: &MemoryRow| row.size + put.key.weight();
    let with = |held: u64, row: Option<&MemoryRow>| {
        held.saturating_sub(row.map_or(0, replaced)).saturating_add(put.weight())
    };
    if with(bytes, there) <= put.max_bytes {
        return Ok(None);
    }
    let over = conn
        .prepare_cached(
            "SELECT ifnull(sum(size + octet_length(key) + octet_length(namespace) + ?3), 0)
             FROM memory_space CROSS JOIN memory INDEXED BY memory_over
               ON memory.space = memory_space.no AND expires_at <= ?2
             WHERE owner = ?1",
        )?
        .query_row(params![owner, put.now.0, whole(ENTRY_OVERHEAD)], |row| number(row, 0))?;
    let live = bytes.saturating_sub(over);
    Ok((with(live, there.filter(|row| !row.over)) > put.max_bytes).then_some(live))
}

fn insert_space(conn: &Connection, owner: i64, namespace: &str) -> Result<i64> {
    conn.prepare_cached("INSERT INTO memory_space (owner, namespace, entries, bytes) VALUES (?1, ?2, 0, 0)")?
        .execute(params![owner, namespace])?;
    Ok(conn.last_insert_rowid())
}

/// The columns of a row beside its namespace and its key.
struct MemoryColumns {
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    accessed_at: Timestamp,
    reads: u64,
    size: u64,
    ttl_ms: Option<u64>,
    expires_at: Option<i64>,
}

/// Inserts an entry with its contents, the value and the text of its words, and counts it.
fn insert(
    conn: &Connection,
    owner: i64,
    space: i64,
    key: &str,
    columns: &MemoryColumns,
    contents: (&str, &str),
) -> Result<()> {
    let size = whole(columns.size);
    conn.prepare_cached(
        "INSERT INTO memory (space, key, version, created_at, updated_at, accessed_at, reads, size, ttl, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        space,
        key,
        whole(columns.version),
        columns.created_at.0,
        columns.updated_at.0,
        columns.accessed_at.0,
        whole(columns.reads),
        size,
        columns.ttl_ms.map(whole),
        columns.expires_at,
    ])?;
    let no = conn.last_insert_rowid();
    write_value(conn, space, no, contents)?;
    count(conn, owner, space, 1, size)
}

/// Writes the columns of a row that exists. The reads of a live entry stay.
fn update(conn: &Connection, row: &MemoryRow, columns: &MemoryColumns) -> Result<()> {
    if !row.over && row.lasts && columns.expires_at.is_none() {
        // Neither the creation nor the expiry changes, so most indexes of the row stay as they are.
        conn.prepare_cached(
            "UPDATE memory SET version = ?2, updated_at = ?3, accessed_at = ?4, size = ?5, ttl = NULL WHERE no = ?1",
        )?
        .execute(params![
            row.no,
            whole(columns.version),
            columns.updated_at.0,
            columns.accessed_at.0,
            whole(columns.size),
        ])?;
        return Ok(());
    }
    conn.prepare_cached(
        "UPDATE memory SET version = ?2, created_at = ?3, updated_at = ?4, accessed_at = ?5, size = ?6, ttl = ?7,
           expires_at = ?8, reads = iif(?2 = 1, 0, reads) WHERE no = ?1",
    )?
    .execute(params![
        row.no,
        whole(columns.version),
        columns.created_at.0,
        columns.updated_at.0,
        columns.accessed_at.0,
        whole(columns.size),
        columns.ttl_ms.map(whole),
        columns.expires_at,
    ])?;
    Ok(())
}

/// Writes the value of an entry that has one. The words are an index of the text, and by far the most of the work:
/// they stay where the text does.
fn replace_value(conn: &Connection, space: i64, no: i64, (value, text): (&str, &str)) -> Result<()> {
    let same_text = conn
        .prepare_cached("UPDATE memory_value SET value = ?2 WHERE no = ?1 AND text = ?3")?
        .execute(params![no, value, text])?;
    match same_text {
        0 => write_value(conn, space, no, (value, text)),
        _ => Ok(()),
    }
}

fn write_value(conn: &Connection, space: i64, no: i64, (value, text): (&str, &str)) -> Result<()> {
    conn.prepare_cached("INSERT OR REPLACE INTO memory_value (no, value, text) VALUES (?1, ?2, ?3)")?
        .execute(params![no, value, text])?;
    conn.prepare_cached("INSERT OR REPLACE INTO memory_words (rowid, words) VALUES (?1, ?2)")?
        .execute(params![no, tokenize_in_namespace(space, text)])?;
    Ok(())
}

/// Inserts an exported entry unchanged; false if its key exists.
pub(super) fn restore(conn: &Connection, owner: i64, dump: &MemoryDump) -> Result<bool> {
    let MemoryDump { key, entry, text, expires_at } = dump;
    let space = match space(conn, owner, &key.namespace)? {
        Some(space) if row(conn, space.no, &key.key, Timestamp(0))?.is_some() => return Ok(false),
        Some(space) => space.no,
        None => insert_space(conn, owner, &key.namespace)?,
    };
    let columns = MemoryColumns {
        version: entry.version,
        created_at: entry.created_at,
        updated_at: entry.updated_at,
        accessed_at: entry.accessed_at,
        reads: entry.reads,
        size: entry.size,
        ttl_ms: entry.ttl_ms,
        expires_at: expires_at.map(|at| at.0),
    };
    insert(conn, owner, space, &key.key, &columns, (&entry.value, text))?;
    Ok(true)
}

/// Adds to the counts of entries and bytes, or subtracts. A namespace without entries is deleted.
fn count(conn: &Connection, owner: i64, space: i64, entries: i64, bytes: i64) -> Result<()> {
    if entries == 0 && bytes == 0 {
        return Ok(());
    }
    conn.prepare_cached("UPDATE memory_space SET entries = entries + ?2, bytes = bytes + ?3 WHERE no = ?1")?
        .execute(params![space, entries, bytes])?;
    if entries < 0 {
        conn.prepare_cached("DELETE FROM memory_space WHERE no = ?1 AND entries = 0")?.execute([space])?;
    }
    conn.prepare_cached(
        "INSERT INTO memory_tenant (owner, bytes) VALUES (?1, ?2)
         ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes",
    )?
    .execute(params![owner, bytes])?;
    Ok(())
}

/// Deletes an entry. An expired one is deleted too, but counts as absent.
pub(super) fn delete(
    session: &mut WriteSession,
    key: &MemoryKey,
    expected: Option<u64>,
    now: Timestamp,
) -> Result<Result<Option<u64>, MemoryError>> {
    let WriteSession { conn, names, .. } = session;
    let mut there = None;
    if let Some(owner) = names.find_owner(conn, &key.tenant)?
        && let Some(space) = space(conn, owner, &key.namespace)?
        && let Some(row) = row(conn, space.no, &key.key, now)?
    {
        there = Some((owner, space.no, row));
    }
    let found = there.as_ref().filter(|(_, _, row)| !row.over).map(|(_, _, row)| row.version);
    if expected.is_some() && expected != found {
        return Ok(Err(MemoryError::Moved { found }));
    }
    if let Some((owner, space, row)) = there {
        remove(conn, owner, space, row.no, row.size)?;
    }
    Ok(Ok(found))
}

fn remove(conn: &Connection, owner: i64, space: i64, no: i64, size: u64) -> Result<()> {
    conn.prepare_cached("DELETE FROM memory_words WHERE rowid = ?1")?.execute([no])?;
    conn.prepare_cached("DELETE FROM memory_value WHERE no = ?1")?.execute([no])?;
    conn.prepare_cached("DELETE FROM memory WHERE no = ?1")?.execute([no])?;
    count(conn, owner, space, -1, -whole(size))
}

/// Deletes up to `limit` entries of a namespace; returns how many.
pub(super) fn clear(
    session: &mut WriteSession,
    tenant: &str,
    namespace: &str,
    limit: usize,
) -> Result<usize> {
    let WriteSession { conn, names, .. } = session;
    let Some(owner) = names.find_owner(conn, tenant)? else { return Ok(0) };
    let Some(space) = space(conn, owner, namespace)? else { return Ok(0) };
    let rows: Vec<(i64, u64)> = conn
        .prepare_cached("SELECT no, size FROM memory WHERE space = ?1 LIMIT ?2")?
        .query_map(params![space.no, whole(limit as u64)], |row| Ok((row.get(0)?, number(row, 1)?)))?
        .collect::<Result<_>>()?;
    for (no, size) in &rows {
        remove(conn, owner, space.no, *no, *size)?;
    }
    Ok(rows.len())
}

/// Adds to the read counts of entries that still exist.
pub(super) fn count_reads(session: &mut WriteSession, reads: &[MemoryReads]) -> Result<()> {
    let WriteSession { conn, names, .. } = session;
    // By key and not by the number of the row, which another entry may have by now. In the order of the keys, so that
    // each namespace is looked up once and the index is read from one end to the other.
    let mut reads: Vec<&MemoryReads> = reads.iter().collect();
    reads.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    let of_one_namespace = |a: &&MemoryReads, b: &&MemoryReads| {
        a.key.tenant == b.key.tenant && a.key.namespace == b.key.namespace
    };
    for reads in reads.chunk_by(of_one_namespace) {
        let key = &reads[0].key;
        let Some(owner) = names.find_owner(conn, &key.tenant)? else { continue };
        let Some(space) = space(conn, owner, &key.namespace)? else { continue };
        let mut update = conn.prepare_cached(
            "UPDATE memory SET reads = reads + ?3, accessed_at = max(accessed_at, ?4) WHERE space = ?1 AND key = ?2",
        )?;
        for MemoryReads { key, reads, at } in reads {
            update.execute(params![space.no, key.key, whole(*reads), at.0])?;
        }
    }
    Ok(())
}

/// Deletes those of these entries that have expired; returns which.
pub(super) fn expire(session: &mut WriteSession, rows: &[i64], now: Timestamp) -> Result<Vec<MemoryKey>> {
    let WriteSession { conn, names, .. } = session;
    let mut gone = vec![];
    for no in rows {
        let found = conn
            .prepare_cached(
                "SELECT owner, space, namespace, key, size FROM memory
                 JOIN memory_space ON memory_space.no = memory.space
                 WHERE memory.no = ?1 AND expires_at <= ?2",
            )?
            .query_row(params![no, now.0], |row| {
                let (namespace, key): (String, String) = (row.get(2)?, row.get(3)?);
                Ok((row.get(0)?, row.get(1)?, namespace, key, number(row, 4)?))
            })
            .optional()?;
        let Some((owner, space, namespace, key, size)) = found else { continue };
        remove(conn, owner, space, *no, size)?;
        gone.push(MemoryKey { tenant: names.owner(conn, owner)?, namespace, key });
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::super::{schema, write_session::LastKnownTime},
        *,
    };

    /// What a write costs beside what it changes: how often the row of an entry was updated, and the index of words.
    fn cost(session: &WriteSession) -> (i64, String) {
        let words = "SELECT group_concat(id || hex(block)) FROM memory_words_data";
        let updates =
            session.conn.query_row("SELECT count(*) FROM temp.updated", [], |row| row.get(0)).unwrap();
        (updates, session.conn.query_row(words, [], |row| row.get(0)).unwrap())
    }

    #[test]
    fn an_entry_is_written_once_and_its_words_where_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut conn = schema::open_read_write(&folder.path().join("nuncio.db")).unwrap();
        schema::migrate(&mut conn).unwrap();
        conn.execute_batch(
            "CREATE TEMP TABLE updated (no INTEGER);
             CREATE TEMP TRIGGER is_updated AFTER UPDATE ON memory BEGIN INSERT INTO updated VALUES (new.no); END;",
        )
        .unwrap();
        let mut session = WriteSession::new(conn, Arc::new(LastKnownTime::default())).unwrap();
        let key = MemoryKey { tenant: "acme".into(), namespace: "n".into(), key: "k".into() };
        let mut write = |value: &str, text: &str, at: i64| {
            let put = MemoryPut {
                key: key.clone(),
                value: value.into(),
                text: text.into(),
                ttl_ms: None,
                expected: ExpectedVersion::Any,
                now: Timestamp(at),
                max_entries: 10,
                max_bytes: 10_000,
                max_namespaces: 10,
            };
            session.transact(|session| super::put(session, &put).map(|done| assert!(done.is_ok()))).unwrap();
            cost(&session)
        };
        let (updates, first) = write("[\"tea\"]", "tea", 1);
        assert_eq!(updates, 0, "a new row is inserted with its values");
        let (updates, same) = write("{\"a\":\"tea\"}", "tea", 2);
        assert_eq!((updates, &same), (1, &first), "its words are what they were");
        let (updates, other) = write("{\"a\":\"coffee\"}", "coffee", 3);
        assert_eq!(updates, 2);
        assert_ne!(other, first);
    }
}
