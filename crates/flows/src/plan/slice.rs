//! How long the subtasks of a plan are polled in one go. All of them are futures of one task: without this, a plan that
//! begins hundreds of them at once would keep a worker to itself for as long as that takes.

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// After this the others of the worker have their turn.
const LENGTH: Duration = Duration::from_millis(1);

/// The time that began when the plan was last polled.
pub(super) struct Slice(Mutex<Instant>);

impl Slice {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Begins anew.
    pub(super) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > LENGTH
    }
}

/// A future that waits for the next slice where this one is over. It wakes itself, which has the set of futures that it
/// is in give way, too.
pub(super) struct Sliced<'a, F> {
    pub(super) slice: &'a Slice,
    pub(super) future: F,
}

impl<F: Future + Unpin> Future for Sliced<'_, F> {
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
    use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};

    use super::*;

    #[tokio::test]
    async fn many_that_take_long_are_not_polled_in_one_go() {
        let slice = Slice::new();
        let mut set: FuturesUnordered<_> = (0..50)
            .map(|_| {
                let future = Box::pin(async {
                    let began = Instant::now();
                    while began.elapsed() < LENGTH {}
                    std::future::pending::<()>().await;
                });
                Sliced { slice: &slice, future }
            })
            .collect();
        let began = Instant::now();
        slice.begin();
        assert!(set.next().now_or_never().is_none());
        assert!(began.elapsed() < 25 * LENGTH, "it gave way after {:?}", began.elapsed());
    }
}
