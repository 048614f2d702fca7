//! Why an agent could not be talked to. Each case is one that a program or a person reacts to differently.

use std::time::Duration;

use nuncio_wire::jsonrpc::RpcErrorObject;

/// What went wrong between this client and an agent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum A2aClientError {
    /// The reference leads to no card.
    #[error("there is no agent card at {at}: {why}")]
    NoCard {
        /// Where it was looked for.
        at: String,
        /// What stood there instead.
        why: String,
    },
    /// A card, but not one that can be used.
    #[error("the agent card at {at} is not valid: {why}")]
    BadCard {
        /// Where it stands.
        at: String,
        /// What is wrong with it.
        why: String,
    },
    /// The agent speaks no version of the protocol that this client speaks.
    #[error("{0}")]
    NoCommonVersion(String),
    /// The agent offers no binding that this client has.
    #[error("{0}")]
    NoCommonBinding(String),
    /// No connection.
    #[error("{at} cannot be reached: {why}")]
    Unreachable {
        /// Scheme, host and port.
        at: String,
        /// What the network said.
        why: String,
        /// Whether the request may have arrived.
        sent: bool,
    },
    /// The agent wants to know who is calling, or does not want this caller.
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
    /// An answer that is no A2A answer.
    #[error("{at} answered HTTP {status}{}{body}", if .body.is_empty() { "" } else { ": " })]
    Http {
        /// Scheme, host and port.
        at: String,
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
        /// When it is worth another try, where it says so.
        retry_after: Option<Duration>,
    },
    /// The agent's own error.
    #[error("{}", .0.message)]
    Rpc(RpcErrorObject),
    /// What came does not have the shape that the protocol defines.
    #[error("the agent's answer is malformed: {0}")]
    Malformed(String),
    /// The agent, or the version of the protocol, does not do this.
    #[error("{0}")]
    Unsupported(String),
    /// No answer in time.
    #[error("{at} did not answer within {} s", .limit.as_secs_f32())]
    Timeout {
        /// Scheme, host and port.
        at: String,
        /// The limit.
        limit: Duration,
    },
    /// A stream broke off before the task had ended, and could not be continued.
    #[error(
        "the stream broke off before the task had ended, and {tries} attempts to continue it failed: {last}"
    )]
    Cut {
        /// The task, where it was known.
        task: Option<String>,
        /// After which event to continue.
        cursor: Option<String>,
        /// How often it was tried.
        tries: u32,
        /// What the last attempt said.
        last: Box<A2aClientError>,
    },
    /// A stream ended although its task had not.
    #[error("the server ended the stream")]
    Ended,
    /// This process cannot make requests.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
}

impl A2aClientError {
    /// Whether the same request may succeed a little later: the network, or a server that is on its way
    /// down or up.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Ended => true,
            Self::Http { status, .. } => matches!(status, 429 | 502..=504),
            _ => false,
        }
    }

    /// The code of the agent's own error.
    pub fn rpc_code(&self) -> Option<i64> {
        match self {
            Self::Rpc(error) => Some(error.code),
            Self::Cut { last, .. } => last.rpc_code(),
            _ => None,
        }
    }
}
