//! The endpoints for liveness, readiness and metrics.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Method, Request, Response, StatusCode, header},
};
use nuncio_engine::{AccessKind, AccessRequest, Action, Caller, Error, MeteredResource, TenantUsage, metric};
use serde_json::json;

use crate::{
    admin,
    app::{App, peer_of},
    responses,
};

/// `/healthz`: the process is alive.
pub(crate) async fn alive() -> Response<Body> {
    responses::json(r#"{"status":"ok"}"#)
}

/// `/readyz`: the server accepts new work.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response<Body> {
    readiness(not_ready_reason(&app).await)
}

/// `/healthz` and `/readyz` for a request that names none of this server's hosts, as probes of orchestrators do. A page may
/// have sent it through a name of its own, so the reason has no details of this machine. `None`: it asks for something else,
/// or its `Origin` says that it is a page's.
pub(crate) async fn answer_any_host<B>(app: &App, request: &Request<B>) -> Option<Response<Body>> {
    if request.headers().contains_key(header::ORIGIN) {
        return None;
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => Some(alive().await),
        (&Method::GET, "/readyz") => {
            let stopping = *app.engine.closing().borrow();
            let reason = if stopping { "the server is stopping" } else { "the store takes no new work" };
            Some(readiness(not_ready_reason(app).await.map(|_| reason.to_owned())))
        }
        _ => None,
    }
}

fn readiness(reason: Option<String>) -> Response<Body> {
    let Some(reason) = reason else { return responses::json(r#"{"status":"ready"}"#) };
    let mut response = responses::json(json!({ "status": "not ready", "reason": reason }).to_string());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Why the server takes no new work; `None` if it does.
pub(crate) async fn not_ready_reason(app: &App) -> Option<String> {
    let stopping = *app.engine.closing().borrow();
    match stopping {
        true => Some("the server is stopping".to_owned()),
        false => app.engine.ready().await.err().map(|error| error.to_string()),
    }
}

/// `/metrics`, for Prometheus. With authentication, only for callers with the right to read it.
pub(crate) async fn metrics(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let caller = match app.caller(request.headers(), &peer_of(&request), "/metrics").await {
        Ok(caller) => caller,
        Err(error) => return app.challenge.refusal("", &error),
    };
    if let Err(error) = allow_metrics(&app, &caller) {
        return admin::refused(&app, &error);
    }
    set_gauges(&app).await;
    let text = app.options.metrics.as_ref().map(|render| render()).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn allow_metrics(app: &App, caller: &Caller) -> Result<(), Error> {
    let (action, kind, operation) = (Action::Read, AccessKind::Admin, "metrics.read");
    let access = AccessRequest { action, kind, name: "metrics", operation, resource: &"/metrics" };
    app.engine.allow(caller, &access)
}

/// Sets the gauges that are read from memory. Those of the store are read at an interval, whoever scrapes.
async fn set_gauges(app: &App) {
    let (running, queued) = app.engine.load();
    metric::TASKS_RUNNING.gauge(&[]).set(running as f64);
    metric::TASKS_QUEUED.gauge(&[]).set(queued as f64);
    metric::LEASES_HELD.gauge(&[]).set(app.engine.leases_held() as f64);
    metric::STREAMS_OPEN.gauge(&[]).set(app.open_streams() as f64);
    metric::READY.gauge(&[]).set(f64::from(u8::from(not_ready_reason(app).await.is_none())));
    set_usage(&app.engine.usage_report());
}

/// Usage by resource: of all tenants together, and of the largest one. Tenants have no label of their own:
/// callers could create as many time series as there are names.
fn set_usage(report: &[TenantUsage]) {
    for resource in MeteredResource::ALL {
        let amounts = || report.iter().map(|tenant| tenant.of(resource));
        let name = resource.name();
        metric::USAGE.gauge(&[name]).set(amounts().sum::<u64>() as f64);
        let most = amounts().max().unwrap_or_default();
        metric::USAGE_LARGEST_TENANT.gauge(&[name]).set(most as f64);
    }
}
