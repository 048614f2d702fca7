//! Waits for a task: by its stream if the agent has streams, otherwise, and whenever the stream fails, by
//! polling.

use std::time::Duration;

use nuncio_engine::task::State;
use nuncio_wire::a2a::{StreamEvent, TaskView};

use super::{A2aClient, A2aClientError, A2aResponse};

/// Options of [`A2aClient::wait_until_idle`].
#[derive(Debug, Clone, Copy)]
pub struct WaitOptions {
    /// The first polling interval.
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
        let mut streaming = self.streams();
        let mut streams = 0;
        let (mut failures, mut pause) = (0, patience.poll);
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
            pause = (pause + pause / 4).min(patience.poll * SLOWEST);
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
