//! The JSON view of a task in tool results: the members of `a2a://tasks/{taskId}` that the caller requested,
//! and the open questions.

use nuncio_engine::{
    Task,
    question::{Ask, Question},
    task::State,
};
use nuncio_wire::a2a::write_task_resource;
use serde_json::{Map, Value, json};

/// The members that are omitted unless requested.
#[derive(Clone, Copy)]
pub(super) struct TaskViewOptions {
    pub(super) history: bool,
    pub(super) artifacts: bool,
}

/// The name of a state.
pub(super) fn state_name(state: State) -> Value {
    // A variant without fields: serialization cannot fail.
    serde_json::to_value(state).unwrap_or_default()
}

/// The names of all states.
pub(super) fn state_names() -> Value {
    State::ALL.iter().map(|state| state_name(*state)).collect()
}

/// A task as a line of text.
pub(super) fn line(task: &Task) -> String {
    let (id, agent) = (task.origin.public_id(), &task.origin.agent);
    let state = state_name(task.state);
    let state = state.as_str().unwrap_or_default();
    let asked: Vec<&str> = task.questions.iter().map(|(_, question)| question.text.as_str()).collect();
    match (&task.status_message, asked.is_empty()) {
        (_, false) => format!("task {id} of {agent} is {state}: {}", asked.join(" ")),
        (Some(message), _) => format!("task {id} of {agent} is {state}: {}", message.joined_text()),
        (None, _) => format!("task {id} of {agent} is {state}"),
    }
}

/// A task as JSON, in the format of its schema.
pub(super) fn task(task: &Task, parts: TaskViewOptions) -> Value {
    let mut written = Vec::new();
    write_task_resource(&mut written, task, |_| {});
    let mut whole: Map<String, Value> = serde_json::from_slice(&written).unwrap_or_default();
    let mut shown = Map::new();
    for member in ["taskId", "contextId"] {
        shown.insert(member.into(), whole.remove(member).unwrap_or_default());
    }
    shown.insert("agent".into(), json!(task.origin.agent));
    let mut status = whole.remove("status").unwrap_or_default();
    for member in ["state", "timestamp", "message"] {
        shown.insert(member.into(), status[member].take());
    }
    shown.insert(
        "questions".into(),
        task.questions.iter().map(|(_, question)| question_json(question)).collect(),
    );
    shown.insert("lastEvent".into(), json!(task.seq));
    for (wanted, member) in [(parts.history, "history"), (parts.artifacts, "artifacts")] {
        if wanted {
            shown.insert(member.into(), whole.remove(member).unwrap_or_default());
        }
    }
    Value::Object(shown)
}

fn question_json(question: &Question) -> Value {
    let mut asked = json!({ "questionId": question.id, "text": question.text });
    match &question.ask {
        Ask::Form { schema } => asked["schema"] = schema.clone(),
        Ask::Sample { max_tokens, .. } => asked["maxTokens"] = json!(max_tokens),
        Ask::Authorization { url } => asked["url"] = json!(url),
    }
    asked
}

/// The schema of a task.
pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "taskId": { "type": "string" },
            "contextId": { "type": "string" },
            "agent": { "type": "string" },
            "state": { "enum": state_names() },
            "timestamp": { "type": "string", "format": "date-time" },
            "message": { "type": ["object", "null"] },
            "questions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "questionId": { "type": "string" },
                        "text": { "type": "string" },
                        "schema": { "type": "object" },
                        "maxTokens": { "type": "integer" },
                        "url": { "type": "string" },
                    },
                    "required": ["questionId", "text"],
                    "additionalProperties": false,
                },
            },
            "lastEvent": { "type": "integer", "minimum": 0 },
            "history": { "type": "array", "items": { "type": "object" } },
            "artifacts": { "type": "array", "items": { "type": "object" } },
        },
        "required": [
            "taskId", "contextId", "agent", "state", "timestamp", "message", "questions", "lastEvent",
        ],
        "additionalProperties": false,
    })
}
