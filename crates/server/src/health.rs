//! Whether the server lives, whether it takes work, and its figures.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde_json::json;

use crate::{app::App, rpc};

/// `/healthz`: the process answers.
pub(crate) async fn alive() -> Response<Body> {
    rpc::json(r#"{"status":"ok"}"#)
}

/// `/readyz`: new work would be taken.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response<Body> {
    let stopping = *app.engine.closing().borrow();
    let reason = match stopping {
        true => Some("the server is stopping".to_owned()),
        false => app.engine.store().ready().await.err().map(|error| error.to_string()),
    };
    match reason {
        None => rpc::json(r#"{"status":"ready"}"#),
        Some(reason) => {
            let mut response = rpc::json(json!({ "status": "not ready", "reason": reason }).to_string());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            response
        }
    }
}

/// `/metrics`, for Prometheus.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response<Body> {
    let (running, queued) = app.engine.load();
    metrics::gauge!("nuncio_tasks_running").set(running as f64);
    metrics::gauge!("nuncio_tasks_queued").set(queued as f64);
    metrics::gauge!("nuncio_streams_open").set(app.open_streams() as f64);
    let text = app.options.metrics.as_ref().map(|render| render()).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
