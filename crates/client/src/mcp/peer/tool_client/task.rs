//! Tasks of the 2026-07-28 extension: their status, questions and result.

use std::time::Duration;

use nuncio_wire::mcp::{McpTaskSnapshot, McpTaskStatus};
use serde_json::Value;

use super::{ToolAnswer, ToolError};

/// The polling interval if the server names none.
const POLL: Duration = Duration::from_secs(1);

/// The status of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolTaskStatus {
    /// The task is running.
    Working,
    /// The task waits for answers to these questions.
    Asks(Vec<ToolTaskQuestion>),
    /// The task has a result.
    Completed(ToolAnswer),
    /// The task failed, with this text.
    Failed(String),
    /// The task was cancelled.
    Cancelled,
}

/// A question of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTaskQuestion {
    /// The key to answer it under.
    pub key: String,
    /// The MCP method: `elicitation/create` for a form.
    pub method: String,
    /// The params of that method, as received.
    pub params: Value,
}

/// A task at the time it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTaskView {
    /// The task's id, the same in every protocol.
    pub id: String,
    /// The status at that time.
    pub status: ToolTaskStatus,
    /// The task's status text.
    pub message: Option<String>,
    /// The polling interval that the server asks for.
    pub poll: Duration,
}

impl ToolTaskView {
    /// Whether the task has ended.
    pub fn is_over(&self) -> bool {
        matches!(
            self.status,
            ToolTaskStatus::Completed(_) | ToolTaskStatus::Failed(_) | ToolTaskStatus::Cancelled
        )
    }

    pub(super) fn of(task: McpTaskSnapshot) -> Result<Self, ToolError> {
        let McpTaskSnapshot { id, status, message, poll_interval, input_requests, result, error } = task;
        let id = id.ok_or_else(|| ToolError::Malformed("a task without an id".to_owned()))?;
        let status = match status {
            Ok(McpTaskStatus::Working | McpTaskStatus::Submitted) => ToolTaskStatus::Working,
            Ok(McpTaskStatus::InputRequired) => {
                let questions = input_requests.into_iter().map(|(key, request)| ToolTaskQuestion {
                    key,
                    method: request.method,
                    params: request.params,
                });
                ToolTaskStatus::Asks(questions.collect())
            }
            Ok(McpTaskStatus::Completed) => match ToolAnswer::of(result) {
                Ok(answer) => ToolTaskStatus::Completed(answer),
                // A failed agent has a result that reports the error.
                Err(error) => ToolTaskStatus::Failed(error.to_string()),
            },
            Ok(McpTaskStatus::Failed) => {
                let why = error.or_else(|| message.clone());
                ToolTaskStatus::Failed(why.unwrap_or_else(|| "the task failed".to_owned()))
            }
            Ok(McpTaskStatus::Cancelled) => ToolTaskStatus::Cancelled,
            Err(other) => return Err(ToolError::Malformed(format!("a task with the status {other:?}"))),
        };
        Ok(Self { id, status, message, poll: poll_interval.unwrap_or(POLL) })
    }
}
