//! The JSON-RPC binding: one URL, and the method in the body.

use ::http::Method;
use nuncio_wire::{
    a2a::A2aCall,
    jsonrpc::{self, RpcId},
};
use serde_json::value::RawValue;

use super::{A2aEventSource, A2aRoute, SseEventSource};
use crate::a2a::{
    A2aClientError,
    http::{Exchange, JSON_ONLY, ReadResponse, STREAM_ONLY},
};

/// Sends a call and returns its result.
pub(super) async fn call(route: &A2aRoute, call: &A2aCall) -> Result<Box<RawValue>, A2aClientError> {
    let answer = route.http.exchange(request(route, call, JSON_ONLY)?, None).await?;
    match result_of(&answer.body) {
        _ if answer.is_about_access() => Err(answer.refused()),
        // A JSON-RPC error is more specific than the HTTP status that it came with.
        Err(A2aClientError::Malformed(_)) if !answer.is_success() => Err(answer.refused()),
        result => result,
    }
}

/// Sends a call whose response is a stream.
pub(super) async fn open(
    route: &A2aRoute,
    call: &A2aCall,
    after: Option<&str>,
) -> Result<A2aEventSource, A2aClientError> {
    match route.http.open(request(route, call, STREAM_ONLY)?, after).await? {
        Ok(response) => Ok(SseEventSource::new(response, route.http.max_event(), read_event).into()),
        Err(answer) => Err(refusal(&answer)),
    }
}

fn request(route: &A2aRoute, call: &A2aCall, accept: &'static str) -> Result<Exchange, A2aClientError> {
    let (method, params) = route.params(call)?;
    let mut body = Vec::with_capacity(params.len() + 96);
    jsonrpc::write_request(&mut body, &RpcId::number(1), method, |out| out.extend_from_slice(&params));
    let (url, dialect) = (route.interface.url.clone(), route.interface.dialect);
    Ok(Exchange { method: Method::POST, url, body: Some(body), dialect, accept })
}

/// What a response that is no stream means.
fn refusal(answer: &ReadResponse) -> A2aClientError {
    if answer.is_about_access() {
        return answer.refused();
    }
    match result_of(&answer.body) {
        Err(error @ A2aClientError::Rpc(_)) => error,
        _ if !answer.is_success() => answer.refused(),
        _ => A2aClientError::NotAStream,
    }
}

fn read_event(data: &str) -> Result<Box<RawValue>, A2aClientError> {
    result_of(data.as_bytes())
}

/// The result of a JSON-RPC response, or its error.
fn result_of(body: &[u8]) -> Result<Box<RawValue>, A2aClientError> {
    let response =
        jsonrpc::parse_response(body).map_err(|error| A2aClientError::Malformed(error.to_string()))?;
    response.outcome.map(ToOwned::to_owned).map_err(A2aClientError::Rpc)
}
