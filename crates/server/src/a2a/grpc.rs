//! The gRPC binding of A2A, for 1.0 (`lf.a2a.v1`) and 0.3 (`a2a.v1`); the service decides the dialect.
//!
//! Reads a call from the message of a request, gives it to [`A2aHandler`](super::handler::A2aHandler), and writes the
//! result as one message, or events as several. Errors are the status in the trailers. Metadata are headers: those of the
//! other bindings mean the same here. A deadline or a client that goes away ends the call, never the task.
//!
//! Beside it on the same port: `health` and `reflection`, which need no caller.

mod body;
mod health;
pub(crate) mod metrics;
mod reflection;

use std::{sync::Arc, time::Duration};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header, request::Parts},
};
use nuncio_engine::{Caller, Error};
use nuncio_wire::{
    a2a::{A2aCall, A2aFault, A2aProblem, Dialect, GrpcMethod},
    grpc::{self, GrpcCode, GrpcStatus},
    protobuf::{ProtobufError, ProtobufLimits},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    agent_address,
    event_stream::{A2aEventStream, StreamChunk, StreamEnd, StreamFraming},
    exchange::{A2aExchange, authentication_problem, fault_of, header_text, serve_as, version_of},
    extensions::ActiveExtensions,
    handler::{A2aReply, A2aResult},
};
use crate::{
    app::App,
    auth::{self, ConnectionPeer},
    charged_body,
    open_streams::STREAM_ID,
    request_checks::HttpRefusal,
    responses::{RefusalMessage, refuse},
};

/// The JSON of a request may be larger than the request, within reason: base64 adds a third.
const JSON_GROWTH: usize = 2;

/// Open streams of health and reflection on the whole server. They need no caller, so no caller's limit bounds them.
pub(crate) const MAX_PUBLIC_STREAMS: usize = 64;

/// Reserves one of the public streams, for as long as the permit lives.
fn public_stream(app: &App) -> Result<OwnedSemaphorePermit, GrpcStatus> {
    Arc::clone(&app.public_streams).try_acquire_owned().map_err(|_| {
        let message = format!(
            "this server has {MAX_PUBLIC_STREAMS} streams of health and reflection open: use Check, or try later"
        );
        GrpcStatus::new(GrpcCode::ResourceExhausted, message)
    })
}

/// Whether a request is one of gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| value.starts_with("application/grpc"))
}

/// Whether a request asks for the health of the server, over gRPC.
pub(crate) fn is_health<B>(request: &Request<B>) -> bool {
    is_grpc(request.headers()) && health::HealthMethod::find(request.uri().path()).is_some()
}

/// Serves a request of gRPC. [`finish`] completes the response.
pub(crate) async fn serve<B>(app: &Arc<App>, request: Request<B>, peer: &ConnectionPeer) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    if let Some(refusal) = check_head(&request) {
        return refuse(&refusal);
    }
    let (parts, body) = request.into_parts();
    let deadline = match deadline_of(&parts.headers) {
        Ok(deadline) => deadline,
        Err(status) => return body::fail(&status),
    };
    let path = parts.uri.path();
    let Some(method) = GrpcMethod::find(path) else {
        if let Some(method) = health::HealthMethod::find(path) {
            return health::serve(app, method, body).await;
        }
        if let Some(reflection) = reflection::Reflection::find(path) {
            return reflection.serve(app, body);
        }
        let message = format!(
            "there is no method {path}: there are lf.a2a.v1.A2AService (A2A 1.0), a2a.v1.A2AService (A2A 0.3), \
             grpc.health.v1.Health and grpc.reflection.v1.ServerReflection"
        );
        return body::fail(&GrpcStatus::new(GrpcCode::Unimplemented, message));
    };
    // Authenticated before any of the body is read.
    let caller = match app.caller(&parts.headers, peer, path).await {
        Ok(caller) => caller,
        Err(error) => {
            let fault = method.dialect.problem(authentication_problem(&error), auth::message(&error));
            return fail(method.dialect, &fault);
        }
    };
    let serve = |caller| serve_caller(app, method, &parts, peer, body, caller, deadline);
    let served = serve_as(app, caller, serve);
    match deadline {
        None => served.await,
        Some(deadline) => match tokio::time::timeout_at(deadline, served).await {
            Ok(response) => response,
            Err(_) => body::fail(&deadline_exceeded()),
        },
    }
}

