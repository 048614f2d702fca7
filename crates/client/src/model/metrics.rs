//! The metrics of calls of one model: how they ended, how long they took, and the tokens that the provider reported.

use std::time::Duration;

use nuncio_engine::metric::{self, Counter, Histogram};
use tokio::time::Instant;

use super::{ModelUsage, messages::ModelReply};

/// Handles for one model, made once.
#[derive(Clone)]
pub(super) struct ModelMetrics {
    ok: Counter,
    error: Counter,
    abandoned: Counter,
    retries: Counter,
    input_tokens: Counter,
    output_tokens: Counter,
    duration: Histogram,
}

impl ModelMetrics {
    /// `model`: its name in the configuration.
    pub(super) fn new(model: &str) -> Self {
        Self {
            ok: metric::MODEL_CALLS.counter(&[model, "ok"]),
            error: metric::MODEL_CALLS.counter(&[model, "error"]),
            abandoned: metric::MODEL_CALLS.counter(&[model, "abandoned"]),
            retries: metric::MODEL_RETRIES.counter(&[model]),
            input_tokens: metric::MODEL_TOKENS.counter(&[model, "input"]),
            output_tokens: metric::MODEL_TOKENS.counter(&[model, "output"]),
            duration: metric::MODEL_DURATION.histogram(&[model]),
        }
    }

    pub(super) fn count_retry(&self) {
        self.retries.increment(1);
    }
}

/// One call: counted once, when it has ended or is dropped.
pub(super) struct MeteredCall {
    metrics: ModelMetrics,
    /// When the first attempt began; `None` before it, and once the call is counted.
    began: Option<Instant>,
}

impl MeteredCall {
    pub(super) fn new(metrics: ModelMetrics) -> Self {
        Self { metrics, began: None }
    }

    /// The first attempt begins, unless it has.
    pub(super) fn begin(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    pub(super) fn reply(&mut self, reply: &ModelReply) {
        let Some(took) = self.end() else { return };
        self.metrics.ok.increment(1);
        self.metrics.duration.record(took);
        let ModelUsage { input, output } = reply.usage;
        self.metrics.input_tokens.increment(input.unwrap_or_default());
        self.metrics.output_tokens.increment(output.unwrap_or_default());
    }

    pub(super) fn fail(&mut self) {
        let Some(took) = self.end() else { return };
        self.metrics.error.increment(1);
        self.metrics.duration.record(took);
    }

    fn end(&mut self) -> Option<Duration> {
        self.began.take().map(|began| began.elapsed())
    }
}

impl Drop for MeteredCall {
    fn drop(&mut self) {
        if self.end().is_some() {
            self.metrics.abandoned.increment(1);
        }
    }
}
