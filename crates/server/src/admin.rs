//! The admin endpoints for the operator's own commands, which present a secret that only the data folder holds.
//!
//! Tokens, the audit, other callers' tasks and tenants are also open to callers with the matching scopes.

pub(crate) mod card_keys;
pub(crate) mod tasks;
pub(crate) mod tenants;
pub(crate) mod webhooks;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
};
use nuncio_engine::{Caller, Error, error::whole_seconds};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    app::{App, peer_of},
    audit,
    auth::{ConnectionPeer, TokenAdmin, TokenAdminError},
    request_checks::{self, HttpRefusal},
    responses,
};

/// Maximum dead letters in one response.
const MOST: usize = 1000;

/// `GET /admin/dead-letters`
pub(crate) async fn dead_letters(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    if let Some(refused) = refuse_unless_operator(&app, &headers) {
        return refused;
    }
    match app.engine.dead_letters(MOST).await {
        Ok(letters) => responses::json(json!({ "deadLetters": letters }).to_string()),
        Err(error) => failed(&error),
    }
}

/// The dead letters to replay: one, or all. Unknown fields are an error, so that a misspelled request never
/// replays all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ReplayRequest {
    delivery: Option<String>,
}

/// `POST /admin/dead-letters/replay` with `{"delivery": id}`, or `{}` for all.
pub(crate) async fn replay(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    if let Some(refused) = refuse_unless_operator(&app, request.headers()) {
        return refused;
    }
    let body = match read_body(&app, request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let ReplayRequest { delivery } = match serde_json::from_slice(&body) {
        Ok(replay) => replay,
        Err(error) => {
            let message = format!("the body is neither {{\"delivery\": \"…\"}} nor {{}}: {error}");
            return responses::refuse(&HttpRefusal { status: StatusCode::BAD_REQUEST, message });
        }
    };
    match app.engine.replay_dead_letters(delivery.as_deref()).await {
        Ok(replayed) => responses::json(json!({ "replayed": replayed }).to_string()),
        Err(error) => failed(&error),
    }
}

/// `GET /admin/tokens`
pub(crate) async fn tokens(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let (caller, desk) =
        match admin_and_tokens(&app, request.headers(), &peer_of(&request), "/admin/tokens").await {
            Ok(found) => found,
            Err(refused) => return refused,
        };
    answer(&app, desk.list(&caller).await)
}

/// `POST /admin/tokens` with `{"name": …, "tenant": …, "scopes": […], "expiresIn": seconds}`
pub(crate) async fn create_token(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let (caller, desk) =
        match admin_and_tokens(&app, request.headers(), &peer_of(&request), "/admin/tokens").await {
            Ok(found) => found,
            Err(refused) => return refused,
        };
    let body = match read_body(&app, request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    match serde_json::from_slice(&body) {
        Ok(wish) => answer(&app, desk.create(&caller, wish).await),
        Err(error) => {
            answer(&app, Err(TokenAdminError::Invalid(format!("the body is no wish for a token: {error}"))))
        }
    }
}

/// `DELETE /admin/tokens/{id}`; with `?stop=true` all tasks that the token created are cancelled, too.
pub(crate) async fn revoke_token(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    match admin_and_tokens(&app, request.headers(), &peer_of(&request), "/admin/tokens").await {
        Ok((caller, desk)) => {
            let stop = match Query::<RevocationQuery>::try_from_uri(request.uri()) {
                Ok(Query(wish)) => wish.stop,
                Err(error) => return invalid(&app, error.body_text()),
            };
            answer(&app, desk.revoke(&caller, &id, stop).await)
        }
        Err(refused) => refused,
    }
}

/// The options of a revocation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationQuery {
    #[serde(default)]
    stop: bool,
}

/// `GET /admin/audit`, with the same query as `audit://log`.
pub(crate) async fn audit(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let caller = match authenticate_admin(&app, request.headers(), &peer_of(&request), "/admin/audit").await {
        Ok(caller) => caller,
        Err(refused) => return refused,
    };
    let query = match Query::<BTreeMap<String, String>>::try_from_uri(request.uri()) {
        Ok(Query(query)) => query,
        Err(error) => return answer(&app, Err(TokenAdminError::Invalid(error.body_text()))),
    };
    let arguments = query.into_iter().map(|(name, value)| (name, value.into())).collect();
    let read = match audit::read_query(&arguments) {
        Ok(query) => audit::read(&app.engine, &caller, query).await.map_err(TokenAdminError::from),
        Err(why) => Err(TokenAdminError::Invalid(why)),
    };
    answer(&app, read)
}

/// The caller, and the token administration.
async fn admin_and_tokens<'a>(
    app: &'a App,
    headers: &HeaderMap,
    peer: &ConnectionPeer,
    path: &str,
) -> Result<(Caller, &'a dyn TokenAdmin), Response<Body>> {
    let caller = authenticate_admin(app, headers, peer, path).await?;
    match &app.options.tokens {
        Some(desk) => Ok((caller, &**desk)),
        None => Err(nothing_here()),
    }
}

