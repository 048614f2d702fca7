//! Error reports of agents that stand for a program, an endpoint, a model or another server.
//!
//! Such an error contains addresses, paths, status lines and program output. Callers of the tenant `home`, who
//! own the server, see it. A caller of another tenant gets a plain sentence with the task's id, and the server's
//! log has the details under that id.

use std::sync::Arc;

use super::{StepContext, TaskContext};
use crate::{
    access::{HOME_TENANT, tenant_of},
    agent::AgentError,
    event::{Event, Level, LogLine},
    run::TaskRun,
};

/// Renders errors of an agent's backend for the caller of one task.
pub struct FailureReport(Arc<TaskRun>);

impl TaskContext {
    /// The renderer of backend errors for the caller of this task.
    pub fn failure_report(&self) -> FailureReport {
        FailureReport(Arc::clone(&self.run))
    }

    /// Adds a log line about the agent's backend: to the task's log if its caller belongs to `home`, otherwise to
    /// the server's log. Like [`TaskContext::remark`], it belongs to this run alone.
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
    /// Whether the caller may read backend errors.
    pub fn is_open(&self) -> bool {
        self.0.is_of_home()
    }

    /// The error as the task's final status shows it.
    pub fn error(&self, error: AgentError) -> AgentError {
        match error {
            AgentError::Failed(why) => AgentError::Failed(self.sentence(why, "failed")),
            AgentError::Misuse(why) => AgentError::Misuse(self.sentence(why, "failed")),
            AgentError::Nondeterministic(why) => AgentError::Nondeterministic(self.sentence(why, "failed")),
            AgentError::Unreachable(why) => AgentError::Unreachable(self.sentence(why, "cannot be reached")),
            AgentError::Canceled => AgentError::Canceled,
        }
    }

    /// Why the agent's backend refused the message.
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
