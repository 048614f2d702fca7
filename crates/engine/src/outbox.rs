//! Webhook deliveries: claim, order, retry schedule, dead letters. How a delivery travels is a `Courier`'s
//! business.
//!
//! A webhook is a durable follower: a cursor into its task's log, kept by the store. Claiming one leases it;
//! a round delivers what follows the cursor, one event after another, and settles how far it came. So the
//! order per webhook is the log's, a crash repeats at most one round (with the same delivery ids), and a
//! webhook that fails waits for its own next time while all others go on.

mod lanes;
mod reel;
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

pub use self::schedule::Schedule;
use self::{
    lanes::Lanes,
    round::{Pace, Round},
};
use crate::{
    clock::{Clock, Timestamp},
    commands::webhooks::decode_webhook,
    engine::closed,
    event::Entry,
    store::{Delivery, NodeId, Store, StoreError, TaskNo},
    task::{Task, TaskId},
    webhook::WebhookConfig,
};

/// Carries parcels to where they are wanted.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Tries to deliver once. Called again with the same parcel after a failure, and possibly after a crash
    /// although it succeeded: the receiver tells repeats by the delivery id.
    async fn deliver(&self, parcel: &Parcel<'_>) -> Verdict;
}

/// One event for one webhook.
#[derive(Debug)]
pub struct Parcel<'a> {
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
pub enum Verdict {
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
    pub schedule: Schedule,
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
            schedule: Schedule::default(),
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
    shared: Arc<Shared>,
    wake: Arc<Notify>,
    lanes: Lanes<Claim>,
    /// What this process holds, waiting or under way, each with what was claimed of it since: a webhook
    /// never has two rounds at once. The next claim may come as soon as the store has settled the last,
    /// which is before the round has ended here, or because the lease is over.
    held: HashMap<Key, Option<Claim>>,
    rounds: JoinSet<Pace>,
    /// Whose rounds they are.
    tickets: HashMap<Id, (String, Key)>,
}

/// What all rounds need.
struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    courier: Arc<dyn Courier>,
    node: NodeId,
    options: OutboxOptions,
}

/// A webhook; a dead letter of it that is replayed goes beside it, not after it.
type Key = (TaskNo, String, Option<u64>);

/// A leased webhook.
struct Claim {
    delivery: Delivery,
    /// `None` when the record cannot be read.
    config: Option<WebhookConfig>,
    lease_ends: Timestamp,
}

impl Outbox {
    /// A loop over `store` that is told by `wake` (`notify_one`) when something new may be due.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        courier: Arc<dyn Courier>,
        node: NodeId,
        wake: Arc<Notify>,
        mut options: OutboxOptions,
    ) -> Self {
        // An attempt that could outlive its lease is not begun; with a shorter lease none would be.
        options.lease = options.lease.max(options.timeout * 2);
        let lanes = Lanes::new(options.concurrency, options.per_endpoint, options.waiting_per_endpoint);
        Self {
            shared: Arc::new(Shared { store, clock, courier, node, options }),
            wake,
            lanes,
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
                () = closed(&mut shutdown) => break,
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
        let Shared { store, clock, node, options, .. } = &*Arc::clone(&self.shared);
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

    fn take(&mut self, delivery: Delivery, lease_ends: Timestamp) {
        let config = decode_webhook(&delivery.hook).ok();
        let claim = Claim { delivery, config, lease_ends };
        match self.held.get_mut(&claim.key()) {
            Some(next) => *next = Some(claim),
            None => self.line_up(claim),
        }
    }

    fn line_up(&mut self, claim: Claim) {
        let (key, endpoint) = (claim.key(), claim.endpoint());
        if self.lanes.offer(&endpoint, claim) {
            self.held.insert(key, None);
        }
    }

    /// Begins rounds as far as the limits allow.
    fn start(&mut self, shutdown: &watch::Receiver<bool>) {
        while let Some((endpoint, claim)) = self.lanes.next() {
            let Shared { clock, options, .. } = &*self.shared;
            if clock.now().after(options.timeout) > claim.lease_ends {
                // It waited too long behind its endpoint; the store hands it out again after the lease.
                self.let_go(&endpoint, &claim.key(), Pace::Untried);
                continue;
            }
            let key = claim.key();
            let round = Round::new(Arc::clone(&self.shared), claim, shutdown.clone());
            let handle = self.rounds.spawn(round.run());
            self.tickets.insert(handle.id(), (endpoint, key));
        }
    }

    fn finish(&mut self, done: Result<(Id, Pace), JoinError>) {
        let (id, pace) = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a webhook delivery broke; it is repeated after its lease");
                (error.id(), Pace::Slow)
            }
        };
        if let Some((endpoint, key)) = self.tickets.remove(&id) {
            self.let_go(&endpoint, &key, pace);
        }
    }

    fn let_go(&mut self, endpoint: &str, key: &Key, pace: Pace) {
        self.lanes.finished(endpoint, pace);
        if let Some(Some(next)) = self.held.remove(key) {
            self.line_up(next);
        }
    }
}

impl Claim {
    fn key(&self) -> Key {
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
