//! Forks: a new task with the log of another one up to a question, and with another answer.

use axum::http::StatusCode;
use nuncio_engine::{Fork, ForkError, ForkPoint};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::ConsoleRequest,
    problem::ConsoleProblem,
    questions::{AnswerAction, answer_of},
};

/// Where to fork, and with which answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct NewFork {
    at: u64,
    answer: Option<ForkAnswer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ForkAnswer {
    action: AnswerAction,
    content: Option<Value>,
    note: Option<String>,
}

/// `POST /tasks/{id}/fork`
pub(super) async fn create(
    request: &ConsoleRequest<'_>,
    id: &str,
    wanted: NewFork,
) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let NewFork { at, answer } = wanted;
    let answer =
        answer.map(|given| answer_of(given.action, given.content, given.note.as_deref())).transpose()?;
    let fork = Fork { task: id.to_owned(), at, answer };
    let forked = request.engine().fork(&request.caller, &fork).await.map_err(|error| match error {
        ForkError::Engine(error) => error.into(),
        ForkError::Refused(refusal) => {
            ConsoleProblem::new(StatusCode::CONFLICT, "cannot_fork", refusal.to_string())
        }
    })?;
    Ok(json!({
        "taskId": forked.task.origin.id.to_string(),
        "state": forked.task.state.name(),
        "lastEvent": forked.task.seq,
        "forkedFrom": point_view(forked.forked_from),
    }))
}

/// The point at which a task was forked off another one, as JSON.
pub(super) fn point_view(point: ForkPoint) -> Value {
    json!({ "taskId": point.task.to_string(), "at": point.at })
}
