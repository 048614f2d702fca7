//! Waiting for a task: by its stream where the agent has streams, else, and whenever that fails, by asking
//! again and again.

use std::time::Duration;

use nuncio_wire::a2a::{StreamEvent, TaskView};

use super::{A2aClient, A2aClientError, A2aResponse};

/// How to wait.
#[derive(Debug, Clone, Copy)]
pub struct WaitOptions {
    /// How often to ask, where asking is the way.
    pub poll: Duration,
    /// How much of the history the task has in the end.
    pub history: Option<usize>,
    /// Questions in a row that may fail to reach the agent.
    pub failures: u32,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self { poll: Duration::from_secs(2), history: None, failures: 8 }
    }
}

/// Asking gets slower up to so many times the interval that was asked for.
const SLOWEST: u32 = 4;
const MANY_STREAMS: u32 = 16;

impl A2aClient {
    /// Waits until a task has ended or waits for somebody, and gives it as it is then. What happens
    /// meanwhile is shown to `seen`, as far as the agent streams.
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
                Ok(found) if is_idle(&found.value) => return Ok(found),
                Ok(_) => failures = 0,
                Err(error) if error.is_transient() && failures < patience.failures => failures += 1,
                Err(error) => return Err(error),
            }
            if streaming && failures == 0 {
                streams += 1;
                match self.watch(task, &mut seen).await {
                    // Somebody may have answered at that moment; a stream that says so every time is not
                    // worth following.
                    Ok(()) if streams < MANY_STREAMS => continue,
                    Ok(()) => streaming = false,
                    Err(error) => {
                        tracing::debug!(%error, "waiting by asking from here on");
                        streaming = false;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause + pause / 4).min(patience.poll * SLOWEST);
        }
    }

    /// Follows the stream until it says that there is nothing to wait for.
    async fn watch(&self, task: &str, seen: &mut impl FnMut(&StreamEvent)) -> Result<(), A2aClientError> {
        let mut events = self.subscribe(task, None).await?;
        while let Some(item) = events.next().await? {
            seen(&item.event.value);
            let settled = match &item.event.value {
                StreamEvent::Task(task) => is_idle(task),
                StreamEvent::Status(update) => update.state.is_terminal() || update.state.is_interrupted(),
                StreamEvent::Message(_) | StreamEvent::Artifact(_) => false,
            };
            if settled {
                break;
            }
        }
        Ok(())
    }
}

fn is_idle(task: &TaskView) -> bool {
    task.state.is_terminal() || task.state.is_interrupted()
}
