//! The contract of the task tools: what they take and what they answer. The doc comments of the fields are
//! published as their descriptions.

#![allow(missing_docs, reason = "a doc comment is published; most names say enough")]

use nuncio_engine::{commands::list::MAX_PAGE, task::State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::resource::given;

/// The longest name of a task, a context or an agent that is accepted.
const MAX_NAME: u64 = 256;
/// The most events on a page.
const MAX_EVENTS: usize = 500;

// ---------------------------------------------------------------------------------------------- requests

/// The arguments of `task_send`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskSendRequest {
    /// The agent that is to do it: each is a tool of its name.
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub agent: String,
    /// What to do, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What to do, for agents that take structured input.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The conversation that it belongs to; without it a new one is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub context_id: Option<String>,
}

/// The arguments of `task_reply`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskReplyRequest {
    /// The task.
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub task_id: String,
    /// An answer in words, or a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// An answer that fits the question's schema.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// How the question is answered; without it, what is given is the accepted answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ReplyAction>,
    /// Which question, where several are open; without it the oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub question_id: Option<String>,
}

/// How a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyAction {
    Accept,
    Decline,
    Cancel,
}

/// The arguments of `task_cancel`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskCancelRequest {
    /// The task.
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub task_id: String,
}

/// The arguments of `task_get`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskGetRequest {
    /// The task.
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub task_id: String,
    /// With everything that was said. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<bool>,
    /// With the results so far. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<bool>,
}

/// The arguments of `task_list`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskListRequest {
    /// Only of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub agent: Option<String>,
    /// Only in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Only of this conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub context_id: Option<String>,
    /// Where the page before ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub page_token: Option<String>,
    /// How many. Default: 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    pub page_size: Option<usize>,
}

/// The arguments of `task_events`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskEventsRequest {
    /// The task.
    #[schemars(length(min = 1, max = MAX_NAME))]
    pub task_id: String,
    /// The number of the last event that is known. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// How many. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_EVENTS))]
    pub limit: Option<usize>,
}

// ----------------------------------------------------------------------------------------------- answers

/// The answer of `task_send`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSendAnswer {
    pub task_id: String,
    pub context_id: String,
    pub state: State,
}

/// A task: the answer of `task_get`, `task_reply` and `task_cancel`. The history and the artifacts are there
/// where they were asked for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskAnswer {
    pub task_id: String,
    pub context_id: String,
    pub agent: String,
    pub state: State,
    #[schemars(extend("format" = "date-time"))]
    pub timestamp: String,
    pub message: Option<Map<String, Value>>,
    pub questions: Vec<TaskQuestion>,
    pub last_event: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<Map<String, Value>>>,
}

/// An open question of a task: a form has a schema, a sample the tokens of its answer, an authorization its link.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskQuestion {
    pub question_id: String,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The answer of `task_list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskListAnswer {
    pub tasks: Vec<TaskAnswer>,
    pub next_page_token: Option<String>,
    pub total: u64,
}

/// The answer of `task_events`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskEventsAnswer {
    pub task_id: String,
    pub events: Vec<TaskEventAnswer>,
    /// The cursor for the next page.
    pub after: u64,
    /// The number of the last event that there is.
    pub last: u64,
    /// Whether there will be no more than that.
    pub ended: bool,
}

/// One event of a task's log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskEventAnswer {
    #[schemars(range(min = 1))]
    pub seq: u64,
    #[schemars(extend("format" = "date-time"))]
    pub timestamp: String,
    #[serde(rename = "type")]
    pub kind: TaskEventKind,
    pub data: Map<String, Value>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskEventKind {
    Message,
    Status,
    Artifact,
    Progress,
    Log,
    Question,
    Answer,
    Withdrawn,
}
