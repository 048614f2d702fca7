//! How many tasks run here, how many wait, and who may come in.

use std::sync::{Arc, atomic::Ordering};

use super::Inner;
use crate::clock::Timestamp;

/// A place among the running tasks.
pub(crate) struct Permit(Arc<Inner>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.wake_queue();
    }
}

impl Inner {
    /// A place among the running tasks, if there is one.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Permit> {
        let fits = |running: usize| (running < self.options.max_running).then_some(running + 1);
        self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Permit(Arc::clone(self)))
    }

    /// Whether one more task may run.
    pub(crate) fn has_place(&self) -> bool {
        self.running.load(Ordering::Acquire) < self.options.max_running
    }

    /// A place also beyond the cap, for a task that somebody else waits for or that is claimed already.
    pub(crate) fn admit_anyway(self: &Arc<Self>) -> Permit {
        self.running.fetch_add(1, Ordering::AcqRel);
        Permit(Arc::clone(self))
    }

    /// A task that waits for one it called needs no place meanwhile. It gets it back at once, also beyond the
    /// cap: what it holds it holds already.
    pub(crate) fn lend_place(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.wake_queue();
    }

    pub(crate) fn take_place_back(&self) {
        self.running.fetch_add(1, Ordering::AcqRel);
    }

    fn wake_queue(&self) {
        if self.queued() > 0 {
            self.claims.notify_one();
        }
    }

    /// Whether one more task may wait; counts it if so.
    pub(crate) fn enqueue(&self) -> bool {
        let fits = |queued: u64| (queued < self.options.max_queued).then_some(queued + 1);
        self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// About how many tasks wait.
    pub(crate) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    /// A task that was counted did not come to wait after all.
    pub(crate) fn unqueue(&self) {
        let _ = self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, |queued| queued.checked_sub(1));
    }

    /// A task became due that nobody holds.
    pub(crate) fn due(&self, at: Timestamp) {
        if at <= self.clock.now() {
            self.queued.fetch_add(1, Ordering::AcqRel);
        }
        self.claims.notify_one();
    }

    pub(crate) async fn recount(&self) {
        if let Ok(load) = self.store.load().await {
            self.queued.store(load.queued, Ordering::Release);
        }
    }
}
