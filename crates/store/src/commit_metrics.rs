//! The metrics of a store's writer: its transactions, how long they take and how many changes they hold.

use std::time::Duration;

use nuncio_engine::metric::{self, Counter, Histogram};

/// Handles of the writer's metrics, made once.
pub(crate) struct CommitMetrics {
    commits: Counter,
    failures: Counter,
    duration: Histogram,
    quantiles: Histogram,
    batch_size: Histogram,
}

impl CommitMetrics {
    pub(crate) fn new() -> Self {
        Self {
            commits: metric::STORE_COMMITS.counter(&[]),
            failures: metric::STORE_COMMIT_FAILURES.counter(&[]),
            duration: metric::STORE_COMMIT_DURATION.histogram(&[]),
            quantiles: metric::STORE_COMMIT_SECONDS.histogram(&[]),
            batch_size: metric::STORE_BATCH_SIZE.histogram(&[]),
        }
    }

    /// Records a transaction.
    pub(crate) fn record(&self, took: Duration, changes: usize, succeeded: bool) {
        self.commits.increment(1);
        self.duration.record(took);
        self.quantiles.record(took);
        self.batch_size.record(changes as f64);
        if !succeeded {
            self.failures.increment(1);
        }
    }
}
