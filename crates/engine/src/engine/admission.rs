//! How many tasks run here, how many wait, and who may come in.

use std::sync::{Arc, atomic::Ordering};

use super::Inner;
use crate::{clock::Timestamp, store::Load};

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

    /// A place in the queue, if there is one.
    pub(crate) fn enqueue(self: &Arc<Self>) -> Option<Queueing> {
        let fits = |queued: u64| (queued < self.options.max_queued).then_some(queued + 1);
        self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        self.queueing.fetch_add(1, Ordering::AcqRel);
        self.queued_ever.fetch_add(1, Ordering::AcqRel);
        Some(Queueing { engine: Arc::clone(self), kept: false })
    }

    /// About how many tasks wait.
    pub(crate) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    /// A task became due that nobody holds.
    pub(crate) fn due(&self, at: Timestamp) {
        if at <= self.clock.now() {
            self.queued.fetch_add(1, Ordering::AcqRel);
            self.queued_ever.fetch_add(1, Ordering::AcqRel);
        }
        self.claims.notify_one();
    }

    /// Counts the queue again. What comes meanwhile may be in the store's count or not, so the count that was
    /// kept is only brought within what is possible: else a full queue would take one more, or a free one none.
    pub(crate) async fn recount(&self) {
        let (queueing, before) =
            (self.queueing.load(Ordering::Acquire), self.queued_ever.load(Ordering::Acquire));
        let Ok(Load { queued: least, .. }) = self.store.load().await else { return };
        let most = least + queueing + (self.queued_ever.load(Ordering::Acquire) - before);
        let within = |queued: u64| Some(queued.clamp(least, most));
        let _ = self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, within);
    }
}

/// A task that is about to wait: counted, and not in the store yet.
pub(crate) struct Queueing {
    engine: Arc<Inner>,
    kept: bool,
}

impl Queueing {
    /// It waits now.
    pub(crate) fn kept(mut self) {
        self.kept = true;
    }
}

impl Drop for Queueing {
    fn drop(&mut self) {
        self.engine.queueing.fetch_sub(1, Ordering::AcqRel);
        if !self.kept {
            let one_less = |queued: u64| queued.checked_sub(1);
            let _ = self.engine.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        }
    }
}
