//! Parsing of responses, for clients.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::request::{RpcEnvelope, RpcId};

/// A server's response.
#[derive(Debug, Clone)]
pub struct RpcResponse<'a> {
    /// The id of the request; `None` if it is missing or not a legal id.
    pub id: Option<RpcId>,
    /// The result, or the error object.
    pub outcome: Result<&'a RawValue, RpcErrorObject>,
}

/// The error object of a response.
#[derive(Debug, Clone, PartialEq, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcErrorObject {
    /// The error code; its meaning depends on the protocol above.
    pub code: i64,
    /// The description for people.
    #[serde(default)]
    pub message: String,
    /// Details for programs.
    #[serde(default)]
    pub data: Option<Value>,
}

/// The body is not a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON-RPC response: {0}")]
pub struct RpcResponseError(String);

/// Parses a response.
pub fn parse_response(body: &[u8]) -> Result<RpcResponse<'_>, RpcResponseError> {
    let error = |e: &dyn std::fmt::Display| RpcResponseError(e.to_string());
    let text = std::str::from_utf8(body).map_err(|e| error(&e))?;
    let envelope = RpcEnvelope::read(text).map_err(|e| error(&e))?;
    let id = envelope.id.and_then(|raw| RpcId::read(raw).ok());
    // Some servers send both members, one of them null.
    let failed = envelope.error.filter(|raw| raw.get() != "null");
    let outcome = match (failed, envelope.result) {
        (Some(raw), _) => Err(serde_json::from_str(raw.get()).map_err(|e| error(&e))?),
        (None, Some(raw)) => Ok(raw),
        (None, None) => return Err(RpcResponseError("it has neither a result nor an error".to_owned())),
    };
    Ok(RpcResponse { id, outcome })
}
