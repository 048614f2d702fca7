//! Records: small versioned documents, of which several can be written atomically.

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{ExpectedVersion, Record, RecordError, RecordKey, RecordQuery, RecordWrite},
};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::{
    super::{
        names::SqliteNameCache,
        read::{bytes, number},
        write_session::WriteSession,
    },
    page::SqliteKeyRange,
    whole,
};

/// Writes all records, if all are at their expected version. Jobs run one after another, so no other write
/// comes between the check and the write.
pub(super) fn write(
    session: &mut WriteSession,
    writes: &[RecordWrite],
) -> Result<Result<Vec<u64>, RecordError>> {
    let WriteSession { conn, names, .. } = session;
    for (at, write) in writes.iter().enumerate() {
        let found = match names.find_owner(conn, &write.key.tenant)? {
            Some(owner) => version(conn, owner, &write.key, write.now)?,
            None => None,
        };
        let as_expected = match write.expected {
            ExpectedVersion::Any => true,
            ExpectedVersion::Absent => found.is_none(),
            ExpectedVersion::Version(version) => found == Some(version),
        };
        if !as_expected {
            return Ok(Err(RecordError::Moved { at, found }));
        }
    }
    let mut versions = Vec::with_capacity(writes.len());
    for RecordWrite { key, body, expires_at, now, .. } in writes {
        let owner = names.owner_no(conn, &key.tenant)?;
        let Some(body) = body else {
            conn.prepare_cached("DELETE FROM record WHERE kind = ?1 AND owner = ?2 AND id = ?3")?
                .execute(params![key.kind, owner, key.id])?;
            versions.push(0);
            continue;
        };
        let version = version(conn, owner, key, *now)?.unwrap_or(0) + 1;
        conn.prepare_cached(
            "INSERT INTO record (kind, owner, id, version, updated_at, expires_at, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (kind, owner, id) DO UPDATE SET version = excluded.version,
               updated_at = excluded.updated_at, expires_at = excluded.expires_at, body = excluded.body",
        )?
        .execute(params![
            key.kind,
            owner,
            key.id,
            whole(version),
            now.0,
            expires_at.map(|at| at.0),
            &**body
        ])?;
        versions.push(version);
    }
    Ok(Ok(versions))
}

/// The version of a record that has not expired.
fn version(conn: &Connection, owner: i64, key: &RecordKey, now: Timestamp) -> Result<Option<u64>> {
    conn.prepare_cached(
        "SELECT version FROM record WHERE kind = ?1 AND owner = ?2 AND id = ?3
           AND (expires_at IS NULL OR expires_at > ?4)",
    )?
    .query_row(params![key.kind, owner, key.id, now.0], |row| number(row, 0))
    .optional()
}

fn record(row: &Row<'_>) -> Result<Record> {
    Ok(Record {
        id: row.get(0)?,
        body: bytes(row, 1)?,
        version: number(row, 2)?,
        updated_at: Timestamp(row.get(3)?),
    })
}

/// The record of that id.
pub(super) fn one(
    conn: &Connection,
    names: &mut SqliteNameCache,
    key: &RecordKey,
    now: Timestamp,
) -> Result<Option<Record>> {
    let Some(owner) = names.find_owner(conn, &key.tenant)? else { return Ok(None) };
    conn.prepare_cached(
        "SELECT id, body, version, updated_at FROM record WHERE kind = ?1 AND owner = ?2 AND id = ?3
           AND (expires_at IS NULL OR expires_at > ?4)",
    )?
    .query_row(params![key.kind, owner, key.id, now.0], record)
    .optional()
}

/// The records of a tenant, in the order of their ids, or those of all tenants.
pub(super) fn list(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &RecordQuery,
) -> Result<Vec<Record>> {
    let Some(tenant) = &query.tenant else { return list_all(conn, query) };
    let Some(owner) = names.find_owner(conn, tenant)? else { return Ok(vec![]) };
    let span = SqliteKeyRange::new(&query.prefix, &query.after);
    conn.prepare_cached(&format!(
        "SELECT id, body, version, updated_at FROM record INDEXED BY record_id
         WHERE kind = ?1 AND owner = ?2 AND id {} ?3 AND id < ?4 AND (expires_at IS NULL OR expires_at > ?5)
         ORDER BY id LIMIT ?6",
        span.above()
    ))?
    .query_map(
        params![query.kind, owner, span.from, span.end(), query.now.0, whole(query.limit as u64)],
        record,
    )?
    .collect()
}

/// The records of all tenants, each id prefixed with its tenant: ordered by tenant name, starting with the
/// tenant of `after`.
fn list_all(conn: &Connection, query: &RecordQuery) -> Result<Vec<Record>> {
    let (tenants, ids) = match query.prefix.split_once('\n') {
        Some((tenant, id)) => (SqliteKeyRange::only(tenant), id),
        None => (SqliteKeyRange::new(&query.prefix, ""), ""),
    };
    let ids = SqliteKeyRange::new(ids, "");
    let (after, after_id) = query.after.split_once('\n').unwrap_or((&query.after, ""));
    conn.prepare_cached(
        "SELECT name || char(10) || id, body, version, updated_at
         FROM owner CROSS JOIN record INDEXED BY record_id ON kind = ?1 AND owner = owner.no
         WHERE name >= ?2 AND name < ?3 AND name >= ?4 AND (name > ?4 OR id > ?5) AND id >= ?6 AND id < ?7
           AND (expires_at IS NULL OR expires_at > ?8)
         ORDER BY name, id LIMIT ?9",
    )?
    .query_map(
        params![
            query.kind,
            tenants.from,
            tenants.end(),
            after,
            after_id,
            ids.from,
            ids.end(),
            query.now.0,
            whole(query.limit as u64)
        ],
        record,
    )?
    .collect()
}

/// Expired records, oldest first.
pub(super) fn expired_records(conn: &Connection, now: Timestamp, limit: usize) -> Result<Vec<i64>> {
    conn.prepare_cached(
        "SELECT no FROM record INDEXED BY record_expiry WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
    )?
    .query_map(params![now.0, whole(limit as u64)], |row| row.get(0))?
    .collect()
}

/// Deletes those of these records that have expired; returns how many.
pub(super) fn expire(session: &WriteSession, rows: &[i64], now: Timestamp) -> Result<u64> {
    let mut delete = session.conn.prepare_cached("DELETE FROM record WHERE no = ?1 AND expires_at <= ?2")?;
    let mut gone = 0;
    for no in rows {
        gone += delete.execute(params![no, now.0])? as u64;
    }
    Ok(gone)
}
