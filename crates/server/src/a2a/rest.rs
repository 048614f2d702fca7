//! The REST (HTTP+JSON) binding of A2A, for 1.0 and 0.3; the path decides the dialect.
//!
//! Reads a call from method, path, query and body, gives it to [`A2aHandler`](super::handler::A2aHandler), and writes
//! the result without an envelope. Errors are HTTP statuses with the body of 1.0, section 11.6; in a stream that has
//! begun they are an event. Authentication, limits and rates are those of the JSON-RPC binding, in the same order.

mod routes;

use std::{borrow::Cow, sync::Arc};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts},
};
use nuncio_engine::{Caller, Error, error::whole_seconds};
use nuncio_wire::a2a::{A2aCall, A2aFault, A2aProblem, Dialect, RestOperation, RestRequest};
use routes::NoOperation;
pub(crate) use routes::RestRoute;

use super::{
    agent_address::{self, AgentAddress},
    exchange::{A2aExchange, authentication_problem, fault_of, serve_as, version_of},
    extensions::ActiveExtensions,
    handler::A2aReply,
    sse::{self, SseEnvelope, SseFraming},
};
use crate::{
    app::App,
    auth::{self, AuthError, ConnectionPeer},
    charged_body,
    request_checks::{self, HttpRefusal},
    responses::{RefusalMessage, json, refuse},
};

const A2A_JSON: &str = "application/a2a+json";

/// The form of the responses to one request.
pub(crate) struct RestForm {
    dialect: Dialect,
    a2a_json: bool,
}

impl RestForm {
    /// 1.0 prefers its own media type (section 11.1), and official tools want the plain one: the client decides. 0.3
    /// has only the plain one.
    pub(crate) fn new(route: &RestRoute, headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let first = accepted.split([',', ';']).next().unwrap_or_default().trim();
        let a2a_json = route.dialect >= Dialect::V1 && first.eq_ignore_ascii_case(A2A_JSON);
        Self { dialect: route.dialect, a2a_json }
    }

    /// Finishes a response: refusals of the layers around the binding get its error body.
    pub(crate) fn apply(&self, mut response: Response<Body>) -> Response<Body> {
        if let Some(RefusalMessage(message)) = response.extensions_mut().remove() {
            let status = response.status();
            let problem = match status {
                StatusCode::UNAUTHORIZED => Some(A2aProblem::Unauthenticated),
                StatusCode::FORBIDDEN => Some(A2aProblem::Forbidden),
                StatusCode::TOO_MANY_REQUESTS => Some(A2aProblem::TooFast),
                StatusCode::SERVICE_UNAVAILABLE => Some(A2aProblem::Unavailable),
                _ => None,
            };
            let mut out = Vec::new();
            match problem {
                Some(problem) => {
                    let fault = self.dialect.problem(problem, message);
                    self.dialect.write_rest_fault(&mut out, status.as_u16(), &fault);
                }
                None => self.dialect.write_rest_refusal(&mut out, status.as_u16(), &message),
            }
            *response.body_mut() = Body::from(out);
        }
        let headers = response.headers_mut();
        if self.a2a_json && headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json") {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(A2A_JSON));
        }
        response
    }
}

/// Serves a request whose path belongs to this binding. [`RestForm::apply`] finishes the response.
pub(crate) async fn serve<B>(
    app: &Arc<App>,
    route: RestRoute,
    request: Request<B>,
    peer: &ConnectionPeer,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let dialect = route.dialect;
    let operation = match route.operation(&parts.method) {
        Ok(operation) => operation,
        Err(none) => return refuse_operation(dialect, &none),
    };
    let has_type = parts.headers.contains_key(header::CONTENT_TYPE);
    if parts.method == Method::POST && has_type && !request_checks::is_json(&parts.headers) {
        return refuse_media_type(dialect);
    }
    // Authenticated before any of the body is read.
    let caller = match app.caller(&parts.headers, peer, parts.uri.path()).await {
        Ok(caller) => caller,
        Err(error) => return unauthenticated(app, dialect, &error),
    };
    serve_as(app, caller, |caller| serve_caller(app, &route, operation, &parts, peer, body, caller)).await
}

