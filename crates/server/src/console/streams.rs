//! The open streams and sessions of this node: who reads what, and how far. Callers see their own; administrators those of
//! their tenant, and the operator all.

use nuncio_engine::{
    AccessKind, AccessRequest, Action, Caller,
    access::{HOME_TENANT, tenant_of},
    admin::ADMIN_TASKS,
};
use nuncio_wire::timestamp;
use serde_json::{Value, json};

use super::{api::ConsoleRequest, problem::ConsoleProblem};
use crate::{mcp::SessionView, open_streams::StreamView};

/// The streams, and the sessions, of one answer (`console.streams`): by default, and at most.
const STREAMS: u64 = 200;
pub(super) const MAX_STREAMS: u64 = 1000;

/// `GET /streams`
pub(super) fn list(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&["owner", "limit"])?;
    let limit = request.number("limit", MAX_STREAMS)?.unwrap_or(STREAMS) as usize;
    let all = match request.parameter("owner")? {
        None => false,
        Some("all") => true,
        Some(_) => return Err(ConsoleProblem::bad_request("owner", "owner: expected all, or nothing")),
    };
    allow(request, all, "stream.list", "a2a://streams/")?;
    let caller = &request.caller;
    let seen = |owner: &str| caller.sees(owner) || (all && administers(caller, owner));
    let mut streams = request.app.streams().views(seen);
    streams.sort_by(|a, b| b.id.cmp(&a.id));
    let mut sessions = request.app.mcp.session_views(seen);
    sessions.sort_by(|a, b| a.id.cmp(&b.id));
    let totals = (streams.len(), sessions.len());
    streams.truncate(limit);
    sessions.truncate(limit);
    Ok(json!({
        "streams": streams.iter().map(stream_view).collect::<Vec<_>>(),
        "sessions": sessions.iter().map(session_view).collect::<Vec<_>>(),
        "totalStreams": totals.0,
        "totalSessions": totals.1,
        "node": request.engine().node().0.to_string(),
        "now": request.now(),
    }))
}

/// `GET /tasks/{id}/followers`
pub(super) async fn followers(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    // Refused as the task itself is, if the caller may not see that.
    let reader = request.reader_of(id).await?;
    let summary = request.engine().task_summary(&reader, id).await?;
    let (own_id, public_id) = (summary.origin.id.to_string(), summary.origin.public_id());
    let caller = &request.caller;
    let all = caller.may(Action::Read, AccessKind::Admin, ADMIN_TASKS);
    let streams =
        request.app.streams().views(|owner| caller.sees(owner) || (all && administers(caller, owner)));
    let mut followers = vec![];
    for stream in &streams {
        // An id that a client chose is one of its owner's.
        let is_this =
            |task: &str| task == own_id || (task == public_id && stream.owner == summary.origin.owner);
        let Some((_, cursor)) = stream.cursors.iter().find(|(task, _)| is_this(task)) else { continue };
        let mut view = stream_view(stream);
        view["cursor"] = json!(cursor);
        view["behind"] = json!(summary.seq.saturating_sub(*cursor));
        followers.push(view);
    }
    let total = followers.len();
    followers.truncate(MAX_STREAMS as usize);
    Ok(json!({
        "taskId": own_id,
        "last": summary.seq,
        "followers": followers,
        "total": total,
        "node": request.engine().node().0.to_string(),
        "now": request.now(),
    }))
}

fn allow(
    request: &ConsoleRequest<'_>,
    all: bool,
    operation: &'static str,
    resource: &str,
) -> Result<(), ConsoleProblem> {
    let (kind, name) = match all {
        true => (AccessKind::Admin, ADMIN_TASKS),
        false => (AccessKind::A2a, "streams"),
    };
    let access = AccessRequest { action: Action::Read, kind, name, operation, resource: &resource };
    Ok(request.engine().allow(&request.caller, &access)?)
}

/// Whether an administrator reaches what belongs to that owner.
fn administers(caller: &Caller, owner: &str) -> bool {
    caller.tenant() == HOME_TENANT || caller.tenant() == tenant_of(owner)
}

fn caller_view(owner: &str) -> Value {
    let name = owner.split_once('/').map_or(owner, |(_, name)| name);
    json!({ "name": name, "tenant": tenant_of(owner) })
}

fn stream_view(stream: &StreamView) -> Value {
    let tasks: Vec<Value> =
        stream.cursors.iter().map(|(task, cursor)| json!({ "taskId": task, "cursor": cursor })).collect();
    json!({
        "streamId": stream.id,
        "caller": caller_view(&stream.owner),
        "protocol": stream.kind,
        "client": stream.client,
        "connection": stream.connection,
        "startedAt": timestamp::format(stream.started),
        "events": stream.events,
        "lastEvent": stream.last.as_ref().map(|(kind, _)| kind),
        "lastEventAt": stream.last.as_ref().map(|(_, at)| timestamp::format(*at)),
        "tasks": tasks,
    })
}

fn session_view(session: &SessionView) -> Value {
    json!({
        "sessionId": session.id,
        "caller": caller_view(&session.owner),
        "protocol": format!("mcp/{}", session.version),
        "client": session.client,
        "streams": session.streams,
        "subscriptions": session.subscriptions,
    })
}
