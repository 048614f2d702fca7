//! The gRPC binding of A2A (1.0, section 10) over HTTP/2: the JSON of REST, as protobuf. Results of 0.3 are translated to
//! the JSON of JSON-RPC.
//!
//! A deadline goes with every call that has one response. The cursor of a stream is metadata, and that of an event is in
//! the event's own metadata, where the extension for cursors puts it; it is taken out, so that an event is the same in
//! every binding.

use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue, header};
use base64::Engine as _;
use nuncio_outbound::{HttpRequest, HttpResponse, origin};
use nuncio_wire::{
    a2a::{A2aCall, Dialect, GrpcMethod, card::CURSOR_EXTENSION},
    grpc::{self, GrpcCode, GrpcStatus, MessageReader},
    jsonrpc::RpcErrorObject,
    protobuf::ProtobufLimits,
};
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{A2aEventSource, A2aRoute, ReceivedEvent, as_json, code_of, malformed, split_name};
use crate::a2a::{A2aClientError, http::A2aHttp};

const CONTENT_TYPE: &str = "application/grpc";
/// The nesting of a message that is read.
const MAX_DEPTH: usize = 100;
/// How much longer the JSON of a message may be than the message: escaped text, and the names of members.
const MAX_GROWTH: usize = 6;

/// Sends a call and returns its result.
pub(super) async fn call(route: &A2aRoute, call: &A2aCall) -> Result<Box<RawValue>, A2aClientError> {
    let deadline = route.http.answer_timeout();
    let (method, response) = send(route, call, None, Some(deadline)).await?;
    let mut response = response.body_limit(deadline);
    let body = response.read_to_end(route.http.max_answer()).await?;
    let end = GrpcCallEnd { route, precondition: precondition_code(route, call), head: response.headers() };
    end.check(response.trailers())?;
    let message = grpc::read_message(&body).map_err(|status| bad_frame(&status))?;
    let json = read(method, message, route.http.max_answer())?;
    route.interface.dialect.read_rest_result(call, json).map_err(|error| malformed(&error))
}

/// Sends a call whose response is a stream.
pub(super) async fn open(
    route: &A2aRoute,
    call: &A2aCall,
    after: Option<&str>,
) -> Result<A2aEventSource, A2aClientError> {
    let (method, response) = send(route, call, after, None).await?;
    // A call that fails at once has its status in the headers.
    if response.headers().contains_key(STATUS) {
        GrpcCallEnd { route, precondition: UNSUPPORTED_OPERATION, head: response.headers() }.check(None)?;
    }
    let reader = MessageReader::new(route.http.max_event());
    Ok(A2aEventSource::Grpc(Box::new(GrpcEventSource { route: route.clone(), response, reader, method })))
}

/// Events as the messages of a response.
pub(in crate::a2a) struct GrpcEventSource {
    route: A2aRoute,
    response: HttpResponse,
    reader: MessageReader,
    method: GrpcMethod,
}

impl GrpcEventSource {
    pub(super) async fn next(&mut self) -> Result<Option<ReceivedEvent>, A2aClientError> {
        loop {
            if let Some(message) = self.reader.next_message().map_err(|status| bad_frame(&status))? {
                let (json, id) = take_cursor(read(self.method, &message, self.route.http.max_event())?)?;
                let json = self.method.dialect.read_rest_event(json).map_err(|error| malformed(&error))?;
                return Ok(Some(ReceivedEvent { id, json }));
            }
            match self.response.chunk().await? {
                Some(piece) => self.reader.push(&piece),
                None if self.reader.is_within_message() => return Err(cut(&self.route.interface.url)),
                None => {
                    let (route, head) = (&self.route, self.response.headers());
                    let end = GrpcCallEnd { route, precondition: UNSUPPORTED_OPERATION, head };
                    return end.check(self.response.trailers()).map(|()| None);
                }
            }
        }
    }
}

