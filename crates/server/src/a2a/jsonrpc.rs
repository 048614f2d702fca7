//! The JSON-RPC binding of A2A, for all dialects; the dialect is chosen per request.
//!
//! Reads a request, gives its call to [`A2aHandler`], and writes the result in its envelope. `nuncio_wire::a2a` holds
//! the differences between the protocol generations.

use std::sync::Arc;

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts},
};
use nuncio_engine::{Caller, Error, error::whole_seconds};
use nuncio_wire::{
    a2a::{A2aCall, A2aFault, A2aProblem, Dialect, DialectChoice, choose_dialect},
    jsonrpc::{self, RpcId, RpcRequest},
    sse as frame,
};

use super::{
    agent_address::{self, AgentAddress},
    exchange::{A2aExchange, authentication_problem, fault_of, header_text, serve_as, version_of},
    extensions::ActiveExtensions,
    handler::{A2aEvents, A2aReply},
    sse::{self, SseEnvelope, SseFraming},
};
use crate::{
    app::{App, peer_of},
    auth::{self, AuthError, ConnectionPeer},
    charged_body,
    request_checks::{self, HttpRefusal},
    responses::{event_stream, json, refuse},
};

/// Bytes that are read of an unauthenticated request, for its id and its dialect.
const GLANCE: usize = 64 * 1024;

/// The endpoint at the root: that of the default agent, or of the one that a request's tenant names.
pub(crate) async fn root<B>(app: &Arc<App>, request: Request<B>, peer: &ConnectionPeer) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    serve(app, None, request, peer).await
}

/// The endpoint of the agent of that name.
pub(crate) async fn named(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let peer = peer_of(&request);
    match app.engine.catalog().get(&name) {
        Ok(agent) => serve(&app, Some(&agent.profile.name), request, &peer).await,
        Err(error) => refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message: error.to_string() }),
    }
}

async fn serve<B>(
    app: &Arc<App>,
    agent: Option<&str>,
    request: Request<B>,
    peer: &ConnectionPeer,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limits = &app.options.limits;
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    if parts.method != Method::POST {
        let message = "an A2A endpoint takes POST requests with a JSON-RPC body".into();
        let mut response = refuse(&HttpRefusal { status: StatusCode::METHOD_NOT_ALLOWED, message });
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD,POST"));
        return response;
    }
    if !request_checks::is_json(headers) {
        return refuse_content_type(headers);
    }
    // Authenticated before any of the body is read.
    let caller = match app.caller(headers, peer, parts.uri.path()).await {
        Ok(caller) => caller,
        Err(error) => {
            let body = request_checks::take_arrived_body(headers, body, limits.max_body_bytes.min(GLANCE));
            return unauthenticated(app, headers, body.as_deref(), &error);
        }
    };
    serve_as(app, caller, |caller| serve_caller(app, agent, &parts, peer, body, caller)).await
}

async fn serve_caller<B>(
    app: &Arc<App>,
    agent: Option<&str>,
    parts: &Parts,
    peer: &ConnectionPeer,
    body: B,
    caller: Caller,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (limits, headers) = (&app.options.limits, &parts.headers);
    let (body, permit) = match charged_body::read_body(&app.engine, &caller, headers, body, limits).await {
        Ok(read) => read,
        Err(refusal) => return *refusal,
    };
    let request = match jsonrpc::parse_request(&body, limits.max_json_depth) {
        Ok(request) => request,
        Err(error) => {
            let mut out = Vec::new();
            jsonrpc::write_error(&mut out, error.id.as_ref(), error.code(), &error.message, None);
            return json(out);
        }
    };
    // A client that omits the id waits for a response all the same: over HTTP every request has one.
    let id = request.id.clone().unwrap_or_else(RpcId::null);
    let chosen = choose_dialect(version_of(parts).as_deref(), &request.method);
    let tenant = match chosen {
        Ok(DialectChoice::Fixed(dialect)) => dialect.tenant(request.params),
        _ => Ok(None),
    };
    let (choice, tenant) = match (chosen, tenant) {
        (Ok(choice), Ok(tenant)) => (choice, tenant),
        (Err(unchosen), _) => return fault(&id, unchosen.dialect, &unchosen.fault),
        (Ok(choice), Err(malformed)) => return fault(&id, choice.resolve(None), &malformed),
    };
    let AgentAddress { agent, caller } = match agent_address::find(app, agent, tenant.as_deref(), caller) {
        Ok(address) => address,
        Err(message) => return refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message }),
    };
    let extensions = ActiveExtensions::of(&agent.profile, headers);
    let exchange = A2aExchange { app, agent: &agent, headers, peer, caller, extensions };
    let exchange = JsonRpcExchange { exchange, id };
    let dialect = match choice {
        DialectChoice::Fixed(dialect) => dialect,
        DialectChoice::ByTask => return Box::pin(exchange.answer_by_task(&request)).await,
    };
    let call = dialect.read_call(&request.method, request.params);
    // Freed early: the response may take long, and no longer needs it.
    drop(request);
    drop((body, permit));
    match call {
        Ok(call) => exchange.answer(dialect, call).await,
        Err(fault) => exchange.fault(dialect, &fault),
    }
}

