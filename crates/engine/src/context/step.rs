//! The context inside a step.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;

use super::{Chunk, progress};
use crate::{
    agent::AgentError,
    event::{Event, Level, LogLine, Progress},
    run::{ParkableGuard, TaskRun},
};

/// The context inside a step. It can report, but offers no effect that would have to be recorded on its own.
///
/// When the step is repeated after a crash, it emits everything again, and its artifacts begin anew.
pub struct StepContext {
    pub(super) run: Arc<TaskRun>,
    pub(super) scope: String,
    pub(super) begun: Mutex<HashSet<String>>,
}

impl StepContext {
    /// Reports how far the work has come.
    pub async fn progress(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
    ) -> Result<(), AgentError> {
        let text = text.into();
        self.run.emit(None, text.len() + 32, |_| Ok(Event::Progress(progress(done, total, text)))).await
    }

    /// Reports how far the work has come, with data for programs: an object with a `type`.
    pub async fn progress_with(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
        data: Value,
    ) -> Result<(), AgentError> {
        let said = Progress { data: Some(data), ..progress(done, total, text.into()) };
        let size = Event::Progress(said.clone()).size() + 32;
        self.run.emit(None, size, |_| Ok(Event::Progress(said))).await
    }

    /// Adds a line to the task's log.
    pub async fn log(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        let line = LogLine { level, text: text.into() };
        self.run.emit(None, line.text.len() + 32, |_| Ok(Event::Log(line))).await
    }

    /// Writes to an artifact that belongs to this step.
    pub async fn artifact(&self, chunk: Chunk) -> Result<(), AgentError> {
        let chunk = chunk.with_active_extensions(&self.run.extensions);
        let append = !self.begun.lock().insert(chunk.id.clone());
        let append = append && !chunk.anew;
        let (id, size, anew) = (chunk.id.clone(), chunk.size(), chunk.anew);
        self.run
            .emit(None, size, |artifacts| {
                Ok(chunk.event(artifacts.index_for_writer(&id, &self.scope, anew)?, append))
            })
            .await
    }

    /// Whether cancelling was requested.
    pub fn is_canceled(&self) -> bool {
        self.run.is_canceled()
    }

    /// Waits until cancelling is requested.
    pub async fn canceled(&self) {
        self.run.canceled().await;
    }

    /// Waits; returns early with an error if cancelling is requested.
    pub async fn sleep(&self, length: Duration) -> Result<(), AgentError> {
        tokio::select! {
            () = tokio::time::sleep(length) => Ok(()),
            () = self.run.canceled() => Err(AgentError::Canceled),
        }
    }

    /// Declares that the step only waits for a question of a branch, until the guard is dropped. The task may
    /// be parked meanwhile; the step then starts over when the question is answered.
    pub fn allow_parking(&self) -> ParkableGuard<'_> {
        self.run.allow_parking()
    }

    /// Counts an attempt at the request that this step makes, and returns its number, from 1. It counts on when the step is
    /// repeated, after a failure, a restart or a crash.
    pub async fn begin_attempt(&self) -> u32 {
        self.run.begin_attempt(&self.idempotency_key()).await
    }

    /// A key that is the same whenever this step is repeated: for services that accept an idempotency key.
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.run.origin.id, self.scope)
    }
}
