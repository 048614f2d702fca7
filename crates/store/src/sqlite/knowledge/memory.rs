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
}

fn row(conn: &Connection, space: i64, key: &str, now: Timestamp) -> Result<Option<MemoryRow>> {
    conn.prepare_cached(
        "SELECT no, version, created_at, size, ifnull(expires_at <= ?3, 0) FROM memory WHERE space = ?1 AND key = ?2",
    )?
    .query_row(params![space, key, now.0], |row| {
        Ok(MemoryRow {
            no: row.get(0)?,
            version: number(row, 1)?,
            created_at: Timestamp(row.get(2)?),
            size: number(row, 3)?,
            over: row.get(4)?,
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
    let no = write(conn, owner, space.as_ref(), there.as_ref(), namespace, key, &put.value, &put.text)?;
    let (version, created_at) = live.map_or((1, put.now), |row| (row.version + 1, row.created_at));
    conn.prepare_cached(
        "UPDATE memory SET version = ?2, created_at = ?3, updated_at = ?4, accessed_at = ?4, size = ?5, ttl = ?6,
           expires_at = ?7, reads = iif(?2 = 1, 0, reads) WHERE no = ?1",
    )?
    .execute(params![
        no,
        whole(version),
        created_at.0,
        put.now.0,
        whole(size),
        put.ttl_ms.map(whole),
        put.ttl_ms.map(|ttl| put.now.0.saturating_add(whole(ttl))),
    ])?;
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

/// Writes the entry, counts it, and returns its number.
#[allow(clippy::too_many_arguments, reason = "an entry as it is written, and where to")]
fn write(
    conn: &Connection,
    owner: i64,
    space: Option<&NamespaceRow>,
    there: Option<&MemoryRow>,
    namespace: &str,
    key: &str,
    value: &str,
    text: &str,
) -> Result<i64> {
    let space = match space {
        Some(space) => space.no,
        None => {
            conn.prepare_cached(
                "INSERT INTO memory_space (owner, namespace, entries, bytes) VALUES (?1, ?2, 0, 0)",
            )?
            .execute(params![owner, namespace])?;
            conn.last_insert_rowid()
        }
    };
    let no = match there {
        Some(row) => row.no,
        None => {
            conn.prepare_cached(
                "INSERT INTO memory (space, key, version, created_at, updated_at, accessed_at, reads, size)
                 VALUES (?1, ?2, 0, 0, 0, 0, 0, 0)",
            )?
            .execute(params![space, key])?;
            conn.last_insert_rowid()
        }
    };
    conn.prepare_cached("INSERT OR REPLACE INTO memory_value (no, value, text) VALUES (?1, ?2, ?3)")?
        .execute(params![no, value, text])?;
    conn.prepare_cached("INSERT OR REPLACE INTO memory_words (rowid, words) VALUES (?1, ?2)")?
        .execute(params![no, tokenize_in_namespace(space, text)])?;
    let bytes = whole(value.len() as u64) - whole(there.map_or(0, |row| row.size));
    count(conn, owner, space, i64::from(there.is_none()), bytes)?;
    Ok(no)
}

/// Inserts an exported entry unchanged; false if its key exists.
pub(super) fn restore(conn: &Connection, owner: i64, dump: &MemoryDump) -> Result<bool> {
    let MemoryDump { key, entry, text, expires_at } = dump;
    let no = match space(conn, owner, &key.namespace)? {
        Some(space) if row(conn, space.no, &key.key, Timestamp(0))?.is_some() => return Ok(false),
        space => write(conn, owner, space.as_ref(), None, &key.namespace, &key.key, &entry.value, text)?,
    };
    conn.prepare_cached(
        "UPDATE memory SET version = ?2, created_at = ?3, updated_at = ?4, accessed_at = ?5, reads = ?6, size = ?7,
           ttl = ?8, expires_at = ?9 WHERE no = ?1",
    )?
    .execute(params![
        no,
        whole(entry.version),
        entry.created_at.0,
        entry.updated_at.0,
        entry.accessed_at.0,
        whole(entry.reads),
        whole(entry.size),
        entry.ttl_ms.map(whole),
        expires_at.map(|at| at.0),
    ])?;
    Ok(true)
}

/// Adds to the counts of entries and bytes, or subtracts. A namespace without entries is deleted.
fn count(conn: &Connection, owner: i64, space: i64, entries: i64, bytes: i64) -> Result<()> {
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
    for MemoryReads { key, reads, at } in reads {
        let Some(owner) = names.find_owner(conn, &key.tenant)? else { continue };
        conn.prepare_cached(
            "UPDATE memory SET reads = reads + ?4, accessed_at = max(accessed_at, ?5)
             WHERE space = (SELECT no FROM memory_space WHERE owner = ?1 AND namespace = ?2) AND key = ?3",
        )?
        .execute(params![owner, key.namespace, key.key, whole(*reads), at.0])?;
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
