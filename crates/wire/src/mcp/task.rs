//! Tasks as MCP clients see them: experimental in 2025-11-25, an extension in 2026-07-28.

use std::time::Duration;

use nuncio_engine::{Message, State, Task, clock::Timestamp};
use serde_json::Value;

use super::{
    InputRequest, McpQuestion, McpVersion, ToolResult,
    notification::take,
    result::{CallOutput, write_output},
    write_input_requests,
};
use crate::{json::JsonObject, jsonrpc::INTERNAL_ERROR, timestamp};

/// The status of a task, by the protocol's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpTaskStatus {
    /// The agent works, or is about to.
    Working,
    /// The task waits for an answer.
    InputRequired,
    /// The task has a result.
    Completed,
    /// The task ended with an error.
    Failed,
    /// The task was canceled.
    Cancelled,
    /// The task has not begun: a name from a draft, which some servers send. Never written here.
    Submitted,
}

impl McpTaskStatus {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Submitted => "submitted",
        }
    }

    /// The status of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [
            Self::Working,
            Self::InputRequired,
            Self::Completed,
            Self::Failed,
            Self::Cancelled,
            Self::Submitted,
        ];
        all.into_iter().find(|status| status.name() == name)
    }
}

/// A task as a client reads it: in a result, or in a notification.
#[derive(Debug, Clone, PartialEq)]
pub struct McpTaskSnapshot {
    /// The task's id; `None` if it has no valid one.
    pub id: Option<String>,
    /// The status, or the name of one that is not known.
    pub status: Result<McpTaskStatus, String>,
    /// The status text.
    pub message: Option<String>,
    /// The polling interval that the server suggests.
    pub poll_interval: Option<Duration>,
    /// The questions that it waits for, by their keys (2026-07-28).
    pub input_requests: Vec<(String, InputRequest)>,
    /// The result of a completed task (2026-07-28); empty if it has none.
    pub result: ToolResult,
    /// The text of the error of a failed task (2026-07-28).
    pub error: Option<String>,
}

impl McpTaskSnapshot {
    /// Reads a task. Tolerant: see [`super::read_messages`]. The names of members of both generations are accepted.
    pub fn read(mut task: Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let status = task["status"].as_str().unwrap_or_default();
        let poll_ms = task["pollIntervalMs"].as_u64().or_else(|| task["pollInterval"].as_u64());
        Self {
            id: text(&task["taskId"]),
            status: McpTaskStatus::parse(status).ok_or_else(|| status.to_owned()),
            message: text(&task["statusMessage"]),
            poll_interval: poll_ms.map(Duration::from_millis),
            error: text(&task["error"]["message"]),
            input_requests: InputRequest::read_all(take(&mut task, "inputRequests")).unwrap_or_default(),
            result: ToolResult::read(take(&mut task, "result")),
        }
    }
}

/// The status of a task. The two generations differ when an agent failed: in 2025-11-25 its task is failed, in
/// the extension it is completed with a result that reports an error.
pub fn status_of(version: McpVersion, task: &Task) -> McpTaskStatus {
    match task.state {
        State::Submitted | State::Working => McpTaskStatus::Working,
        State::InputRequired | State::AuthRequired => McpTaskStatus::InputRequired,
        State::Completed | State::Replied => McpTaskStatus::Completed,
        State::Canceled => McpTaskStatus::Cancelled,
        State::Failed | State::Rejected if version.is_stateless() && !task.is_fault() => {
            McpTaskStatus::Completed
        }
        State::Failed | State::Rejected => McpTaskStatus::Failed,
    }
}

/// How a task is written.
#[derive(Debug, Clone, Copy)]
pub struct McpTaskView {
    /// The revision of the connection.
    pub version: McpVersion,
    /// When the task was created.
    pub created_at: Timestamp,
    /// How long the task is retained, counted from its creation. `None`: it is not deleted.
    pub ttl_ms: Option<u64>,
    /// The suggested polling interval, in milliseconds.
    pub poll_ms: u64,
    /// Whether to include its questions, or its result (extension only).
    pub detailed: bool,
}

/// Writes the members of a task.
pub fn write_task(object: &mut JsonObject<'_>, task: &Task, view: McpTaskView) {
    let McpTaskView { version, created_at, ttl_ms, poll_ms, detailed } = view;
    let status = status_of(version, task);
    let (ttl, poll) =
        if version.is_stateless() { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
    object.value("taskId", &task.origin.id.to_string());
    object.value("status", status.name());
    object.optional("statusMessage", status_message(task).as_ref());
    timestamp::write(object.key("createdAt"), created_at);
    timestamp::write(object.key("lastUpdatedAt"), task.status_at.max(created_at));
    object.value(ttl, &ttl_ms);
    object.value(poll, &poll_ms);
    if !detailed || !version.is_stateless() {
        return;
    }
    match status {
        McpTaskStatus::InputRequired => {
            write_input_requests(object, version, McpQuestion::all_of(task));
        }
        McpTaskStatus::Completed => object.object("result", |result| {
            write_output(result, version, CallOutput::Task(task));
            if task.state == State::Completed {
                result.value("isError", &false);
            }
        }),
        McpTaskStatus::Failed => object.object("error", |error| {
            error.value("code", &INTERNAL_ERROR);
            error.value("message", &status_message(task).unwrap_or_else(|| "the task failed".to_owned()));
        }),
        McpTaskStatus::Working | McpTaskStatus::Submitted | McpTaskStatus::Cancelled => {}
    }
}

/// Writes the members of a task that was just created (2025-11-25): it starts as working, whatever its state is
/// by now.
pub fn write_new_task(object: &mut JsonObject<'_>, task: &Task, view: McpTaskView) {
    object.value("taskId", &task.origin.id.to_string());
    object.value("status", McpTaskStatus::Working.name());
    timestamp::write(object.key("createdAt"), view.created_at);
    timestamp::write(object.key("lastUpdatedAt"), task.status_at.max(view.created_at));
    object.value("ttl", &view.ttl_ms);
    object.value("pollInterval", &view.poll_ms);
}

/// Writes the `_meta` member that names the task of a message (2025-11-25).
pub fn write_related(meta: &mut JsonObject<'_>, task: &str) {
    meta.object(RELATED_TASK, |related| related.value("taskId", task));
}

/// The `_meta` member that names the task of a message.
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The status text: the last progress while the agent works, else the agent's message.
fn status_message(task: &Task) -> Option<String> {
    let progress = task.progress.as_ref().and_then(|(_, progress)| progress.text.clone());
    let said = task.status_message.as_ref().map(Message::joined_text);
    let words = if task.state == State::Working { progress.or(said) } else { said };
    words.filter(|words| !words.is_empty())
}
