//! The slot scheduler: one queue of operations for all batches of this process, under one concurrency cap.
//!
//! A slot goes to the tenant that holds the fewest; among equals, to the one that was served least recently.
//! Within a tenant, priority decides, then arrival; a priority never ranks above another tenant's operations.
//! The cap may change at any time: after a raise more operations begin at once, after a cut none begin until
//! enough have ended. A batch may have its own lower cap, and may be paused; its operations keep their queue
//! positions meanwhile. The scheduler also holds the stopwatch of each batch: how long the batch has worked in
//! this process.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_engine::TaskId;
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

/// The priority of an operation among those of its tenant.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// After all others.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Before all others.
    High,
}

impl Priority {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// The queue position of an operation; the smallest is served first.
type QueuePosition = (Reverse<Priority>, u64);

/// Grants slots to operations. One per process.
pub(crate) struct BatchScheduler {
    state: Mutex<BatchSchedulerState>,
    cap: watch::Sender<usize>,
}

struct BatchSchedulerState {
    running: usize,
    arrived: u64,
    /// The number of slots granted so far.
    given: u64,
    /// The tenants that hold or want a slot.
    tenants: HashMap<Arc<str>, BatchTenantQueue>,
    batches: HashMap<TaskId, ScheduledBatch>,
}

/// The running and the waiting operations of one tenant.
#[derive(Default)]
struct BatchTenantQueue {
    running: usize,
    /// When the tenant was last granted a slot, as the value of `given`.
    served: u64,
    waiting: BTreeMap<QueuePosition, SlotWaiter>,
}

struct SlotWaiter {
    batch: TaskId,
    granted: oneshot::Sender<()>,
}

/// A batch that runs in this process.
struct ScheduledBatch {
    /// Identifies the run of the batch: a new run may register before the old one has left.
    serial: u64,
    own_cap: usize,
    running: usize,
    /// Operations that wait for an answer, without a slot.
    asking: usize,
    paused: bool,
    stopwatch: Stopwatch,
}

impl BatchScheduler {
    pub(crate) fn new(cap: usize) -> Arc<Self> {
        let state = BatchSchedulerState {
            running: 0,
            arrived: 0,
            given: 0,
            tenants: HashMap::new(),
            batches: HashMap::new(),
        };
        Arc::new(Self { state: Mutex::new(state), cap: watch::Sender::new(cap) })
    }

    /// A receiver of the cap and its changes.
    pub(crate) fn cap(&self) -> watch::Receiver<usize> {
        self.cap.subscribe()
    }

    /// Changes the cap, with immediate effect.
    pub(crate) fn set_cap(&self, cap: usize) {
        self.cap.send_replace(cap.max(1));
        self.grant_slots(&mut self.lock());
    }

    /// Registers a batch, which may request slots until the handle is dropped.
    pub(crate) fn register_batch(
        self: &Arc<Self>,
        batch: TaskId,
        tenant: &str,
        own_cap: usize,
        paused: bool,
    ) -> BatchHandle {
        let mut state = self.lock();
        state.arrived += 1;
        let serial = state.arrived;
        let entered = ScheduledBatch {
            serial,
            own_cap,
            running: 0,
            asking: 0,
            paused,
            stopwatch: Stopwatch::default(),
        };
        state.batches.insert(batch, entered);
        BatchHandle { scheduler: Arc::clone(self), batch, tenant: tenant.into(), serial }
    }

    /// Pauses or resumes a batch. False if it does not run in this process.
    pub(crate) fn set_paused(&self, batch: TaskId, paused: bool) -> bool {
        let mut state = self.lock();
        let Some(entered) = state.batches.get_mut(&batch) else { return false };
        entered.paused = paused;
        entered.update_stopwatch();
        self.grant_slots(&mut state);
        true
    }

    /// The batches that run in this process.
    pub(crate) fn batches(&self) -> Vec<TaskId> {
        self.lock().batches.keys().copied().collect()
    }

