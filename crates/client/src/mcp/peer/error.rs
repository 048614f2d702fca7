//! Why an MCP request has no result, and how each case maps to a `PeerError`.

use std::time::SystemTime;

use http::HeaderMap;
use nuncio_wire::{
    jsonrpc::{INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, RpcErrorObject},
    mcp::{
        FORBIDDEN, HEADER_MISMATCH, MISSING_CAPABILITY, McpErrorBody, TOO_FAST, UNAUTHENTICATED,
        UNSUPPORTED_VERSION, retry_after_in,
    },
};

use crate::peer::PeerError;

/// Bytes of a server's text that an error quotes.
const WORDS: usize = 300;

/// Why a request has no result.
#[derive(Debug, Clone)]
pub(super) enum McpRequestError {
    /// Passed to the caller unchanged.
    Peer(PeerError),
    /// The server no longer knows the session. The request was not carried out.
    SessionLost,
    /// A JSON-RPC error of the server.
    Rpc(RpcErrorObject),
    /// An HTTP status without a JSON-RPC error.
    Status {
        status: u16,
        /// The beginning of the body.
        why: String,
    },
}

impl From<PeerError> for McpRequestError {
    fn from(error: PeerError) -> Self {
        Self::Peer(error)
    }
}

impl McpRequestError {
    pub(super) fn cut(why: impl Into<String>) -> Self {
        Self::Peer(PeerError::Cut(why.into()))
    }

    pub(super) fn malformed(at: &str, why: impl Into<String>) -> Self {
        Self::Peer(PeerError::Malformed { at: at.into(), why: why.into() })
    }

    /// Converts to the caller's error.
    pub(super) fn into_peer(self, at: &str) -> PeerError {
        match self {
            Self::Peer(error) => error,
            Self::SessionLost => PeerError::Gone(format!("{at} has ended the session of the call")),
            Self::Rpc(error) => refusal(at, &error).unwrap_or_else(|| {
                PeerError::Refused(format!("{at} refused: {} ({})", error.message, error.code))
            }),
            Self::Status { status, why } if status >= 500 => {
                PeerError::Cut(format!("{at} answered HTTP {status}: {why}"))
            }
            Self::Status { status, why } => PeerError::Refused(format!("{at} answered HTTP {status}: {why}")),
        }
    }

    /// Whether a retry at the same address may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Peer(error) => error.is_transient() || matches!(error, PeerError::Cut(_)),
            Self::Status { status, .. } => *status >= 500,
            Self::Rpc(error) => retry_after_in(error).is_some(),
            Self::SessionLost => false,
        }
    }
}

/// The error, if it means that the request was not carried out. `None`: the work was tried and failed.
pub(super) fn refusal(at: &str, error: &RpcErrorObject) -> Option<PeerError> {
    let after = retry_after_in(error);
    let code = i32::try_from(error.code).unwrap_or_default();
    let why = || format!("{at} refused: {} ({code})", error.message);
    match code {
        _ if after.is_some() => Some(PeerError::Busy { why: error.message.clone(), retry_after: after }),
        TOO_FAST => Some(PeerError::Busy { why: error.message.clone(), retry_after: None }),
        FORBIDDEN | UNAUTHENTICATED if error.message.is_empty() => None,
        PARSE_ERROR | INVALID_REQUEST | METHOD_NOT_FOUND | INVALID_PARAMS | HEADER_MISMATCH
        | MISSING_CAPABILITY | UNSUPPORTED_VERSION => Some(PeerError::Refused(why())),
        _ => None,
    }
}

/// The error for an HTTP status that is not a success.
pub(super) fn of_status(at: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> McpRequestError {
    let McpErrorBody { error, retry_after: exact, .. } = McpErrorBody::read(body);
    match (status, error) {
        (429 | 503, error) => {
            let seconds = || nuncio_outbound::retry_after(headers, SystemTime::now());
            let why = error.map_or_else(|| format!("{at} answered HTTP {status}"), |error| error.message);
            PeerError::Busy { why, retry_after: exact.or_else(seconds) }.into()
        }
        (_, Some(error)) => McpRequestError::Rpc(error),
        (_, None) => McpRequestError::Status { status, why: body_excerpt(body) },
    }
}

/// The beginning of a server's text, in one line.
pub(super) fn body_excerpt(body: &[u8]) -> String {
    let text = McpErrorBody::read(body)
        .message
        .unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(WORDS)]).into_owned());
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.char_indices().nth(WORDS).map_or(line.len(), |(at, _)| at);
    if line.is_empty() { "nothing more".to_owned() } else { line[..end].to_owned() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn error(code: i64, data: Option<Value>) -> RpcErrorObject {
        RpcErrorObject { code, message: "words".into(), data }
    }

    #[test]
    fn an_error_tells_whether_anything_was_done() {
        let check = |error: RpcErrorObject, expected: &str| {
            let kind = match refusal("there", &error) {
                Some(PeerError::Busy { retry_after, .. }) => format!("busy {retry_after:?}"),
                Some(PeerError::Refused(_)) => "refused".into(),
                other => format!("{other:?}"),
            };
            assert_eq!(kind, expected, "{error:?}");
        };
        check(error(-32602, None), "refused");
        check(error(-32603, Some(json!({ "retryAfterMs": 250 }))), "busy Some(250ms)");
        check(error(-32029, None), "busy None");
        check(error(-32603, None), "None");
        check(error(-32000, None), "None");
    }

    #[test]
    fn a_status_is_read_with_its_body() {
        use http::header;

        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, http::HeaderValue::from_static("3"));
        let busy = of_status("there", 503, &headers, b"later").into_peer("there");
        let after = Some(Duration::from_secs(3));
        assert_eq!(busy, PeerError::Busy { why: "there answered HTTP 503".into(), retry_after: after });
        let body = br#"{"error":{"code":-32601,"message":"no"}}"#;
        assert!(
            matches!(of_status("there", 404, &headers, body), McpRequestError::Rpc(error) if error.code == -32601)
        );
        let page = of_status("there", 404, &headers, b"<html>\n  not here").into_peer("there");
        assert_eq!(page, PeerError::Refused("there answered HTTP 404: <html> not here".into()));
        assert!(matches!(of_status("there", 500, &headers, b"").into_peer("there"), PeerError::Cut(_)));
    }
}
