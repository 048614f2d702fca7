//! Export and import of knowledge as it is stored. See `crate::archive`.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{AuditEntry, MemoryKey, Record, RecordKey},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{
    super::{
        pool::PostgresPool,
        read::{bytes, number},
    },
    audit::{self, LINE, plain},
    page::{ENTRY, SPACE, entry},
    search::vector,
    whole,
};
use crate::archive::{ArchiveItem, ArchiveKey, MemoryDump, RecordDump};

/// A page of keys of the memory bank after this one, by tenant, namespace and key.
pub(in crate::postgres) async fn memory_keys(
    pool: &PostgresPool,
    after: Option<&ArchiveKey>,
    limit: usize,
) -> Result<Vec<ArchiveKey>, StoreError> {
    let (tenant, namespace, key) = match after {
        Some(ArchiveKey::Memory(after)) => (&*after.tenant, &*after.namespace, &*after.key),
        _ => ("", "", ""),
    };
    let sql = "SELECT o.name, s.namespace, m.key
         FROM (SELECT no, name COLLATE \"C\" AS name FROM owner) o JOIN memory_space s ON s.tenant = o.no
         JOIN memory m ON m.tenant = s.tenant AND m.space = s.no
         WHERE (o.name, s.namespace, m.key) > ($1, $2, $3) ORDER BY o.name, s.namespace, m.key LIMIT $4";
    let rows = pool.read(sql, &[&tenant, &namespace, &key, &whole(limit as u64)]).await?;
    let key = |row: &Row| MemoryKey { tenant: row.get(0), namespace: row.get(1), key: row.get(2) };
    Ok(rows.iter().map(|row| ArchiveKey::Memory(key(row))).collect())
}

/// An entry of the memory bank as it is stored.
pub(in crate::postgres) async fn memory(
    pool: &PostgresPool,
    key: &MemoryKey,
) -> Result<Option<ArchiveItem>, StoreError> {
    let sql = format!(
        "SELECT {ENTRY}, m.text, m.expires_at FROM {SPACE}
         JOIN memory m ON m.tenant = s.tenant AND m.space = s.no WHERE m.key = $3"
    );
    let row = pool.read_one(&sql, &[&key.tenant, &key.namespace, &key.key]).await?;
    Ok(row.map(|row| {
        let expires_at = row.get::<_, Option<i64>>(10).map(Timestamp);
        let dump = MemoryDump { key: key.clone(), entry: entry(&row), text: row.get(9), expires_at };
        ArchiveItem::Memory(Box::new(dump))
    }))
}

/// Inserts a memory entry; false if its key exists.
pub(in crate::postgres) async fn put_memory(
    pool: &PostgresPool,
    dump: &MemoryDump,
) -> Result<bool, StoreError> {
    let MemoryDump { key, entry, text, expires_at } = dump;
    let words = vector(&key.tenant, &key.namespace, text);
    let rows = pool
        .run(
            "SELECT restore_memory($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
            &[
                &key.tenant,
                &key.namespace,
                &key.key,
                &whole(entry.version),
                &entry.created_at.0,
                &entry.updated_at.0,
                &entry.accessed_at.0,
                &whole(entry.reads),
                &whole(entry.size),
                &entry.ttl_ms.map(whole),
                &expires_at.map(|at| at.0),
                &entry.value,
                text,
                &words,
            ],
        )
        .await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// A page of keys of records after this one, by tenant, kind and id.
pub(in crate::postgres) async fn record_keys(
    pool: &PostgresPool,
    after: Option<&ArchiveKey>,
    limit: usize,
) -> Result<Vec<ArchiveKey>, StoreError> {
    let (tenant, kind, id) = match after {
        Some(ArchiveKey::Record(after)) => (&*after.tenant, &*after.kind, &*after.id),
        _ => ("", "", ""),
    };
    let sql = "SELECT o.name, r.kind, r.id
         FROM (SELECT no, name COLLATE \"C\" AS name FROM owner) o JOIN record r ON r.tenant = o.no
         WHERE (o.name, r.kind, r.id) > ($1, $2, $3) ORDER BY o.name, r.kind, r.id LIMIT $4";
    let rows = pool.read(sql, &[&tenant, &kind, &id, &whole(limit as u64)]).await?;
    let key = |row: &Row| RecordKey { tenant: row.get(0), kind: row.get(1), id: row.get(2) };
    Ok(rows.iter().map(|row| ArchiveKey::Record(key(row))).collect())
}

/// A record as it is stored.
pub(in crate::postgres) async fn record(
    pool: &PostgresPool,
    key: &RecordKey,
) -> Result<Option<ArchiveItem>, StoreError> {
    let sql = "SELECT r.body, r.version, r.updated_at, r.expires_at FROM record r
         WHERE r.tenant = (SELECT no FROM owner WHERE name = $1) AND r.kind = $2 AND r.id = $3";
    let row = pool.read_one(sql, &[&key.tenant, &key.kind, &key.id]).await?;
    Ok(row.map(|row| {
        let record = Record {
            id: key.id.clone(),
            body: bytes(&row, 0),
            version: number(&row, 1),
            updated_at: Timestamp(row.get(2)),
        };
        let expires_at = row.get::<_, Option<i64>>(3).map(Timestamp);
        ArchiveItem::Record(Box::new(RecordDump { key: key.clone(), record, expires_at }))
    }))
}

/// Inserts a record; false if its id exists.
pub(in crate::postgres) async fn put_record(
    pool: &PostgresPool,
    dump: &RecordDump,
) -> Result<bool, StoreError> {
    let sql = "INSERT INTO record (tenant, kind, id, version, updated_at, expires_at, body)
         VALUES (tenant_no($1), $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING 1";
    let RecordDump { key, record, expires_at } = dump;
    let (version, expires_at) = (whole(record.version), expires_at.map(|at| at.0));
    let rows = pool
        .run(
            sql,
            &[&key.tenant, &key.kind, &key.id, &version, &record.updated_at.0, &expires_at, &&*record.body],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// A page of numbers of audit lines after this one, oldest first.
pub(in crate::postgres) async fn audit_keys(
    pool: &PostgresPool,
    after: Option<&ArchiveKey>,
    limit: usize,
) -> Result<Vec<ArchiveKey>, StoreError> {
    let after = if let Some(ArchiveKey::Audit(after)) = after { *after } else { 0 };
    let sql = "SELECT no FROM audit WHERE no > $1 ORDER BY no LIMIT $2";
    let rows = pool.read(sql, &[&whole(after), &whole(limit as u64)]).await?;
    Ok(rows.iter().map(|row| ArchiveKey::Audit(number(row, 0))).collect())
}

/// The audit line with this number.
pub(in crate::postgres) async fn audit_line(
    pool: &PostgresPool,
    no: u64,
) -> Result<Option<ArchiveItem>, StoreError> {
    let sql = format!("SELECT {LINE} FROM audit a JOIN owner o ON o.no = a.tenant WHERE a.no = $1");
    let Some(row) = pool.read_one(&sql, &[&whole(no)]).await? else { return Ok(None) };
    let (no, line) = audit::line(&row)?;
    Ok(Some(ArchiveItem::Audit(no, Box::new(line))))
}

/// Inserts an audit line under its number; false if that exists. New lines get higher numbers.
pub(in crate::postgres) async fn put_audit(
    pool: &PostgresPool,
    no: u64,
    line: &AuditEntry,
) -> Result<bool, StoreError> {
    let sql = "WITH put AS (
           INSERT INTO audit (no, at, tenant, caller, origin, operation, action, kind, resource, refused, credential)
           OVERRIDING SYSTEM VALUE VALUES ($1, $2, tenant_no($3), $4, $5, $6, $7, $8, $9, $10, $11)
           ON CONFLICT DO NOTHING RETURNING 1
         )
         SELECT EXISTS (SELECT 1 FROM put), setval(pg_get_serial_sequence('audit', 'no'),
           greatest($1, nextval(pg_get_serial_sequence('audit', 'no'))))";
    let rows = pool
        .run(
            sql,
            &[
                &whole(no),
                &line.at.0,
                &&*line.tenant,
                &&*line.caller,
                &line.from.as_deref(),
                &&*line.operation,
                &line.action.name(),
                &line.kind.name(),
                &plain(&line.resource),
                &line.refused.as_deref().map(plain),
                &line.credential.as_deref(),
            ],
        )
        .await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}
