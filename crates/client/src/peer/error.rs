//! Errors of calls to a peer, one case for each reaction of a caller.

use std::time::Duration;

/// Why a request to a peer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// No connection; nothing was sent.
    #[error("{at} cannot be reached: {why}")]
    Unreachable {
        /// The peer's address.
        at: String,
        /// The error of the network or the operating system.
        why: String,
    },
    /// The address answers, but has no agent card. A proxy answers like this while the agent behind it starts.
    #[error("there is no agent card at {at}: {why}")]
    NoCard {
        /// The address of the card.
        at: String,
        /// What was found there instead.
        why: String,
    },
    /// The peer is overloaded or rate limits the caller.
    #[error("{why}{}", .retry_after.map(|after| format!(" (try again in {} s)", after.as_secs_f32())).unwrap_or_default())]
    Busy {
        /// The peer's own text.
        why: String,
        /// How long to wait before a retry, if the peer gave a time.
        retry_after: Option<Duration>,
    },
    /// The peer requires authentication, or does not permit the caller to do this.
    #[error("{at} refused the caller: {why}")]
    Unauthorized {
        /// The peer's address.
        at: String,
        /// The peer's own text.
        why: String,
    },
    /// The connection broke. Whether the work goes on is unknown, and the call cannot be resumed
    /// automatically.
    #[error("{0}")]
    Cut(String),
    /// During a call, the peer has been unreachable for as long as its options allow. It was retried until
    /// then, so a caller need not. Whether the work goes on is unknown.
    #[error("{at} has been unreachable for {} s: {why}", .lasted.as_secs())]
    Outage {
        /// The peer's address.
        at: String,
        /// How long it was retried.
        lasted: Duration,
        /// The error of the last attempt.
        why: String,
    },
    /// The call cannot be resumed: the peer does not know it, or does not retain calls.
    #[error("{0}")]
    Gone(String),
    /// The peer rejected the request. The same request would be rejected again.
    #[error("{0}")]
    Refused(String),
    /// The peer's response violates its protocol.
    #[error("{at} does not speak its protocol: {why}")]
    Malformed {
        /// The peer's address.
        at: String,
        /// What is wrong with the response.
        why: String,
    },
    /// This client does not support the request.
    #[error("{0}")]
    Unsupported(String),
}

impl PeerError {
    /// Whether a retry may succeed and the request was certainly not carried out.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoCard { .. } | Self::Busy { .. })
    }

    /// How long the peer asks to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The error of a read-only request: a broken connection left nothing behind there, so it counts as
    /// unreachable.
    pub(crate) fn into_read_error(self, at: &str) -> Self {
        match self {
            Self::Cut(why) => Self::Unreachable { at: at.to_owned(), why },
            other => other,
        }
    }
}