    /// Grants every free slot to the first eligible waiter.
    fn grant_slots(&self, state: &mut BatchSchedulerState) {
        let cap = *self.cap.borrow();
        let BatchSchedulerState { running, given, tenants, batches, .. } = state;
        while *running < cap {
            let free = |waiter: &SlotWaiter| {
                let entered = batches.get(&waiter.batch);
                entered.is_some_and(|entered| !entered.paused && entered.running < entered.own_cap)
            };
            let next = tenants
                .values_mut()
                .filter_map(|tenant| {
                    let position = *tenant.waiting.iter().find(|(_, waiter)| free(waiter))?.0;
                    Some((tenant, position))
                })
                .min_by_key(|(tenant, _)| (tenant.running, tenant.served));
            let Some((tenant, position)) = next else { return };
            let Some(waiter) = tenant.waiting.remove(&position) else { return };
            *running += 1;
            *given += 1;
            tenant.running += 1;
            tenant.served = *given;
            if let Some(entered) = batches.get_mut(&waiter.batch) {
                entered.running += 1;
                entered.stopwatch.begun = true;
                entered.update_stopwatch();
            }
            // A waiter that was dropped meanwhile releases the slot in `SchedulerSlot::drop`.
            let _ = waiter.granted.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BatchSchedulerState> {
        self.state.lock()
    }
}

impl ScheduledBatch {
    /// The stopwatch runs from the first operation on. It stops while no operation runs because the batch is
    /// paused or waits for an answer.
    fn update_stopwatch(&mut self) {
        let runs = self.running > 0 || (!self.paused && self.asking == 0);
        self.stopwatch.run(runs && self.stopwatch.begun);
    }
}

/// The registration of a batch with the scheduler.
pub(crate) struct BatchHandle {
    scheduler: Arc<BatchScheduler>,
    batch: TaskId,
    tenant: Arc<str>,
    serial: u64,
}

impl BatchHandle {
    /// Waits for a slot. Dropping the future withdraws the request.
    pub(crate) async fn acquire_slot(&self, priority: Priority) -> SchedulerSlot {
        let (told, given) = oneshot::channel();
        let place = {
            let mut state = self.scheduler.lock();
            state.arrived += 1;
            let position = (Reverse(priority), state.arrived);
            let (batch, tenant) = (self.batch, Arc::clone(&self.tenant));
            // A tenant that is new to the queue comes after those that already wait.
            let anew = BatchTenantQueue { served: state.given, ..BatchTenantQueue::default() };
            let wants = state.tenants.entry(Arc::clone(&tenant)).or_insert(anew);
            wants.waiting.insert(position, SlotWaiter { batch, granted: told });
            self.scheduler.grant_slots(&mut state);
            SchedulerSlot { scheduler: Arc::clone(&self.scheduler), batch, tenant, position }
        };
        // An error means that the batch has left the scheduler, so no operation is left to use the slot.
        if given.await.is_err() {
            std::future::pending::<()>().await;
        }
        place
    }

    /// Counts an operation as waiting for an answer, until the guard is dropped.
    pub(crate) fn asking(&self) -> AnswerWaitGuard<'_> {
        self.count_asking(|asking| asking + 1);
        AnswerWaitGuard(self)
    }

    fn count_asking(&self, count: impl Fn(usize) -> usize) {
        if let Some(entered) = self.scheduler.lock().batches.get_mut(&self.batch) {
            entered.asking = count(entered.asking);
            entered.update_stopwatch();
        }
    }

    /// The number of operations of the batch that run now.
    pub(crate) fn running(&self) -> usize {
        self.scheduler.lock().batches.get(&self.batch).map_or(0, |entered| entered.running)
    }

    /// A mark for [`BatchHandle::was_alone`]: `Some` if exactly one operation runs in this process.
    pub(crate) fn alone(&self) -> Option<u64> {
        let state = self.scheduler.lock();
        (state.running == 1).then_some(state.given)
    }

    /// Whether no other operation of this process has begun since the mark was taken.
    pub(crate) fn was_alone(&self, mark: Option<u64>) -> bool {
        mark.is_some_and(|given| self.scheduler.lock().given == given)
    }

    /// The time that the batch has worked in this phase.
    pub(crate) fn work_time(&self) -> Duration {
        self.scheduler.lock().batches.get(&self.batch).map_or(Duration::ZERO, |e| e.stopwatch.elapsed())
    }

    /// Resets the stopwatch; it starts again with the next operation.
    pub(crate) fn next_phase(&self) {
        if let Some(entered) = self.scheduler.lock().batches.get_mut(&self.batch) {
            entered.stopwatch = Stopwatch::default();
        }
    }
}

impl Drop for BatchHandle {
    fn drop(&mut self) {
        let mut state = self.scheduler.lock();
        if state.batches.get(&self.batch).is_some_and(|entered| entered.serial == self.serial) {
            state.batches.remove(&self.batch);
        }
    }
}

/// Counts an operation as waiting for an answer.
pub(crate) struct AnswerWaitGuard<'a>(&'a BatchHandle);

impl Drop for AnswerWaitGuard<'_> {
    fn drop(&mut self) {
        self.0.count_asking(|asking| asking.saturating_sub(1));
    }
}

