//! Watches a peer for changes of its capabilities.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{Agent, Profile};
use nuncio_outbound::Backoff;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{RemoteAgent, RemoteSide};
use crate::configured::ManagedAgent;

/// The longest backoff for an unreachable peer.
const LONGEST: Duration = Duration::from_secs(60);
/// How often to check whether the calls of a replaced agent have ended.
const STILL_USED: Duration = Duration::from_millis(250);

/// Polls the peer, and waits for its announcements.
pub(super) struct RemoteWatch {
    side: Arc<RemoteSide>,
    state: Mutex<RemoteWatchState>,
}

/// State across several waits.
struct RemoteWatchState {
    /// The agent's current profile.
    profile: Profile,
    /// When to poll next, with or without an announcement.
    due: Instant,
    /// The pauses after failed polls.
    backoff: Backoff,
}

impl RemoteWatch {
    pub(super) fn new(side: Arc<RemoteSide>, shown: Profile) -> Self {
        let backoff = Backoff::unlimited(side.remote.patience.first_pause, LONGEST);
        Self { side, state: Mutex::new(RemoteWatchState { profile: shown, due: Instant::now(), backoff }) }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, RemoteWatchState> {
        self.state.lock()
    }

    /// Polls once; returns the agent if its profile has changed.
    async fn poll_for_change(&self) -> Option<Arc<dyn Agent>> {
        let looked = self.side.refresh_capabilities().await;
        let mut state = self.state();
        if let Err(error) = looked {
            tracing::debug!(agent = self.side.spec.name, %error, "the peer is unreachable");
            state.due = Instant::now() + state.backoff.take_pause(None);
            return None;
        }
        state.backoff.reset();
        state.due = Instant::now() + self.side.remote.patience.look;
        let agent = RemoteAgent::new(Arc::clone(&self.side));
        if agent.profile == state.profile {
            return None;
        }
        state.profile.clone_from(&agent.profile);
        Some(Arc::new(agent))
    }
}

#[async_trait]
impl ManagedAgent for RemoteWatch {
    async fn wait_for_update(&self) -> Arc<dyn Agent> {
        loop {
            let due = self.state().due;
            let seen = self.side.cached_capabilities().is_some();
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                // Before the first successful poll there is nothing that could change.
                () = self.side.peer().wait_for_change(), if seen => {}
            }
            if let Some(agent) = self.poll_for_change().await {
                return agent;
            }
        }
    }

    async fn close(&self) {
        self.side.peer().close().await;
    }

    async fn retire(&self) {
        let until = Instant::now() + self.side.remote.patience.retire;
        while self.side.is_used() && Instant::now() < until {
            tokio::time::sleep(STILL_USED).await;
        }
        self.close().await;
    }
}
