//! The view of a task in tool results: the members of `a2a://tasks/{taskId}` that the caller requested, and the
//! open questions.

use nuncio_engine::{
    Task,
    question::{Ask, Question},
};
use nuncio_wire::a2a::write_task_resource;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::api::{TaskAnswer, TaskQuestion};
use crate::resource::iso;

/// The members that are omitted unless requested.
#[derive(Clone, Copy)]
pub(super) struct TaskViewOptions {
    pub(super) history: bool,
    pub(super) artifacts: bool,
}

/// The members of `a2a://tasks/{taskId}` that are shown.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskResourceMembers {
    task_id: String,
    context_id: String,
    status: TaskResourceStatus,
    history: Vec<Map<String, Value>>,
    artifacts: Vec<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskResourceStatus {
    message: Option<Map<String, Value>>,
}

/// A task as a line of text.
pub(super) fn line(task: &Task) -> String {
    let (id, agent, state) = (task.origin.public_id(), &task.origin.agent, task.state.name());
    let asked: Vec<&str> = task.questions.iter().map(|(_, question)| question.text.as_str()).collect();
    match (&task.status_message, asked.is_empty()) {
        (_, false) => format!("task {id} of {agent} is {state}: {}", asked.join(" ")),
        (Some(message), _) => format!("task {id} of {agent} is {state}: {}", message.joined_text()),
        (None, _) => format!("task {id} of {agent} is {state}"),
    }
}

/// A task with the requested members.
pub(super) fn task(task: &Task, parts: TaskViewOptions) -> TaskAnswer {
    let mut written = Vec::new();
    write_task_resource(&mut written, task, |_| {});
    let whole: TaskResourceMembers = serde_json::from_slice(&written).unwrap_or_default();
    TaskAnswer {
        task_id: whole.task_id,
        context_id: whole.context_id,
        agent: task.origin.agent.to_string(),
        state: task.state,
        timestamp: iso(task.status_at),
        message: whole.status.message,
        questions: task.questions.iter().map(|(_, question)| open_question(question)).collect(),
        last_event: task.seq,
        history: parts.history.then_some(whole.history),
        artifacts: parts.artifacts.then_some(whole.artifacts),
    }
}

fn open_question(question: &Question) -> TaskQuestion {
    let asked = TaskQuestion {
        question_id: question.id.to_string(),
        text: question.text.clone(),
        ..TaskQuestion::default()
    };
    match &question.ask {
        Ask::Form { schema } => TaskQuestion { schema: schema.as_object().cloned(), ..asked },
        Ask::Sample { max_tokens, .. } => TaskQuestion { max_tokens: Some(*max_tokens), ..asked },
        Ask::Authorization { url } => TaskQuestion { url: Some(url.clone()), ..asked },
    }
}
