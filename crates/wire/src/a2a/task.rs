//! The Task object, and the view of it that servers and clients share.

use std::borrow::Cow;

use nuncio_engine::{
    clock::Timestamp,
    content::{Artifact, Message, Metadata},
    task::{State, Task},
};
use serde::Deserialize;

use super::{
    Dialect, TaskIds, TaskList,
    artifact::{self, ArtifactIn},
    input::{JsonPath, MalformedInput, WholeNumber, non_empty},
    message::{self, MessageIn},
    status::{self, StatusIn, StatusOut},
};
use crate::{
    json::{self, JsonObject},
    timestamp,
};

/// How much of a task is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskDetail {
    /// At most this many of the latest messages; `None`: all; 0: no history at all.
    pub history_length: Option<usize>,
    /// Whether artifacts are written.
    pub artifacts: bool,
}

impl Default for TaskDetail {
    /// Everything.
    fn default() -> Self {
        Self { history_length: None, artifacts: true }
    }
}

impl TaskDetail {
    /// Everything, with at most `length` messages of the history.
    pub fn history(length: Option<usize>) -> Self {
        Self { history_length: length, ..Self::default() }
    }
}

/// A task as seen through a protocol: what a server writes and a client reads.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskView {
    /// The public id.
    pub id: String,
    /// The id of its conversation; other servers may omit it.
    pub context: Option<String>,
    /// The current state.
    pub state: State,
    /// The state's name as received, if this version does not know it: `state` is then [`State::Working`].
    pub unknown_state: Option<String>,
    /// The agent's message about the state.
    pub message: Option<Message>,
    /// The time of the last change of state.
    pub at: Option<Timestamp>,
    /// The results so far.
    pub artifacts: Vec<Artifact>,
    /// The messages, oldest first.
    pub history: Vec<Message>,
    /// Metadata of the task.
    pub metadata: Option<Metadata>,
}

impl From<&Task> for TaskView {
    fn from(task: &Task) -> Self {
        let id = task.origin.public_id();
        Self {
            context: Some(task.origin.context.clone()),
            state: task.state,
            unknown_state: None,
            message: status_message(task, &id).map(Cow::into_owned),
            at: Some(task.status_at),
            artifacts: task.artifacts.clone(),
            history: task.history.clone(),
            metadata: task.origin.metadata.clone(),
            id,
        }
    }
}

/// The message beside the state: progress while the agent works.
pub(super) fn status_message<'a>(task: &'a Task, id: &str) -> Option<Cow<'a, Message>> {
    match &task.progress {
        Some((seq, progress)) if task.state == State::Working => {
            Some(Cow::Owned(status::progress_message(progress, id, *seq)))
        }
        _ => task.status_message.as_ref().map(Cow::Borrowed),
    }
}

/// Writes the current status of a task.
pub(super) fn write_status(out: &mut Vec<u8>, dialect: Dialect, ids: TaskIds<'_>, task: &Task) {
    let message = status_message(task, ids.task);
    StatusOut { state: task.state, message: message.as_deref(), at: task.status_at }.write(out, dialect, ids);
}

/// Writes a Task object.
pub(super) fn write(out: &mut Vec<u8>, dialect: Dialect, task: &Task, view: TaskDetail) {
    json::object(out, |object| write_members(object, dialect, &task.origin.public_id(), task, view, false));
}

