//! Errors of the A2A client, one case for each reaction of a program or a person.

use std::time::Duration;

use nuncio_outbound::OutboundError;
use nuncio_wire::jsonrpc::RpcErrorObject;

use super::CardVerificationError;

/// Why a request to an agent failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum A2aClientError {
    /// The reference points to no card.
    #[error("there is no agent card at {at}: {why}")]
    NoCard {
        /// The URL or path that was read.
        at: String,
        /// What was found there instead.
        why: String,
    },
    /// There is a card, but it cannot be used.
    #[error("the agent card at {at} is not valid: {why}")]
    BadCard {
        /// The URL or path of the card.
        at: String,
        /// What is wrong with it.
        why: String,
    },
    /// The card is not signed by a key that the user trusts.
    #[error("the agent card at {at} is not trusted: {why}")]
    UntrustedCard {
        /// The URL or path of the card.
        at: String,
        /// What is wrong with its signatures.
        why: CardVerificationError,
    },
    /// The agent and this client have no protocol version in common.
    #[error("the agent speaks A2A {offered}, not {wanted}{}", if *.is_known { "" } else { "; this client speaks 1.0, 0.3 and 0.1" })]
    NoCommonVersion {
        /// The versions that the agent's card names, for this client's bindings.
        offered: String,
        /// The version that was asked for.
        wanted: &'static str,
        /// Whether this client speaks one of the offered versions, on request.
        is_known: bool,
    },
    /// The agent and this client have no binding in common.
    #[error("{0}")]
    NoCommonBinding(String),
    /// The agent's card requires a protocol extension that the client does not know.
    #[error("the agent requires the extension {0}, which this client does not know")]
    ExtensionRequired(String),
    /// No connection.
    #[error("{at} cannot be reached: {why}")]
    Unreachable {
        /// Scheme, host and port.
        at: String,
        /// The network error.
        why: String,
        /// Whether the request may have reached the agent.
        sent: bool,
    },
    /// The agent requires authentication, or does not permit this caller.
    #[error("{at} refused the request with HTTP {status}{}{body}", if .body.is_empty() { "" } else { ": " })]
    Unauthorized {
        /// Scheme, host and port.
        at: String,
        /// 401 or 403.
        status: u16,
        /// Whether the request carried any credentials.
        supplied: bool,
        /// The beginning of the body.
        body: String,
        /// `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// The response is not an A2A response.
    #[error("{at} answered HTTP {status}{}{body}", if .body.is_empty() { "" } else { ": " })]
    Http {
        /// Scheme, host and port.
        at: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
        /// How long to wait before a retry, if the response gave a time.
        retry_after: Option<Duration>,
    },
    /// A JSON-RPC error from the agent.
    #[error("{}", .0.message)]
    Rpc(RpcErrorObject),
    /// The response does not have the shape that the protocol defines.
    #[error("the agent's answer is malformed: {0}")]
    Malformed(String),
    /// The response to a request for a stream is not one. The agent may have none, whatever its card declares.
    #[error("the agent's answer is malformed: expected a stream of events")]
    NotAStream,
    /// The agent, or the protocol version, does not support this.
    #[error("{0}")]
    Unsupported(String),
    /// No response within the timeout.
    #[error("{at} did not answer within {} s", .limit.as_secs_f32())]
    Timeout {
        /// Scheme, host and port.
        at: String,
        /// The timeout that ran out.
        limit: Duration,
    },
    /// The stream was cut before the task ended and could not be resumed.
    #[error(
        "the stream broke off before the task had ended, and {tries} attempts to continue it failed: {last}"
    )]
    Cut {
        /// The task's id, if it was known.
        task: Option<String>,
        /// The event to resume after.
        cursor: Option<String>,
        /// The number of attempts to resume.
        tries: u32,
        /// The error of the last attempt.
        last: Box<A2aClientError>,
    },
    /// The stream ended before the task did.
    #[error("the server ended the stream")]
    Ended,
    /// The HTTP client could not be built.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
}

impl From<OutboundError> for A2aClientError {
    fn from(error: OutboundError) -> Self {
        match error {
            OutboundError::Unreachable { to, why } => Self::Unreachable { at: to, why, sent: false },
            OutboundError::Cut { to, why } => Self::Unreachable { at: to, why, sent: true },
            OutboundError::Timeout { to, limit } => Self::Timeout { at: to, limit },
            OutboundError::Status { to, status, body, retry_after } => {
                Self::Http { at: to, status: status.as_u16(), body, retry_after }
            }
            OutboundError::TooLarge { max, .. } => Self::Malformed(format!("it is longer than {max} bytes")),
            OutboundError::Setup(why) => Self::Setup(why),
            // An agent's address is not filtered.
            error @ (OutboundError::Url(_) | OutboundError::Refused { .. } | OutboundError::Localhost(_)) => {
                Self::Unsupported(error.to_string())
            }
        }
    }
}

impl A2aClientError {
    /// Whether a retry of the same request may succeed: a network error, or a server that is starting or
    /// stopping.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Ended => true,
            Self::Http { status, .. } => matches!(status, 429 | 502..=504),
            _ => false,
        }
    }

    /// Whether the interface cannot be used at all and the request was certainly not carried out: no connection, or
    /// an answer that means that this binding is not spoken there.
    pub(super) fn is_unserved(&self) -> bool {
        match self {
            Self::Unreachable { sent, .. } => !sent,
            Self::Http { status, .. } => matches!(status, 404 | 405 | 415 | 501),
            _ => false,
        }
    }

    /// The code of the agent's JSON-RPC error.
    pub fn rpc_code(&self) -> Option<i64> {
        match self {
            Self::Rpc(error) => Some(error.code),
            Self::Cut { last, .. } => last.rpc_code(),
            _ => None,
        }
    }
}
