//! Notices when the other side offers something else than before.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{Agent, Profile};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{RemoteAgent, RemoteSide};
use crate::configured::ManagedAgent;

/// How long it takes at most until one that is away is looked for again.
const LONGEST: Duration = Duration::from_secs(60);
/// How often it is looked whether the calls of one that was replaced have ended.
const STILL_USED: Duration = Duration::from_millis(250);

/// Looks at the other side from time to time.
pub(super) struct RemoteWatch {
    side: Arc<RemoteSide>,
    state: Mutex<RemoteWatchState>,
}

/// What outlives one wait for news.
struct RemoteWatchState {
    /// How the agent presents itself.
    profile: Profile,
    /// When to look next, whoever tells.
    due: Instant,
    /// How long to wait after the next look that fails.
    pause: Duration,
}

impl RemoteWatch {
    pub(super) fn new(side: Arc<RemoteSide>, shown: Profile) -> Self {
        let pause = side.remote.patience.first_pause;
        Self { side, state: Mutex::new(RemoteWatchState { profile: shown, due: Instant::now(), pause }) }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, RemoteWatchState> {
        self.state.lock()
    }

    /// Looks once; the agent, if it presents itself in another way now.
    async fn poll_for_change(&self) -> Option<Arc<dyn Agent>> {
        let looked = self.side.refresh_capabilities().await;
        let mut state = self.state();
        if let Err(error) = looked {
            tracing::debug!(agent = self.side.spec.name, %error, "the other side cannot be seen");
            state.due = Instant::now() + state.pause;
            state.pause = (state.pause * 2).min(LONGEST);
            return None;
        }
        let patience = &self.side.remote.patience;
        (state.due, state.pause) = (Instant::now() + patience.look, patience.first_pause);
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
                // Before it was seen there is nothing that could change.
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
