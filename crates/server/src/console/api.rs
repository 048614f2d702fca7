//! The console's API over HTTP: what every request has to pass, and which operation it is.

use std::sync::Arc;

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    extract::Query,
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts},
};
use nuncio_engine::{BytePermit, Caller, Engine, admin::DeliveryAct};
use nuncio_wire::{jsonrpc, timestamp};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    audit, configuration, events, forks, journal, live, me, nodes, openapi, problem::ConsoleProblem, pulse,
    questions, selections, session, streams, tasks, tokens, webhooks, wire_frames,
};
use crate::{
    app::App,
    auth::{self, ConnectionPeer},
    charged_body::charge_response,
    request_checks::{self, HttpRefusal},
    responses,
};

/// The maximum bytes of a request's body, and of an answer to a question (`console.body`).
pub(super) const MAX_BODY: usize = 64 * 1024;
const MAX_ANSWER: usize = 1024 * 1024;

/// The protocol of this API, as it is stored with answers and cancel requests.
const DIALECT: &str = "console";

/// A request of a known caller.
pub(super) struct ConsoleRequest<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) caller: Caller,
    pub(super) headers: &'a HeaderMap,
    pub(super) peer: &'a ConnectionPeer,
    /// The parameters, in their order.
    pub(super) query: Vec<(String, String)>,
}

impl ConsoleRequest<'_> {
    pub(super) fn engine(&self) -> &Engine {
        &self.app.engine
    }

    /// The caller in whose name a task is read: this one, or the owner of a task that this one may administer.
    pub(super) async fn reader_of(&self, task: &str) -> Result<Caller, ConsoleProblem> {
        Ok(self.engine().admin_reader(&self.caller, task).await?)
    }

    /// The server's time, for answers.
    pub(super) fn now(&self) -> String {
        timestamp::format(self.engine().clock().now())
    }

    /// Refuses parameters that the operation does not have.
    pub(super) fn check_parameters(&self, known: &[&str]) -> Result<(), ConsoleProblem> {
        check_parameters(&self.query, known)
    }

    /// The parameter of that name, which may occur once.
    pub(super) fn parameter(&self, name: &str) -> Result<Option<&str>, ConsoleProblem> {
        let mut values =
            self.query.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(ConsoleProblem::bad_request(name, format!("{name}: it may occur once"))),
        }
    }

    /// All values of a parameter.
    pub(super) fn parameters(&self, name: &str) -> Vec<&str> {
        self.query.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect()
    }

    /// A number of a parameter, within bounds.
    pub(super) fn number(&self, name: &str, most: u64) -> Result<Option<u64>, ConsoleProblem> {
        let Some(text) = self.parameter(name)? else { return Ok(None) };
        match text.parse::<u64>() {
            Ok(number) if number <= most => Ok(Some(number)),
            _ => {
                let message = format!("{name}: expected a number from 0 to {most}, got {text:?}");
                Err(ConsoleProblem::bad_request(name, message))
            }
        }
    }
}

fn check_parameters(query: &[(String, String)], known: &[&str]) -> Result<(), ConsoleProblem> {
    match query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) => {
            let there_are = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("{name}: there is no such parameter here; there are {there_are}");
            Err(ConsoleProblem::bad_request(name.as_str(), message))
        }
    }
}

/// Serves an operation; `path` is the one below `/console/api/`.
pub(super) async fn serve<B>(
    app: &Arc<App>,
    path: &str,
    request: Request<B>,
    peer: &ConnectionPeer,
) -> Result<Response<Body>, ConsoleProblem>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    // Before the credentials: a page of another origin learns nothing, not even whether there are any.
    check_origin(&parts.headers, peer)?;
    let query = parameters_of(&parts)?;
    let segments = segments_of(path)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let body = Reading { app, headers: &parts.headers, body };
    // The operations that come before there is a caller.
    if segments == ["openapi.json"] && parts.method == Method::GET {
        check_parameters(&query, &[])?;
        return Ok(responses::json(openapi::DOCUMENT));
    }
    if segments == ["session"] && parts.method == Method::POST {
        check_parameters(&query, &[])?;
        let session: NewSession = body.read(MAX_BODY).await?;
        return Ok(json(&session::exchange(&app.engine, &session.code).await?));
    }
    if segments == ["codes"] && parts.method == Method::POST {
        if !app.is_operator(&parts.headers) {
            let message = "a code needs the secret of the data folder: run nuncio console as the user who owns that folder";
            return Err(ConsoleProblem::new(StatusCode::UNAUTHORIZED, "unauthorized", message));
        }
        check_parameters(&query, &[])?;
        let _: Empty = body.read(MAX_BODY).await?;
        return Ok(json(&session::create_code(&app.engine)));
    }
    let caller = app.caller(&parts.headers, peer, parts.uri.path()).await;
    let caller = caller.map_err(|error| ConsoleProblem::from(&error))?.over(DIALECT);
    app.admit_request(&caller).await?;
    let request = ConsoleRequest { app, caller, headers: &parts.headers, peer, query };
    let owner = request.caller.clone();
    // Until the request is answered, as bodies of all protocols are.
    let _body = body.reserve(&owner, max_body(&segments)).await?;
    let served = dispatch(&request, &parts.method, &segments, body);
    let response = app.engine.cpu().meter(owner.owner(), served).await?;
    Ok(charge_response(&app.engine, &owner, response))
}

