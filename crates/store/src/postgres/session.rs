//! Client sessions: small records that every node can read. The time of last use is by the database's clock,
//! because one node may expire a session that another has used.

use nuncio_engine::{
    clock::Timestamp,
    store::{Session, StoreError},
};
use tokio_postgres::Row;

use super::{
    clock::DatabaseClock,
    pool::PostgresPool,
    read::{bytes, number},
};

/// Maximum sessions deleted in one transaction.
const CHUNK: usize = 256;

/// Creates a session; false if its owner is at the limit.
pub(super) async fn create(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    new: &Session,
    limit: usize,
) -> Result<bool, StoreError> {
    let sql = "SELECT create_session($1, $2, $3, time_or($4) + $5, $6, $7)";
    let (version, used_in) = (new.version as i64, clock.distance(new.used_at));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = pool
        .run(sql, &[&new.owner, &new.id, &version, &clock.test_time(), &used_in, &&*new.body, &limit])
        .await?;
    match rows.first().map(|row| row.get::<_, i16>(0)) {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        // Without its id: a person who reads the server's log must not be able to use the session.
        _ => Err(StoreError::Broken("there is a session of that id already".into())),
    }
}

/// Inserts a session unchanged, by the database's clock; false if its id exists.
pub(super) async fn insert(pool: &PostgresPool, new: &Session) -> Result<bool, StoreError> {
    let sql = "SELECT create_session($1, $2, $3, $4, $5, $6)";
    let version = new.version as i64;
    let rows =
        pool.run(sql, &[&new.owner, &new.id, &version, &new.used_at.0, &&*new.body, &i64::MAX]).await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, i16>(0) == 0))
}

/// The session of that id. The time of last use is translated to the caller's clock.
pub(super) async fn find(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    id: &str,
) -> Result<Option<Session>, StoreError> {
    let sql = "SELECT s.id, o.name, s.body, s.version, s.used_at - time_or($2)
         FROM session s JOIN owner o ON o.no = s.tenant WHERE s.id = $1";
    let row = pool.read_one(sql, &[&id, &clock.test_time()]).await?;
    Ok(row.map(|row| session(&row, clock.at(row.get(4)))))
}

/// The session of that id as it is stored, by the database's clock.
pub(super) async fn find_stored(pool: &PostgresPool, id: &str) -> Result<Option<Session>, StoreError> {
    let sql = "SELECT s.id, o.name, s.body, s.version, s.used_at
         FROM session s JOIN owner o ON o.no = s.tenant WHERE s.id = $1";
    let row = pool.read_one(sql, &[&id]).await?;
    Ok(row.map(|row| session(&row, Timestamp(row.get(4)))))
}

fn session(row: &Row, used_at: Timestamp) -> Session {
    Session { id: row.get(0), owner: row.get(1), body: bytes(row, 2), version: number(row, 3), used_at }
}

/// A page of ids after this one, in ascending order.
pub(super) async fn ids(pool: &PostgresPool, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows =
        pool.read("SELECT id FROM session WHERE id > $1 ORDER BY id LIMIT $2", &[&after, &limit]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Changes the body, if the session is still at that version; returns whether it was. Of two concurrent changes
/// the second waits for the first, and then checks the version again.
pub(super) async fn update(
    pool: &PostgresPool,
    id: &str,
    version: u64,
    body: &[u8],
) -> Result<bool, StoreError> {
    let sql =
        "UPDATE session SET body = $3, version = version + 1 WHERE id = $1 AND version = $2 RETURNING 1";
    let rows = pool.run(sql, &[&id, &(version as i64), &body]).await?;
    Ok(!rows.is_empty())
}

/// Records that the sessions were used.
pub(super) async fn touch(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    ids: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = "SELECT touch_sessions(time_or($1) + $2, $3)";
    pool.run(sql, &[&clock.test_time(), &clock.distance(now), &ids]).await.map(drop)
}

/// Deletes a session; returns whether there was one.
pub(super) async fn delete(pool: &PostgresPool, id: &str) -> Result<bool, StoreError> {
    let rows = pool.run("DELETE FROM session WHERE id = $1 RETURNING 1", &[&id]).await?;
    Ok(!rows.is_empty())
}

/// Deletes sessions of one owner that were last used before that time, oldest first. Skips rows that are
/// locked.
const EXPIRE_OF_OWNER: &str = "WITH picked AS (
        SELECT s.id FROM session s JOIN owner o ON o.no = s.tenant
        WHERE o.name = $4 AND s.used_at < time_or($1) + $2
        ORDER BY s.used_at LIMIT $3::integer FOR UPDATE OF s SKIP LOCKED
    ), gone AS (
        DELETE FROM session s USING picked p WHERE s.id = p.id RETURNING 1
    )
    SELECT count(*) FROM gone";

/// Deletes sessions that were last used before that time, oldest first, of one owner or of all; returns how
/// many.
pub(super) async fn expire(
    pool: &PostgresPool,
    clock: &DatabaseClock,
    owner: Option<&str>,
    before: Timestamp,
    limit: usize,
) -> Result<u64, StoreError> {
    let mut deleted = 0;
    while deleted < limit as u64 {
        let chunk = CHUNK.min(limit - deleted as usize);
        let sql = "SELECT expire_sessions(time_or($1) + $2, $3)";
        let params = (clock.test_time(), clock.distance(before), chunk as i32);
        let gone = match owner {
            Some(owner) => pool.run(EXPIRE_OF_OWNER, &[&params.0, &params.1, &params.2, &owner]).await?,
            None => pool.run(sql, &[&params.0, &params.1, &params.2]).await?,
        };
        let gone = gone.first().map_or(0, |row| number(row, 0));
        deleted += gone;
        if gone < chunk as u64 {
            break;
        }
    }
    Ok(deleted)
}
