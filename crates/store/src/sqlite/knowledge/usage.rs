//! The usage counters. An embedded store is not shared, so no other node needs them; they count all the same.

use nuncio_engine::clock::Timestamp;
use rusqlite::{Result, params};

use super::{
    super::{read::number, write_session::WriteSession},
    CHUNK, whole,
};

/// A counter without additions for this long is deleted, and starts at zero if it is used again.
const KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// Adds to counters; returns their totals.
pub(super) fn add(session: &WriteSession, uses: &[(String, u64)], now: Timestamp) -> Result<Vec<u64>> {
    session
        .conn
        .prepare_cached(
            "DELETE FROM usage WHERE name IN (
               SELECT name FROM usage INDEXED BY usage_at WHERE at < ?1 LIMIT ?2)",
        )?
        .execute(params![now.0.saturating_sub(KEPT_MS), CHUNK as i64])?;
    let mut add = session.conn.prepare_cached(
        "INSERT INTO usage (name, uses, at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET uses = uses + excluded.uses, at = max(at, excluded.at) RETURNING uses",
    )?;
    uses.iter()
        .map(|(name, more)| add.query_row(params![name, whole(*more), now.0], |row| number(row, 0)))
        .collect()
}
