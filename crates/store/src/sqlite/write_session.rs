//! The writer's connection with the state that the writer caches in memory, and the transaction around a batch.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use nuncio_engine::{clock::Timestamp, task::State};
use rusqlite::{Connection, Result, params};

use super::names::SqliteNameCache;

/// The connection and state that a job runs on.
pub(super) struct WriteSession {
    pub(super) conn: Connection,
    pub(super) names: SqliteNameCache,
    /// The store's number for the next task.
    pub(super) next_no: i64,
    now: Arc<LastKnownTime>,
    /// Changes of the table `tally` in this batch.
    tally: HashMap<(i64, i64, u8), i64>,
}

/// The last time that a caller passed in. The store has no clock of its own; this is "now" where a method of
/// the trait needs one and gets no argument for it.
#[derive(Default)]
pub(super) struct LastKnownTime(AtomicI64);

impl LastKnownTime {
    pub(super) fn get(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

impl WriteSession {
    pub(super) fn new(conn: Connection, now: Arc<LastKnownTime>) -> Result<Self> {
        let next_no = conn.query_row("SELECT ifnull(max(no), 0) + 1 FROM task", [], |row| row.get(0))?;
        Ok(Self { conn, names: SqliteNameCache::default(), next_no, now, tally: HashMap::new() })
    }

    /// The last known time.
    pub(super) fn now(&self) -> Timestamp {
        self.now.get()
    }

    /// Records a time that a caller passed in.
    pub(super) fn record_time(&mut self, now: Timestamp) {
        self.now.0.store(now.0, Ordering::Relaxed);
    }

    /// Adds `by` to the count of tasks of that owner, agent and state.
    pub(super) fn count(&mut self, owner: i64, agent: i64, state: State, by: i64) {
        *self.tally.entry((owner, agent, state.code())).or_default() += by;
    }

    /// Runs work in one transaction: on return all of it is durable, or none of it happened.
    pub(super) fn transact(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = work(self).and_then(|()| self.write_tally()).and_then(|()| {
            self.conn.prepare_cached("COMMIT")?.execute([])?;
            Ok(())
        });
        if done.is_err() {
            self.roll_back();
        }
        done
    }

    fn write_tally(&mut self) -> Result<()> {
        for ((owner, agent, state), by) in self.tally.drain().filter(|(_, by)| *by != 0) {
            self.conn
                .prepare_cached(
                    "INSERT INTO tally (owner, agent, state, n) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO UPDATE SET n = n + excluded.n",
                )?
                .execute(params![owner, agent, state, by])?;
        }
        Ok(())
    }

    fn roll_back(&mut self) {
        self.tally.clear();
        // The names that the transaction interned were rolled back with it.
        self.names = SqliteNameCache::default();
        // On some errors SQLite has rolled back already.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "could not roll back");
        }
    }
}
