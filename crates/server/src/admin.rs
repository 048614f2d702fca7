//! What the operator's own commands ask a running server: they show a secret that only the data folder has.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Request, Response, StatusCode, header},
};
use nuncio_engine::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::{
    app::App,
    gate::{self, Refusal},
    rpc,
};

/// Dead letters that one answer shows.
const MOST: usize = 1000;

/// `GET /admin/dead-letters`
pub(crate) async fn dead_letters(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    if let Some(refused) = refuse_stranger(&app, &headers) {
        return refused;
    }
    match app.engine.store().dead_letters(MOST).await {
        Ok(letters) => rpc::json(json!({ "deadLetters": letters }).to_string()),
        Err(error) => failed(&error),
    }
}

/// `POST /admin/dead-letters/replay` with `{"delivery": id}`, or `{}` for all.
pub(crate) async fn replay(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    if let Some(refused) = refuse_stranger(&app, request.headers()) {
        return refused;
    }
    let limits = &app.options.limits;
    let (parts, body) = request.into_parts();
    let body = match gate::read_body(&parts.headers, body, limits.max_body_bytes, limits.body_timeout).await {
        Ok(body) => body,
        Err(refusal) => return rpc::refuse(&refusal),
    };
    let Ok(wish) = serde_json::from_slice::<Value>(&body) else {
        return rpc::refuse(&Refusal {
            status: StatusCode::BAD_REQUEST,
            message: "the body is not JSON".into(),
        });
    };
    let now = SystemClock.now();
    match app.engine.store().replay_dead_letters(wish["delivery"].as_str(), now).await {
        Ok(replayed) => {
            app.engine.outbox().notify_one();
            rpc::json(json!({ "replayed": replayed }).to_string())
        }
        Err(error) => failed(&error),
    }
}

fn refuse_stranger(app: &App, headers: &HeaderMap) -> Option<Response<Body>> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer "));
    let (status, message) = match (&app.options.admin_token, shown) {
        (Some(token), Some(shown)) if same(token, shown) => return None,
        (None, _) => (StatusCode::NOT_FOUND, "there is nothing here"),
        _ => (StatusCode::UNAUTHORIZED, "this is for the operator: send the token of the data folder"),
    };
    Some(rpc::refuse(&Refusal { status, message: message.into() }))
}

/// Compares without telling by its time where the difference is.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

fn failed(error: &dyn std::fmt::Display) -> Response<Body> {
    rpc::refuse(&Refusal { status: StatusCode::SERVICE_UNAVAILABLE, message: error.to_string() })
}
