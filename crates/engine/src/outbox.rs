//! Webhook deliveries: claims, order, retry schedule, dead letters. A [`WebhookSender`] does the transport.
//!
//! A webhook is a durable follower: a cursor into its task's log, kept by the store. Claiming one leases it.
//! A round delivers the events after the cursor, one after another, and records how far it came. So the order
//! per webhook is the log's, a crash repeats at most one round (with the same delivery ids), and a failing
//! webhook waits for its own retry while all others continue.

mod endpoint_queues;
mod log_reader;
mod round;
mod schedule;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{Notify, watch},
    task::{Id, JoinError, JoinSet},
};

pub use self::schedule::RetrySchedule;
use self::{
    endpoint_queues::EndpointQueues,
    round::{DeliveryRound, EndpointSpeed},
};
use crate::{
    clock::{Clock, Timestamp},
    commands::webhooks::decode_webhook,
    engine::wait_until_closing,
    event::Entry,
    store::{DueWebhook, NodeId, Store, StoreError, TaskNo},
    task::{Task, TaskId},
    webhook::WebhookConfig,
};

/// Sends deliveries to their endpoints.
#[async_trait]
pub trait WebhookSender: Send + Sync + 'static {
    /// Attempts one delivery. Called again with the same delivery after a failure, and after a crash possibly
    /// although it succeeded: the receiver recognizes repeats by the delivery id.
    async fn deliver(&self, delivery: &WebhookDelivery<'_>) -> DeliveryResult;
}

/// One event for one webhook.
#[derive(Debug)]
pub struct WebhookDelivery<'a> {
    /// The same on every retry: see [`delivery_id`].
    pub delivery_id: &'a str,
    /// The endpoint, its credentials and its dialect.
    pub webhook: &'a WebhookConfig,
    /// The task as of the event.
    pub task: &'a Task,
    /// The event's sequence number.
    pub seq: u64,
    /// The event to deliver.
    pub entry: &'a Entry,
    /// The number of this attempt, from 1.
    pub attempt: u32,
}

/// The result of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The receiver has accepted it.
    Delivered,
    /// The receiver's protocol cannot express this event.
    NothingToSend,
    /// Failed; to be retried.
    Retry {
        /// The delay that the receiver asked for, if it did.
        after: Option<Duration>,
        /// The error, for people.
        reason: String,
    },
    /// Failed; a retry would not help.
    Dead {
        /// The error, for people.
        reason: String,
    },
}

/// The id of a delivery, derived from its content, so that a repeat has the same id, also after a restart.
pub fn delivery_id(task: TaskId, webhook: &str, seq: u64) -> String {
    format!("{task}.{webhook}.{seq}")
}

/// The limits of the outbox.
#[derive(Debug, Clone)]
pub struct OutboxOptions {
    /// When a failed delivery is retried, and for how long.
    pub schedule: RetrySchedule,
    /// The maximum number of deliveries in progress.
    pub concurrency: usize,
    /// The maximum number of deliveries in progress to one endpoint (scheme, host and port).
    pub per_endpoint: usize,
    /// The maximum number of webhooks of one endpoint that are queued in memory. Webhooks claimed beyond that
    /// are left alone until their lease expires.
    pub waiting_per_endpoint: usize,
    /// The maximum number of claimed webhooks, including queued ones.
    pub claimed: usize,
    /// The deadline of one attempt, whatever the sender's own timeout.
    pub timeout: Duration,
    /// How long a claimed webhook is leased to this process. At least twice the `timeout`.
    pub lease: Duration,
    /// The maximum number of deliveries per round; after that, its progress is recorded.
    pub round_events: usize,
    /// A round ends with the delivery during which this time has passed.
    pub round_time: Duration,
    /// At shutdown, how long a delivery in progress may still take.
    pub grace: Duration,
    /// The poll interval without notifications.
    pub poll: Duration,
}

impl Default for OutboxOptions {
    fn default() -> Self {
        Self {
            schedule: RetrySchedule::default(),
            concurrency: 64,
            per_endpoint: 8,
            waiting_per_endpoint: 1024,
            claimed: 4096,
            timeout: Duration::from_secs(20),
            lease: Duration::from_secs(60),
            round_events: 64,
            round_time: Duration::from_secs(1),
            grace: Duration::from_secs(5),
            poll: Duration::from_secs(5),
        }
    }
}

/// How many webhooks are claimed at a time.
const CLAIM: usize = 256;
/// The pause after a store reported something due but returned nothing, or after it failed.
const BREATH: Duration = Duration::from_millis(100);
const TROUBLE: Duration = Duration::from_secs(1);

/// The loop that delivers webhooks.
pub struct Outbox {
    shared: Arc<OutboxShared>,
    wake: Arc<Notify>,
    queues: EndpointQueues<ClaimedWebhook>,
    /// The webhooks that this process holds, queued or in progress, each with a later claim of it, if any: a
    /// webhook never has two rounds at once. A later claim may come as soon as the store has recorded the
    /// last round, which is before the round has ended here, or because the lease has expired.
    held: HashMap<WebhookKey, Option<ClaimedWebhook>>,
    rounds: JoinSet<EndpointSpeed>,
    /// The endpoint and the webhook of each round in progress.
    tickets: HashMap<Id, (String, WebhookKey)>,
}

/// What all rounds share.
struct OutboxShared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    sender: Arc<dyn WebhookSender>,
    node: NodeId,
    options: OutboxOptions,
}

