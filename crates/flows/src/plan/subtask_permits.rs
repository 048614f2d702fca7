//! The permits that limit the concurrent subtasks of one tenant on this node, over all of its plans.
//!
//! A subtask that has begun takes memory even while it only waits for a slot, and nested plans begin many. Each
//! nesting depth has its own permits: a plan waits for the plans in it, so these must never wait for a permit
//! that it holds.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of all tenants.
pub(crate) struct SubtaskPermits {
    most: usize,
    /// By tenant and depth, while a plan uses them.
    semaphores: Mutex<HashMap<(String, usize), Weak<Semaphore>>>,
}

/// A permit for one subtask, until it is dropped.
pub(crate) struct SubtaskPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl SubtaskPermits {
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.clamp(1, Semaphore::MAX_PERMITS), semaphores: Mutex::default() }
    }

    /// The permits of one tenant at one depth. A plan holds them as long as it runs.
    pub(crate) fn of(&self, tenant: &str, depth: usize) -> Arc<Semaphore> {
        let mut semaphores = self.semaphores.lock();
        let key = (tenant.to_owned(), depth);
        if let Some(known) = semaphores.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
        let fresh = Arc::new(Semaphore::new(self.most));
        semaphores.insert(key, Arc::downgrade(&fresh));
        fresh
    }
}

/// Waits for a permit, in order of arrival.
pub(crate) async fn take(turns: &Arc<Semaphore>) -> SubtaskPermit {
    // The semaphore is never closed.
    SubtaskPermit { _permit: Arc::clone(turns).acquire_owned().await.ok() }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn tenants_and_depths_have_turns_of_their_own() {
        let turns = SubtaskPermits::new(2);
        let acme = turns.of("acme", 0);
        let mut held: Vec<SubtaskPermit> = (0..2).filter_map(|_| take(&acme).now_or_never()).collect();
        assert_eq!(held.len(), 2);
        assert!(take(&turns.of("acme", 0)).now_or_never().is_none(), "the same turns");
        assert!(take(&turns.of("acme", 1)).now_or_never().is_some());
        assert!(take(&turns.of("globex", 0)).now_or_never().is_some());
        held.pop();
        assert!(take(&acme).now_or_never().is_some());
        drop((held, acme));
        turns.of("globex", 1);
        assert_eq!(turns.semaphores.lock().len(), 1, "what nobody uses is forgotten");
    }
}
