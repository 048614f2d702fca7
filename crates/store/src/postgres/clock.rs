//! The translation of times between nodes and the database. The engine's times are by the clock of its node.
//! Where they matter to other nodes (until when a node lives, when a task is due, what is expired) the database
//! gets them as a distance from now, and adds it to its own clock.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nuncio_engine::clock::Timestamp;

/// The clock that decides what is due or expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSource {
    /// The database server's clock.
    Database,
    /// For tests: the caller's clock. Now is the last time that a caller passed in.
    Given,
}

/// Translates between the node's time and the database's.
pub(super) struct DatabaseClock {
    source: TimeSource,
    last_time: AtomicI64,
}

impl DatabaseClock {
    pub(super) fn new(source: TimeSource) -> Self {
        Self { source, last_time: AtomicI64::new(0) }
    }

    /// Records a time that a caller passed in.
    pub(super) fn record_time(&self, now: Timestamp) {
        self.last_time.store(now.0, Ordering::Relaxed);
    }

    /// The first argument of `time_or`: `None`, or the time of a test.
    pub(super) fn test_time(&self) -> Option<i64> {
        match self.source {
            TimeSource::Database => None,
            TimeSource::Given => Some(self.last_time.load(Ordering::Relaxed)),
        }
    }

    /// The distance of a time from now, in milliseconds.
    pub(super) fn distance(&self, at: Timestamp) -> i64 {
        at.0.saturating_sub(self.now())
    }

    /// The time at that distance from now.
    pub(super) fn at(&self, distance: i64) -> Timestamp {
        Timestamp(self.now().saturating_add(distance))
    }

    fn now(&self) -> i64 {
        self.test_time().unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }
}