/// A permit to run one operation, or a queue position for one.
pub(crate) struct SchedulerSlot {
    scheduler: Arc<BatchScheduler>,
    batch: TaskId,
    tenant: Arc<str>,
    position: QueuePosition,
}

impl Drop for SchedulerSlot {
    fn drop(&mut self) {
        let mut state = self.scheduler.lock();
        let Some(tenant) = state.tenants.get_mut(&self.tenant) else { return };
        let waited = tenant.waiting.remove(&self.position).is_some();
        if !waited {
            tenant.running = tenant.running.saturating_sub(1);
        }
        if tenant.running == 0 && tenant.waiting.is_empty() {
            state.tenants.remove(&self.tenant);
        }
        if waited {
            return;
        }
        state.running -= 1;
        if let Some(entered) = state.batches.get_mut(&self.batch) {
            entered.running = entered.running.saturating_sub(1);
            entered.update_stopwatch();
        }
        self.scheduler.grant_slots(&mut state);
    }
}

/// A stopwatch that can be paused.
#[derive(Default)]
struct Stopwatch {
    begun: bool,
    since: Option<Instant>,
    before: Duration,
}

impl Stopwatch {
    fn run(&mut self, runs: bool) {
        match (runs, self.since) {
            (true, None) => self.since = Some(Instant::now()),
            (false, Some(since)) => {
                self.before += since.elapsed();
                self.since = None;
            }
            _ => {}
        }
    }

