//! Tenants, for callers with the scopes `read:admin:tenants` and `write:admin:tenants`.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Request, Response, header},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::stream;
use nuncio_engine::{
    Caller, Error, MeteredResource, TenantUsage,
    admin::{ExportCursor, ExportItem, OperatorOrder, TenantStatus},
};
use nuncio_wire::timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{answer_engine, authenticate_admin, invalid, read_body, tasks};
use crate::{
    app::{App, peer_of},
    auth::ConnectionPeer,
};

/// The version of the export format.
const FORMAT: u64 = 1;

/// A response, or the refusal of a caller that lacks the right.
type AdminResult = Result<Response<Body>, Response<Body>>;

/// `GET /admin/tenants`
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request<Body>) -> AdminResult {
    let caller = caller_of(&app, request.headers(), &peer_of(&request)).await?;
    let listed = app.engine.tenants(&caller).await;
    let measured_at = app.engine.usage().measured_at().map(timestamp::format);
    let show = |all: Vec<TenantStatus>| {
        let tenants: Vec<Value> = all.iter().map(status).collect();
        json!({ "tenants": tenants, "measuredAt": measured_at })
    };
    Ok(answer_engine(&app, listed.map(show)))
}

/// `GET /admin/tenants/{name}`
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Path(tenant): Path<String>,
    request: Request<Body>,
) -> AdminResult {
    let caller = caller_of(&app, request.headers(), &peer_of(&request)).await?;
    let measured_at = app.engine.usage().measured_at().map(timestamp::format);
    let found = app.engine.tenant(&caller, &tenant).await.map(|found| {
        let mut shown = status(&found);
        shown["measuredAt"] = measured_at.into();
        shown
    });
    Ok(answer_engine(&app, found))
}

/// The body of a suspension.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct SuspendRequest {
    reason: Option<String>,
}

/// `POST /admin/tenants/{name}/suspend`, with `{"reason": …}` or nothing.
pub(crate) async fn suspend(
    State(app): State<Arc<App>>,
    Path(tenant): Path<String>,
    request: Request<Body>,
) -> AdminResult {
    let caller = caller_of(&app, request.headers(), &peer_of(&request)).await?;
    let body = read_body(&app, request).await?;
    let SuspendRequest { reason } = match body.is_empty() {
        true => SuspendRequest::default(),
        false => serde_json::from_slice(&body)
            .map_err(|error| invalid(&app, format!("the body is not {{\"reason\": \"…\"}}: {error}")))?,
    };
    Ok(answer_status(&app, app.engine.suspend_tenant(&caller, &tenant, reason).await))
}

/// `POST /admin/tenants/{name}/resume`
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Path(tenant): Path<String>,
    request: Request<Body>,
) -> AdminResult {
    let caller = caller_of(&app, request.headers(), &peer_of(&request)).await?;
    Ok(answer_status(&app, app.engine.resume_tenant(&caller, &tenant).await))
}

/// `POST /admin/tenants/{name}/erase`
pub(crate) async fn erase(
    State(app): State<Arc<App>>,
    Path(tenant): Path<String>,
    request: Request<Body>,
) -> AdminResult {
    let caller = caller_of(&app, request.headers(), &peer_of(&request)).await?;
    Ok(answer_status(&app, app.engine.erase_tenant(&caller, &tenant).await))
}

/// Authenticates the administrator.
async fn caller_of(app: &App, headers: &HeaderMap, peer: &ConnectionPeer) -> Result<Caller, Response<Body>> {
    authenticate_admin(app, headers, peer, "/admin/tenants").await
}

fn answer_status(app: &App, found: Result<TenantStatus, Error>) -> Response<Body> {
    answer_engine(app, found.map(|found| status(&found)))
}

