//! How fast simulated work goes.

use std::time::Duration;

use nuncio_engine::{AgentError, StepContext, TaskContext};

use crate::AgentOptions;

/// The length of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace(Duration);

impl Pace {
    pub(crate) fn new(options: &AgentOptions) -> Self {
        Self(options.step)
    }

    /// Works for the length of one step; a cancel ends it at once.
    pub(crate) async fn work(self, step: &StepContext) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            () = step.canceled() => Err(AgentError::Canceled),
            () = tokio::time::sleep(self.0) => Ok(()),
        }
    }

    /// Says what is begun at so many percent, and works one step on it.
    pub(crate) async fn stage(
        self,
        cx: &TaskContext,
        percent: u32,
        step: &str,
        doing: impl Into<String>,
    ) -> Result<(), AgentError> {
        cx.progress(percent.into(), Some(100.0), doing).await?;
        cx.step(step, async |step| self.work(&step).await).await
    }

    /// A time limit that so many steps do not reach, however long one was made.
    pub(crate) fn limit(self, steps: u32) -> Duration {
        self.0.saturating_mul(steps * 2).saturating_add(Duration::from_secs(60))
    }
}