/// Completes a response: refusals of the layers around the binding become a status. gRPC has only the HTTP status 200.
pub(crate) fn finish(mut response: Response<Body>) -> Response<Body> {
    let Some(RefusalMessage(message)) = response.extensions_mut().remove() else { return response };
    let code = match response.status() {
        StatusCode::SERVICE_UNAVAILABLE => GrpcCode::Unavailable,
        StatusCode::TOO_MANY_REQUESTS => GrpcCode::ResourceExhausted,
        StatusCode::BAD_REQUEST => GrpcCode::InvalidArgument,
        // Not for gRPC at all: the client learns it from the status of HTTP.
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::HTTP_VERSION_NOT_SUPPORTED => return response,
        other => GrpcCode::of_http(other.as_u16()),
    };
    let mut failed = body::fail(&GrpcStatus::new(code, message));
    if let Some(after) = response.headers_mut().remove(header::RETRY_AFTER) {
        failed.headers_mut().insert(header::RETRY_AFTER, after);
    }
    failed
}

fn check_head<B>(request: &Request<B>) -> Option<HttpRefusal> {
    let content_type = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let (status, message) = if request.version() < Version::HTTP_2 {
        let message = "gRPC needs HTTP/2: use a gRPC client, or the HTTP+JSON binding of the same agents";
        (StatusCode::HTTP_VERSION_NOT_SUPPORTED, message)
    } else if !matches!(content_type, Some(b"application/grpc" | b"application/grpc+proto")) {
        let message = "the Content-Type of a gRPC request is application/grpc or application/grpc+proto here";
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    } else if request.method() != Method::POST {
        (StatusCode::METHOD_NOT_ALLOWED, "a gRPC request is a POST")
    } else {
        return None;
    };
    Some(HttpRefusal { status, message: message.into() })
}

fn deadline_of(headers: &HeaderMap) -> Result<Option<Instant>, GrpcStatus> {
    let Some(text) = header_text(headers, "grpc-timeout") else { return Ok(None) };
    let timeout: Option<Duration> = grpc::parse_timeout(&text)?;
    Ok(timeout.map(|timeout| Instant::now() + timeout))
}

fn deadline_exceeded() -> GrpcStatus {
    let message = "the deadline of the call (grpc-timeout) has passed; its task, if there is one, goes on";
    GrpcStatus::new(GrpcCode::DeadlineExceeded, message)
}

async fn serve_caller<B>(
    app: &Arc<App>,
    method: GrpcMethod,
    parts: &Parts,
    peer: &ConnectionPeer,
    body: B,
    caller: Caller,
    deadline: Option<Instant>,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (dialect, headers, limits) = (method.dialect, &parts.headers, &app.options.limits);
    let (body, permit) = match charged_body::read_body(&app.engine, &caller, headers, body, limits).await {
        Ok(read) => read,
        Err(refusal) => return *refusal,
    };
    if let Err(fault) = method.check_version(version_of(parts).as_deref()) {
        return fail(dialect, &fault);
    }
    let bounds = ProtobufLimits {
        // As in REST: JSON-RPC's envelope is one level.
        max_depth: limits.max_json_depth.saturating_sub(1),
        max_json_bytes: limits.max_body_bytes.saturating_mul(JSON_GROWTH),
    };
    let request = grpc::read_message(&body).and_then(|message| Ok(method.read_request(message, bounds)?));
    let request = match request {
        Ok(request) => request,
        Err(status) => return body::fail(&status),
    };
    let tenant = match method.tenant(&request) {
        Ok(tenant) => tenant,
        Err(fault) => return fail(dialect, &fault),
    };
    let address = match agent_address::find(app, None, tenant.as_deref(), caller) {
        Ok(address) => address,
        Err(message) => return body::fail(&GrpcStatus::new(GrpcCode::NotFound, message)),
    };
    let call = match method.read_call(&request) {
        Ok(call) => call,
        Err(fault) => return fail(dialect, &fault),
    };
    // Freed early: the response may take long, and no longer needs it.
    drop((request, body, permit));
    let agent = &address.agent;
    let extensions = ActiveExtensions::of(&agent.profile, headers);
    let exchange = A2aExchange { app, agent, headers, peer, caller: address.caller, extensions };
    match answer(&exchange, method, call, deadline).await {
        Ok(mut response) => {
            exchange.extensions.write(response.headers_mut());
            response
        }
        Err(status) => body::fail(&status),
    }
}

async fn answer(
    exchange: &A2aExchange<'_>,
    method: GrpcMethod,
    call: A2aCall,
    deadline: Option<Instant>,
) -> Result<Response<Body>, GrpcStatus> {
    let dialect = method.dialect;
    let status_of = |error: &Error| dialect.grpc_status(&fault_of(dialect, error));
    let meta = exchange.meta(&call).map_err(|error| status_of(&error))?;
    match exchange.handler().handle(dialect, call, meta).await {
        Ok(A2aReply::Result(result)) => write_result(method, &result),
        Ok(A2aReply::Events(events)) => {
            let mut stream = exchange.open_stream(dialect, *events, Box::new(GrpcFraming(method)));
            // An error before the first event is the status of the call, without a stream.
            let first = stream.first_chunk().await.map_err(|error| status_of(&error))?;
            let name = stream.live.header();
            let mut response = body::stream(stream_messages(stream, first, deadline));
            response.headers_mut().insert(STREAM_ID, name);
            Ok(response)
        }
        // In 0.3 the method is also how a client without HTTP reads the card at all.
        Ok(A2aReply::NoExtendedCard) if dialect < Dialect::V1 && exchange.app.shows_cards() => {
            let card = exchange.app.cards.default_0_3(&exchange.app.engine).await.unwrap_or_default();
            write_json(method, &card)
        }
        Ok(A2aReply::NoExtendedCard) => {
            let message = "this agent has no extended card";
            Err(dialect.grpc_status(&dialect.problem(A2aProblem::ExtendedCardUnsupported, message)))
        }
        Err(error) => Err(status_of(&error)),
    }
}

