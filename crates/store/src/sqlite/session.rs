//! Client sessions: small records that survive a restart. (`write_session.rs` is something else: the writer's
//! own connection, on which these are written.)

use nuncio_engine::{
    clock::Timestamp,
    store::{Session as ClientSession, StoreError},
};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{names::SqliteNameCache, read, write_session::WriteSession};

/// Maximum sessions deleted in one job, so that commits in the same batch do not wait long.
pub(super) const CHUNK: usize = 256;

/// Creates a session; false if its owner is at the limit. Jobs run one after another, so no other insert comes
/// between the count and this one.
pub(super) fn create(
    session: &mut WriteSession,
    new: &ClientSession,
    limit: usize,
) -> Result<Result<bool, StoreError>> {
    let owner = session.names.owner_no(&session.conn, &new.owner)?;
    let others = session
        .conn
        .prepare_cached("SELECT count(*) FROM session WHERE owner = ?1")?
        .query_row([owner], |row| read::number(row, 0))?;
    if others >= limit as u64 {
        return Ok(Ok(false));
    }
    // Without its id: a person who reads the server's log must not be able to use the session.
    let taken = || StoreError::Broken("there is a session of that id already".into());
    Ok(if insert(session, new)? { Ok(true) } else { Err(taken()) })
}

/// Inserts a session unchanged; false if its id exists.
pub(super) fn insert(session: &mut WriteSession, new: &ClientSession) -> Result<bool> {
    let owner = session.names.owner_no(&session.conn, &new.owner)?;
    let inserted = session
        .conn
        .prepare_cached(
            "INSERT INTO session (id, owner, version, used_at, body) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![new.id, owner, new.version as i64, new.used_at.0, &*new.body])?;
    Ok(inserted > 0)
}

/// The session of that id.
pub(super) fn find(
    conn: &Connection,
    names: &mut SqliteNameCache,
    id: &str,
) -> Result<Option<ClientSession>> {
    conn.prepare_cached("SELECT owner, body, version, used_at FROM session WHERE id = ?1")?
        .query_row([id], |row| {
            Ok(ClientSession {
                id: id.to_owned(),
                owner: names.owner(conn, row.get(0)?)?,
                body: read::bytes(row, 1)?,
                version: read::number(row, 2)?,
                used_at: Timestamp(row.get(3)?),
            })
        })
        .optional()
}

/// A page of ids after this one, in ascending order.
pub(super) fn ids(conn: &Connection, after: &str, limit: usize) -> Result<Vec<String>> {
    conn.prepare_cached("SELECT id FROM session WHERE id > ?1 ORDER BY id LIMIT ?2")?
        .query_map(params![after, i64::try_from(limit).unwrap_or(i64::MAX)], |row| row.get(0))?
        .collect()
}

/// Changes the body, if the session is still at that version; returns whether it was.
pub(super) fn update(session: &WriteSession, id: &str, version: u64, body: &[u8]) -> Result<bool> {
    let changed = session
        .conn
        .prepare_cached("UPDATE session SET body = ?3, version = version + 1 WHERE id = ?1 AND version = ?2")?
        .execute(params![id, version as i64, body])?;
    Ok(changed > 0)
}

/// Records that the sessions were used. Skips those with a later use, or deleted.
pub(super) fn touch(session: &WriteSession, ids: &[String], now: Timestamp) -> Result<()> {
    let mut touch =
        session.conn.prepare_cached("UPDATE session SET used_at = ?2 WHERE id = ?1 AND used_at < ?2")?;
    for id in ids {
        touch.execute(params![id, now.0])?;
    }
    Ok(())
}

/// Deletes a session; returns whether there was one.
pub(super) fn delete(session: &WriteSession, id: &str) -> Result<bool> {
    let deleted = session.conn.prepare_cached("DELETE FROM session WHERE id = ?1")?.execute([id])?;
    Ok(deleted > 0)
}

/// Deletes sessions that were last used before that time, oldest first, of one owner or of all; returns how
/// many.
pub(super) fn expire(
    session: &mut WriteSession,
    owner: Option<&str>,
    before: Timestamp,
    limit: usize,
) -> Result<u64> {
    if let Some(owner) = owner {
        let owner = session.names.owner_no(&session.conn, owner)?;
        let deleted = session
            .conn
            .prepare_cached(
                "DELETE FROM session WHERE rowid IN (
                   SELECT rowid FROM session WHERE owner = ?3 AND used_at < ?1 ORDER BY used_at LIMIT ?2)",
            )?
            .execute(params![before.0, i64::try_from(limit).unwrap_or(i64::MAX), owner])?;
        return Ok(deleted as u64);
    }
    let deleted = session
        .conn
        .prepare_cached(
            "DELETE FROM session WHERE rowid IN (
               SELECT rowid FROM session INDEXED BY session_used WHERE used_at < ?1 ORDER BY used_at LIMIT ?2)",
        )?
        .execute(params![before.0, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    Ok(deleted as u64)
}
