//! The baseline: the same work directly on SQLite, with one connection, prepared statements, and the same
//! durability as the store. The difference is what the store's features cost.

use std::{path::Path, time::Instant};

use rusqlite::{Connection, params};

use crate::figures::{Cost, cpu};

type Result<T> = std::result::Result<T, rusqlite::Error>;

/// A table like the store's, without counters, versions or full text.
pub(crate) struct Direct {
    conn: Connection,
}

impl Direct {
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let conn = Connection::open(dir.join("direct.db"))?;
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.execute_batch(
            "CREATE TABLE entry (no INTEGER PRIMARY KEY, namespace TEXT NOT NULL, key TEXT NOT NULL,
               value TEXT NOT NULL, UNIQUE (namespace, key));
             CREATE TABLE journal (no INTEGER PRIMARY KEY, body TEXT NOT NULL);",
        )?;
        Ok(Self { conn })
    }

    /// Writes entries, `group` per transaction.
    pub(crate) fn store(
        &mut self,
        namespace: &str,
        entries: &[(String, String)],
        group: usize,
    ) -> Result<Cost> {
        let (started, used) = (Instant::now(), cpu());
        for group in entries.chunks(group) {
            let transaction = self.conn.transaction()?;
            for (key, value) in group {
                transaction
                    .prepare_cached(
                        "INSERT INTO entry (namespace, key, value) VALUES (?1, ?2, ?3)
                         ON CONFLICT DO UPDATE SET value = excluded.value",
                    )?
                    .execute(params![namespace, key, value])?;
            }
            transaction.commit()?;
        }
        Ok(Cost::of(entries.len(), started, used))
    }

    /// Reads entries by their keys.
    pub(crate) fn get<'a>(&self, namespace: &str, keys: impl Iterator<Item = &'a str>) -> Result<Cost> {
        let (started, used, mut count) = (Instant::now(), cpu(), 0);
        let mut select =
            self.conn.prepare_cached("SELECT value FROM entry WHERE namespace = ?1 AND key = ?2")?;
        for key in keys {
            let value: String = select.query_row(params![namespace, key], |row| row.get(0))?;
            std::hint::black_box(value);
            count += 1;
        }
        Ok(Cost::of(count, started, used))
    }

    /// Searches keys: the first page, and the total count.
    pub(crate) fn search(&self, namespace: &str, pattern: &str, times: usize) -> Result<Cost> {
        let (started, used) = (Instant::now(), cpu());
        let mut page = self.conn.prepare_cached(
            "SELECT key, value FROM entry WHERE namespace = ?1 AND key GLOB ?2 ORDER BY length(key), key LIMIT 10",
        )?;
        let mut count =
            self.conn.prepare_cached("SELECT count(*) FROM entry WHERE namespace = ?1 AND key GLOB ?2")?;
        for _ in 0..times {
            let found: Vec<(String, String)> = page
                .query_map(params![namespace, pattern], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_>>()?;
            let total: i64 = count.query_row(params![namespace, pattern], |row| row.get(0))?;
            std::hint::black_box((found, total));
        }
        Ok(Cost::of(times, started, used))
    }

    /// Lists keys: a page of 1,000.
    pub(crate) fn list(&self, namespace: &str, times: usize) -> Result<Cost> {
        let (started, used) = (Instant::now(), cpu());
        let mut page =
            self.conn.prepare_cached("SELECT key FROM entry WHERE namespace = ?1 ORDER BY key LIMIT 1000")?;
        for _ in 0..times {
            let found: Vec<String> =
                page.query_map(params![namespace], |row| row.get(0))?.collect::<Result<_>>()?;
            std::hint::black_box(found);
        }
        Ok(Cost::of(times, started, used))
    }

    /// The baseline for a batch of reads: reads each key and stores the result, `group` per transaction.
    pub(crate) fn batch(&mut self, namespace: &str, keys: &[String], group: usize) -> Result<Cost> {
        let (started, used) = (Instant::now(), cpu());
        for group in keys.chunks(group) {
            let transaction = self.conn.transaction()?;
            for key in group {
                let value: String = transaction
                    .prepare_cached("SELECT value FROM entry WHERE namespace = ?1 AND key = ?2")?
                    .query_row(params![namespace, key], |row| row.get(0))?;
                transaction.prepare_cached("INSERT INTO journal (body) VALUES (?1)")?.execute([value])?;
            }
            transaction.commit()?;
        }
        Ok(Cost::of(keys.len(), started, used))
    }
}