/// `GET /admin/tenants/{name}/export`: one JSON object per line. A file without the last line,
/// `{"type":"end"}`, is incomplete.
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    Path(tenant): Path<String>,
    request: Request<Body>,
) -> AdminResult {
    let caller = caller_of(&app, request.headers(), &peer_of(&request)).await?;
    if let Err(error) = app.engine.allow_export(&caller, &tenant) {
        return Err(answer_engine(&app, Err(error)));
    }
    let at = timestamp::format(app.engine.clock().now());
    let first = json!({ "type": "nuncio-export", "format": FORMAT, "tenant": tenant, "at": at });
    let state = (Some(line(&first)), Some(ExportCursor::start()), 0_u64);
    let lines = stream::unfold((app, caller, tenant, state), |(app, caller, tenant, state)| async move {
        let (first, at, mut count) = state;
        if let Some(first) = first {
            return Some((Ok::<_, Infallible>(Bytes::from(first)), (app, caller, tenant, (None, at, count))));
        }
        let page = match app.engine.export_page(&caller, &tenant, at?).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, tenant, "a tenant export failed; the file is incomplete");
                return None;
            }
        };
        count += page.items.len() as u64;
        let mut out: Vec<u8> = page.items.iter().flat_map(|one| line(&item(one))).collect();
        if page.next.is_none() {
            out.extend(line(&json!({ "type": "end", "items": count })));
        }
        Some((Ok(out.into()), (app, caller, tenant, (None, page.next, count))))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn line(value: &Value) -> Vec<u8> {
    let mut out = value.to_string().into_bytes();
    out.push(b'\n');
    out
}

fn item(item: &ExportItem) -> Value {
    match item {
        ExportItem::Task(task) => {
            let mut shown = tasks::task_json(&task.0, &task.1);
            shown["type"] = "task".into();
            shown
        }
        ExportItem::Memory { namespace, entry } => json!({
            "type": "memory",
            "namespace": namespace,
            "key": entry.key,
            "value": serde_json::from_str::<Value>(&entry.value).unwrap_or_else(|_| entry.value.as_str().into()),
            "version": entry.version,
            "createdAt": timestamp::format(entry.created_at),
            "updatedAt": timestamp::format(entry.updated_at),
            "ttlMs": entry.ttl_ms,
        }),
        ExportItem::Record(found) => {
            let mut shown = json!({
                "type": "record",
                "kind": found.kind,
                "id": found.record.id,
                "version": found.record.version,
                "updatedAt": timestamp::format(found.record.updated_at),
                "expiresAt": found.expires_at.map(timestamp::format),
            });
            match serde_json::from_slice::<Value>(&found.record.body) {
                Ok(body) => shown["body"] = body,
                Err(_) => shown["bodyBase64"] = BASE64_STANDARD.encode(&found.record.body).into(),
            }
            shown
        }
    }
}

fn status(found: &TenantStatus) -> Value {
    let mut shown = match &found.order {
        Some(about) => order(about),
        None => json!({ "state": "active" }),
    };
    shown["tenant"] = found.tenant.as_str().into();
    shown["usage"] = usage(&found.usage);
    shown
}

/// The usage of a tenant, by resource.
fn usage(usage: &TenantUsage) -> Value {
    let amount = |resource: MeteredResource| (member(resource.name()), usage.of(resource).into());
    let mut shown: Map<String, Value> = MeteredResource::ALL.into_iter().map(amount).collect();
    shown.insert("callers".into(), usage.owners.into());
    shown.into()
}

/// The name of a resource as a JSON member: `stored-bytes` is `storedBytes`.
fn member(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |member, word| {
        let (initial, rest) = word.split_at(1.min(word.len()));
        member + &initial.to_ascii_uppercase() + rest
    })
}

/// Renders an operator's order as JSON.
pub fn order(order: &OperatorOrder) -> Value {
    json!({
        "state": order.state.name(),
        "since": timestamp::format(order.at),
        "by": order.by,
        "reason": order.reason,
        "done": order.done,
        "counts": order.counts,
    })
}