async fn send(
    route: &A2aRoute,
    call: &A2aCall,
    after: Option<&str>,
    deadline: Option<Duration>,
) -> Result<(GrpcMethod, HttpResponse), A2aClientError> {
    let unsupported = |why: &str| A2aClientError::Unsupported(why.to_owned());
    let (method, path) = GrpcMethod::of_call(route.interface.dialect, call)
        .ok_or_else(|| unsupported("A2A over gRPC has no method for this"))?;
    let params = route.request(call)?;
    let mut body = Vec::with_capacity(params.len() + 64);
    grpc::write_message(&mut body, |out| method.write_request(out, &params))
        .map_err(|error| A2aClientError::Unsupported(format!("this cannot be sent over gRPC: {error}")))?;
    // The service has one path on its host, whatever the card's URL says.
    let mut url = route.interface.url.clone();
    url.set_path(&path);
    let version = HeaderValue::from_static(route.interface.dialect.version());
    let mut request = HttpRequest::post(url.clone())
        .headers(route.http.metadata()?)
        .header(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))
        .header(header::TE, HeaderValue::from_static("trailers"))
        .header(HeaderName::from_static("a2a-version"), version)
        .body(body);
    if let Some(timeout) = deadline.and_then(|limit| HeaderValue::try_from(grpc::write_timeout(limit)).ok()) {
        request = request.header(HeaderName::from_static("grpc-timeout"), timeout);
    }
    A2aHttp::log_sent(&url, &params);
    let response = match route.http.send(&url, A2aHttp::with_cursor(request, after)?).await {
        Err(A2aClientError::Unreachable { at, sent: true, .. }) if route.http.lacks_http2().await => {
            let why = "the port speaks HTTP/1 alone, and gRPC needs HTTP/2".to_owned();
            return Err(A2aClientError::Unreachable { at, why, sent: false });
        }
        answered => answered?,
    };
    if response.status().is_success() && is_grpc(response.headers()) {
        return Ok((method, response));
    }
    let is_success = response.status().is_success();
    let answer = route.http.read_answer(&url, response).await?;
    match is_success {
        true => Err(A2aClientError::Malformed("expected application/grpc".to_owned())),
        false => Err(answer.refused()),
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind == CONTENT_TYPE || kind.starts_with("application/grpc+") || kind.starts_with("application/grpc;")
}

fn read(method: GrpcMethod, message: &[u8], max: usize) -> Result<Box<RawValue>, A2aClientError> {
    let limits = ProtobufLimits { max_depth: MAX_DEPTH, max_json_bytes: max.saturating_mul(MAX_GROWTH) };
    let json = method.read_response(message, limits);
    let json = json.map_err(|error| A2aClientError::Malformed(error.to_string()))?;
    tracing::debug!(target: "nuncio_client::wire", body = %json, "received");
    Ok(json)
}

/// An event without the cursor in its metadata, and the cursor.
fn take_cursor(event: Box<RawValue>) -> Result<(Box<RawValue>, Option<String>), A2aClientError> {
    if !event.get().contains(CURSOR_EXTENSION) {
        return Ok((event, None));
    }
    let mut value: Value = serde_json::from_str(event.get()).map_err(|error| malformed(&error))?;
    let payload = value.as_object_mut().and_then(|members| members.values_mut().next());
    let Some(payload) = payload.and_then(Value::as_object_mut) else { return Ok((event, None)) };
    let Some(metadata) = payload.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Ok((event, None));
    };
    let cursor = metadata.shift_remove(CURSOR_EXTENSION);
    if metadata.is_empty() {
        payload.shift_remove("metadata");
    }
    let cursor = cursor.and_then(|cursor| cursor.as_str().map(str::to_owned));
    Ok((as_json(value.to_string().as_bytes())?, cursor))
}

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const UNSUPPORTED_OPERATION: i64 = -32004;

/// The code of `FAILED_PRECONDITION` without a reason. The servers of 0.3 send none; the call decides there.
fn precondition_code(route: &A2aRoute, call: &A2aCall) -> i64 {
    match call {
        A2aCall::Cancel { .. } if route.interface.dialect < Dialect::V1 => -32002,
        A2aCall::ExtendedCard if route.interface.dialect < Dialect::V1 => -32007,
        _ => UNSUPPORTED_OPERATION,
    }
}

/// How a call ended: by its trailers, or by the headers of a response that has nothing else.
struct GrpcCallEnd<'a> {
    route: &'a A2aRoute,
    /// The code for a state that does not allow the call.
    precondition: i64,
    head: &'a HeaderMap,
}