    fn elapsed(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    fn batch(n: u128) -> TaskId {
        TaskId(Uuid::from_u128(n))
    }

    #[test]
    fn places_go_by_priority_and_then_by_arrival() {
        let scheduler = BatchScheduler::new(1);
        let handle = scheduler.register_batch(batch(1), "home", usize::MAX, false);
        let first = handle.acquire_slot(Priority::Low).now_or_never().expect("there is a place");
        let mut low = Box::pin(handle.acquire_slot(Priority::Low));
        let mut early = Box::pin(handle.acquire_slot(Priority::Normal));
        let mut late = Box::pin(handle.acquire_slot(Priority::Normal));
        let mut high = Box::pin(handle.acquire_slot(Priority::High));
        for asked in [&mut low, &mut early, &mut late, &mut high] {
            assert!(asked.now_or_never().is_none(), "the only place is taken");
        }
        drop(first);
        for (name, asked) in [("high", high), ("early", early), ("late", late), ("low", low)] {
            drop(asked.now_or_never().unwrap_or_else(|| panic!("it is the turn of {name}")));
        }
    }

    #[test]
    fn one_tenant_does_not_keep_another_from_its_turn() {
        let scheduler = BatchScheduler::new(2);
        let busy = scheduler.register_batch(batch(1), "eve", usize::MAX, false);
        let other = scheduler.register_batch(batch(2), "bob", usize::MAX, false);
        let mut held: Vec<SchedulerSlot> =
            (0..2).map(|_| busy.acquire_slot(Priority::High).now_or_never().expect("a place")).collect();
        let mut wanted: Vec<_> = (0..100).map(|_| Box::pin(busy.acquire_slot(Priority::High))).collect();
        assert!(wanted.iter_mut().all(|asked| asked.now_or_never().is_none()));
        let mut one = Box::pin(other.acquire_slot(Priority::Low));
        let mut two = Box::pin(other.acquire_slot(Priority::Low));
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        drop(held.pop());
        let one = one.now_or_never().expect("the first place that is free is for whoever has none");
        assert!((&mut two).now_or_never().is_none());
        // Each tenant has one slot now, so they take turns.
        drop(held.pop());
        assert!((&mut two).now_or_never().is_none(), "that one has fewer again");
        let first = wanted.remove(0).now_or_never().expect("its own turn");
        drop(one);
        let two = two.now_or_never().expect("and the other's");
        drop((first, two, wanted));
        assert!(scheduler.lock().tenants.is_empty(), "nothing is left of those that want nothing");
    }

    #[test]
    fn the_cap_moves_both_ways_at_once() {
        let scheduler = BatchScheduler::new(1);
        let handle = scheduler.register_batch(batch(1), "home", usize::MAX, false);
        let one = handle.acquire_slot(Priority::Normal).now_or_never().expect("a place");
        let mut two = Box::pin(handle.acquire_slot(Priority::Normal));
        let mut three = Box::pin(handle.acquire_slot(Priority::Normal));
        assert!((&mut two).now_or_never().is_none());
        scheduler.set_cap(2);
        let two = two.now_or_never().expect("raised, one more begins");
        assert!((&mut three).now_or_never().is_none());
        scheduler.set_cap(1);
        drop(one);
        assert!((&mut three).now_or_never().is_none(), "lowered, nothing begins until it is below");
        drop(two);
        assert!(three.now_or_never().is_some());
    }

    #[test]
    fn a_paused_batch_and_one_at_its_own_cap_let_others_pass() {
        let scheduler = BatchScheduler::new(3);
        let (paused, narrow) = (
            scheduler.register_batch(batch(1), "home", usize::MAX, true),
            scheduler.register_batch(batch(2), "home", 1, false),
        );
        let mut held = Box::pin(paused.acquire_slot(Priority::High));
        assert!((&mut held).now_or_never().is_none(), "it is paused");
        let one = narrow.acquire_slot(Priority::Low).now_or_never().expect("it passes the paused one");
        let mut two = Box::pin(narrow.acquire_slot(Priority::Low));
        assert!((&mut two).now_or_never().is_none(), "its own cap is 1");
        assert!(scheduler.set_paused(batch(1), false));
        assert!(held.now_or_never().is_some());
        drop(one);
        assert!(two.now_or_never().is_some());
        assert!(!scheduler.set_paused(batch(3), true), "there is none");
    }

    #[test]
    fn the_watch_stands_still_while_all_that_is_left_asks() {
        let scheduler = BatchScheduler::new(2);
        let handle = scheduler.register_batch(batch(1), "home", usize::MAX, false);
        let runs = || scheduler.lock().batches[&batch(1)].stopwatch.since.is_some();
        let one = handle.acquire_slot(Priority::Normal).now_or_never().expect("a place");
        let two = handle.acquire_slot(Priority::Normal).now_or_never().expect("another");
        drop(one);
        let asking = handle.asking();
        assert!(runs(), "the other one is at work");
        drop(two);
        assert!(!runs());
        drop(asking);
        assert!(runs(), "it goes on");
    }

    #[test]
    fn whoever_stops_waiting_leaves_nothing_behind() {
        let scheduler = BatchScheduler::new(1);
        let handle = scheduler.register_batch(batch(1), "home", usize::MAX, false);
        let held = handle.acquire_slot(Priority::Normal).now_or_never().expect("a place");
        let mut gone = Box::pin(handle.acquire_slot(Priority::High));
        assert!((&mut gone).now_or_never().is_none());
        let mut given = Box::pin(handle.acquire_slot(Priority::Normal));
        assert!((&mut given).now_or_never().is_none());
        drop(gone);
        drop(held);
        // The slot was granted, but its future was dropped before it was polled.
        drop(given);
        assert!(handle.acquire_slot(Priority::Low).now_or_never().is_some());
    }
}
