//! Export and import of knowledge as it is stored. See `crate::archive`.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{AuditEntry, MemoryKey, Record, RecordKey},
};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use super::{
    super::{
        names::SqliteNameCache,
        read::{bytes, number},
        write_session::WriteSession,
    },
    audit::{self, LINE},
    memory,
    page::{entry, entry_columns},
    whole,
};
use crate::archive::{ArchiveItem, ArchiveKey, MemoryDump, RecordDump};

/// A page of keys of the memory bank after this one, by tenant, namespace and key.
pub(in crate::sqlite) fn memory_keys(
    conn: &Connection,
    after: Option<&ArchiveKey>,
    limit: usize,
) -> Result<Vec<ArchiveKey>> {
    let (tenant, namespace, key) = match after {
        Some(ArchiveKey::Memory(after)) => (&*after.tenant, &*after.namespace, &*after.key),
        _ => ("", "", ""),
    };
    conn.prepare_cached(
        "SELECT owner.name, namespace, memory.key FROM owner
         CROSS JOIN memory_space ON memory_space.owner = owner.no
         CROSS JOIN memory INDEXED BY memory_key ON memory.space = memory_space.no
         WHERE owner.name >= ?1 AND (owner.name > ?1 OR (namespace >= ?2 AND (namespace > ?2 OR memory.key > ?3)))
         ORDER BY owner.name, namespace, memory.key LIMIT ?4",
    )?
    .query_map(params![tenant, namespace, key, whole(limit as u64)], |row| {
        Ok(ArchiveKey::Memory(MemoryKey { tenant: row.get(0)?, namespace: row.get(1)?, key: row.get(2)? }))
    })?
    .collect()
}

/// An entry of the memory bank as it is stored.
pub(in crate::sqlite) fn memory(conn: &Connection, key: &MemoryKey) -> Result<Option<ArchiveItem>> {
    conn.prepare_cached(concat!(
        "SELECT ",
        entry_columns!("value"),
        ", text, expires_at FROM owner
         CROSS JOIN memory_space ON memory_space.owner = owner.no
         CROSS JOIN memory INDEXED BY memory_key ON memory.space = memory_space.no
         CROSS JOIN memory_value ON memory_value.no = memory.no
         WHERE owner.name = ?1 AND namespace = ?2 AND memory.key = ?3"
    ))?
    .query_row(params![key.tenant, key.namespace, key.key], |row| {
        let expires_at = row.get::<_, Option<i64>>(10)?.map(Timestamp);
        let dump = MemoryDump { key: key.clone(), entry: entry(row)?, text: row.get(9)?, expires_at };
        Ok(ArchiveItem::Memory(Box::new(dump)))
    })
    .optional()
}

/// Inserts a memory entry; false if its key exists.
pub(in crate::sqlite) fn put_memory(session: &mut WriteSession, dump: &MemoryDump) -> Result<bool> {
    let WriteSession { conn, names, .. } = session;
    let owner = names.owner_no(conn, &dump.key.tenant)?;
    memory::restore(conn, owner, dump)
}

/// A page of keys of records after this one, by tenant, kind and id.
pub(in crate::sqlite) fn record_keys(
    conn: &Connection,
    after: Option<&ArchiveKey>,
    limit: usize,
) -> Result<Vec<ArchiveKey>> {
    let (tenant, kind, id) = match after {
        Some(ArchiveKey::Record(after)) => (&*after.tenant, &*after.kind, &*after.id),
        _ => ("", "", ""),
    };
    conn.prepare_cached(
        "SELECT owner.name, kind, id FROM record JOIN owner ON owner.no = record.owner
         WHERE (owner.name, kind, id) > (?1, ?2, ?3) ORDER BY owner.name, kind, id LIMIT ?4",
    )?
    .query_map(params![tenant, kind, id, whole(limit as u64)], |row| {
        Ok(ArchiveKey::Record(RecordKey { tenant: row.get(0)?, kind: row.get(1)?, id: row.get(2)? }))
    })?
    .collect()
}

/// A record as it is stored.
pub(in crate::sqlite) fn record(conn: &Connection, key: &RecordKey) -> Result<Option<ArchiveItem>> {
    conn.prepare_cached(
        "SELECT body, version, updated_at, expires_at FROM record JOIN owner ON owner.no = record.owner
         WHERE owner.name = ?1 AND kind = ?2 AND id = ?3",
    )?
    .query_row(params![key.tenant, key.kind, key.id], |row| {
        let record = Record {
            id: key.id.clone(),
            body: bytes(row, 0)?,
            version: number(row, 1)?,
            updated_at: Timestamp(row.get(2)?),
        };
        let expires_at = row.get::<_, Option<i64>>(3)?.map(Timestamp);
        Ok(ArchiveItem::Record(Box::new(RecordDump { key: key.clone(), record, expires_at })))
    })
    .optional()
}

/// Inserts a record; false if its id exists.
pub(in crate::sqlite) fn put_record(session: &mut WriteSession, dump: &RecordDump) -> Result<bool> {
    let WriteSession { conn, names, .. } = session;
    let owner = names.owner_no(conn, &dump.key.tenant)?;
    let inserted = conn
        .prepare_cached(
            "INSERT INTO record (kind, owner, id, version, updated_at, expires_at, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            dump.key.kind,
            owner,
            dump.key.id,
            whole(dump.record.version),
            dump.record.updated_at.0,
            dump.expires_at.map(|at| at.0),
            &*dump.record.body
        ])?;
    Ok(inserted > 0)
}

/// A page of numbers of audit lines after this one, oldest first.
pub(in crate::sqlite) fn audit_keys(
    conn: &Connection,
    after: Option<&ArchiveKey>,
    limit: usize,
) -> Result<Vec<ArchiveKey>> {
    let after = if let Some(ArchiveKey::Audit(after)) = after { *after } else { 0 };
    conn.prepare_cached("SELECT no FROM audit WHERE no > ?1 ORDER BY no LIMIT ?2")?
        .query_map([whole(after), whole(limit as u64)], |row| Ok(ArchiveKey::Audit(number(row, 0)?)))?
        .collect()
}

/// The audit line with this number.
pub(in crate::sqlite) fn audit_line(
    conn: &Connection,
    names: &mut SqliteNameCache,
    no: u64,
) -> Result<Option<ArchiveItem>> {
    conn.prepare_cached(&format!("SELECT {LINE} FROM audit WHERE no = ?1"))?
        .query_row([whole(no)], |row| {
            let (no, line) = audit::line(conn, names, row)?;
            Ok(ArchiveItem::Audit(no, Box::new(line)))
        })
        .optional()
}

/// Inserts an audit line under its number; false if that exists.
pub(in crate::sqlite) fn put_audit(session: &mut WriteSession, no: u64, line: &AuditEntry) -> Result<bool> {
    let there = session
        .conn
        .prepare_cached("SELECT 1 FROM audit WHERE no = ?1")?
        .query_row([whole(no)], |_| Ok(()))
        .optional()?;
    if there.is_none() {
        audit::insert(session, whole(no), line)?;
    }
    Ok(there.is_none())
}
