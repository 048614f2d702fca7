//! JSON-RPC 2.0 framing, shared by every protocol on top of it.
//!
//! Requests are parsed without building values: `id` and `params` remain the original bytes. The protocol above
//! parses the params of its methods.

mod message;
mod request;
mod response;

pub use message::{RpcMessage, RpcMessages, parse_messages};
pub use request::{RpcId, RpcRequest, RpcRequestError, RpcRequestErrorKind, is_deeper, parse_request};
pub use response::{RpcErrorObject, RpcResponse, RpcResponseError, parse_response};
use serde_json::Value;

use crate::json::{self, JsonObject};

/// The body is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The body is JSON but not a request.
pub const INVALID_REQUEST: i32 = -32600;
/// The method does not exist.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The params are invalid.
pub const INVALID_PARAMS: i32 = -32602;
/// The server failed internally.
pub const INTERNAL_ERROR: i32 = -32603;

/// Writes a response whose result the closure writes.
pub fn write_result(out: &mut Vec<u8>, id: &RpcId, result: impl FnOnce(&mut Vec<u8>)) {
    envelope(out, Some(id), |response| result(response.key("result")));
}

/// Writes an error response. Without an id it has `null`, as for a request that could not be parsed.
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
