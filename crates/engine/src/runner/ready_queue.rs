//! Fair scheduling of ready runs: one queue per tenant in front of the runtime's own.
//!
//! The runtime polls futures in the order in which they became ready. Behind ten thousand runs of one tenant, a
//! request of another tenant would wait for all of them. A tenant's runs therefore wait in a queue of that
//! tenant, and only a few of them (one per processor) are in the runtime's queue at any time. Each admits the
//! next one after it has been polled. The runtime still owns the futures and chooses the worker thread.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::{Mutex, MutexGuard};
use pin_project_lite::pin_project;

/// The queues of all tenants.
pub(crate) struct ReadyQueues {
    width: usize,
    /// Weak: a queue lives as long as a future that uses it.
    queues: Mutex<HashMap<String, Weak<ReadyQueue>>>,
}

impl ReadyQueues {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::of_width(processors)
    }

    fn of_width(width: usize) -> Self {
        Self { width, queues: Mutex::default() }
    }

    /// Wraps a future so that it is polled in its turn among those of the same tenant.
    pub(crate) fn queue<F: Future>(&self, tenant: &str, future: F) -> Queued<F> {
        let entry = ReadyEntry { queue: self.of(tenant), place: Mutex::new(ReadyEntryState::default()) };
        Queued { future, ticket: Ticket::new(entry) }
    }

    fn of(&self, tenant: &str) -> Arc<ReadyQueue> {
        let mut queues = self.queues.lock();
        if let Some(known) = queues.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let fresh = Arc::new(ReadyQueue { width: self.width, state: Mutex::default() });
        queues.insert(tenant.to_owned(), Arc::downgrade(&fresh));
        fresh
    }
}

/// The queue of one tenant.
struct ReadyQueue {
    width: usize,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// Entries that were admitted and whose turn has not ended.
    admitted: usize,
    waiting: VecDeque<Arc<ReadyEntry>>,
}

impl ReadyQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

impl QueueState {
    /// Admits an entry that became ready, or queues it. Returns the waker to call if it was admitted.
    fn enter(&mut self, width: usize, entry: &Arc<ReadyEntry>, place: &mut ReadyEntryState) -> Option<Waker> {
        if self.admitted < width {
            self.admitted += 1;
            place.state = PollState::Admitted;
            return place.runtime.clone();
        }
        place.state = PollState::Waiting;
        self.waiting.push_back(Arc::clone(entry));
        None
    }

    /// Ends one turn and admits the next entry. Returns the waker to call.
    fn leave(&mut self) -> Option<Waker> {
        self.admitted = self.admitted.saturating_sub(1);
        while let Some(next) = self.waiting.pop_front() {
            let mut place = next.lock();
            // Skip entries that were dropped.
            if place.state == PollState::Waiting {
                self.admitted += 1;
                place.state = PollState::Admitted;
                return place.runtime.clone();
            }
        }
        None
    }
}

/// One run. Lock order: the queue before the entry.
struct ReadyEntry {
    queue: Arc<ReadyQueue>,
    place: Mutex<ReadyEntryState>,
}

#[derive(Default)]
struct ReadyEntryState {
    state: PollState,
    /// Wakes the runtime's task.
    runtime: Option<Waker>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum PollState {
    /// Waits for something other than its turn.
    #[default]
    Idle,
    /// Ready, and waits for its turn.
    Waiting,
    /// Has its turn; the runtime will poll it.
    Admitted,
    /// Is being polled.
    Polled,
    /// Became ready again while it was being polled.
    PolledAndReady,
    /// Finished or dropped.
    Gone,
}

impl ReadyEntry {
    fn lock(&self) -> MutexGuard<'_, ReadyEntryState> {
        self.place.lock()
    }

    /// Called before the runtime polls the future. Returns whether it has its turn.
    fn begin(self: &Arc<Self>, runtime: &Waker) -> bool {
        let mut queue = self.queue.lock();
        let mut place = self.lock();
        if !place.runtime.as_ref().is_some_and(|known| known.will_wake(runtime)) {
            place.runtime = Some(runtime.clone());
        }
        if place.state == PollState::Idle {
            // The first poll, or a spurious one.
            queue.enter(self.queue.width, self, &mut place);
        }
        let is_its_turn = place.state == PollState::Admitted;
        if is_its_turn {
            place.state = PollState::Polled;
        }
        is_its_turn
    }

    /// Called after a poll.
    fn end(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        let mut place = self.lock();
        let is_ready = place.state == PollState::PolledAndReady;
        place.state = if is_ready { PollState::Waiting } else { PollState::Idle };
        drop(place);
        if is_ready {
            queue.waiting.push_back(Arc::clone(self));
        }
        let next = queue.leave();
        drop(queue);
        wake(next);
    }
}

impl Wake for ReadyEntry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        let mut place = self.lock();
        let admitted = match place.state {
            PollState::Idle => queue.enter(self.queue.width, self, &mut place),
            PollState::Polled => {
                place.state = PollState::PolledAndReady;
                None
            }
            PollState::Waiting | PollState::Admitted | PollState::PolledAndReady | PollState::Gone => None,
        };
        drop((place, queue));
        wake(admitted);
    }
}

