//! Waits for a task: by its stream if the agent has streams that begin with the task, otherwise, and whenever the
//! stream fails, by polling.
//!
//! Before 1.0 a subscription tells only what comes after it. A question that was asked between the last read and the
//! subscription is in neither, and the stream stays silent until somebody answers. So there the task is polled.

use std::time::Duration;

use nuncio_engine::task::State;
use nuncio_wire::a2a::{Dialect, StreamEvent, TaskView};

use super::{A2aClient, A2aClientError, A2aResponse};

/// Options of [`A2aClient::wait_until_idle`].
#[derive(Debug, Clone, Copy)]
pub struct WaitOptions {
    /// The polling interval of a task that takes long; the first intervals are shorter.
    pub poll: Duration,
    /// The number of history messages to return with the task.
    pub history: Option<usize>,
    /// Polls in a row that may fail to reach the agent.
    pub failures: u32,
    /// Whether to go on while the task waits for an authorization, which is given elsewhere.
    pub through_authorization: bool,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self { poll: Duration::from_secs(2), history: None, failures: 8, through_authorization: false }
    }
}

/// The first polling interval: most tasks do not take long.
const FIRST_POLL: Duration = Duration::from_millis(250);
/// The polling interval grows up to this multiple of the configured one.
const SLOWEST: u32 = 4;
const MANY_STREAMS: u32 = 16;

impl A2aClient {
    /// Waits until a task has ended or needs input, and returns it. Calls `seen` for every event until then,
    /// if the agent streams.
    pub async fn wait_until_idle(
        &self,
        task: &str,
        patience: WaitOptions,
        mut seen: impl FnMut(&StreamEvent),
    ) -> Result<A2aResponse<TaskView>, A2aClientError> {
        let mut streaming = self.streams() && self.dialect() >= Dialect::V1;
        let mut streams = 0;
        let (mut failures, mut pause) = (0, patience.poll.min(FIRST_POLL));
        loop {
            match self.get(task, patience.history).await {
                Ok(found) if patience.is_idle(found.value.state) => return Ok(found),
                Ok(_) => failures = 0,
                Err(error) if error.is_transient() && failures < patience.failures => failures += 1,
                Err(error) => return Err(error),
            }
            if streaming && failures == 0 {
                streams += 1;
                match self.watch(task, patience, &mut seen).await {
                    // Another client may have answered just then. A stream that ends like this every time is
                    // not worth following.
                    Ok(()) if streams < MANY_STREAMS => continue,
                    Ok(()) => streaming = false,
                    Err(error) => {
                        tracing::debug!(%error, "the stream failed: polling from here on");
                        streaming = false;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            let growth = if pause < patience.poll { pause } else { pause / 4 };
            pause = (pause + growth).min(patience.poll * SLOWEST);
        }
    }

    /// Follows the stream until there is nothing left to wait for.
    async fn watch(
        &self,
        task: &str,
        patience: WaitOptions,
        seen: &mut impl FnMut(&StreamEvent),
    ) -> Result<(), A2aClientError> {
        let mut events = self.subscribe(task, None).await?;
        while let Some(item) = events.next().await? {
            seen(&item.event.value);
            let settled = match &item.event.value {
                StreamEvent::Task(task) => patience.is_idle(task.state),
                StreamEvent::Status(update) => patience.is_idle(update.state),
                StreamEvent::Message(_) | StreamEvent::Artifact(_) => false,
            };
            if settled {
                break;
            }
        }
        Ok(())
    }
}

impl WaitOptions {
    /// Whether there is nothing left to wait for.
    pub fn is_idle(&self, state: State) -> bool {
        state.is_terminal()
            || (state.is_interrupted() && !(self.through_authorization && state == State::AuthRequired))
    }
}
