//! The endpoints for liveness, readiness and metrics.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Request, Response, StatusCode, header},
};
use nuncio_engine::{AccessKind, AccessRequest, Action, MeteredResource, TenantUsage};
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
    match not_ready_reason(&app).await {
        None => responses::json(r#"{"status":"ready"}"#),
        Some(reason) => {
            let mut response =
                responses::json(json!({ "status": "not ready", "reason": reason }).to_string());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            response
        }
    }
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
    let (action, kind, operation) = (Action::Read, AccessKind::Admin, "metrics.read");
    let access = AccessRequest { action, kind, name: "metrics", operation, resource: &"/metrics" };
    if let Err(error) = app.engine.allow(&caller, &access) {
        return admin::refused(&app, &error);
    }
    let (running, queued) = app.engine.load();
    metrics::gauge!("nuncio_tasks_running").set(running as f64);
    metrics::gauge!("nuncio_tasks_queued").set(queued as f64);
    metrics::gauge!("nuncio_streams_open").set(app.open_streams() as f64);
    set_usage(&app.engine.usage_report());
    let text = app.options.metrics.as_ref().map(|render| render()).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Usage by resource: of all tenants together, and of the largest one. Tenants have no label of their own:
/// callers could create as many time series as there are names.
fn set_usage(report: &[TenantUsage]) {
    for resource in MeteredResource::ALL {
        let amounts = || report.iter().map(|tenant| tenant.of(resource));
        let name = resource.name();
        metrics::gauge!("nuncio_usage", "resource" => name).set(amounts().sum::<u64>() as f64);
        let most = amounts().max().unwrap_or_default();
        metrics::gauge!("nuncio_usage_largest_tenant", "resource" => name).set(most as f64);
    }
}
