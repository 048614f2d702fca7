//! Export and import of knowledge as it is stored. See `crate::archive`.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{AuditEntry, MemoryKey, Record, RecordKey},
    store::StoreError,
};

use super::{
    super::{
        pool::PostgresPool,
        read::{bytes, number},
    },
    audit::{self, LINE, plain},
    page::{ENTRY, entry},
    search::vector,
    whole,
};
use crate::archive::{MemoryDump, RecordDump};

/// A page of memory entries after this one, by tenant, namespace and key.
pub(in crate::postgres) async fn memory(
    pool: &PostgresPool,
    after: Option<&MemoryKey>,
    limit: usize,
) -> Result<Vec<MemoryDump>, StoreError> {
    let (tenant, namespace, key) =
        after.map_or(("", "", ""), |after| (&*after.tenant, &*after.namespace, &*after.key));
    let sql = format!(
        "SELECT {ENTRY}, o.name, s.namespace, m.text, m.expires_at
         FROM (SELECT no, name COLLATE \"C\" AS name FROM owner) o JOIN memory_space s ON s.tenant = o.no
         JOIN memory m ON m.tenant = s.tenant AND m.space = s.no
         WHERE (o.name, s.namespace, m.key) > ($1, $2, $3) ORDER BY o.name, s.namespace, m.key LIMIT $4"
    );
    let rows = pool.read(&sql, &[&tenant, &namespace, &key, &whole(limit as u64)]).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let entry = entry(row);
            let key = MemoryKey { tenant: row.get(9), namespace: row.get(10), key: entry.key.clone() };
            let expires_at = row.get::<_, Option<i64>>(12).map(Timestamp);
            MemoryDump { key, entry, text: row.get(11), expires_at }
        })
        .collect())
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

/// A page of records after this one, by tenant, kind and id.
pub(in crate::postgres) async fn records(
    pool: &PostgresPool,
    after: Option<&RecordKey>,
    limit: usize,
) -> Result<Vec<RecordDump>, StoreError> {
    let (tenant, kind, id) = after.map_or(("", "", ""), |after| (&*after.tenant, &*after.kind, &*after.id));
    let sql = "SELECT o.name, r.kind, r.id, r.body, r.version, r.updated_at, r.expires_at
         FROM (SELECT no, name COLLATE \"C\" AS name FROM owner) o JOIN record r ON r.tenant = o.no
         WHERE (o.name, r.kind, r.id) > ($1, $2, $3) ORDER BY o.name, r.kind, r.id LIMIT $4";
    let rows = pool.read(sql, &[&tenant, &kind, &id, &whole(limit as u64)]).await?;
    Ok(rows
        .iter()
        .map(|row| RecordDump {
            key: RecordKey { tenant: row.get(0), kind: row.get(1), id: row.get(2) },
            record: Record {
                id: row.get(2),
                body: bytes(row, 3),
                version: number(row, 4),
                updated_at: Timestamp(row.get(5)),
            },
            expires_at: row.get::<_, Option<i64>>(6).map(Timestamp),
        })
        .collect())
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

/// A page of audit lines after the one with this number, oldest first.
pub(in crate::postgres) async fn audit(
    pool: &PostgresPool,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditEntry)>, StoreError> {
    let sql = format!(
        "SELECT {LINE} FROM audit a JOIN owner o ON o.no = a.tenant WHERE a.no > $1 ORDER BY a.no LIMIT $2"
    );
    let rows = pool.read(&sql, &[&whole(after), &whole(limit as u64)]).await?;
    rows.iter().map(audit::line).collect()
}

/// Inserts audit lines under their numbers, unless those exist. New lines get higher numbers.
pub(in crate::postgres) async fn put_audit(
    pool: &PostgresPool,
    lines: &[(u64, AuditEntry)],
) -> Result<(), StoreError> {
    for (no, line) in lines {
        let sql = "WITH put AS (
               INSERT INTO audit (no, at, tenant, caller, origin, operation, action, kind, resource, refused, credential)
               OVERRIDING SYSTEM VALUE VALUES ($1, $2, tenant_no($3), $4, $5, $6, $7, $8, $9, $10, $11)
               ON CONFLICT DO NOTHING
             )
             SELECT setval(pg_get_serial_sequence('audit', 'no'),
               greatest($1, nextval(pg_get_serial_sequence('audit', 'no'))))";
        pool.run(
            sql,
            &[
                &whole(*no),
                &line.at.0,
                &line.tenant,
                &line.caller,
                &line.from,
                &line.operation,
                &line.action.name(),
                &line.kind.name(),
                &plain(&line.resource),
                &line.refused.as_deref().map(plain),
                &line.credential,
            ],
        )
        .await?;
    }
    Ok(())
}
