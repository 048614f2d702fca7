//! Records: small versioned documents, of which several can be written atomically.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{Record, RecordError, RecordKey, RecordQuery, RecordWrite},
    store::StoreError,
};
use tokio_postgres::Row;

use super::{
    super::{
        pool::PostgresPool,
        read::{bytes, number},
    },
    expected,
    page::PostgresKeyRange,
    whole,
};
use crate::knowledge::prefix_end;

/// Writes all records, if all are at their expected version.
pub(super) async fn write(pool: &PostgresPool, writes: &[RecordWrite]) -> Result<Vec<u64>, RecordError> {
    let texts = |of: fn(&RecordKey) -> &String| {
        writes.iter().map(|write| of(&write.key).as_str()).collect::<Vec<_>>()
    };
    let (tenants, kinds, ids) = (texts(|key| &key.tenant), texts(|key| &key.kind), texts(|key| &key.id));
    let bodies: Vec<Option<&[u8]>> = writes.iter().map(|write| write.body.as_deref()).collect();
    let expectations: Vec<i64> = writes.iter().map(|write| expected(write.expected)).collect();
    let ends: Vec<Option<i64>> = writes.iter().map(|write| write.expires_at.map(|at| at.0)).collect();
    let times: Vec<i64> = writes.iter().map(|write| write.now.0).collect();
    let sql = "SELECT * FROM write_records($1, $2, $3, $4, $5, $6, $7) ORDER BY place";
    let rows = pool.run(sql, &[&tenants, &kinds, &ids, &bodies, &expectations, &ends, &times]).await?;
    let figure = |row: &Row| row.get::<_, Option<i64>>(2).map(i64::cast_unsigned);
    match rows.first() {
        Some(row) if row.get(1) => {
            Err(RecordError::Moved { at: row.get::<_, i32>(0) as usize - 1, found: figure(row) })
        }
        _ => Ok(rows.iter().map(|row| figure(row).unwrap_or(0)).collect()),
    }
}

fn record(row: &Row) -> Record {
    Record { id: row.get(0), body: bytes(row, 1), version: number(row, 2), updated_at: Timestamp(row.get(3)) }
}

/// The record of that id.
pub(super) async fn one(
    pool: &PostgresPool,
    key: &RecordKey,
    now: Timestamp,
) -> Result<Option<Record>, StoreError> {
    let sql = "SELECT r.id, r.body, r.version, r.updated_at FROM owner o
         JOIN record r ON r.tenant = o.no AND r.kind = $2 AND r.id = $3
         WHERE o.name = $1 AND (r.expires_at IS NULL OR r.expires_at > $4)";
    let row = pool.read_one(sql, &[&key.tenant, &key.kind, &key.id, &now.0]).await?;
    Ok(row.as_ref().map(record))
}

/// The records of a tenant, in the order of their ids, or those of all tenants.
pub(super) async fn list(pool: &PostgresPool, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
    let Some(tenant) = &query.tenant else { return list_all(pool, query).await };
    let span = PostgresKeyRange::new(&query.prefix, &query.after);
    let sql = format!(
        "SELECT r.id, r.body, r.version, r.updated_at FROM owner o JOIN record r ON r.tenant = o.no AND r.kind = $2
         WHERE o.name = $1 AND {} AND (r.expires_at IS NULL OR r.expires_at > $5) ORDER BY r.id LIMIT $6",
        span.holds("r.id", 3, 4)
    );
    let limit = whole(query.limit as u64);
    let rows = pool.read(&sql, &[tenant, &query.kind, &span.from, &span.end, &query.now.0, &limit]).await?;
    Ok(rows.iter().map(record).collect())
}

/// The records of all tenants, each id prefixed with its tenant: ordered by tenant name, starting with the
/// tenant of `after`.
async fn list_all(pool: &PostgresPool, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
    let (tenant, tenant_end, id) = match query.prefix.split_once('\n') {
        Some((tenant, id)) => (tenant, Some(format!("{tenant}\u{1}")), id),
        None => (&*query.prefix, prefix_end(&query.prefix), ""),
    };
    let id_end = prefix_end(id);
    let (after, after_id) = query.after.split_once('\n').unwrap_or((&query.after, ""));
    let sql = "SELECT o.name || chr(10) || r.id, r.body, r.version, r.updated_at
         FROM (SELECT no, name COLLATE \"C\" AS name FROM owner) o JOIN record r ON r.tenant = o.no AND r.kind = $1
         WHERE o.name >= $2 AND ($3::text IS NULL OR o.name < $3) AND o.name >= $4 AND (o.name > $4 OR r.id > $5)
           AND r.id >= $6 AND ($7::text IS NULL OR r.id < $7) AND (r.expires_at IS NULL OR r.expires_at > $8)
         ORDER BY o.name, r.id LIMIT $9";
    let limit = whole(query.limit as u64);
    let rows = pool
        .read(
            sql,
            &[&query.kind, &tenant, &tenant_end, &after, &after_id, &id, &id_end, &query.now.0, &limit],
        )
        .await?;
    Ok(rows.iter().map(record).collect())
}
