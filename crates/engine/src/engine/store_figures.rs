//! Gauges of the whole store, read at an interval and not by each scrape, so that a scrape costs the store nothing.

use std::{sync::Arc, time::Duration};

use metrics::{Counter, Gauge, Histogram};

use super::{Engine, EngineCore, wait_until_closing};
use crate::{
    metric,
    refusal_log::{REFUSAL_LOG_INTERVAL, log_refusals},
    store::StoreFigures,
};

/// The metrics of this node that belong to no agent.
pub(crate) struct NodeMetrics {
    pub(crate) queue_wait: Histogram,
    pub(crate) takeovers: Counter,
}

impl NodeMetrics {
    pub(super) fn new() -> Self {
        Self {
            queue_wait: metric::TASK_QUEUE_WAIT.histogram(&[]),
            takeovers: metric::TASK_TAKEOVERS.counter(&[]),
        }
    }

    /// Records how long a task waited for its first run.
    pub(crate) fn record_queue_wait(&self, wait: Duration) {
        self.queue_wait.record(wait.as_secs_f64());
    }
}

/// The gauges that [`StoreFigures`] are shown by.
struct StoreGauges {
    waiting_for_answer: Gauge,
    oldest_question: Gauge,
    webhooks_due: Gauge,
    webhooks_failing: Gauge,
    oldest_failure: Gauge,
    dead_letters: Gauge,
    bytes: Gauge,
}

impl StoreGauges {
    fn new() -> Self {
        Self {
            waiting_for_answer: metric::TASKS_WAITING_FOR_ANSWER.gauge(&[]),
            oldest_question: metric::OLDEST_QUESTION_AGE.gauge(&[]),
            webhooks_due: metric::WEBHOOKS_DUE.gauge(&[]),
            webhooks_failing: metric::WEBHOOKS_FAILING.gauge(&[]),
            oldest_failure: metric::WEBHOOK_OLDEST_FAILURE_AGE.gauge(&[]),
            dead_letters: metric::WEBHOOK_DEAD_LETTERS.gauge(&[]),
            bytes: metric::STORE_BYTES.gauge(&[]),
        }
    }

    fn set(&self, figures: &StoreFigures) {
        let age = |age: Option<Duration>| age.unwrap_or_default().as_secs_f64();
        self.waiting_for_answer.set(figures.waiting_for_answer as f64);
        self.oldest_question.set(age(figures.oldest_question));
        self.webhooks_due.set(figures.webhooks_due as f64);
        self.webhooks_failing.set(figures.webhooks_failing as f64);
        self.oldest_failure.set(age(figures.oldest_failure));
        self.dead_letters.set(figures.dead_letters as f64);
        self.bytes.set(figures.bytes as f64);
        if let Some(free) = figures.free_bytes {
            metric::STORE_FREE_BYTES.gauge(&[]).set(free as f64);
        }
    }
}

/// Reads the figures at the start and then at an interval, until the engine stops. Where they cannot be read, the gauges stay
/// as they were: readiness says that the store does not answer.
pub(super) async fn figures_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    let gauges = StoreGauges::new();
    loop {
        match engine.store.figures(engine.clock.now()).await {
            Ok(figures) => gauges.set(&figures),
            Err(error) => tracing::debug!(%error, "the figures of the store could not be read; retrying"),
        }
        tokio::select! {
            () = tokio::time::sleep(engine.options.figures_interval) => {}
            () = wait_until_closing(&mut closing) => return,
        }
    }
}

/// Logs refusals at an interval, and the last ones at the end.
pub(super) async fn refusals_loop(engine: Arc<EngineCore>) {
    let mut closing = engine.closing();
    loop {
        let stops = tokio::select! {
            () = tokio::time::sleep(REFUSAL_LOG_INTERVAL) => false,
            () = wait_until_closing(&mut closing) => true,
        };
        log_refusals();
        if stops {
            return;
        }
    }
}

impl Engine {
    /// How many tasks this node holds a lease of.
    pub fn leases_held(&self) -> usize {
        self.0.lock_runs().len()
    }
}
