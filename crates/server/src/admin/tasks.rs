//! Tasks of any tenant, for callers with the scopes `read:admin:tasks` and `write:admin:tasks`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{Request, Response},
};
use nuncio_engine::{
    Answer, Task,
    access::tenant_of,
    admin::{AdminList, AdminTask},
    task::State as TaskState,
};
use nuncio_wire::{
    a2a::{Dialect, TaskDetail},
    timestamp,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{answer_engine, authenticate_admin, invalid};
use crate::app::{App, peer_of};

/// Default tasks per page.
const USUAL: usize = 50;

/// The query of a task list, or of one task.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AdminTaskQuery {
    tenant: Option<String>,
    owner: Option<String>,
    state: Option<String>,
    agent: Option<String>,
    #[serde(default)]
    live: bool,
    page_token: Option<String>,
    page_size: Option<usize>,
}

/// `GET /admin/tasks?tenant=…&owner=…&state=…&agent=…&live=true&pageSize=…&pageToken=…`
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let caller = match authenticate_admin(&app, request.headers(), &peer_of(&request), "/admin/tasks").await {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let filter: AdminTaskQuery = match Query::try_from_uri(request.uri()) {
        Ok(Query(filter)) => filter,
        Err(error) => return invalid(&app, error.body_text()),
    };
    let state = match filter.state.as_deref().map(|name| state_named(name).ok_or(name)).transpose() {
        Ok(state) => state,
        Err(name) => {
            let names = TaskState::ALL.map(state_name).join(", ");
            return invalid(&app, format!("state: {name:?} is none of {names}"));
        }
    };
    let list = AdminList {
        tenant: filter.tenant,
        owner: filter.owner,
        live: filter.live,
        state,
        agent: filter.agent,
        page_token: filter.page_token,
        page_size: filter.page_size.unwrap_or(USUAL),
    };
    let listed = app.engine.admin_list(&caller, list).await;
    answer_engine(
        &app,
        listed.map(|page| {
            let tasks: Vec<Value> = page.tasks.iter().map(summary).collect();
            json!({ "tasks": tasks, "nextPageToken": page.next_page_token })
        }),
    )
}

/// `GET /admin/tasks/{id}`
pub(crate) async fn get(app: State<Arc<App>>, id: Path<String>, request: Request<Body>) -> Response<Body> {
    on_task(app, id, request, AdminTaskAction::Get).await
}

/// `POST /admin/tasks/{id}/cancel`
pub(crate) async fn cancel(app: State<Arc<App>>, id: Path<String>, request: Request<Body>) -> Response<Body> {
    on_task(app, id, request, AdminTaskAction::Cancel).await
}

/// The query of an authorization: which one, and how it is answered.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorizationQuery {
    tenant: Option<String>,
    question: Option<String>,
    #[serde(default)]
    answer: AuthorizationAnswer,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum AuthorizationAnswer {
    #[default]
    Accept,
    Decline,
}

/// `POST /admin/tasks/{id}/authorize?tenant=…&question=…&answer=accept|decline`: answers the authorization that a task
/// waits for.
pub(crate) async fn authorize(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let caller = match authenticate_admin(&app, request.headers(), &peer_of(&request), "/admin/tasks").await {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let query: AuthorizationQuery = match Query::try_from_uri(request.uri()) {
        Ok(Query(query)) => query,
        Err(error) => return invalid(&app, error.body_text()),
    };
    let answer = match query.answer {
        AuthorizationAnswer::Accept => Answer::Accept(json!({})),
        AuthorizationAnswer::Decline => Answer::Decline(None),
    };
    let (tenant, question) = (query.tenant.as_deref(), query.question.as_deref());
    let done = app.engine.admin_authorize(&caller, tenant, &id, question, &answer).await;
    answer_engine(&app, done.map(|(about, task)| task_json(&about, &task)))
}

/// `DELETE /admin/tasks/{id}`
pub(crate) async fn delete(app: State<Arc<App>>, id: Path<String>, request: Request<Body>) -> Response<Body> {
    on_task(app, id, request, AdminTaskAction::Delete).await
}

enum AdminTaskAction {
    Get,
    Cancel,
    Delete,
}

async fn on_task(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request<Body>,
    deed: AdminTaskAction,
) -> Response<Body> {
    let caller = match authenticate_admin(&app, request.headers(), &peer_of(&request), "/admin/tasks").await {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let filter: AdminTaskQuery = match Query::try_from_uri(request.uri()) {
        Ok(Query(filter)) => filter,
        Err(error) => return invalid(&app, error.body_text()),
    };
    let (engine, tenant) = (&app.engine, filter.tenant.as_deref());
    let done = match deed {
        AdminTaskAction::Get => {
            engine.admin_get(&caller, tenant, &id).await.map(|(about, task)| task_json(&about, &task))
        }
        AdminTaskAction::Cancel => {
            engine.admin_cancel(&caller, tenant, &id).await.map(|(about, task)| task_json(&about, &task))
        }
        AdminTaskAction::Delete => engine.admin_delete(&caller, tenant, &id).await.map(|about| {
            let mut shown = summary(&about);
            shown["deleted"] = true.into();
            shown
        }),
    };
    answer_engine(&app, done)
}

/// The metadata of a task, without its content.
pub(super) fn summary(task: &AdminTask) -> Value {
    json!({
        "id": task.id.to_string(),
        "tenant": tenant_of(&task.owner),
        "owner": task.owner,
        "agent": task.agent,
        "contextId": task.context,
        "parent": task.parent.map(|parent| parent.to_string()),
        "state": state_name(task.state),
        "statusAt": timestamp::format(task.status_at),
        "createdAt": timestamp::format(task.created_at),
        "canceling": task.cancel && !task.state.is_terminal(),
        "token": task.credential,
    })
}

/// The metadata with the task as in A2A 1.0.
pub(super) fn task_json(about: &AdminTask, task: &Task) -> Value {
    let mut out = Vec::with_capacity(1024);
    Dialect::V1.write_task(&mut out, task, TaskDetail { history_length: None, artifacts: true });
    let mut shown = summary(about);
    // Cannot fail: this server has just written the JSON.
    shown["task"] = serde_json::from_slice(&out).unwrap_or_default();
    shown
}

fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::InputRequired => "input-required",
        TaskState::AuthRequired => "auth-required",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::Rejected => "rejected",
        TaskState::Replied => "replied",
    }
}

fn state_named(name: &str) -> Option<TaskState> {
    TaskState::ALL.into_iter().find(|state| state_name(*state) == name)
}
