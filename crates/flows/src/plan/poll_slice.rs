//! A time slice for polling the subtasks of a plan. All of them are futures of one Tokio task; without slices,
//! a plan that begins hundreds at once would block a worker thread until all have been polled.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// After this time the plan yields to other tasks of the worker.
const LENGTH: Duration = Duration::from_millis(1);

/// The slice that began when the plan was last polled.
pub(super) struct PollSlice(Mutex<Instant>);

impl PollSlice {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Wraps a future that contains [`SlicedFuture`]s: every poll of it begins a new slice.
    pub(super) async fn of<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            *self.0.lock() = Instant::now();
            future.as_mut().poll(cx)
        })
        .await
    }

    fn is_over(&self) -> bool {
        self.0.lock().elapsed() > LENGTH
    }
}

/// A future that waits for the next slice when the current one is over. It wakes itself, so that the set of
/// futures that contains it yields too.
pub(super) struct SlicedFuture<'a, F> {
    pub(super) slice: &'a PollSlice,
    pub(super) future: F,
}

impl<F: Future + Unpin> Future for SlicedFuture<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.slice.is_over() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.future).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};

    use super::*;

    #[tokio::test]
    async fn many_that_take_long_are_not_polled_in_one_go() {
        let slice = PollSlice::new();
        let mut set: FuturesUnordered<_> = (0..50)
            .map(|_| {
                let future = Box::pin(async {
                    let began = Instant::now();
                    while began.elapsed() < LENGTH {}
                    std::future::pending::<()>().await;
                });
                SlicedFuture { slice: &slice, future }
            })
            .collect();
        let began = Instant::now();
        assert!(slice.of(set.next()).now_or_never().is_none());
        assert!(began.elapsed() < 25 * LENGTH, "it gave way after {:?}", began.elapsed());
    }

    #[tokio::test]
    async fn what_only_waits_is_not_polled_again_and_again() {
        let (slice, polls) = (PollSlice::new(), Cell::new(0));
        let waits = Box::pin(poll_fn(|_| {
            polls.set(polls.get() + 1);
            Poll::<()>::Pending
        }));
        let waiting = slice.of(SlicedFuture { slice: &slice, future: waits });
        // The slice in which it began is long over when the timeout fires.
        assert!(tokio::time::timeout(20 * LENGTH, waiting).await.is_err());
        assert_eq!(polls.get(), 2, "when it began, and when the time was up");
    }
}