/// Writes a task as the resource `a2a://tasks/{taskId}` returns it: with its own members and plain names of
/// states, and messages and artifacts in the form of 1.0. The closure adds further metadata.
pub fn write_resource(out: &mut Vec<u8>, task: &Task, metadata: impl FnOnce(&mut JsonObject<'_>)) {
    let (dialect, id) = (Dialect::V1, task.origin.public_id());
    let ids = TaskIds { task: &id, context: &task.origin.context };
    json::object(out, |object| {
        object.value("taskId", &id);
        object.value("contextId", ids.context);
        object.object("status", |status| {
            status.value("state", status::state_name(Dialect::V0_3, task.state));
            timestamp::write(status.key("timestamp"), task.status_at);
            match status_message(task, &id) {
                Some(said) => message::write(status.key("message"), dialect, ids.into(), &said),
                None => status.value("message", &()),
            }
        });
        object.array("history", &task.history, |out, said| message::write(out, dialect, ids.into(), said));
        object.array("artifacts", task.artifacts.iter().enumerate(), |out, (index, artifact)| {
            artifact::write(out, dialect, index, artifact);
        });
        object.object("metadata", metadata);
    });
}

/// Writes a Task of a list: requested artifacts are present even if there are none.
pub(super) fn write_listed(out: &mut Vec<u8>, dialect: Dialect, task: &Task, view: TaskDetail) {
    json::object(out, |object| write_members(object, dialect, &task.origin.public_id(), task, view, true));
}

/// Writes a Task for 0.1 webhooks: its id is also under the name `taskId`.
pub(super) fn write_pushed(out: &mut Vec<u8>, dialect: Dialect, task: &Task) {
    let id = task.origin.public_id();
    json::object(out, |object| {
        if dialect == Dialect::V0_1 {
            object.value("taskId", &id);
        }
        write_members(object, dialect, &id, task, TaskDetail::default(), false);
    });
}

fn write_members(
    object: &mut JsonObject<'_>,
    dialect: Dialect,
    id: &str,
    task: &Task,
    view: TaskDetail,
    empty_too: bool,
) {
    let ids = TaskIds { task: id, context: &task.origin.context };
    if dialect == Dialect::V0_3 {
        object.value("kind", "task");
    }
    object.value("id", id);
    object.value(if dialect == Dialect::V0_1 { "sessionId" } else { "contextId" }, ids.context);
    write_status(object.key("status"), dialect, ids, task);
    if view.artifacts && (empty_too || !task.artifacts.is_empty()) {
        object.array("artifacts", task.artifacts.iter().enumerate(), |out, (index, artifact)| {
            artifact::write(out, dialect, index, artifact);
        });
    }
    let history = shown_history(task, view);
    if !history.is_empty() {
        object.array("history", history, |out, message| message::write(out, dialect, ids.into(), message));
    }
    object.optional("metadata", task.origin.metadata.as_ref());
}

/// The last messages of a task, as many as were asked for.
pub(super) fn shown_history(task: &Task, view: TaskDetail) -> &[Message] {
    let skipped = view.history_length.map_or(0, |length| task.history.len().saturating_sub(length));
    &task.history[skipped..]
}

/// A task of any generation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct TaskIn<'a> {
    id: Option<String>,
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    session_id: Option<String>,
    #[serde(borrow)]
    status: Option<StatusIn<'a>>,
    #[serde(borrow)]
    artifacts: Option<Vec<ArtifactIn<'a>>>,
    #[serde(borrow)]
    history: Option<Vec<MessageIn<'a>>>,
    metadata: Option<Metadata>,
}

impl TaskIn<'_> {
    pub(super) fn read(self, dialect: Dialect, at: JsonPath<'_>) -> Result<TaskView, MalformedInput> {
        let context = if dialect == Dialect::V0_1 { self.session_id } else { self.context_id };
        let status = at.required("status", self.status)?.read(dialect, at.member("status"))?;
        let path = at.member("artifacts");
        let artifacts = self.artifacts.unwrap_or_default().into_iter().enumerate();
        let artifacts = artifacts
            .map(|(index, artifact)| {
                artifact.read(dialect, path.element(index)).map(artifact::whole_artifact)
            })
            .collect::<Result<_, _>>()?;
        let path = at.member("history");
        let history = self.history.unwrap_or_default().into_iter().enumerate();
        let history = history
            .map(|(index, message)| message.read(dialect, path.element(index)).map(|read| read.message))
            .collect::<Result<_, _>>()?;
        Ok(TaskView {
            id: at.required_text("id", self.id)?,
            context: non_empty(context),
            state: status.state,
            unknown_state: status.unknown_state,
            message: status.message,
            at: status.at,
            artifacts,
            history,
            metadata: self.metadata,
        })
    }
}

/// A page of tasks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct TaskListIn<'a> {
    #[serde(borrow)]
    tasks: Option<Vec<TaskIn<'a>>>,
    #[serde(alias = "next_page_token")]
    next_page_token: Option<String>,
    #[serde(alias = "total_size")]
    total_size: Option<WholeNumber>,
}

impl TaskListIn<'_> {
    pub(super) fn read(self, dialect: Dialect, at: JsonPath<'_>) -> Result<TaskList, MalformedInput> {
        let path = at.member("tasks");
        let tasks = self.tasks.unwrap_or_default().into_iter().enumerate();
        let tasks =
            tasks.map(|(index, task)| task.read(dialect, path.element(index))).collect::<Result<_, _>>()?;
        let total = self.total_size.and_then(|WholeNumber(total)| u64::try_from(total).ok());
        Ok(TaskList { tasks, next: non_empty(self.next_page_token), total })
    }
}
