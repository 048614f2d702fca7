//! Notices when the other side offers something else than before.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{Agent, Profile};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{RemoteAgent, There};
use crate::configured::Living;

/// How long it takes at most until one that is away is looked for again.
const LONGEST: Duration = Duration::from_secs(60);
/// How often it is looked whether the calls of one that was replaced have ended.
const STILL_USED: Duration = Duration::from_millis(250);

/// Looks at the other side from time to time.
pub(super) struct Watch {
    there: Arc<There>,
    state: Mutex<State>,
}

/// What outlives one wait for news.
struct State {
    /// How the agent presents itself.
    shown: Profile,
    /// When to look next, whoever tells.
    due: Instant,
    /// How long to wait after the next look that fails.
    pause: Duration,
}

impl Watch {
    pub(super) fn new(there: Arc<There>, shown: Profile) -> Self {
        let pause = there.remote.patience.again;
        Self { there, state: Mutex::new(State { shown, due: Instant::now(), pause }) }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Looks once; the agent, if it presents itself in another way now.
    async fn look(&self) -> Option<Arc<dyn Agent>> {
        let looked = self.there.look().await;
        let mut state = self.state();
        if let Err(error) = looked {
            tracing::debug!(agent = self.there.spec.name, %error, "the other side cannot be seen");
            state.due = Instant::now() + state.pause;
            state.pause = (state.pause * 2).min(LONGEST);
            return None;
        }
        let patience = &self.there.remote.patience;
        (state.due, state.pause) = (Instant::now() + patience.look, patience.again);
        let agent = RemoteAgent::new(Arc::clone(&self.there));
        if agent.profile == state.shown {
            return None;
        }
        state.shown.clone_from(&agent.profile);
        Some(Arc::new(agent))
    }
}

#[async_trait]
impl Living for Watch {
    async fn renewed(&self) -> Arc<dyn Agent> {
        loop {
            let due = self.state().due;
            let seen = self.there.known().is_some();
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                // Before it was seen there is nothing that could change.
                () = self.there.peer().changed(), if seen => {}
            }
            if let Some(agent) = self.look().await {
                return agent;
            }
        }
    }

    async fn close(&self) {
        self.there.peer().close().await;
    }

    async fn retire(&self) {
        let until = Instant::now() + self.there.remote.patience.retire;
        while self.there.is_used() && Instant::now() < until {
            tokio::time::sleep(STILL_USED).await;
        }
        self.close().await;
    }
}
