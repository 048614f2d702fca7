//! Webhooks and their failed deliveries: lists, replays, discards and removals.

use nuncio_engine::{
    AccessKind, Action,
    access::HOME_TENANT,
    admin::{ADMIN_WEBHOOKS, DeliveryAct, DeliveryActResult, DeliveryList, FailedDeliveryView, WebhookView},
    clock::Timestamp,
    store::{FailedDeliveryCursor, TaskNo},
};
use nuncio_wire::timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::ConsoleRequest,
    problem::ConsoleProblem,
    tasks::{MAX_ROWS, ROWS},
};
use crate::push::public_reason;

/// `GET /deliveries`
pub(super) async fn list(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&["state", "owner", "limit", "cursor"])?;
    let state = request.parameter("state")?.unwrap_or("retrying");
    let dead = match state {
        "retrying" => false,
        "dead" => true,
        other => {
            let message = format!("state: expected retrying or dead, got {other:?}");
            return Err(ConsoleProblem::bad_request("state", message));
        }
    };
    let limit = request.number("limit", MAX_ROWS)?.unwrap_or(ROWS);
    if limit == 0 {
        let message = format!("limit: a page has 1 to {MAX_ROWS} deliveries");
        return Err(ConsoleProblem::bad_request("limit", message));
    }
    let after = request.parameter("cursor")?.map(|cursor| read_cursor(cursor, state)).transpose()?;
    let owner = request.parameter("owner")?.filter(|owner| !owner.is_empty()).map(str::to_owned);
    let list = DeliveryList { dead, owner, after, limit: limit as usize };
    let page = request.engine().failed_deliveries(&request.caller, list).await?;
    Ok(json!({
        "deliveries": page.deliveries.iter().map(|failed| delivery(request, failed, dead)).collect::<Vec<_>>(),
        "next": page.next.map(|next| write_cursor(&next, state)),
        "own": page.own,
        "now": request.now(),
    }))
}

/// `GET /tasks/{id}/webhooks`
pub(super) async fn of_task(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let found = request.engine().webhook_views(&request.caller, id).await?;
    Ok(json!({
        "webhooks": found.iter().map(|found| webhook(request, found)).collect::<Vec<_>>(),
        "now": request.now(),
    }))
}

/// `DELETE /tasks/{id}/webhooks/{webhook}`
pub(super) async fn remove(
    request: &ConsoleRequest<'_>,
    id: &str,
    webhook: &str,
) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    match request.engine().remove_webhook(&request.caller, id, webhook).await? {
        true => Ok(json!({ "taskId": id, "webhookId": webhook, "deleted": true })),
        false => Err(ConsoleProblem::not_found("the task has no webhook of that id")),
    }
}

/// Deliveries by their ids.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct NamedDeliveries {
    ids: Vec<String>,
}

/// `POST /deliveries/replay` and `POST /deliveries/discard`
pub(super) async fn act(
    request: &ConsoleRequest<'_>,
    act: DeliveryAct,
    named: NamedDeliveries,
) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    if named.ids.is_empty() {
        return Err(ConsoleProblem::bad_request("ids", "ids: name at least one delivery"));
    }
    let results = request.engine().act_on_deliveries(&request.caller, act, &named.ids).await;
    let results = results.map_err(|error| ConsoleProblem::from(error).in_field("ids"))?;
    let name = |result: &DeliveryActResult| match result {
        DeliveryActResult::Done => "done",
        DeliveryActResult::Unchanged => "unchanged",
        DeliveryActResult::NotFound => "not_found",
    };
    let done = results.iter().filter(|result| **result == DeliveryActResult::Done).count();
    let results: Vec<Value> = named
        .ids
        .iter()
        .zip(&results)
        .map(|(id, result)| json!({ "id": id, "result": name(result) }))
        .collect();
    Ok(json!({ "done": done, "results": results, "now": request.now() }))
}

fn delivery(request: &ConsoleRequest<'_>, failed: &FailedDeliveryView, dead: bool) -> Value {
    let state = match (failed.in_progress, dead, failed.due_at) {
        (true, ..) => "sending",
        (false, false, _) => "retrying",
        // A dead letter that was replayed waits for its attempt.
        (false, true, Some(_)) => "due",
        (false, true, None) => "dead",
    };
    let config = failed.webhook.as_ref();
    let task = failed.task.to_string();
    json!({
        "id": failed.id,
        "payload": format!("tasks/{task}/wire/{}?as=webhook", failed.seq),
        "taskId": task,
        "agent": failed.agent,
        "owner": failed.owner,
        "webhookId": failed.webhook_id,
        "seq": failed.seq,
        "state": state,
        "address": config.map(|config| &config.url),
        "dialect": config.map(|config| &config.dialect),
        "attempts": failed.attempts,
        "nextAt": next_at(failed.due_at, failed.in_progress),
        "reason": shown_reason(request, failed.reason.as_deref()),
        "since": failed.since.map(timestamp::format),
    })
}

fn webhook(request: &ConsoleRequest<'_>, found: &WebhookView) -> Value {
    let state = match (found.in_progress, found.attempts, found.due_at) {
        (true, ..) => "sending",
        (false, 1.., Some(_)) => "retrying",
        (false, _, Some(_)) => "due",
        (false, _, None) => "idle",
    };
    let config = found.webhook.as_ref();
    let schemes = config.and_then(|config| config.authentication.as_ref()).map(|found| &found.schemes);
    json!({
        "webhookId": found.id,
        "address": config.map(|config| &config.url),
        "dialect": config.map(|config| &config.dialect),
        "hasToken": found.has_token,
        "schemes": schemes,
        "cursor": found.cursor,
        "last": found.last,
        "state": state,
        "attempts": found.attempts,
        "nextAt": next_at(found.due_at, found.in_progress),
        "reason": shown_reason(request, found.reason.as_deref()),
        "since": found.failing_since.map(timestamp::format),
        "dead": found.dead,
    })
}

/// The time of the next attempt; that of one in progress is not known before it ends.
fn next_at(due_at: Option<Timestamp>, in_progress: bool) -> Option<String> {
    due_at.filter(|_| !in_progress).map(timestamp::format)
}

/// An error as this caller may read it: whole for administrators of the home tenant, for others what the receiver itself
/// answered. What could not be reached, and why, would describe the server's network.
fn shown_reason<'a>(request: &ConsoleRequest<'_>, reason: Option<&'a str>) -> Option<&'a str> {
    let caller = &request.caller;
    match caller.tenant() == HOME_TENANT && caller.may(Action::Read, AccessKind::Admin, ADMIN_WEBHOOKS) {
        true => reason,
        false => reason.map(public_reason),
    }
}

fn write_cursor(cursor: &FailedDeliveryCursor, state: &str) -> String {
    let FailedDeliveryCursor { at, task, hook, seq } = cursor;
    format!("{state}.{}.{}.{seq}.{hook}", at.0, task.0)
}

fn read_cursor(cursor: &str, state: &str) -> Result<FailedDeliveryCursor, ConsoleProblem> {
    let read = || {
        let mut parts = cursor.splitn(5, '.');
        if parts.next()? != state {
            return None;
        }
        let (at, task) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (seq, hook) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        Some(FailedDeliveryCursor { at: Timestamp(at), task: TaskNo(task), hook, seq })
    };
    read().ok_or_else(|| {
        ConsoleProblem::bad_request("cursor", "cursor: it is not from a page with the same state")
    })
}
