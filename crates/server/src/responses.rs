//! HTTP responses that every binding uses: JSON bodies, refusals, and the head of an event stream.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, StatusCode, header},
};
use nuncio_engine::{Error, error::whole_seconds};
use nuncio_wire::jsonrpc;

use crate::request_checks::HttpRefusal;

/// A JSON response.
pub(crate) fn json(body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response head of every event stream.
pub(crate) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that buffer would delay events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The response to a request that exceeds a capacity or rate limit, before any of it was read.
pub(crate) fn refuse_busy(error: &Error) -> Response<Body> {
    let (status, after) = match error {
        Error::TooFast { retry_after, .. } => (StatusCode::TOO_MANY_REQUESTS, *retry_after),
        Error::Busy { retry_after, .. } => (StatusCode::SERVICE_UNAVAILABLE, *retry_after),
        _ => (StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(1)),
    };
    let mut response = refuse(&HttpRefusal { status, message: error.to_string() });
    response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(after).into());
    response
}

/// The message of a refusal, for a binding that writes the body in its own form.
#[derive(Debug, Clone)]
pub(crate) struct RefusalMessage(pub(crate) String);

/// The response to a request that was refused unread, with a body that JSON-RPC clients can parse.
pub(crate) fn refuse(refusal: &HttpRefusal) -> Response<Body> {
    let mut out = Vec::new();
    jsonrpc::write_error(&mut out, None, jsonrpc::INVALID_REQUEST, &refusal.message, None);
    let mut response = json(out);
    *response.status_mut() = refusal.status;
    response.extensions_mut().insert(RefusalMessage(refusal.message.clone()));
    response
}
