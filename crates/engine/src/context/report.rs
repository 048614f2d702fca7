//! What went wrong behind an agent that stands for a program, an endpoint, a model or a server elsewhere.
//!
//! Such an error names addresses, paths, status lines and what a program printed. That is for callers of `home`, whose
//! server it is. A caller of another tenant reads a plain sentence with the task's id, and the server's log has the rest
//! under that id.

use std::sync::Arc;

use super::{StepContext, TaskContext};
use crate::{
    access::{HOME_TENANT, tenant_of},
    agent::AgentError,
    event::{Event, Level, LogLine},
    run::TaskRun,
};

/// Renders errors of what stands behind an agent for the caller of one task.
pub struct FailureReport(Arc<TaskRun>);

impl TaskContext {
    /// What renders errors of what stands behind the agent, for the caller of this task.
    pub fn failure_report(&self) -> FailureReport {
        FailureReport(Arc::clone(&self.run))
    }

    /// Adds a line about what stands behind the agent: to the task's log where its caller belongs to `home`, else to the
    /// server's log. As [`TaskContext::remark`] it belongs to this run alone.
    pub async fn report(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        self.run.report(level, text.into()).await
    }
}

impl StepContext {
    /// As [`TaskContext::failure_report`].
    pub fn failure_report(&self) -> FailureReport {
        FailureReport(Arc::clone(&self.run))
    }

    /// As [`TaskContext::report`].
    pub async fn report(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        self.run.report(level, text.into()).await
    }
}

impl FailureReport {
    /// Whether the caller may read such errors.
    pub fn is_open(&self) -> bool {
        self.0.is_of_home()
    }

    /// An error as the task's end has it.
    pub fn error(&self, error: AgentError) -> AgentError {
        match error {
            AgentError::Failed(why) => AgentError::Failed(self.sentence(why, "failed")),
            AgentError::Misuse(why) => AgentError::Misuse(self.sentence(why, "failed")),
            AgentError::Nondeterministic(why) => AgentError::Nondeterministic(self.sentence(why, "failed")),
            AgentError::Unreachable(why) => AgentError::Unreachable(self.sentence(why, "cannot be reached")),
            AgentError::Canceled => AgentError::Canceled,
        }
    }

    /// Why what stands behind the agent did not take the message.
    pub fn refusal(&self, why: String) -> String {
        self.sentence(why, "did not take the message")
    }

    fn sentence(&self, why: String, what: &str) -> String {
        if self.is_open() {
            return why;
        }
        let origin = &self.0.origin;
        let (task, agent) = (origin.id, origin.agent.as_str());
        tracing::warn!(%task, agent, owner = origin.owner, why = self.0.without_secrets(&why), "an agent {what}");
        format!(
            "the agent {agent:?} {what}; the operator of this server can look up why, by the task's id {task}"
        )
    }
}

impl TaskRun {
    fn is_of_home(&self) -> bool {
        tenant_of(&self.origin.owner) == HOME_TENANT
    }

    fn without_secrets(&self, text: &str) -> String {
        match self.hidden.get() {
            Some(hidden) => hidden.clean(text).into_owned(),
            None => text.to_owned(),
        }
    }

    async fn report(&self, level: Level, text: String) -> Result<(), AgentError> {
        if self.is_of_home() {
            let line = LogLine { level, text };
            return self.emit(None, line.text.len() + 32, |_| Ok(Event::Log(line))).await;
        }
        let (task, agent) = (self.origin.id, self.origin.agent.as_str());
        tracing::info!(%task, agent, owner = self.origin.owner, line = self.without_secrets(&text), "an agent reports");
        Ok(())
    }
}
