//! The speed of simulated work.

use std::time::Duration;

use nuncio_engine::{AgentError, Level, Message, StepContext, TaskContext};

use crate::{AgentOptions, redirect::Redirects};

/// The length of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepPace(Duration);

impl StepPace {
    pub(crate) fn new(options: &AgentOptions) -> Self {
        Self(options.step)
    }

    /// Works for the length of one step; a cancellation ends it at once.
    pub(crate) async fn work(self, step: &StepContext) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            () = step.canceled() => Err(AgentError::Canceled),
            () = tokio::time::sleep(self.0) => Ok(()),
        }
    }

    /// Reports a stage at this percentage, and works one step on it. Returns the caller's messages
    /// meanwhile.
    pub(crate) async fn stage(
        self,
        cx: &TaskContext,
        redirects: &mut Redirects,
        percent: u32,
        step: &str,
        doing: impl Into<String>,
    ) -> Result<Vec<Message>, AgentError> {
        let doing = doing.into();
        cx.log(Level::Info, doing.clone()).await?;
        cx.progress(percent.into(), Some(100.0), doing).await?;
        self.step(cx, redirects, step).await
    }

    /// Works one step. Returns the caller's messages meanwhile, journaled with the step.
    pub(crate) async fn step(
        self,
        cx: &TaskContext,
        redirects: &Redirects,
        step: &str,
    ) -> Result<Vec<Message>, AgentError> {
        let read = redirects.read();
        let heard: Option<Vec<Message>> = cx
            .step(step, async |step| {
                self.work(&step).await?;
                let mut heard = cx.read_messages().await.unwrap_or_default();
                Ok(Some(heard.split_off(read.min(heard.len()))).filter(|heard| !heard.is_empty()))
            })
            .await?;
        Ok(heard.unwrap_or_default())
    }

    /// A time limit that this many steps do not reach, however long a step is configured.
    pub(crate) fn limit(self, steps: u32) -> Duration {
        self.0.saturating_mul(steps * 2).saturating_add(Duration::from_secs(60))
    }
}
