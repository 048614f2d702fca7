//! Errors of the tool client, one case for each reaction of a program or a person.

use std::{sync::Arc, time::Duration};

use nuncio_wire::jsonrpc::RpcErrorObject;
use serde_json::Value;

use super::ClientToken;
use crate::{mcp::peer::error::McpRequestError, peer::PeerError};

/// Why a request to a server failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ToolError {
    /// The HTTP client could not be built.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// No connection.
    #[error("{at} cannot be reached: {why}")]
    Unreachable {
        /// The endpoint's URL.
        at: String,
        /// The network error.
        why: String,
    },
    /// No response within the timeout.
    #[error("{at} did not answer within {} s", .limit.as_secs_f32())]
    Timeout {
        /// The endpoint's URL.
        at: String,
        /// The timeout that ran out.
        limit: Duration,
    },
    /// The response was cut. Whether the request was carried out is unknown.
    #[error("the answer of {at} broke off: {why}")]
    Cut {
        /// The endpoint's URL.
        at: String,
        /// The network error.
        why: String,
    },
    /// The server requires authentication, or does not permit this caller to do this.
    #[error("{at} refused the request (HTTP {status}): {why}")]
    Unauthorized {
        /// The endpoint's URL.
        at: String,
        /// 401 or 403.
        status: u16,
        /// Whether the request carried a token.
        supplied: bool,
        /// The server's own text.
        why: String,
    },
    /// The server rate limits the caller or is overloaded.
    #[error("{why}{}", .retry_after.map(|after| format!(" (try again in {} s)", after.as_secs_f32())).unwrap_or_default())]
    TooFast {
        /// The server's own text.
        why: String,
        /// How long to wait before a retry.
        retry_after: Option<Duration>,
    },
    /// The response is not MCP.
    #[error("{at} answered HTTP {status}: {why}")]
    Http {
        /// The endpoint's URL.
        at: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the body.
        why: String,
    },
    /// A JSON-RPC error from the server.
    #[error("{}", .0.message)]
    Rpc(RpcErrorObject),
    /// The tool ran and reports an error.
    #[error("{why}")]
    Tool {
        /// The tool's own text.
        why: String,
        /// The tool's structured result.
        structured: Option<Value>,
    },
    /// The response does not have the shape that the protocol defines.
    #[error("the server's answer is malformed: {0}")]
    Malformed(String),
}

impl ToolError {
    /// Whether a retry may succeed and the request was certainly not carried out.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TooFast { .. } => true,
            Self::Http { status, .. } => matches!(status, 502..=504),
            _ => false,
        }
    }
}

/// What an error says about the client.
#[derive(Clone)]
pub(super) struct ErrorContext {
    /// The URL of the endpoint.
    pub(super) at: String,
    /// The token that requests carry.
    pub(super) token: Arc<ClientToken>,
}

impl ErrorContext {
    /// The error of a request that has no result.
    pub(super) fn error(&self, fail: McpRequestError) -> ToolError {
        let (at, supplied) = (self.at.clone(), self.token.is_set());
        match fail {
            McpRequestError::Rpc(error) => ToolError::Rpc(error),
            McpRequestError::Status { status, why } => ToolError::Http { at, status, why },
            McpRequestError::Unauthorized { status, why } => {
                // The error repeats this.
                let why = why.strip_prefix(&format!("HTTP {status}: ")).unwrap_or(&why).to_owned();
                ToolError::Unauthorized { at, status, supplied, why }
            }
            McpRequestError::Peer(PeerError::Unreachable { why, .. }) => ToolError::Unreachable { at, why },
            McpRequestError::Peer(PeerError::Busy { why, retry_after }) => {
                ToolError::TooFast { why, retry_after }
            }
            McpRequestError::Peer(PeerError::Malformed { why, .. }) => ToolError::Malformed(why),
            fail => {
                let why = fail.into_peer(&at).to_string();
                let why = why.strip_prefix(&format!("the answer of {at} broke off: ")).unwrap_or(&why);
                ToolError::Cut { at, why: why.to_owned() }
            }
        }
    }
}
