//! Why somebody elsewhere could not be called, in the cases that a caller reacts to differently.

use std::time::Duration;

/// What went wrong between here and a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It cannot be reached, and nothing was asked of it.
    #[error("{at} cannot be reached: {why}")]
    Unreachable {
        /// Where it should be.
        at: String,
        /// What the network, or the system, said.
        why: String,
    },
    /// It is busy, or asked too often.
    #[error("{why}{}", .retry_after.map(|after| format!(" (try again in {} s)", after.as_secs_f32())).unwrap_or_default())]
    Busy {
        /// In its words.
        why: String,
        /// When it is worth another try.
        retry_after: Option<Duration>,
    },
    /// It wants to know who is calling, or does not want this caller to do this.
    #[error("{at} refused the caller: {why}")]
    Unauthorized {
        /// Where.
        at: String,
        /// In its words.
        why: String,
    },
    /// It broke off: whether the work goes on there is not known, and there is no way back by itself.
    #[error("{0}")]
    Cut(String),
    /// There is no way back to that call: the peer does not know it, or does not keep such things.
    #[error("{0}")]
    Gone(String),
    /// It does not take what was said. The same again would be refused again.
    #[error("{0}")]
    Refused(String),
    /// What it said is not what its protocol defines.
    #[error("{at} does not speak its protocol: {why}")]
    Malformed {
        /// Where.
        at: String,
        /// What is wrong with it.
        why: String,
    },
    /// This side cannot do that.
    #[error("{0}")]
    Unsupported(String),
}

impl PeerError {
    /// Whether the same request may succeed a little later, and has certainly not been carried out.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Busy { .. })
    }

    /// The same of a request that asked for nothing to be done: what broke off there left nothing behind.
    pub(crate) fn into_read_error(self, at: &str) -> Self {
        match self {
            Self::Cut(why) => Self::Unreachable { at: at.to_owned(), why },
            other => other,
        }
    }
}
