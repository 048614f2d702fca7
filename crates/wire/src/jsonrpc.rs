//! JSON-RPC 2.0 framing, written once for every protocol that speaks it.
//!
//! Requests are taken apart without building values: `id` and `params` stay the bytes that came. What a
//! method wants in its params is the business of the protocol above.

mod message;
mod request;
mod response;

pub use message::{RpcMessage, RpcMessages, parse_messages};
pub use request::{RpcId, RpcRequest, RpcRequestError, RpcRequestErrorKind, parse_request};
pub use response::{RpcErrorObject, RpcResponse, RpcResponseError, parse_response};
use serde_json::Value;

use crate::json::{self, JsonObject};

/// The code of a body that is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The code of JSON that is not a request.
pub const INVALID_REQUEST: i32 = -32600;
/// The code of a method that there is not.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The code of params that are wrong.
pub const INVALID_PARAMS: i32 = -32602;
/// The code of a failure inside.
pub const INTERNAL_ERROR: i32 = -32603;

/// Writes a response that carries what the closure writes.
pub fn write_result(out: &mut Vec<u8>, id: &RpcId, result: impl FnOnce(&mut Vec<u8>)) {
    envelope(out, Some(id), |response| result(response.key("result")));
}

/// Writes an error response. Without an id it is `null`, as where the request could not be read.
pub fn write_error(out: &mut Vec<u8>, id: Option<&RpcId>, code: i32, message: &str, data: Option<&Value>) {
    envelope(out, id, |response| {
        response.object("error", |error| {
            error.value("code", &code);
            error.value("message", message);
            error.optional("data", data);
        });
    });
}

/// Writes a request, as a client sends it.
pub fn write_request(out: &mut Vec<u8>, id: &RpcId, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
    envelope(out, Some(id), |request| {
        request.value("method", method);
        params(request.key("params"));
    });
}

/// Writes a notification.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: impl FnOnce(&mut Vec<u8>)) {
    json::object(out, |envelope| {
        envelope.value("jsonrpc", "2.0");
        envelope.value("method", method);
        params(envelope.key("params"));
    });
}

fn envelope(out: &mut Vec<u8>, id: Option<&RpcId>, members: impl FnOnce(&mut JsonObject<'_>)) {
    json::object(out, |envelope| {
        envelope.value("jsonrpc", "2.0");
        envelope.key("id").extend_from_slice(id.map_or("null", RpcId::as_json).as_bytes());
        members(envelope);
    });
}
