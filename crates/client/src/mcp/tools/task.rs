//! Tasks as the extension of 2026-07-28 shows them: where they stand, what they ask, what they came to.

use std::time::Duration;

use serde_json::Value;

use super::{ToolAnswer, ToolError, called};

/// Where a task stands.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolTaskStatus {
    /// At work.
    Working,
    /// It asks these things.
    Asks(Vec<ToolTaskQuestion>),
    /// It has a result.
    Completed(ToolAnswer),
    /// It has none, and why.
    Failed(String),
    /// It was stopped.
    Cancelled,
}

/// What a task asks.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTaskQuestion {
    /// What its answer is given under.
    pub key: String,
    /// `elicitation/create`, where a form is to be filled in.
    pub method: String,
    /// The whole of it, as the protocol has it.
    pub params: Value,
}

/// A task as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTaskView {
    /// Its id, the same in every protocol.
    pub id: String,
    /// Where it stands.
    pub status: ToolTaskStatus,
    /// What it says of that.
    pub message: Option<String>,
    /// How often to ask for it.
    pub poll: Duration,
}

impl ToolTaskView {
    /// Whether there is anything to wait for.
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
                // An agent that failed has a result, which says so.
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
