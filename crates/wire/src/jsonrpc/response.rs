//! Reading a response, as a client does.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::request::{Envelope, Id};

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Response<'a> {
    /// The id of the request; `None` where it is missing or of no legal kind.
    pub id: Option<Id>,
    /// The result, or why there is none.
    pub outcome: Result<&'a RawValue, ErrorObject>,
}

/// Why a server did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ErrorObject {
    /// The code; its meaning depends on the protocol above.
    pub code: i64,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// For programs.
    #[serde(default)]
    pub data: Option<Value>,
}

/// What came is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON-RPC response: {0}")]
pub struct ResponseError(String);

/// Takes a response apart.
pub fn parse_response(body: &[u8]) -> Result<Response<'_>, ResponseError> {
    let error = |e: &dyn std::fmt::Display| ResponseError(e.to_string());
    let text = std::str::from_utf8(body).map_err(|e| error(&e))?;
    let envelope = Envelope::read(text).map_err(|e| error(&e))?;
    let id = envelope.id.and_then(|raw| Id::read(raw).ok());
    // Some servers send both members, one of them null.
    let failed = envelope.error.filter(|raw| raw.get() != "null");
    let outcome = match (failed, envelope.result) {
        (Some(raw), _) => Err(serde_json::from_str(raw.get()).map_err(|e| error(&e))?),
        (None, Some(raw)) => Ok(raw),
        (None, None) => return Err(ResponseError("it has neither a result nor an error".to_owned())),
    };
    Ok(Response { id, outcome })
}
