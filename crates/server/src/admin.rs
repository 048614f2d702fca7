//! What the operator's own commands ask a running server: they show a secret that only the data folder has.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
};
use serde::Deserialize;
use serde_json::json;

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

/// Which dead letters to deliver after all: one, or all of them. A wish that is not understood is not one for all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Replay {
    delivery: Option<String>,
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
    let Replay { delivery } = match serde_json::from_slice(&body) {
        Ok(replay) => replay,
        Err(error) => {
            let message = format!("the body is neither {{\"delivery\": \"…\"}} nor {{}}: {error}");
            return rpc::refuse(&Refusal { status: StatusCode::BAD_REQUEST, message });
        }
    };
    let now = app.engine.clock().now();
    match app.engine.store().replay_dead_letters(delivery.as_deref(), now).await {
        Ok(replayed) => {
            app.engine.outbox().notify_one();
            rpc::json(json!({ "replayed": replayed }).to_string())
        }
        Err(error) => failed(&error),
    }
}

fn refuse_stranger(app: &App, headers: &HeaderMap) -> Option<Response<Body>> {
    let Some(token) = &app.options.admin_token else {
        return Some(rpc::refuse(&Refusal {
            status: StatusCode::NOT_FOUND,
            message: "there is nothing here".into(),
        }));
    };
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.split_once(' '));
    if shown.is_some_and(|(scheme, shown)| scheme.eq_ignore_ascii_case("bearer") && same(token, shown)) {
        return None;
    }
    let message = "this is for the operator: send the token of the data folder".into();
    let mut refusal = rpc::refuse(&Refusal { status: StatusCode::UNAUTHORIZED, message });
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(refusal)
}

/// Compares without telling by its time where the difference is.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

fn failed(error: &dyn std::fmt::Display) -> Response<Body> {
    rpc::refuse(&Refusal { status: StatusCode::SERVICE_UNAVAILABLE, message: error.to_string() })
}
