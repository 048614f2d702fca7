//! One delivery round: what is sent to one webhook between its claim and the recording of the outcome.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    ClaimedWebhook, DeliveryResult, OutboxShared, WebhookDelivery, delivery_id, log_reader::TaskLogReader,
};
use crate::{
    engine::wait_until_closing,
    error::Error,
    event::Entry,
    metric::{self, Gauge},
    store::{DeliveryOutcome, StoreError},
    task::TaskId,
    webhook::WebhookConfig,
};

/// How the endpoint responded, as far as it matters to other deliveries that wait for the same endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointSpeed {
    /// It failed, and took long to fail.
    Slow,
    /// It accepted the delivery, or refused it quickly.
    Even,
    /// No request was made: the round had nothing to send, or did not start.
    Untried,
}

/// A failure that takes longer than this counts as slow.
const SLOW: Duration = Duration::from_secs(1);
/// About how many bytes of an error are stored.
const REASON_BYTES: usize = 512;
/// The delay between attempts to record an outcome.
const SETTLE_AGAIN: Duration = Duration::from_millis(200);

pub(super) struct DeliveryRound {
    shared: Arc<OutboxShared>,
    claim: ClaimedWebhook,
    closing: watch::Receiver<bool>,
    pace: EndpointSpeed,
}

impl DeliveryRound {
    pub(super) fn new(
        shared: Arc<OutboxShared>,
        claim: ClaimedWebhook,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self { shared, claim, closing, pace: EndpointSpeed::Untried }
    }

    pub(super) async fn run(mut self) -> EndpointSpeed {
        let settled = match (self.claim.config.take(), self.claim.delivery.replay) {
            (None, replay) => {
                let seq = replay.unwrap_or(self.claim.delivery.hook.cursor + 1);
                Ok(Some(self.dead(seq, "the webhook's record cannot be read")))
            }
            (Some(config), Some(seq)) => self.replay(&config, seq).await,
            (Some(config), None) => self.deliver(&config).await,
        };
        match settled {
            Ok(Some(settled)) => self.record_outcome(settled).await,
            // Nothing to record: the task was deleted with its webhooks, or the server is stopping.
            Ok(None) => {}
            Err(error) => {
                let task = self.task();
                tracing::error!(%task, %error, "could not read a task with webhooks; retrying after the lease");
            }
        }
        self.pace
    }

    /// Delivers the events after the cursor until the round ends or an attempt fails.
    async fn deliver(&mut self, config: &WebhookConfig) -> Result<Option<DeliveryOutcome>, Error> {
        let began = Instant::now();
        let before = self.claim.delivery.hook.cursor;
        let Some(mut log_reader) = TaskLogReader::open(&self.shared.store, self.task(), before).await? else {
            return Ok(None);
        };
        let (mut cursor, mut failures, mut sent) = (before, self.claim.delivery.attempts, 0);
        loop {
            // At least one event per round, or a slow endpoint would never make progress.
            if cursor > before && self.is_over(began, sent) {
                break;
            }
            let Some(entry) = log_reader.next().await? else { break };
            let verdict = self.attempt(config, &log_reader, &entry, failures + 1).await;
            let seq = log_reader.task().seq;
            match verdict {
                Some(DeliveryResult::Delivered) => sent += 1,
                Some(DeliveryResult::NothingToSend) => {}
                Some(DeliveryResult::Retry { after, reason }) => {
                    return Ok(Some(self.fail(cursor, seq, failures + 1, after, &reason)));
                }
                Some(DeliveryResult::Dead { reason }) => return Ok(Some(self.dead(seq, &reason))),
                // Not even started: left to expire with its lease, which preserves the failure count.
                None if cursor == before => return Ok(None),
                None => break,
            }
            (cursor, failures) = (seq, 0);
        }
        Ok(Some(DeliveryOutcome::Delivered { up_to: cursor }))
    }

    /// Retries a dead letter once: it is delivered, or becomes a dead letter again.
    async fn replay(&mut self, config: &WebhookConfig, seq: u64) -> Result<Option<DeliveryOutcome>, Error> {
        let Some(mut log_reader) =
            TaskLogReader::open(&self.shared.store, self.task(), seq.saturating_sub(1)).await?
        else {
            return Ok(None);
        };
        let Some(entry) = log_reader.next().await? else {
            return Ok(Some(self.dead(seq, "there is no such event")));
        };
        let attempt = self.claim.delivery.attempts + 1;
        Ok(Some(match self.attempt(config, &log_reader, &entry, attempt).await {
            Some(DeliveryResult::Delivered | DeliveryResult::NothingToSend) => {
                DeliveryOutcome::Replayed { seq }
            }
            Some(DeliveryResult::Retry { reason, .. } | DeliveryResult::Dead { reason }) => {
                self.dead(seq, &reason)
            }
            None => return Ok(None),
        }))
    }

