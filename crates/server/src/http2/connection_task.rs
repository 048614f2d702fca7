//! The task of a connection of HTTP/2: the connection and its first requests, each polled only after it was woken.
//!
//! A request wakes the connection when it answers, and the connection wakes a request whose body arrives. Those wakes stay
//! within the task. One that reaches the runtime while the task runs puts it at the end of a queue, and may wake a thread
//! to take it from there.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::FutureExt;
use hyper::rt::Executor;
use parking_lot::Mutex;

use crate::open_streams::CONNECTION;

/// Requests of one connection that run in the connection's task. What they answer leaves in one write with what else is
/// ready, and no thread is woken for it. More than these run in tasks of their own, so that a client with one connection
/// can use all processors.
const OWN_REQUESTS: usize = 8;

/// In [`WokenParts`]: one bit for each request, then the connection's.
const REQUEST_BITS: u32 = (1 << OWN_REQUESTS) - 1;
const CONNECTION_BIT: u32 = 1 << OWN_REQUESTS;
/// Set while the task polls its parts, so that it sees a wake without the runtime.
const POLLING: u32 = CONNECTION_BIT << 1;

/// How often the parts may wake each other before other tasks of the thread have their turn.
const MAX_ROUNDS: usize = 16;

type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the futures of a connection's requests: the first [`OWN_REQUESTS`] in the connection's task, the others beside it.
#[derive(Clone)]
pub(super) struct RequestExecutor {
    connection: u64,
    own: Arc<OwnRequests>,
}

impl RequestExecutor {
    pub(super) fn new(connection: u64) -> Self {
        Self { connection, own: Arc::default() }
    }
}

impl<F> Executor<F> for RequestExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        if self.own.count.fetch_add(1, Ordering::Relaxed) < OWN_REQUESTS {
            self.own.begun.lock().push(Box::pin(request));
        } else {
            self.own.count.fetch_sub(1, Ordering::Relaxed);
            tokio::spawn(CONNECTION.scope(self.connection, request));
        }
    }
}

/// The requests that run in their connection's task.
#[derive(Default)]
struct OwnRequests {
    count: AtomicUsize,
    /// Those that were never polled.
    begun: Mutex<Vec<RequestFuture>>,
}

/// A connection with the requests that run in its task.
pub(super) struct ConnectionTask<C> {
    connection: C,
    connection_waker: Waker,
    own: Arc<OwnRequests>,
    /// Swapped with the executor's, so that neither is allocated for each request.
    begun: Vec<RequestFuture>,
    slots: Vec<RequestSlot>,
    /// The slot that is polled first, another one each time: a request may leave nothing to those after it.
    first: usize,
    woken: Arc<WokenParts>,
}

/// The place of a request. Its waker is that of all requests that it ever holds: a wake that comes too late polls the next
/// one in vain.
struct RequestSlot {
    request: Option<RequestFuture>,
    waker: Waker,
}

impl<C> ConnectionTask<C> {
    /// The task of a connection that was built with that executor.
    pub(super) fn new(connection: C, executor: &RequestExecutor) -> Self {
        let woken = Arc::new(WokenParts {
            // Whatever is polled first registers the wakers.
            bits: AtomicU32::new(CONNECTION_BIT),
            task: Mutex::new(Waker::noop().clone()),
        });
        Self {
            connection,
            connection_waker: PartWaker::waker(CONNECTION_BIT, &woken),
            own: Arc::clone(&executor.own),
            begun: vec![],
            slots: vec![],
            first: 0,
            woken,
        }
    }

    /// The connection, which is polled next, whatever wakes the task.
    pub(super) fn connection(&mut self) -> &mut C {
        self.woken.bits.fetch_or(CONNECTION_BIT, Ordering::AcqRel);
        &mut self.connection
    }

    fn poll_woken_requests(&mut self) {
        let woken = self.woken.take(REQUEST_BITS);
        if woken == 0 {
            return;
        }
        let before_first = (1 << self.first) - 1;
        for mut part in [woken & !before_first, woken & before_first] {
            while part != 0 {
                let index = part.trailing_zeros() as usize;
                part &= part - 1;
                self.poll_request(index);
            }
        }
    }

    /// Polls the requests that the connection has begun.
    fn poll_begun_requests(&mut self) {
        std::mem::swap(&mut self.begun, &mut *self.own.begun.lock());
        let mut begun = std::mem::take(&mut self.begun);
        for request in begun.drain(..) {
            let index = self.free_slot();
            self.slots[index].request = Some(request);
            self.poll_request(index);
        }
        self.begun = begun;
    }