fn write_result(method: GrpcMethod, result: &A2aResult) -> Result<Response<Body>, GrpcStatus> {
    match result {
        A2aResult::Task { task, detail } => write_answer(|out| method.write_task(out, task, *detail)),
        A2aResult::Sent { task, detail } => write_answer(|out| method.write_sent(out, task, *detail)),
        _ => {
            let mut json = Vec::with_capacity(1024);
            result.write(method.dialect, &mut json);
            write_json(method, &json)
        }
    }
}

fn write_json(method: GrpcMethod, json: &[u8]) -> Result<Response<Body>, GrpcStatus> {
    write_answer(|out| method.write_result(out, json, None))
}

fn write_answer(
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ProtobufError>,
) -> Result<Response<Body>, GrpcStatus> {
    let mut out = Vec::with_capacity(1024);
    match grpc::write_message(&mut out, write) {
        Ok(()) => Ok(body::message(out)),
        Err(error) => Err(unwritable(&error)),
    }
}

/// The status for a result of ours that does not fit its message: a defect, which the operator learns of.
fn unwritable(error: &dyn std::error::Error) -> GrpcStatus {
    tracing::error!(%error, "a result could not be written as a message of gRPC");
    GrpcStatus::new(GrpcCode::Internal, "the result could not be written: get the task over another binding")
}

/// Frames as messages, with the cursor in the metadata of each event.
struct GrpcFraming(GrpcMethod);

impl StreamFraming for GrpcFraming {
    fn write_frame(
        &self,
        out: &mut Vec<u8>,
        _: Dialect,
        cursor: Option<u64>,
        write: &mut dyn FnMut(&mut Vec<u8>),
    ) {
        let mut json = Vec::with_capacity(512);
        write(&mut json);
        // Empty for an event that has no frame.
        if json.is_empty() {
            return;
        }
        if let Err(error) = grpc::write_message(out, |out| self.0.write_result(out, json, cursor)) {
            unwritable(&error);
        }
    }

    /// The pings of HTTP/2 do that.
    fn keep_alive(&self) -> Option<Bytes> {
        None
    }

    /// Errors are the status in the trailers.
    fn write_fault(&self, _: &mut Vec<u8>, _: Dialect, _: &A2aFault) {}
}

/// The messages of a stream, until its end or the deadline of its call.
fn stream_messages(
    stream: A2aEventStream,
    first: Option<StreamChunk>,
    deadline: Option<Instant>,
) -> impl futures_util::Stream<Item = Result<Bytes, GrpcStatus>> + Send + 'static {
    futures_util::stream::unfold(Some((stream, first)), move |state| async move {
        let (mut stream, first) = state?;
        let dialect = stream.dialect;
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let chunk = match first {
            Some(first) => Ok(first),
            None => tokio::select! {
                chunk = stream.next_chunk() => chunk,
                () = expired => return Some((Err(deadline_exceeded()), None)),
            },
        };
        let status = match chunk {
            Ok(StreamChunk::Frames(bytes) | StreamChunk::KeepAlive(bytes)) => {
                return Some((Ok(bytes), Some((stream, None))));
            }
            Ok(StreamChunk::End(StreamEnd::Complete)) => return None,
            Ok(StreamChunk::End(StreamEnd::CredentialsEnded)) => {
                let message = "the credentials of the call are no longer valid: subscribe with new ones";
                dialect.grpc_status(&dialect.problem(A2aProblem::Unauthenticated, message))
            }
            Ok(StreamChunk::End(StreamEnd::ServerStops(cursor))) => {
                let message = format!("the server is stopping: subscribe again with last-event-id {cursor}");
                GrpcStatus::new(GrpcCode::Unavailable, message)
            }
            Err(error) => {
                stream.live.record_event("error".into(), Some(&stream.task_id), None);
                dialect.grpc_status(&fault_of(dialect, &error))
            }
        };
        Some((Err(status), None))
    })
}

fn fail(dialect: Dialect, fault: &A2aFault) -> Response<Body> {
    body::fail(&dialect.grpc_status(fault))
}
