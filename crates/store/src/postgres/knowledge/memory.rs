//! The deletion of memory entries, and the counting of their reads.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{ExpectedVersion, MemoryError, MemoryKey, MemoryReads},
    store::StoreError,
};

use super::{super::pool::PostgresPool, CHUNK, expected, in_chunks, whole};

/// Deletes an entry. An expired one is deleted too, but counts as absent.
pub(super) async fn delete(
    pool: &PostgresPool,
    key: &MemoryKey,
    version: Option<u64>,
    now: Timestamp,
) -> Result<Option<u64>, MemoryError> {
    let version = version.map(|version| expected(ExpectedVersion::Version(version)));
    let sql = "SELECT * FROM delete_memory($1, $2, $3, $4, $5)";
    let rows = pool.run(sql, &[&key.tenant, &key.namespace, &key.key, &version, &now.0]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let found = row.get::<_, Option<i64>>(1).map(i64::cast_unsigned);
    match row.get::<_, i16>(0) {
        0 => Ok(found),
        _ => Err(MemoryError::Moved { found }),
    }
}

/// Deletes up to `limit` entries of a namespace; returns how many.
pub(super) async fn clear(
    pool: &PostgresPool,
    tenant: &str,
    namespace: &str,
    limit: usize,
) -> Result<u64, StoreError> {
    in_chunks(pool, "SELECT clear_memory($1, $2, $3)", &[&tenant, &namespace], limit).await
}

/// Adds to the read counts of entries that still exist.
pub(super) async fn count_reads(pool: &PostgresPool, reads: &[MemoryReads]) -> Result<(), StoreError> {
    for chunk in reads.chunks(CHUNK) {
        let texts = |of: fn(&MemoryKey) -> &String| {
            chunk.iter().map(|reads| of(&reads.key).as_str()).collect::<Vec<_>>()
        };
        let counts: Vec<i64> = chunk.iter().map(|reads| whole(reads.reads)).collect();
        let times: Vec<i64> = chunk.iter().map(|reads| reads.at.0).collect();
        let (tenants, namespaces, keys) =
            (texts(|key| &key.tenant), texts(|key| &key.namespace), texts(|key| &key.key));
        let sql = "SELECT count_reads($1, $2, $3, $4, $5)";
        pool.run(sql, &[&tenants, &namespaces, &keys, &counts, &times]).await?;
    }
    Ok(())
}

/// Deletes expired entries; returns which.
pub(super) async fn expire(
    pool: &PostgresPool,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<MemoryKey>, StoreError> {
    let mut gone = vec![];
    while gone.len() < limit {
        let chunk = CHUNK.min(limit - gone.len());
        let rows = pool.run("SELECT * FROM expire_memory($1, $2)", &[&now.0, &(chunk as i32)]).await?;
        gone.extend(rows.iter().map(|row| MemoryKey {
            tenant: row.get(0),
            namespace: row.get(1),
            key: row.get(2),
        }));
        if rows.len() < chunk {
            break;
        }
    }
    Ok(gone)
}