/// The response to a request that is not JSON. Nothing of its body was read, so it has no id; a page of another site can
/// send such a request without being asked.
fn refuse_content_type(headers: &HeaderMap) -> Response<Body> {
    let version = header_text(headers, "a2a-version");
    let dialect = version.and_then(|version| Dialect::from_version(&version)).unwrap_or(Dialect::V0_3);
    let message = "Incompatible content types: the Content-Type of a request is application/json";
    let mut out = Vec::new();
    dialect.write_fault(&mut out, None, &dialect.problem(A2aProblem::ContentTypeNotSupported, message));
    let mut response = json(out);
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// The response to an unauthenticated request, with its id and in its dialect if they can be read.
fn unauthenticated(app: &App, headers: &HeaderMap, body: Option<&[u8]>, error: &AuthError) -> Response<Body> {
    let request = body.and_then(|body| jsonrpc::parse_request(body, app.options.limits.max_json_depth).ok());
    let (method, id) = match &request {
        Some(request) => (&*request.method, request.id.clone().unwrap_or_else(RpcId::null)),
        None => ("", RpcId::null()),
    };
    let dialect = match choose_dialect(header_text(headers, "a2a-version").as_deref(), method) {
        Ok(choice) => choice.resolve(None),
        Err(unchosen) => unchosen.dialect,
    };
    let problem = authentication_problem(error);
    let mut out = Vec::new();
    dialect.write_fault(&mut out, Some(&id), &dialect.problem(problem, auth::message(error)));
    let mut response = json(out);
    app.challenge.refuse(&mut response, "", error);
    response
}

/// The JSON-RPC envelope of a stream's frames: each is a response to the same request.
struct JsonRpcEnvelope(RpcId);

impl SseEnvelope for JsonRpcEnvelope {
    fn write_result(&self, out: &mut Vec<u8>, _: Dialect, write: &mut dyn FnMut(&mut Vec<u8>)) {
        jsonrpc::write_result(out, &self.0, |out| write(out));
    }

    fn write_fault(&self, out: &mut Vec<u8>, dialect: Dialect, fault: &A2aFault) {
        dialect.write_fault(out, Some(&self.0), fault);
    }
}

/// One request with its id.
struct JsonRpcExchange<'a> {
    exchange: A2aExchange<'a>,
    id: RpcId,
}