/// A webhook. A replayed dead letter of it is an entry of its own, in parallel to it.
type WebhookKey = (TaskNo, String, Option<u64>);

/// A leased webhook.
struct ClaimedWebhook {
    delivery: DueWebhook,
    /// `None` if the stored record cannot be decoded.
    config: Option<WebhookConfig>,
    lease_ends: Timestamp,
}

impl Outbox {
    /// A loop over `store`; `wake` (`notify_one`) signals that something new may be due.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        sender: Arc<dyn WebhookSender>,
        node: NodeId,
        wake: Arc<Notify>,
        mut options: OutboxOptions,
    ) -> Self {
        // An attempt that could outlive its lease is not begun; with a shorter lease none would be.
        options.lease = options.lease.max(options.timeout * 2);
        let queues =
            EndpointQueues::new(options.concurrency, options.per_endpoint, options.waiting_per_endpoint);
        Self {
            shared: Arc::new(OutboxShared { store, clock, sender, node, options }),
            wake,
            queues,
            held: HashMap::new(),
            rounds: JoinSet::new(),
            tickets: HashMap::new(),
        }
    }

    /// Delivers until `shutdown` becomes true or its sender is dropped. Then it claims nothing more, lets
    /// deliveries in progress finish within the grace period, and records them.
    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let wake = Arc::clone(&self.wake);
        loop {
            // Registered before the store is read, so that a commit during the read is not missed.
            let mut woken = std::pin::pin!(wake.notified());
            woken.as_mut().enable();
            let pause = match self.claim().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "could not read due webhooks from the store; retrying");
                    TROUBLE
                }
            };
            self.start(&shutdown);
            tokio::select! {
                () = wait_until_closing(&mut shutdown) => break,
                Some(done) = self.rounds.join_next_with_id() => self.finish(done),
                () = woken => {}
                () = tokio::time::sleep(pause) => {}
            }
            while let Some(done) = self.rounds.try_join_next_with_id() {
                self.finish(done);
            }
        }
        while let Some(done) = self.rounds.join_next_with_id().await {
            self.finish(done);
        }
    }

    /// Claims due webhooks while there is room. Returns how long to wait until the next claim.
    async fn claim(&mut self) -> Result<Duration, StoreError> {
        let OutboxShared { store, clock, node, options, .. } = &*Arc::clone(&self.shared);
        loop {
            let limit = CLAIM.min(options.claimed.saturating_sub(self.held.len()));
            if limit == 0 {
                // The end of a round makes room, and ends the wait.
                return Ok(options.poll);
            }
            let now = clock.now();
            let due = store.next_delivery_due().await?;
            let Some(due) = due.filter(|due| due.since(now) < options.poll) else {
                return Ok(options.poll);
            };
            if due > now {
                return Ok(due.since(now));
            }
            let claimed = store.claim_deliveries(*node, now, options.lease, limit).await?;
            let took = claimed.len();
            for delivery in claimed {
                self.take(delivery, now.after(options.lease));
            }
            if took == 0 {
                return Ok(BREATH);
            }
        }
    }

    fn take(&mut self, delivery: DueWebhook, lease_ends: Timestamp) {
        let config = decode_webhook(&delivery.hook).ok();
        let claim = ClaimedWebhook { delivery, config, lease_ends };
        match self.held.get_mut(&claim.key()) {
            Some(next) => *next = Some(claim),
            None => self.line_up(claim),
        }
    }

    fn line_up(&mut self, claim: ClaimedWebhook) {
        let (key, endpoint) = (claim.key(), claim.endpoint());
        if self.queues.offer(&endpoint, claim) {
            self.held.insert(key, None);
        }
    }

    /// Begins rounds as far as the limits allow.
    fn start(&mut self, shutdown: &watch::Receiver<bool>) {
        while let Some((endpoint, claim)) = self.queues.next() {
            let OutboxShared { clock, options, .. } = &*self.shared;
            if clock.now().after(options.timeout) > claim.lease_ends {
                // It was queued too long behind its endpoint; the store hands it out again after the lease.
                self.let_go(&endpoint, &claim.key(), EndpointSpeed::Untried);
                continue;
            }
            let key = claim.key();
            let round = DeliveryRound::new(Arc::clone(&self.shared), claim, shutdown.clone());
            let handle = self.rounds.spawn(round.run());
            self.tickets.insert(handle.id(), (endpoint, key));
        }
    }

    fn finish(&mut self, done: Result<(Id, EndpointSpeed), JoinError>) {
        let (id, pace) = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a webhook delivery panicked; it is repeated when its lease expires");
                (error.id(), EndpointSpeed::Slow)
            }
        };
        if let Some((endpoint, key)) = self.tickets.remove(&id) {
            self.let_go(&endpoint, &key, pace);
        }
    }

    fn let_go(&mut self, endpoint: &str, key: &WebhookKey, pace: EndpointSpeed) {
        self.queues.finished(endpoint, pace);
        if let Some(Some(next)) = self.held.remove(key) {
            self.line_up(next);
        }
    }
}

impl ClaimedWebhook {
    fn key(&self) -> WebhookKey {
        (self.delivery.row.no, self.delivery.hook.id.clone(), self.delivery.replay)
    }

    fn endpoint(&self) -> String {
        self.config.as_ref().map(|config| endpoint(&config.url)).unwrap_or_default()
    }
}

/// Scheme, host and port of a URL: deliveries that are slow or fail together.
fn endpoint(url: &str) -> String {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#', '\\']).map_or(url.len(), |at| host + at);
    url[..end].to_ascii_lowercase()
}
