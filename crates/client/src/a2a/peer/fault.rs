//! Maps the A2A client's errors to those of a peer.

use std::time::Duration;

use nuncio_wire::{a2a::Dialect, jsonrpc::RpcErrorObject};
use serde_json::Value;

use crate::{a2a::A2aClientError, peer::PeerError};

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const TASK_NOT_FOUND: i64 = -32001;
const INVALID_AGENT_RESPONSE: i64 = -32006;
const LAST_OF_THE_PROTOCOL: i64 = -32011;
const UNSUPPORTED_OPERATION: i64 = -32004;
const NO_STREAMING_0_1: i64 = -32006;

/// The error, by what a caller can do about it.
pub(super) fn peer_error(error: A2aClientError) -> PeerError {
    let words = error.to_string();
    match error {
        A2aClientError::Unreachable { at, why, sent: false } => PeerError::Unreachable { at, why },
        A2aClientError::Unreachable { .. }
        | A2aClientError::Timeout { .. }
        | A2aClientError::Ended
        | A2aClientError::Cut { .. } => PeerError::Cut(words),
        A2aClientError::NoCard { at, why } => PeerError::NoCard { at, why },
        A2aClientError::BadCard { at, why } => {
            PeerError::Malformed { at, why: format!("its card is not valid: {why}") }
        }
        A2aClientError::UntrustedCard { .. }
        | A2aClientError::NoCommonVersion { .. }
        | A2aClientError::NoCommonBinding(_)
        | A2aClientError::ExtensionRequired(_)
        | A2aClientError::Unsupported(_)
        | A2aClientError::Setup(_) => PeerError::Unsupported(words),
        A2aClientError::Unauthorized { at, status, body, .. } => {
            let why = if body.is_empty() { format!("HTTP {status}") } else { body };
            PeerError::Unauthorized { at, why }
        }
        A2aClientError::Http { status: 429, retry_after, .. }
        | A2aClientError::Http { status: 503, retry_after: retry_after @ Some(_), .. } => {
            PeerError::Busy { why: words, retry_after }
        }
        // A proxy also answers 5xx after it has forwarded the message and received no response.
        A2aClientError::Http { status: 500.., .. } => PeerError::Cut(words),
        A2aClientError::Http { status: 404 | 410, .. } => PeerError::Gone(words),
        A2aClientError::Http { .. } => PeerError::Refused(words),
        A2aClientError::Rpc(error) => rpc_error(&error),
        A2aClientError::NotAStream => {
            PeerError::Malformed { at: "the agent".into(), why: "expected a stream of events".into() }
        }
        A2aClientError::Malformed(why) => PeerError::Malformed { at: "the agent".into(), why },
    }
}

fn rpc_error(error: &RpcErrorObject) -> PeerError {
    let words = error.message.clone();
    if let Some(retry_after) = retry_after(error.data.as_ref()) {
        return PeerError::Busy { why: words, retry_after: Some(retry_after) };
    }
    match error.code {
        TASK_NOT_FOUND => PeerError::Gone(words),
        METHOD_NOT_FOUND => PeerError::Unsupported(words),
        INTERNAL => PeerError::Cut(words),
        _ => PeerError::Refused(words),
    }
}

/// The agent's error text, if the error does not mean that the message was rejected: the work may have been
/// tried and failed.
pub(super) fn tried(error: &A2aClientError) -> Option<&str> {
    let A2aClientError::Rpc(error) = error else { return None };
    let is_refusal = match error.code {
        PARSE_ERROR | INVALID_REQUEST | METHOD_NOT_FOUND | INVALID_PARAMS => true,
        INVALID_AGENT_RESPONSE => false,
        LAST_OF_THE_PROTOCOL..=TASK_NOT_FOUND => true,
        _ => retry_after(error.data.as_ref()).is_some(),
    };
    (!is_refusal).then_some(&error.message)
}

/// `retryAfterSeconds` as Nuncio sends it: in the error details of 1.0, or as a plain member before.
fn retry_after(data: Option<&Value>) -> Option<Duration> {
    let seconds = |value: &Value| {
        let text = value["retryAfterSeconds"].as_str()?;
        text.parse().ok().map(Duration::from_secs)
    };
    match data? {
        Value::Array(details) => details.iter().find_map(|detail| seconds(&detail["metadata"])),
        other => seconds(other),
    }
}

/// Whether the agent has no streams, whatever its card declares.
pub(super) fn has_no_streams(error: &A2aClientError, dialect: Dialect) -> bool {
    let code = error.rpc_code();
    matches!(code, Some(METHOD_NOT_FOUND | UNSUPPORTED_OPERATION))
        || (dialect == Dialect::V0_1 && code == Some(NO_STREAMING_0_1))
        || matches!(error, A2aClientError::NotAStream | A2aClientError::Http { status: 501, .. })
}

/// Whether the agent does not know the method, and may speak another version.
pub(super) fn is_unknown_method(error: &A2aClientError) -> bool {
    error.rpc_code() == Some(METHOD_NOT_FOUND)
}

/// Whether the task does not exist.
pub(super) fn is_gone(error: &A2aClientError) -> bool {
    error.rpc_code() == Some(TASK_NOT_FOUND)
        || matches!(error, A2aClientError::Http { status: 404 | 410, .. })
}

/// Whether a request that is safe to repeat is worth a retry.
pub(super) fn is_transient(error: &A2aClientError) -> bool {
    let busy = matches!(error, A2aClientError::Rpc(rpc) if retry_after(rpc.data.as_ref()).is_some());
    let broken = matches!(error, A2aClientError::Rpc(rpc) if rpc.code == INTERNAL)
        || matches!(error, A2aClientError::Http { status: 500.., .. } | A2aClientError::Cut { .. });
    error.is_transient() || busy || broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_no_streams_if_it_answered_otherwise_not_if_its_words_say_so() {
        let words = A2aClientError::Malformed("unknown variant `stream of events`".into());
        assert!(!has_no_streams(&words, Dialect::V1));
        assert!(has_no_streams(&A2aClientError::NotAStream, Dialect::V1));
    }
}
