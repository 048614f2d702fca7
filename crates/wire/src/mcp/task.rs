//! Tasks as MCP clients see them: experimental in 2025-11-25, an extension in 2026-07-28.

use nuncio_engine::{Message, State, Task, clock::Timestamp};

use super::{
    McpVersion,
    result::{CallOutput, write_output},
    write_question,
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
        }
    }
}

/// The status of a task. The two generations differ when an agent failed: in 2025-11-25 its task is failed, in
/// the extension it is completed with a result that reports an error.
pub fn status_of(version: McpVersion, task: &Task) -> McpTaskStatus {
    match task.state {
        State::Submitted | State::Working => McpTaskStatus::Working,
        State::InputRequired | State::AuthRequired => McpTaskStatus::InputRequired,
        State::Completed => McpTaskStatus::Completed,
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
        McpTaskStatus::InputRequired => object.object("inputRequests", |requests| {
            for (_, question) in &task.questions {
                requests.object_at(&question.id, |out| write_question(out, version, question));
            }
        }),
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
        McpTaskStatus::Working | McpTaskStatus::Cancelled => {}
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
    meta.object("io.modelcontextprotocol/related-task", |related| related.value("taskId", task));
}

/// The status text: the last progress while the agent works, else the agent's message.
fn status_message(task: &Task) -> Option<String> {
    let progress = task.progress.as_ref().and_then(|(_, progress)| progress.text.clone());
    let said = task.status_message.as_ref().map(Message::joined_text);
    let words = if task.state == State::Working { progress.or(said) } else { said };
    words.filter(|words| !words.is_empty())
}
