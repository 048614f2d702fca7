//! Why a tool was not called or a resource not read. Each case is one that a program or a person reacts to
//! differently.

use std::time::Duration;

use nuncio_wire::jsonrpc::RpcErrorObject;
use serde_json::Value;

/// What went wrong between this client and a server.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ToolError {
    /// This process cannot make requests.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// No connection.
    #[error("{at} cannot be reached: {why}")]
    Unreachable {
        /// The endpoint.
        at: String,
        /// What the network said.
        why: String,
    },
    /// No answer in time.
    #[error("{at} did not answer within {} s", .limit.as_secs_f32())]
    Timeout {
        /// The endpoint.
        at: String,
        /// The limit.
        limit: Duration,
    },
    /// The answer broke off. Whether the request was carried out is not known.
    #[error("the answer of {at} broke off: {why}")]
    Cut {
        /// The endpoint.
        at: String,
        /// What the network said.
        why: String,
    },
    /// The server wants to know who is calling, or does not want this caller to do this.
    #[error("{at} refused the request (HTTP {status}): {why}")]
    Unauthorized {
        /// The endpoint.
        at: String,
        /// 401 or 403.
        status: u16,
        /// Whether the request carried a token.
        supplied: bool,
        /// In the server's words.
        why: String,
    },
    /// The caller does this too often, or the server is busy.
    #[error("{why}{}", .retry_after.map(|after| format!(" (try again in {} s)", after.as_secs_f32())).unwrap_or_default())]
    TooFast {
        /// In the server's words.
        why: String,
        /// When it is worth another try.
        retry_after: Option<Duration>,
    },
    /// An answer that is no answer of MCP.
    #[error("{at} answered HTTP {status}: {why}")]
    Http {
        /// The endpoint.
        at: String,
        /// The status.
        status: u16,
        /// The beginning of the body.
        why: String,
    },
    /// The server's own error.
    #[error("{}", .0.message)]
    Rpc(RpcErrorObject),
    /// The tool ran, and says that it failed.
    #[error("{why}")]
    Tool {
        /// In its words.
        why: String,
        /// What it says for programs.
        structured: Option<Value>,
    },
    /// What came does not have the shape that the protocol defines.
    #[error("the server's answer is malformed: {0}")]
    Malformed(String),
}

impl ToolError {
    /// Whether the same request may succeed a little later, and has certainly not been carried out.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TooFast { .. } => true,
            Self::Http { status, .. } => matches!(status, 502..=504),
            _ => false,
        }
    }
}