/// The protocol of these endpoints, as it is stored with what their callers do to a task.
const DIALECT: &str = "admin";

/// Authenticates the caller of an admin endpoint. The engine decides what it may do.
async fn authenticate_admin(
    app: &App,
    headers: &HeaderMap,
    peer: &ConnectionPeer,
    path: &str,
) -> Result<Caller, Response<Body>> {
    if app.is_operator(headers) {
        return Ok(peer.attach_address(Caller::local()).over(DIALECT));
    }
    if app.authenticator_of(headers).is_none() {
        // A request whose credentials are not verified has no scopes, so the folder's secret is the only way in.
        return Err(refuse_unless_operator(app, headers).unwrap_or_else(nothing_here));
    }
    let caller = app.caller(headers, peer, path).await;
    caller.map(|caller| caller.over(DIALECT)).map_err(|error| app.challenge.refusal("", &error))
}

/// Reads the body, within the limits of every request.
async fn read_body(app: &App, request: Request<Body>) -> Result<Bytes, Response<Body>> {
    let limits = &app.options.limits;
    let (parts, body) = request.into_parts();
    let body =
        request_checks::read_body(&parts.headers, body, limits.max_body_bytes, limits.body_timeout).await;
    body.map_err(|refusal| responses::refuse(&refusal))
}

fn answer(app: &App, said: Result<Value, TokenAdminError>) -> Response<Body> {
    let (status, message) = match said {
        Ok(value) => return responses::json(value.to_string()),
        Err(TokenAdminError::Engine(error)) => return refused(app, &error),
        Err(error @ TokenAdminError::Invalid(_)) => (StatusCode::BAD_REQUEST, error.to_string()),
        Err(error @ TokenAdminError::NoSuchToken(_)) => (StatusCode::NOT_FOUND, error.to_string()),
    };
    responses::refuse(&HttpRefusal { status, message })
}

/// Renders an engine result for administrators.
fn answer_engine(app: &App, said: Result<Value, Error>) -> Response<Body> {
    answer(app, said.map_err(TokenAdminError::Engine))
}

fn invalid(app: &App, why: String) -> Response<Body> {
    answer(app, Err(TokenAdminError::Invalid(why)))
}

/// Renders an engine error, outside of any dialect.
pub(crate) fn refused(app: &App, error: &Error) -> Response<Body> {
    let (status, after) = match error {
        Error::Forbidden(_) | Error::NotOperator(_) => (StatusCode::FORBIDDEN, None),
        Error::Suspended(..) => (StatusCode::FORBIDDEN, None),
        Error::NoSuchTask(_) => (StatusCode::NOT_FOUND, None),
        Error::Invalid(_) => (StatusCode::BAD_REQUEST, None),
        Error::NotCancelable(_)
        | Error::Limit(_)
        | Error::Ended(_)
        | Error::Unanswered(_)
        | Error::NotAsked(_)
        | Error::NoAuthorization { .. } => (StatusCode::CONFLICT, None),
        Error::TooFast { retry_after, .. } => (StatusCode::TOO_MANY_REQUESTS, Some(*retry_after)),
        Error::Busy { retry_after, .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(*retry_after)),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
    };
    let mut response = responses::refuse(&HttpRefusal { status, message: error.to_string() });
    if let Error::Forbidden(scope) | Error::NotOperator(scope) = error {
        app.challenge.forbid(&mut response, "", scope);
    }
    if let Some(after) = after {
        response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(after).into());
    }
    response
}

fn nothing_here() -> Response<Body> {
    responses::refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message: "there is nothing here".into() })
}

fn refuse_unless_operator(app: &App, headers: &HeaderMap) -> Option<Response<Body>> {
    if app.options.admin_token.is_none() {
        return Some(nothing_here());
    }
    if app.is_operator(headers) {
        return None;
    }
    let message =
        "administration needs the secret of the data folder: run this command as the user who owns that \
                   folder (its server.json has the secret), or ask for tokens with auth = \"on\""
            .into();
    let mut refusal = responses::refuse(&HttpRefusal { status: StatusCode::UNAUTHORIZED, message });
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(refusal)
}

fn failed(error: &dyn std::fmt::Display) -> Response<Body> {
    responses::refuse(&HttpRefusal { status: StatusCode::SERVICE_UNAVAILABLE, message: error.to_string() })
}
