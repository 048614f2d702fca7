//! Webhook deliveries: claim, order, retry schedule, dead letters. How a delivery travels is a `WebhookSender`'s
//! business.
//!
//! A webhook is a durable follower: a cursor into its task's log, kept by the store. Claiming one leases it;
//! a round delivers what follows the cursor, one event after another, and settles how far it came. So the
//! order per webhook is the log's, a crash repeats at most one round (with the same delivery ids), and a
//! webhook that fails waits for its own next time while all others go on.

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

/// Carries parcels to where they are wanted.
#[async_trait]
pub trait WebhookSender: Send + Sync + 'static {
    /// Tries to deliver once. Called again with the same parcel after a failure, and possibly after a crash
    /// although it succeeded: the receiver tells repeats by the delivery id.
    async fn deliver(&self, parcel: &WebhookDelivery<'_>) -> DeliveryResult;
}

/// One event for one webhook.
#[derive(Debug)]
pub struct WebhookDelivery<'a> {
    /// The same on every repeat: see [`delivery_id`].
    pub delivery_id: &'a str,
    /// Where to, and how.
    pub webhook: &'a WebhookConfig,
    /// The task as of the event.
    pub task: &'a Task,
    /// The event's sequence number.
    pub seq: u64,
    /// The event.
    pub entry: &'a Entry,
    /// Counts from 1.
    pub attempt: u32,
}

/// How an attempt at a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The receiver has it.
    Delivered,
    /// The receiver's protocol has no words for this event.
    NothingToSend,
    /// Not this time.
    Retry {
        /// When the receiver wants to be asked again, if it said so.
        after: Option<Duration>,
        /// Why, for people.
        reason: String,
    },
    /// Not ever.
    Dead {
        /// Why, for people.
        reason: String,
    },
}

/// The id of a delivery, derived from what it delivers, so that a repeat is known as one, also after a
/// restart.
pub fn delivery_id(task: TaskId, webhook: &str, seq: u64) -> String {
    format!("{task}.{webhook}.{seq}")
}

/// The limits of the outbox.
#[derive(Debug, Clone)]
pub struct OutboxOptions {
    /// When a failed delivery is tried again, and how long.
    pub schedule: RetrySchedule,
    /// Deliveries under way at one time.
    pub concurrency: usize,
    /// The same, to one endpoint (scheme, host and port).
    pub per_endpoint: usize,
    /// Webhooks of one endpoint that wait here for a delivery to it to end. What is claimed beyond that is
    /// left alone until its lease is over.
    pub waiting_per_endpoint: usize,
    /// Webhooks claimed at one time, waiting ones included.
    pub claimed: usize,
    /// How long one attempt may take, whatever the courier thinks.
    pub timeout: Duration,
    /// How long a claimed webhook belongs to this process. At least twice the `timeout`.
    pub lease: Duration,
    /// A round ends after so many deliveries, and what it did is settled.
    pub round_events: usize,
    /// A round ends with the delivery during which so much time has passed.
    pub round_time: Duration,
    /// At shutdown, how long a delivery under way may still take.
    pub grace: Duration,
    /// How often to look when nothing has been heard.
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

/// How many webhooks are claimed at once.
const CLAIM: usize = 256;
/// When a store says that something is due and then gives nothing, or fails: how long until the next look.
const BREATH: Duration = Duration::from_millis(100);
const TROUBLE: Duration = Duration::from_secs(1);

/// The loop that empties the outbox.
pub struct Outbox {
    shared: Arc<OutboxShared>,
    wake: Arc<Notify>,
    queues: EndpointQueues<ClaimedWebhook>,
    /// What this process holds, waiting or under way, each with what was claimed of it since: a webhook
    /// never has two rounds at once. The next claim may come as soon as the store has settled the last,
    /// which is before the round has ended here, or because the lease is over.
    held: HashMap<WebhookKey, Option<ClaimedWebhook>>,
    rounds: JoinSet<EndpointSpeed>,
    /// Whose rounds they are.
    tickets: HashMap<Id, (String, WebhookKey)>,
}

/// What all rounds need.
struct OutboxShared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    courier: Arc<dyn WebhookSender>,
    node: NodeId,
    options: OutboxOptions,
}

/// A webhook; a dead letter of it that is replayed goes beside it, not after it.
type WebhookKey = (TaskNo, String, Option<u64>);

/// A leased webhook.
struct ClaimedWebhook {
    delivery: DueWebhook,
    /// `None` when the record cannot be read.
    config: Option<WebhookConfig>,
    lease_ends: Timestamp,
}

impl Outbox {
    /// A loop over `store` that is told by `wake` (`notify_one`) when something new may be due.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        courier: Arc<dyn WebhookSender>,
        node: NodeId,
        wake: Arc<Notify>,
        mut options: OutboxOptions,
    ) -> Self {
        // An attempt that could outlive its lease is not begun; with a shorter lease none would be.
        options.lease = options.lease.max(options.timeout * 2);
        let queues =
            EndpointQueues::new(options.concurrency, options.per_endpoint, options.waiting_per_endpoint);
        Self {
            shared: Arc::new(OutboxShared { store, clock, courier, node, options }),
            wake,
            queues,
            held: HashMap::new(),
            rounds: JoinSet::new(),
            tickets: HashMap::new(),
        }
    }

    /// Delivers until `shutdown` says true or its sender is gone; then claims nothing more, lets what is
    /// under way finish within the grace, and settles it.
    pub async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let wake = Arc::clone(&self.wake);
        loop {
            // Heard from here on, so that what is committed while the store is read is not missed.
            let mut woken = std::pin::pin!(wake.notified());
            woken.as_mut().enable();
            let pause = match self.claim().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "the outbox cannot read what is due");
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

    /// Takes what is due as long as there is room for it. Returns how long nothing more will be.
    async fn claim(&mut self) -> Result<Duration, StoreError> {
        let OutboxShared { store, clock, node, options, .. } = &*Arc::clone(&self.shared);
        loop {
            let limit = CLAIM.min(options.claimed.saturating_sub(self.held.len()));
            if limit == 0 {
                // The end of a round makes room, and ends the pause.
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
                // It waited too long behind its endpoint; the store hands it out again after the lease.
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
                tracing::error!(%error, "a webhook delivery broke; it is repeated after its lease");
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

/// Scheme, host and port of a URL: what is slow or broken together.
fn endpoint(url: &str) -> String {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#', '\\']).map_or(url.len(), |at| host + at);
    url[..end].to_ascii_lowercase()
}