impl JsonRpcExchange<'_> {
    /// Answers a request that names no version, such as `tasks/get`: in 0.1 if its task was created in it, otherwise
    /// in 0.3.
    async fn answer_by_task(&self, request: &RpcRequest<'_>) -> Response<Body> {
        // Both dialects name the task in the same place; the chosen one reports any other error.
        let task = match Dialect::V0_1.read_call(&request.method, request.params) {
            Ok(A2aCall::Subscribe { task }) => return Box::pin(self.subscribe_by_task(&task)).await,
            Ok(A2aCall::Get { task, .. } | A2aCall::Cancel { task, .. }) => Some(task),
            _ => None,
        };
        let dialect = match task {
            Some(task) => self.dialect_of_task(&task).await,
            None => Ok(DialectChoice::ByTask.resolve(None)),
        };
        match dialect {
            Ok(dialect) => match dialect.read_call(&request.method, request.params) {
                Ok(call) => self.answer(dialect, call).await,
                Err(fault) => self.fault(dialect, &fault),
            },
            Err(error) => self.error(Dialect::V0_3, &error),
        }
    }

    /// Answers a subscription that names no version. The follower reads the task's row anyway, so the dialect is taken
    /// from there and costs no second read.
    async fn subscribe_by_task(&self, task: &str) -> Response<Body> {
        let events = match self.exchange.last_event_id() {
            Ok(cursor) => self.exchange.handler().subscribe(Dialect::V0_3, task, cursor).await,
            Err(error) => Err(error),
        };
        match events {
            Ok(events) => {
                let dialect = DialectChoice::ByTask.resolve(Some(&events.origin.dialect));
                self.stream(dialect, events)
            }
            Err(error) => match self.dialect_of_task(task).await {
                Ok(dialect) => self.failed(dialect, true, &error),
                Err(error) => self.error(Dialect::V0_3, &error),
            },
        }
    }

    async fn dialect_of_task(&self, task: &str) -> Result<Dialect, Error> {
        match self.exchange.app.engine.origin(&self.exchange.caller, task).await {
            Ok(origin) => Ok(DialectChoice::ByTask.resolve(Some(&origin.dialect))),
            Err(Error::NoSuchTask(_)) => Ok(DialectChoice::ByTask.resolve(None)),
            Err(error) => Err(error),
        }
    }

    async fn answer(&self, dialect: Dialect, call: A2aCall) -> Response<Body> {
        let streams = matches!(call, A2aCall::Stream(_) | A2aCall::Subscribe { .. });
        let reply = match self.exchange.meta(&call) {
            Ok(meta) => self.exchange.handler().handle(dialect, call, meta).await,
            Err(error) => Err(error),
        };
        match reply {
            Ok(A2aReply::Result(result)) => {
                let mut out = Vec::with_capacity(1024);
                jsonrpc::write_result(&mut out, &self.id, |out| result.write(dialect, out));
                let mut response = json(out);
                self.exchange.extensions.write(response.headers_mut());
                response
            }
            Ok(A2aReply::Events(events)) => self.stream(dialect, *events),
            Ok(A2aReply::NoExtendedCard) => {
                let message = "this agent has no extended card";
                self.fault(dialect, &dialect.problem(A2aProblem::ExtendedCardUnsupported, message))
            }
            Err(error) => self.failed(dialect, streams, &error),
        }
    }

    fn stream(&self, dialect: Dialect, events: A2aEvents) -> Response<Body> {
        let framing = Box::new(SseFraming(JsonRpcEnvelope(self.id.clone())));
        let mut response = sse::respond(self.exchange.open_stream(dialect, events, framing));
        self.exchange.extensions.write(response.headers_mut());
        response
    }

    /// The response to a call that failed.
    fn failed(&self, dialect: Dialect, streams: bool, error: &Error) -> Response<Body> {
        // The official 0.3 client reports a plain JSON body as an opaque error, so the error is sent as an event. An
        // error with its own HTTP status is not.
        if streams && dialect == Dialect::V0_3 && !has_status(error) {
            let mut out = Vec::new();
            frame::write_numbered_event(&mut out, None, |out| {
                dialect.write_fault(out, Some(&self.id), &fault_of(dialect, error));
            });
            return event_stream(Body::from(out));
        }
        self.error(dialect, error)
    }

    fn error(&self, dialect: Dialect, error: &Error) -> Response<Body> {
        let mut response = self.fault(dialect, &fault_of(dialect, error));
        let (status, retry_after) = match error {
            Error::Busy { retry_after, .. } => (StatusCode::SERVICE_UNAVAILABLE, retry_after),
            Error::TooFast { retry_after, .. } => (StatusCode::TOO_MANY_REQUESTS, retry_after),
            Error::Forbidden(scope) | Error::NotOperator(scope) => {
                self.exchange.app.challenge.forbid(&mut response, "", scope);
                return response;
            }
            Error::Suspended(..) => {
                *response.status_mut() = StatusCode::FORBIDDEN;
                return response;
            }
            _ => return response,
        };
        *response.status_mut() = status;
        response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(*retry_after).into());
        response
    }

    fn fault(&self, dialect: Dialect, problem: &A2aFault) -> Response<Body> {
        fault(&self.id, dialect, problem)
    }
}

fn fault(id: &RpcId, dialect: Dialect, fault: &A2aFault) -> Response<Body> {
    let mut out = Vec::new();
    dialect.write_fault(&mut out, Some(id), fault);
    json(out)
}

/// Whether an error also sets the HTTP status of the response.
fn has_status(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy { .. }
            | Error::TooFast { .. }
            | Error::Forbidden(_)
            | Error::NotOperator(_)
            | Error::Suspended(..)
    )
}