    fn free_slot(&mut self) -> usize {
        if let Some(free) = self.slots.iter().position(|slot| slot.request.is_none()) {
            return free;
        }
        // The executor counts them: there are never more than the bits.
        let waker = PartWaker::waker(1 << self.slots.len(), &self.woken);
        self.slots.push(RequestSlot { request: None, waker });
        self.slots.len() - 1
    }

    fn poll_request(&mut self, index: usize) {
        let RequestSlot { request: Some(request), waker } = &mut self.slots[index] else { return };
        if request.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.slots[index].request = None;
            self.own.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<C: Future + Unpin> Future for ConnectionTask<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let task = &mut *self;
        task.woken.begin_polling(cx.waker());
        task.first = (task.first + 1) % OWN_REQUESTS;
        for _ in 0..MAX_ROUNDS {
            // The connection first: a request may use up what tokio lets a task do at once, and then nothing is sent
            // before the next time.
            if task.woken.take(CONNECTION_BIT) != 0 {
                let ended = task.connection.poll_unpin(&mut Context::from_waker(&task.connection_waker));
                if ended.is_ready() {
                    return ended;
                }
                task.poll_begun_requests();
            }
            task.poll_woken_requests();
            if task.woken.end_polling() {
                return Poll::Pending;
            }
        }
        task.woken.take(POLLING);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The parts of a task that were woken since they were last polled.
struct WokenParts {
    bits: AtomicU32,
    task: Mutex<Waker>,
}

impl WokenParts {
    fn wake(&self, part: u32) {
        // With any bit set the task polls, or was woken and will.
        if self.bits.fetch_or(part, Ordering::AcqRel) == 0 {
            self.task.lock().wake_by_ref();
        }
    }

    /// Those of `parts` that were woken, which they no longer are.
    fn take(&self, parts: u32) -> u32 {
        self.bits.fetch_and(!parts, Ordering::AcqRel) & parts
    }

    fn begin_polling(&self, waker: &Waker) {
        self.task.lock().clone_from(waker);
        self.bits.fetch_or(POLLING, Ordering::AcqRel);
    }

    /// Ends it if no part was woken meanwhile.
    fn end_polling(&self) -> bool {
        self.bits.compare_exchange(POLLING, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The waker of one part of a task.
struct PartWaker {
    part: u32,
    woken: Arc<WokenParts>,
}

impl PartWaker {
    fn waker(part: u32, woken: &Arc<WokenParts>) -> Waker {
        Arc::new(Self { part, woken: Arc::clone(woken) }).into()
    }
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.wake(self.part);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use super::*;

    /// Counts the wakes that reach the runtime.
    #[derive(Default)]
    struct Runtime(AtomicUsize);

    impl Wake for Runtime {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What a connection and its requests leave for each other.
    #[derive(Default)]
    struct Shared {
        connection: Mutex<Option<Waker>>,
        request: Mutex<Option<Waker>>,
        connection_polls: AtomicUsize,
        request_polls: AtomicUsize,
    }

    impl Shared {
        /// A connection that begins `requests` when it is first polled.
        fn connection(
            self: &Arc<Self>,
            executor: &RequestExecutor,
            requests: Vec<RequestFuture>,
        ) -> impl Future<Output = ()> + Unpin + use<> {
            let (shared, executor, mut requests) = (Arc::clone(self), executor.clone(), requests);
            poll_fn(move |cx| {
                shared.connection_polls.fetch_add(1, Ordering::Relaxed);
                *shared.connection.lock() = Some(cx.waker().clone());
                requests.drain(..).for_each(|request| executor.execute(request));
                Poll::Pending
            })
        }

        /// A request that answers when it is polled for the `answers`th time.
        fn request(self: &Arc<Self>, answers: usize) -> RequestFuture {
            let shared = Arc::clone(self);
            Box::pin(poll_fn(move |cx| {
                *shared.request.lock() = Some(cx.waker().clone());
                if shared.request_polls.fetch_add(1, Ordering::Relaxed) + 1 < answers {
                    return Poll::Pending;
                }
                wake(&shared.connection);
                Poll::Ready(())
            }))
        }

        fn polls(&self) -> (usize, usize) {
            (self.connection_polls.load(Ordering::Relaxed), self.request_polls.load(Ordering::Relaxed))
        }
    }

    fn wake(waker: &Mutex<Option<Waker>>) {
        waker.lock().as_ref().expect("it was polled").wake_by_ref();
    }

    fn poll<C: Future<Output = ()> + Unpin>(task: &mut ConnectionTask<C>, runtime: &Arc<Runtime>) -> usize {
        let waker = Arc::clone(runtime).into();
        assert!(task.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        runtime.0.load(Ordering::Relaxed)
    }

    #[test]
    fn an_answer_is_sent_in_the_same_poll_and_the_runtime_is_not_woken_for_it() {
        let (shared, executor, runtime) =
            (Arc::<Shared>::default(), RequestExecutor::new(1), Arc::<Runtime>::default());
        let connection = shared.connection(&executor, vec![shared.request(1)]);
        let mut task = ConnectionTask::new(connection, &executor);
        assert_eq!(poll(&mut task, &runtime), 0);
        assert_eq!(shared.polls(), (2, 1));
        assert_eq!(executor.own.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_wake_from_outside_reaches_the_runtime_once_and_polls_what_was_woken() {
        let (shared, executor, runtime) =
            (Arc::<Shared>::default(), RequestExecutor::new(1), Arc::<Runtime>::default());
        let connection = shared.connection(&executor, vec![Box::pin(pending()), shared.request(3)]);
        let mut task = ConnectionTask::new(connection, &executor);
        assert_eq!(poll(&mut task, &runtime), 0);
        assert_eq!(shared.polls(), (1, 1));
        // Nothing was woken: nothing is polled.
        assert_eq!(poll(&mut task, &runtime), 0);
        assert_eq!(shared.polls(), (1, 1));
        wake(&shared.request);
        wake(&shared.request);
        assert_eq!(poll(&mut task, &runtime), 1);
        assert_eq!(shared.polls(), (1, 2));
        // It answers, and the connection sends it.
        wake(&shared.request);
        assert_eq!(poll(&mut task, &runtime), 2);
        assert_eq!(shared.polls(), (2, 3));
        assert_eq!(executor.own.count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_connection_is_polled_after_it_was_changed() {
        let (shared, executor, runtime) =
            (Arc::<Shared>::default(), RequestExecutor::new(1), Arc::<Runtime>::default());
        let mut task = ConnectionTask::new(shared.connection(&executor, vec![]), &executor);
        poll(&mut task, &runtime);
        task.connection();
        assert_eq!(poll(&mut task, &runtime), 0);
        assert_eq!(shared.polls(), (2, 0));
    }

    #[test]
    fn parts_that_wake_each_other_without_end_let_other_tasks_run() {
        let (shared, executor, runtime) =
            (Arc::<Shared>::default(), RequestExecutor::new(1), Arc::<Runtime>::default());
        let restless = Box::pin(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        let connection = shared.connection(&executor, vec![restless]);
        let mut task = ConnectionTask::new(connection, &executor);
        assert_eq!(poll(&mut task, &runtime), 1);
        assert_eq!(poll(&mut task, &runtime), 2);
    }

    #[tokio::test]
    async fn a_request_that_never_rests_stops_neither_the_others_nor_the_connection() {
        let (shared, executor) = (Arc::<Shared>::default(), RequestExecutor::new(1));
        let (waker, starter, mut started) = (Arc::clone(&shared), executor.clone(), false);
        // It ends when it is woken and may do something.
        let connection = poll_fn(move |cx| {
            *waker.connection.lock() = Some(cx.waker().clone());
            if !std::mem::replace(&mut started, true) {
                starter.execute(async {
                    loop {
                        tokio::task::consume_budget().await;
                    }
                });
                let waker = Arc::clone(&waker);
                starter.execute(async move {
                    tokio::task::yield_now().await;
                    tokio::task::consume_budget().await;
                    wake(&waker.connection);
                });
                return Poll::Pending;
            }
            Box::pin(tokio::task::consume_budget()).poll_unpin(cx)
        });
        let task = tokio::spawn(ConnectionTask::new(connection, &executor));
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), task).await;
        ended.expect("the connection ends").expect("it does not panic");
    }

    #[tokio::test]
    async fn requests_beyond_those_of_the_task_run_beside_it() {
        let (shared, executor, runtime) =
            (Arc::<Shared>::default(), RequestExecutor::new(1), Arc::<Runtime>::default());
        let mut requests: Vec<RequestFuture> = vec![];
        requests.resize_with(OWN_REQUESTS, || Box::pin(pending()));
        let (answered, answer) = tokio::sync::oneshot::channel();
        requests.push(Box::pin(async move { answered.send(()).expect("it is awaited") }));
        let mut task = ConnectionTask::new(shared.connection(&executor, requests), &executor);
        poll(&mut task, &runtime);
        assert_eq!(executor.own.count.load(Ordering::Relaxed), OWN_REQUESTS);
        answer.await.expect("it ran");
    }
}
