//! Parsing for peers that both send requests: requests, notifications, responses, and batches of them.

use serde_json::{error::Category, value::RawValue};

use super::{
    RpcErrorObject, RpcId, RpcRequest, RpcRequestError, RpcRequestErrorKind, RpcResponse,
    request::{RpcEnvelope, is_deeper, string},
};

/// One message of a peer.
#[derive(Debug, Clone)]
pub enum RpcMessage<'a> {
    /// A request or, without an id, a notification.
    Request(RpcRequest<'a>),
    /// The response to a request that this side sent.
    Response(RpcResponse<'a>),
}

/// The content of one body.
#[derive(Debug, Clone)]
pub enum RpcMessages<'a> {
    /// A single message.
    One(RpcMessage<'a>),
    /// A batch, possibly empty. Each message is parsed on its own: a malformed one does not affect the others.
    Batch(Vec<Result<RpcMessage<'a>, RpcRequestError>>),
}

/// Parses a body. `max_depth` bounds its nesting.
pub fn parse_messages(body: &[u8], max_depth: usize) -> Result<RpcMessages<'_>, RpcRequestError> {
    let error = |kind, message| RpcRequestError { id: None, kind, message };
    let text = std::str::from_utf8(body)
        .map_err(|e| error(RpcRequestErrorKind::Parse, format!("the body is not UTF-8: {e}")))?;
    if is_deeper(body, max_depth) {
        return Err(error(
            RpcRequestErrorKind::Invalid,
            format!("the body is nested deeper than {max_depth} levels"),
        ));
    }
    if !text.trim_start().starts_with('[') {
        return parse_one(text).map(RpcMessages::One);
    }
    let items: Vec<&RawValue> = serde_json::from_str(text)
        .map_err(|e| error(RpcRequestErrorKind::Parse, format!("the body is not JSON: {e}")))?;
    Ok(RpcMessages::Batch(items.into_iter().map(|item| parse_one(item.get())).collect()))
}

fn parse_one(text: &str) -> Result<RpcMessage<'_>, RpcRequestError> {
    let error = |kind, message| RpcRequestError { id: None, kind, message };
    let envelope = RpcEnvelope::read(text).map_err(|e| match e.classify() {
        Category::Data => error(RpcRequestErrorKind::Invalid, "expected a JSON-RPC object".to_owned()),
        _ => error(RpcRequestErrorKind::Parse, format!("the body is not JSON: {e}")),
    })?;
    let invalid = |id: Option<RpcId>, message: String| RpcRequestError {
        id,
        kind: RpcRequestErrorKind::Invalid,
        message,
    };
    let id = envelope.id.map(RpcId::read).transpose().map_err(|message| invalid(None, message))?;
    if envelope.version.map(RawValue::get) != Some("\"2.0\"") {
        return Err(invalid(id, "jsonrpc: expected \"2.0\"".to_owned()));
    }
    if let Some(method) = envelope.method {
        let Some(method) = string(method) else {
            return Err(invalid(id, "method: expected a string".to_owned()));
        };
        let params = envelope.params.filter(|params| params.get() != "null");
        return Ok(RpcMessage::Request(RpcRequest { id, method, params }));
    }
    let outcome = match (envelope.error.filter(|raw| raw.get() != "null"), envelope.result) {
        (Some(raw), _) => Err(serde_json::from_str::<RpcErrorObject>(raw.get())
            .map_err(|e| invalid(id.clone(), format!("error: {e}")))?),
        (None, Some(raw)) => Ok(raw),
        (None, None) => {
            return Err(invalid(id, "expected a method, a result or an error".to_owned()));
        }
    };
    Ok(RpcMessage::Response(RpcResponse { id, outcome }))
}
