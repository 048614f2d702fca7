//! Whose time it is. Times that the engine gives are by the clock of its node. What they mean for others (until
//! when a node lives, when a task is due, what is too old) is said to the database as a distance from now, and
//! the database adds it to its own clock.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nuncio_engine::clock::Timestamp;

/// Whose clock counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSource {
    /// The database's.
    Database,
    /// For tests: that of whoever calls. Now is what was told last.
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

    /// Takes note of the time.
    pub(super) fn record_time(&self, now: Timestamp) {
        self.last_time.store(now.0, Ordering::Relaxed);
    }

    /// The first argument of `time_or`: nothing, or what a test gave.
    pub(super) fn test_time(&self) -> Option<i64> {
        match self.source {
            TimeSource::Database => None,
            TimeSource::Given => Some(self.last_time.load(Ordering::Relaxed)),
        }
    }

    /// How far a time is from now, in milliseconds.
    pub(super) fn distance(&self, at: Timestamp) -> i64 {
        at.0.saturating_sub(self.now())
    }

    /// The time at that distance.
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