async fn serve_caller<B>(
    app: &Arc<App>,
    route: &RestRoute,
    operation: RestOperation,
    parts: &Parts,
    peer: &ConnectionPeer,
    body: B,
    caller: Caller,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (dialect, limits, headers) = (route.dialect, &app.options.limits, &parts.headers);
    // Most POSTs to a task have no body; a GET may carry one, which means nothing.
    let read = match parts.method == Method::POST && !body.is_end_stream() {
        true => charged_body::read_body(&app.engine, &caller, headers, body, limits).await.map(Some),
        false => Ok(None),
    };
    let (body, permit) = match read {
        Ok(Some((body, permit))) => (body, Some(permit)),
        Ok(None) => (Bytes::new(), None),
        Err(refusal) => return *refusal,
    };
    if !body.is_empty() && !headers.contains_key(header::CONTENT_TYPE) {
        return refuse_media_type(dialect);
    }
    let query = parts.uri.query().unwrap_or_default();
    let request = RestRequest { operation, query, body: &body };
    if let Err(fault) = request.check_version(dialect, version_of(parts).as_deref()) {
        return fault_response(dialect, &fault);
    }
    let AgentAddress { agent, caller } = match find_agent(app, route, &request, caller) {
        Ok(address) => address,
        Err(refusal) => return *refusal,
    };
    let call = match request.read_call(dialect, limits.max_json_depth) {
        Ok(call) => call,
        Err(fault) => return fault_response(dialect, &fault),
    };
    // Freed early: the response may take long, and no longer needs it.
    drop((body, permit));
    let extensions = ActiveExtensions::of(&agent.profile, headers);
    let exchange = A2aExchange { app, agent: &agent, headers, peer, caller, extensions };
    let mut response = answer(&exchange, dialect, call).await;
    if response.status().is_success() {
        exchange.extensions.write(response.headers_mut());
    }
    response
}

/// The agent that a request is for, and the caller as it is known there.
fn find_agent(
    app: &App,
    route: &RestRoute,
    request: &RestRequest<'_>,
    caller: Caller,
) -> Result<AgentAddress, Box<Response<Body>>> {
    let refuse_fault = |fault: A2aFault| Box::new(fault_response(route.dialect, &fault));
    let named = request.tenant(route.dialect).map_err(refuse_fault)?;
    let tenant = match (&route.tenant, named) {
        (Some(in_path), Some(named)) if *in_path != named => {
            let message = format!("tenant: the path says {in_path:?}, the request {named:?}");
            let fault = A2aFault {
                field: Some("tenant".to_owned()),
                ..route.dialect.problem(A2aProblem::InvalidParams, message)
            };
            return Err(refuse_fault(fault));
        }
        (in_path, named) => in_path.clone().or(named),
    };
    agent_address::find(app, route.agent.as_deref(), tenant.as_deref(), caller)
        .map_err(|message| Box::new(refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message })))
}

async fn answer(exchange: &A2aExchange<'_>, dialect: Dialect, call: A2aCall) -> Response<Body> {
    let sends = matches!(call, A2aCall::Send(_));
    let reply = match exchange.meta(&call) {
        Ok(meta) => exchange.handler().handle(dialect, call, meta).await,
        Err(error) => Err(error),
    };
    let failed = match reply {
        Ok(A2aReply::Result(result)) => {
            let (mut plain, mut out) = (Vec::with_capacity(1024), Vec::new());
            result.write(dialect, &mut plain);
            if dialect >= Dialect::V1 {
                return json(plain);
            }
            dialect.write_rest_result(&mut out, &plain, sends);
            return json(out);
        }
        Ok(A2aReply::Events(events)) => {
            let stream = exchange.open_stream(dialect, *events, Box::new(SseFraming(RestEnvelope)));
            match Box::pin(sse::respond_when_begun(stream)).await {
                Ok(response) => return response,
                Err(error) => error,
            }
        }
        Ok(A2aReply::NoExtendedCard) => {
            let message = "this agent has no extended card";
            let fault = dialect.problem(A2aProblem::ExtendedCardUnsupported, message);
            return fault_response(dialect, &fault);
        }
        Err(error) => error,
    };
    failure(exchange.app, dialect, &failed)
}