    /// One attempt, counted and timed. `None`: the server is stopping and the grace period is over.
    async fn attempt(
        &mut self,
        config: &WebhookConfig,
        log_reader: &TaskLogReader,
        entry: &Entry,
        attempt: u32,
    ) -> Option<DeliveryResult> {
        let (task, seq) = (log_reader.task(), log_reader.task().seq);
        let delivery_id = self.delivery_id(seq);
        let delivery =
            WebhookDelivery { delivery_id: &delivery_id, webhook: config, task, seq, entry, attempt };
        let (began, limit, grace) = (Instant::now(), self.shared.options.timeout, self.shared.options.grace);
        let _in_flight = InFlight::new();
        let verdict = tokio::select! {
            verdict = timeout(limit, self.shared.sender.deliver(&delivery)) => verdict,
            () = async { wait_until_closing(&mut self.closing).await; sleep(grace).await } => return None,
        };
        let verdict = verdict.unwrap_or_else(|_| DeliveryResult::Retry {
            after: None,
            reason: format!("no answer within {} s", limit.as_secs_f32()),
        });
        match &verdict {
            DeliveryResult::Delivered => {
                count("delivered");
                self.pace = EndpointSpeed::Even;
            }
            DeliveryResult::NothingToSend => {}
            DeliveryResult::Retry { reason, .. } | DeliveryResult::Dead { reason } => {
                count("failed");
                tracing::info!(delivery = delivery_id, attempt, reason, "a webhook was not delivered");
                self.pace = if began.elapsed() >= SLOW { EndpointSpeed::Slow } else { EndpointSpeed::Even };
            }
        }
        Some(verdict)
    }

    fn fail(
        &self,
        up_to: u64,
        seq: u64,
        failures: u32,
        after: Option<Duration>,
        reason: &str,
    ) -> DeliveryOutcome {
        let OutboxShared { clock, options, .. } = &*self.shared;
        match options.schedule.wait(failures, after, clock.chance()) {
            Some(wait) => {
                let (at, reason) = (clock.now().after(wait), cut_text(reason, REASON_BYTES));
                DeliveryOutcome::Retry { up_to, at, reason }
            }
            None => self.dead(seq, &format!("given up after {failures} attempts: {reason}")),
        }
    }

    fn dead(&self, seq: u64, reason: &str) -> DeliveryOutcome {
        let (delivery, reason) = (self.delivery_id(seq), cut_text(reason, REASON_BYTES));
        tracing::warn!(delivery, reason, "gave up a webhook delivery; it is in the dead letters");
        count("dead");
        DeliveryOutcome::Dead { seq, delivery, reason, at: self.shared.clock.now() }
    }

    fn is_over(&self, began: Instant, sent: usize) -> bool {
        let OutboxShared { clock, options, .. } = &*self.shared;
        sent >= options.round_events
            || began.elapsed() >= options.round_time
            || clock.now().after(options.timeout) > self.claim.lease_ends
            || *self.closing.borrow()
    }

    /// Records the outcome. If the store fails, this is retried while the lease lasts; after that the round is
    /// repeated with the same delivery ids.
    async fn record_outcome(&self, settled: DeliveryOutcome) {
        let OutboxShared { store, clock, .. } = &*self.shared;
        let ClaimedWebhook { delivery, lease_ends, .. } = &self.claim;
        loop {
            let result = store.record_delivery(delivery.row.no, &delivery.hook.id, settled.clone()).await;
            let Err(error) = result else { return };
            let again = !matches!(error, StoreError::Broken(_)) && clock.now() < *lease_ends;
            if !again || *self.closing.borrow() {
                let task = self.task();
                tracing::error!(%task, %error, "made a webhook delivery but could not record it; it is repeated");
                return;
            }
            sleep(SETTLE_AGAIN).await;
        }
    }

    fn delivery_id(&self, seq: u64) -> String {
        delivery_id(self.task(), &self.claim.delivery.hook.id, seq)
    }

    fn task(&self) -> TaskId {
        self.claim.delivery.row.id
    }
}

/// The text, cut between characters.
fn cut_text(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

fn count(outcome: &'static str) {
    metric::WEBHOOK_DELIVERIES.counter(&[outcome]).increment(1);
}

/// Counts an attempt as in flight while this value exists.
struct InFlight(Gauge);

impl InFlight {
    fn new() -> Self {
        let gauge = metric::WEBHOOK_DELIVERIES_IN_FLIGHT.gauge(&[]);
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