/// Never call this with a lock held: the runtime may poll at once.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The future's side of an entry.
struct Ticket {
    entry: Arc<ReadyEntry>,
    waker: Waker,
}

impl Ticket {
    fn new(entry: ReadyEntry) -> Self {
        let entry = Arc::new(entry);
        Self { waker: Arc::clone(&entry).into(), entry }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queue = self.entry.queue.lock();
        let mut place = self.entry.lock();
        let state = std::mem::replace(&mut place.state, PollState::Gone);
        let runtime = place.runtime.take();
        drop(place);
        // Pass the turn on, also when the future panicked in it.
        let had_turn = matches!(state, PollState::Admitted | PollState::Polled | PollState::PolledAndReady);
        let next = had_turn.then(|| queue.leave()).flatten();
        drop(queue);
        drop(runtime);
        wake(next);
    }
}

pin_project! {
    /// A future that waits for its turn each time that it is ready.
    pub(crate) struct Queued<F> {
        #[pin]
        future: F,
        ticket: Ticket,
    }
}

impl<F: Future> Future for Queued<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if !this.ticket.entry.begin(cx.waker()) {
            return Poll::Pending;
        }
        let polled = this.future.poll(&mut Context::from_waker(&this.ticket.waker));
        this.ticket.entry.end();
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::{
        sync::Notify,
        task::{JoinSet, yield_now},
        time::{sleep, timeout},
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// On a runtime with one worker, so that the order is the runtime's queue's.
    #[tokio::test]
    async fn behind_thousands_that_are_ready_another_tenant_waits_for_a_few() {
        let queues = Arc::new(ReadyQueues::of_width(4));
        let (go, begun, polled) = (Arc::new(Notify::new()), counter(), counter());
        let mut runs = JoinSet::new();
        for _ in 0..5_000 {
            let (go, begun, polled) = (Arc::clone(&go), Arc::clone(&begun), Arc::clone(&polled));
            runs.spawn(queues.queue("evil", async move {
                let told = go.notified();
                begun.fetch_add(1, Ordering::Relaxed);
                told.await;
                polled.fetch_add(1, Ordering::Relaxed);
            }));
        }
        timeout(LONG, async {
            while begun.load(Ordering::Relaxed) < 5_000 {
                yield_now().await;
            }
        })
        .await
        .unwrap();
        go.notify_waiters();
        let seen = Arc::clone(&polled);
        let good = tokio::spawn(queues.queue("good", async move { seen.load(Ordering::Relaxed) }));
        let before = timeout(LONG, good).await.unwrap().unwrap();
        assert!(before < 50, "{before} of the other tenant's went first");
        timeout(LONG, async { while runs.join_next().await.is_some() {} }).await.unwrap();
        assert_eq!(polled.load(Ordering::Relaxed), 5_000);
    }

    fn counter() -> Arc<AtomicUsize> {
        Arc::default()
    }

    /// How many of a tenant's wait for their turn or have it.
    fn in_queue(queues: &ReadyQueues, tenant: &str) -> usize {
        let queue = queues.of(tenant);
        let state = queue.lock();
        state.waiting.len() + state.admitted
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn whatever_wakes_and_whoever_is_dropped_all_others_end() {
        let queues = Arc::new(ReadyQueues::of_width(2));
        let mut runs = JoinSet::new();
        let mut dropped = vec![];
        for n in 0..2_000_u64 {
            let run = queues.queue("acme", async move {
                for round in 0..10 {
                    match (n + round) % 3 {
                        0 => sleep(Duration::from_micros(n % 700)).await,
                        1 => yield_now().await,
                        _ => drop(tokio::spawn(async {}).await),
                    }
                }
                assert!(n % 50 != 7, "a run that panics");
            });
            let handle = runs.spawn(run);
            if n % 10 == 3 {
                dropped.push(handle);
            }
        }
        yield_now().await;
        dropped.iter().for_each(tokio::task::AbortHandle::abort);
        let (mut ended, mut panicked) = (0, 0);
        timeout(LONG, async {
            while let Some(joined) = runs.join_next().await {
                match joined {
                    Ok(()) => ended += 1,
                    Err(error) if error.is_panic() => panicked += 1,
                    Err(_) => {}
                }
            }
        })
        .await
        .expect("one was never polled again");
        assert!(ended >= 1_700 && panicked >= 20, "{ended} ended, {panicked} panicked");
        assert_eq!(in_queue(&queues, "acme"), 0);
    }

    #[tokio::test]
    async fn a_tenant_that_left_is_forgotten() {
        let queues = ReadyQueues::of_width(1);
        queues.queue("acme", async {}).await;
        let _kept = queues.queue("globex", async {});
        assert_eq!(queues.queues.lock().keys().collect::<Vec<_>>(), ["globex"]);
    }
}
