//! Tasks of the 2026-07-28 extension: their status, questions and result.

use std::time::Duration;

use serde_json::Value;

use super::{ToolAnswer, ToolError, called};

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

    pub(super) fn read(task: &Value) -> Result<Self, ToolError> {
        let id =
            task["taskId"].as_str().ok_or_else(|| ToolError::Malformed("a task without an id".to_owned()))?;
        let message = task["statusMessage"].as_str().map(str::to_owned);
        let status = match task["status"].as_str().unwrap_or_default() {
            "working" | "submitted" => ToolTaskStatus::Working,
            "input_required" => ToolTaskStatus::Asks(questions(&task["inputRequests"])),
            "completed" => match called(&task["result"]) {
                Ok(called) => ToolTaskStatus::Completed(called),
                // A failed agent has a result that reports the error.
                Err(ToolError::Tool { why, .. }) => ToolTaskStatus::Failed(why),
                Err(error) => return Err(error),
            },
            "failed" => {
                let why = task["error"]["message"].as_str().or(message.as_deref());
                ToolTaskStatus::Failed(why.unwrap_or("the task failed").to_owned())
            }
            "cancelled" => ToolTaskStatus::Cancelled,
            other => return Err(ToolError::Malformed(format!("a task with the status {other:?}"))),
        };
        let poll = Duration::from_millis(task["pollIntervalMs"].as_u64().unwrap_or(1000));
        Ok(Self { id: id.to_owned(), status, message, poll })
    }
}

fn questions(requests: &Value) -> Vec<ToolTaskQuestion> {
    let question = |(key, request): (&String, &Value)| ToolTaskQuestion {
        key: key.clone(),
        method: request["method"].as_str().unwrap_or_default().to_owned(),
        params: request["params"].clone(),
    };
    requests.as_object().into_iter().flatten().map(question).collect()
}