/// The maximum bytes of the body of an operation.
fn max_body(segments: &[&str]) -> usize {
    match segments {
        ["tasks", _, "answers" | "fork"] => MAX_ANSWER,
        _ => MAX_BODY,
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct NewSession {
    code: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an empty object")]
pub(super) struct Empty {}

async fn dispatch<B>(
    request: &ConsoleRequest<'_>,
    method: &Method,
    segments: &[&str],
    body: Reading<'_, B>,
) -> Result<Response<Body>, ConsoleProblem>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let found = match (method.as_str(), segments) {
        ("GET", ["me"]) => me::show(request)?,
        ("GET", ["tasks"]) => tasks::list(request).await?,
        ("GET", ["tasks", id]) => tasks::show(request, id).await?,
        ("GET", ["tasks", id, "family"]) => tasks::family(request, id).await?,
        ("GET", ["tasks", id, "followers"]) => streams::followers(request, id).await?,
        ("GET", ["streams"]) => streams::list(request)?,
        ("GET", ["tasks", id, "events"]) => return events::page(request, id).await,
        ("GET", ["tasks", id, "events", seq]) => return events::one(request, id, number(seq)?).await,
        ("GET", ["tasks", id, "at", seq]) => return events::task_at(request, id, number(seq)?).await,
        ("GET", ["tasks", id, "journal"]) => journal::show(request, id).await?,
        ("GET", ["tasks", id, "wire", seq]) => return wire_frames::show(request, id, number(seq)?).await,
        ("GET", ["config"]) => configuration::show(request)?,
        ("GET", ["nodes"]) => nodes::list(request).await?,
        ("GET", ["pulse"]) => pulse::show(request)?,
        ("GET", ["questions"]) => questions::list(request).await?,
        ("POST", ["tasks", id, "answers"]) => {
            questions::answer(request, id, body.read(MAX_ANSWER).await?).await?
        }
        ("POST", ["tasks", id, "fork"]) => forks::create(request, id, body.read(MAX_ANSWER).await?).await?,
        ("POST", ["tasks", id, "cancel"]) => {
            let _: Empty = body.read(MAX_BODY).await?;
            tasks::cancel(request, id).await?
        }
        ("GET", ["tokens"]) => tokens::list(request).await?,
        ("POST", ["tokens"]) => tokens::create(request, body.read(MAX_BODY).await?).await?,
        ("DELETE", ["tokens", id]) => tokens::revoke(request, id).await?,
        ("GET", ["tasks", id, "webhooks"]) => webhooks::of_task(request, id).await?,
        ("DELETE", ["tasks", id, "webhooks", webhook]) => webhooks::remove(request, id, webhook).await?,
        ("POST", ["selections"]) => selections::create(request, body.read(MAX_BODY).await?).await?,
        ("GET", ["selections", id]) => selections::show(request, id).await?,
        ("POST", ["selections", id, "cancel"]) => {
            selections::act(request, id, "cancel", &body.read(MAX_BODY).await?).await?
        }
        ("POST", ["selections", id, "rerun"]) => {
            selections::act(request, id, "rerun", &body.read(MAX_BODY).await?).await?
        }
        ("GET", ["audit"]) => audit::list(request).await?,
        ("GET", ["deliveries"]) => webhooks::list(request).await?,
        ("POST", ["deliveries", "replay"]) => {
            webhooks::act(request, DeliveryAct::Replay, body.read(MAX_BODY).await?).await?
        }
        ("POST", ["deliveries", "discard"]) => {
            webhooks::act(request, DeliveryAct::Discard, body.read(MAX_BODY).await?).await?
        }
        ("POST", ["live"]) => return live::open(request, body.read(MAX_BODY).await?).await,
        ("DELETE", ["session"]) => {
            request.check_parameters(&[])?;
            if let Some(token) = auth::bearer(request.headers) {
                session::end(request.engine(), token).await?;
            }
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        _ => {
            return Err(ConsoleProblem::not_found(
                "the console's API has no such operation: /console/api/openapi.json has all of them (docs/console-api.md \
                 explains them)",
            ));
        }
    };
    Ok(json(&found))
}

pub(super) fn json(value: &Value) -> Response<Body> {
    responses::json(value.to_string())
}

fn number(text: &str) -> Result<u64, ConsoleProblem> {
    text.parse()
        .map_err(|_| ConsoleProblem::bad_request("seq", format!("seq: {text:?} is no number of an event")))
}

/// Refuses pages of other origins. A browser says by itself where a request comes from; all ports of a host are one site,
/// so `same-site` is not enough. A program sends neither header.
fn check_origin(headers: &HeaderMap, peer: &ConnectionPeer) -> Result<(), ConsoleProblem> {
    let refused = || {
        let message = "the console's API answers only its own pages, and programs that send no Origin";
        Err(ConsoleProblem::new(StatusCode::FORBIDDEN, "foreign_origin", message))
    };
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => return Ok(()),
        Some(_) => return refused(),
        None => {}
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let own = match peer.is_over_tls() {
        true => vec![format!("https://{host}")],
        // A proxy may encrypt.
        false => vec![format!("http://{host}"), format!("https://{host}")],
    };
    match origin
        .to_str()
        .is_ok_and(|origin| !host.is_empty() && own.iter().any(|own| own.eq_ignore_ascii_case(origin)))
    {
        true => Ok(()),
        false => refused(),
    }
}

fn parameters_of(parts: &Parts) -> Result<Vec<(String, String)>, ConsoleProblem> {
    let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
        .map_err(|error| ConsoleProblem::bad_request("", error.body_text()))?;
    match query.iter().find(|(name, _)| matches!(name.as_str(), "token" | "access_token" | "code")) {
        None => Ok(query),
        Some((name, _)) => {
            let message = "a token in a URL stands in logs: send it as Authorization: Bearer …";
            Err(ConsoleProblem::bad_request(name.as_str(), message))
        }
    }
}

fn segments_of(path: &str) -> Result<Vec<String>, ConsoleProblem> {
    let decode = |segment: &str| {
        let text = percent_decode_str(segment).decode_utf8();
        text.map(std::borrow::Cow::into_owned)
            .map_err(|_| ConsoleProblem::bad_request("", "the path is not UTF-8"))
    };
    path.split('/').map(decode).collect()
}

/// A body that was not read yet.
struct Reading<'a, B> {
    app: &'a App,
    headers: &'a HeaderMap,
    body: B,
}

impl<B> Reading<'_, B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Reserves memory for the body and what is parsed from it; see `limits.bytes-in-flight`.
    async fn reserve(&self, caller: &Caller, most: usize) -> Result<BytePermit, ConsoleProblem> {
        let most = most as u64;
        let length = self.body.size_hint().exact().unwrap_or(most);
        Ok(self.app.engine.reserve_bytes(caller, 2 * length.min(most)).await?)
    }

    /// Reads the body as JSON. Only JSON: a page of another site can send any other type without being asked.
    async fn read<T: DeserializeOwned>(self, most: usize) -> Result<T, ConsoleProblem> {
        if !request_checks::is_json(self.headers) {
            let message = "the Content-Type of a request is application/json".to_owned();
            return Err(HttpRefusal { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, message }.into());
        }
        let within = self.app.options.limits.body_timeout;
        let read = request_checks::read_body(self.headers, self.body, most, within).await;
        let bytes = read.map_err(|refusal| match refusal.status {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let message = format!("the body is larger than {most} bytes (console.body)");
                ConsoleProblem::new(refusal.status, "too_large", message).with("limit", most)
            }
            _ => refusal.into(),
        })?;
        let deepest = self.app.options.limits.max_json_depth;
        if jsonrpc::is_deeper(&bytes, deepest) {
            let message = format!("the body is nested deeper than {deepest} levels");
            return Err(ConsoleProblem::bad_request("", message));
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| ConsoleProblem::bad_request("", format!("the body cannot be read: {error}")))
    }
}
