//! Selections: a set of tasks frozen with its count, and acts on all of them, each of which is a batch of its caller.

use axum::http::StatusCode;
use nuncio_engine::{
    engine::{OverviewQuery, Selection},
    surface::{HandlerError, HandlerReply, HandlerRequest},
};
use nuncio_wire::timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    api::ConsoleRequest,
    problem::ConsoleProblem,
    tasks::{self, Filter},
};

/// The tool that begins a batch. Whether there is one is the embedder's choice.
const SUBMIT: &str = "batch_submit";

/// What to select: the filter of a list of tasks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct NewSelection {
    filter: SelectionFilter,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct SelectionFilter {
    #[serde(default)]
    state: Vec<String>,
    #[serde(default)]
    agent: Vec<String>,
    owner: Option<String>,
    context: Option<String>,
    #[serde(default)]
    roots: bool,
    since: Option<String>,
    before: Option<String>,
    id: Option<String>,
}

/// `POST /selections`
pub(super) async fn create(
    request: &ConsoleRequest<'_>,
    wanted: NewSelection,
) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let SelectionFilter { state, agent, owner, context, roots, since, before, id } = wanted.filter;
    let query: OverviewQuery = Filter {
        states: state.iter().map(String::as_str).collect(),
        agents: agent.iter().map(String::as_str).collect(),
        owner: owner.as_deref(),
        context: context.as_deref(),
        roots,
        since: since.as_deref(),
        before: before.as_deref(),
        id: id.as_deref(),
    }
    .query(request, 1)?;
    let created = request.engine().create_selection(&request.caller, &query).await;
    let (selection, examples) = created.map_err(|error| ConsoleProblem::from(error).in_field("filter"))?;
    let mut shown = view(request, &selection);
    shown["examples"] = examples.iter().map(tasks::row).collect();
    Ok(shown)
}

/// `GET /selections/{id}`
pub(super) async fn show(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    Ok(view(request, &find(request, id).await?))
}

async fn find(request: &ConsoleRequest<'_>, id: &str) -> Result<Selection, ConsoleProblem> {
    let found = request.engine().selection(&request.caller, id).await?;
    found.ok_or_else(|| {
        ConsoleProblem::not_found("there is no such selection, or it has expired: select the tasks again")
    })
}

fn view(request: &ConsoleRequest<'_>, selection: &Selection) -> Value {
    json!({
        "id": selection.id,
        "count": selection.tasks.len(),
        "asOf": timestamp::format(selection.as_of),
        "expires": timestamp::format(selection.expires_at),
        "now": request.now(),
    })
}

/// What the caller was shown: an act on another number of tasks is none that it wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct SeenCount {
    count: usize,
}

/// `POST /selections/{id}/cancel` and `POST /selections/{id}/rerun`
pub(super) async fn act(
    request: &ConsoleRequest<'_>,
    id: &str,
    act: &'static str,
    seen: &SeenCount,
) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let selection = find(request, id).await?;
    let count = selection.tasks.len();
    if count != seen.count {
        let message = format!("the selection has {count} tasks, not {}: look at it again", seen.count);
        return Err(ConsoleProblem::new(StatusCode::CONFLICT, "count_differs", message).with("count", count));
    }
    let Some(tool) = request.engine().catalog().surface().tool(SUBMIT) else {
        return Err(ConsoleProblem::not_found("this server has no batches, and an act on many tasks is one"));
    };
    let operation = json!({
        "id": act,
        "type": format!("task.{act}"),
        "args": { "selection": id },
        // What fails because the server is busy is tried again.
        "retries": 3,
    });
    let arguments = Map::from_iter([
        ("operations".to_owned(), json!([operation])),
        // The gain of doing several at once is of no interest here, and measuring it takes time.
        ("sequentialSample".to_owned(), json!(0)),
    ]);
    let said = tool.handler.call(HandlerRequest::new(request.caller.clone(), arguments)).await;
    let begun = match said.map_err(refused)? {
        HandlerReply::Done(output) if !output.is_error => output.structured.unwrap_or_default(),
        HandlerReply::Done(output) => {
            let why = output.structured.as_ref().and_then(|said| said["reason"].as_str());
            let message = format!("the batch was not begun: {}", why.unwrap_or("it was rejected"));
            return Err(ConsoleProblem::new(StatusCode::CONFLICT, "rejected", message));
        }
        _ => {
            let message = "the batch was not begun: its tool asks for something";
            return Err(ConsoleProblem::new(StatusCode::CONFLICT, "rejected", message));
        }
    };
    Ok(json!({
        "batchId": begun["batchId"],
        "taskId": begun["batchId"],
        "count": count,
        "waiting": begun["waiting"],
        "now": request.now(),
    }))
}

/// Why the tool refused.
fn refused(error: HandlerError) -> ConsoleProblem {
    let message = error.to_string();
    match error {
        HandlerError::Forbidden(scope) | HandlerError::NotOperator(scope) => {
            ConsoleProblem::new(StatusCode::FORBIDDEN, "scope_missing", message).with("scope", scope)
        }
        HandlerError::Later { retry_after, too_fast: true, .. } => {
            ConsoleProblem::new(StatusCode::TOO_MANY_REQUESTS, "too_fast", message).retry(retry_after)
        }
        HandlerError::Later { retry_after, .. } => {
            ConsoleProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry(retry_after)
        }
        HandlerError::Internal(_) => {
            tracing::error!(message, "a batch of the console could not be begun");
            ConsoleProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
        }
        HandlerError::Failed(_)
        | HandlerError::Invalid(_)
        | HandlerError::NotFound(_)
        | HandlerError::Needs(_) => ConsoleProblem::new(StatusCode::CONFLICT, "rejected", message),
    }
}