impl GrpcCallEnd<'_> {
    fn check(&self, trailers: Option<&HeaderMap>) -> Result<(), A2aClientError> {
        let trailers = trailers.filter(|trailers| trailers.contains_key(STATUS)).unwrap_or(self.head);
        let text = |name: HeaderName| trailers.get(name).and_then(|value| value.to_str().ok());
        // Without a status the connection, or a proxy, ended the call.
        let Some(code) = text(STATUS).map(GrpcCode::parse) else {
            return Err(cut(&self.route.interface.url));
        };
        if code == GrpcCode::Ok {
            return Ok(());
        }
        let details = text(DETAILS).map(decode_details).unwrap_or_default();
        let message = text(MESSAGE).map(grpc::decode_text).unwrap_or_default();
        tracing::debug!(target: "nuncio_client::wire", ?code, message, "received");
        let retry_after = nuncio_outbound::retry_after(trailers, std::time::SystemTime::now());
        let challenge = text(header::WWW_AUTHENTICATE).map(str::to_owned);
        Err(self.error(GrpcStatus { code, message, details }, retry_after, challenge))
    }

    /// The error of a status: the same case as in the other bindings.
    fn error(
        &self,
        status: GrpcStatus,
        retry_after: Option<Duration>,
        challenge: Option<String>,
    ) -> A2aClientError {
        let GrpcStatus { code, mut message, details } = status;
        let mut named = details.iter().find_map(|detail| code_of(detail["reason"].as_str()?));
        if let Some((code, text)) =
            split_name(&message).filter(|_| self.route.interface.dialect < Dialect::V1)
        {
            named = named.or(Some(code));
            message = text.to_owned();
        }
        let at = origin(&self.route.interface.url);
        let http =
            |status: u16, body: String| A2aClientError::Http { at: at.clone(), status, body, retry_after };
        let code = match (code, named) {
            (GrpcCode::Unauthenticated | GrpcCode::PermissionDenied, _) => {
                let status = if code == GrpcCode::Unauthenticated { 401 } else { 403 };
                let supplied = self.route.http.is_authenticated();
                return A2aClientError::Unauthorized { at, status, supplied, body: message, challenge };
            }
            (_, Some(code)) => code,
            (GrpcCode::Unavailable, _) => return http(503, message),
            (GrpcCode::ResourceExhausted, _) => return http(429, message),
            // The service, or the method, is not served there.
            (GrpcCode::Unimplemented, _) => return http(501, message),
            (GrpcCode::DeadlineExceeded, _) => {
                return A2aClientError::Timeout { at, limit: self.route.http.answer_timeout() };
            }
            (GrpcCode::Cancelled | GrpcCode::Aborted, _) => {
                return A2aClientError::Unreachable { at, why: message, sent: true };
            }
            (GrpcCode::NotFound, _) => -32001,
            (GrpcCode::FailedPrecondition, _) => self.precondition,
            (GrpcCode::InvalidArgument | GrpcCode::OutOfRange, _) => -32602,
            _ => -32603,
        };
        let data = (!details.is_empty()).then_some(Value::Array(details));
        A2aClientError::Rpc(RpcErrorObject { code, message, data })
    }
}

/// The details of a trailer: base64, with or without padding.
fn decode_details(text: &str) -> Vec<Value> {
    let bytes = base64::prelude::BASE64_STANDARD_NO_PAD.decode(text.trim_end_matches('='));
    bytes.map(|bytes| GrpcStatus::read_details(&bytes)).unwrap_or_default()
}

fn bad_frame(status: &GrpcStatus) -> A2aClientError {
    A2aClientError::Malformed(status.message.clone())
}

fn cut(url: &Url) -> A2aClientError {
    let why = "the response ended without a status".to_owned();
    A2aClientError::Unreachable { at: origin(url), why, sent: true }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_cursor_of_an_event_is_taken_out_of_its_metadata() {
        let check = |event: Value, expected: Value, cursor: Option<&str>| {
            let (json, got) = take_cursor(as_json(event.to_string().as_bytes()).unwrap()).unwrap();
            assert_eq!(
                (serde_json::from_str::<Value>(json.get()).unwrap(), got.as_deref()),
                (expected, cursor)
            );
        };
        let plain = json!({ "statusUpdate": { "taskId": "t" } });
        let with = json!({ "statusUpdate": { "taskId": "t", "metadata": { CURSOR_EXTENSION: "7" } } });
        check(plain.clone(), plain.clone(), None);
        check(with, plain, Some("7"));
        let both = json!({ "task": { "id": "t", "metadata": { "a": 1, CURSOR_EXTENSION: "8" } } });
        check(both, json!({ "task": { "id": "t", "metadata": { "a": 1 } } }), Some("8"));
    }
}