/// The frames of a stream: each is a bare result, and an error is an event of its own type.
struct RestEnvelope;

impl SseEnvelope for RestEnvelope {
    fn write_result(&self, out: &mut Vec<u8>, dialect: Dialect, write: &mut dyn FnMut(&mut Vec<u8>)) {
        if dialect >= Dialect::V1 {
            return write(out);
        }
        let mut plain = Vec::with_capacity(512);
        write(&mut plain);
        dialect.write_rest_result(out, &plain, true);
    }

    fn write_fault(&self, out: &mut Vec<u8>, dialect: Dialect, fault: &A2aFault) {
        dialect.write_rest_fault(out, dialect.rest_status(fault.problem), fault);
    }

    fn fault_event(&self) -> Option<&'static str> {
        Some("error")
    }
}

/// The response to a call that failed.
fn failure(app: &App, dialect: Dialect, error: &Error) -> Response<Body> {
    let mut response = fault_response(dialect, &fault_of(dialect, error));
    match error {
        Error::Busy { retry_after, .. } | Error::TooFast { retry_after, .. } => {
            response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(*retry_after).into());
        }
        Error::Forbidden(scope) | Error::NotOperator(scope) => {
            app.challenge.forbid(&mut response, "", scope);
        }
        _ => {}
    }
    response
}

fn fault_response(dialect: Dialect, fault: &A2aFault) -> Response<Body> {
    with_status(dialect, dialect.rest_status(fault.problem), fault)
}

fn with_status(dialect: Dialect, status: u16, fault: &A2aFault) -> Response<Body> {
    let mut out = Vec::new();
    dialect.write_rest_fault(&mut out, status, fault);
    let mut response = json(out);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn unauthenticated(app: &App, dialect: Dialect, error: &AuthError) -> Response<Body> {
    let fault = dialect.problem(authentication_problem(error), auth::message(error));
    let mut response = fault_response(dialect, &fault);
    app.challenge.refuse(&mut response, "", error);
    response
}

/// The media type of the request, not of a part of a message: that is 400 in 1.0.
fn refuse_media_type(dialect: Dialect) -> Response<Body> {
    let message = "the Content-Type of a request is application/json or application/a2a+json";
    let fault = dialect.problem(A2aProblem::ContentTypeNotSupported, message);
    with_status(dialect, StatusCode::UNSUPPORTED_MEDIA_TYPE.as_u16(), &fault)
}

fn refuse_operation(dialect: Dialect, none: &NoOperation) -> Response<Body> {
    let (status, message, allow): (_, Cow<'static, str>, _) = match none {
        NoOperation::NoList => {
            let message = "A2A 0.3 cannot list tasks: GET /tasks with A2A-Version 1.0 can";
            let fault = dialect.problem(A2aProblem::UnsupportedOperation, message);
            return fault_response(dialect, &fault);
        }
        NoOperation::UnknownPath => {
            let message = "there is no such path in A2A: there are message:send, message:stream, tasks, tasks/{id}, \
                           tasks/{id}:cancel, tasks/{id}:subscribe and tasks/{id}/pushNotificationConfigs";
            (StatusCode::NOT_FOUND, message.into(), None)
        }
        NoOperation::OtherMethod(allow) => {
            let message = format!("this path takes {}", allow.replace(',', " and "));
            (StatusCode::METHOD_NOT_ALLOWED, message.into(), Some(*allow))
        }
    };
    let mut response = refuse(&HttpRefusal { status, message: message.into_owned() });
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    response
}
