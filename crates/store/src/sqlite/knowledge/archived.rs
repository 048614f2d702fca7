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
    page::{ENTRY, entry},
    whole,
};
use crate::archive::{MemoryDump, RecordDump};

/// A page of memory entries after this one, by tenant, namespace and key.
pub(in crate::sqlite) fn memory(
    conn: &Connection,
    after: Option<&MemoryKey>,
    limit: usize,
) -> Result<Vec<MemoryDump>> {
    let (tenant, namespace, key) =
        after.map_or(("", "", ""), |after| (&*after.tenant, &*after.namespace, &*after.key));
    conn.prepare_cached(&format!(
        "SELECT {ENTRY}, owner.name, namespace, text, expires_at FROM owner
         CROSS JOIN memory_space ON memory_space.owner = owner.no
         CROSS JOIN memory INDEXED BY memory_key ON memory.space = memory_space.no
         CROSS JOIN memory_value ON memory_value.no = memory.no
         WHERE owner.name >= ?1 AND (owner.name > ?1 OR (namespace >= ?2 AND (namespace > ?2 OR memory.key > ?3)))
         ORDER BY owner.name, namespace, memory.key LIMIT ?4"
    ))?
    .query_map(params![tenant, namespace, key, whole(limit as u64)], |row| {
        let entry = entry(row)?;
        let key = MemoryKey { tenant: row.get(9)?, namespace: row.get(10)?, key: entry.key.clone() };
        Ok(MemoryDump { key, entry, text: row.get(11)?, expires_at: row.get::<_, Option<i64>>(12)?.map(Timestamp) })
    })?
    .collect()
}

/// Inserts a memory entry; false if its key exists.
pub(in crate::sqlite) fn put_memory(session: &mut WriteSession, dump: &MemoryDump) -> Result<bool> {
    let WriteSession { conn, names, .. } = session;
    let owner = names.owner_no(conn, &dump.key.tenant)?;
    memory::restore(conn, owner, dump)
}

/// A page of records after this one, by tenant, kind and id.
pub(in crate::sqlite) fn records(
    conn: &Connection,
    after: Option<&RecordKey>,
    limit: usize,
) -> Result<Vec<RecordDump>> {
    let (tenant, kind, id) = after.map_or(("", "", ""), |after| (&*after.tenant, &*after.kind, &*after.id));
    conn.prepare_cached(
        "SELECT owner.name, kind, id, body, version, updated_at, expires_at
         FROM record JOIN owner ON owner.no = record.owner
         WHERE (owner.name, kind, id) > (?1, ?2, ?3) ORDER BY owner.name, kind, id LIMIT ?4",
    )?
    .query_map(params![tenant, kind, id, whole(limit as u64)], |row| {
        let key = RecordKey { tenant: row.get(0)?, kind: row.get(1)?, id: row.get(2)? };
        let record = Record {
            id: key.id.clone(),
            body: bytes(row, 3)?,
            version: number(row, 4)?,
            updated_at: Timestamp(row.get(5)?),
        };
        Ok(RecordDump { key, record, expires_at: row.get::<_, Option<i64>>(6)?.map(Timestamp) })
    })?
    .collect()
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

/// A page of audit lines after the one with this number, oldest first.
pub(in crate::sqlite) fn audit(
    conn: &Connection,
    names: &mut SqliteNameCache,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditEntry)>> {
    conn.prepare_cached(&format!("SELECT {LINE} FROM audit WHERE no > ?1 ORDER BY no LIMIT ?2"))?
        .query_map([whole(after), whole(limit as u64)], |row| audit::line(conn, names, row))?
        .collect()
}

/// Inserts audit lines under their numbers, unless those exist.
pub(in crate::sqlite) fn put_audit(session: &mut WriteSession, lines: &[(u64, AuditEntry)]) -> Result<()> {
    for (no, line) in lines {
        let there = session
            .conn
            .prepare_cached("SELECT 1 FROM audit WHERE no = ?1")?
            .query_row([whole(*no)], |_| Ok(()))
            .optional()?;
        if there.is_none() {
            audit::insert(session, Some(whole(*no)), line)?;
        }
    }
    Ok(())
}
