//! Why an outbound request has no response: one case for each reaction of a caller.

use std::{error::Error, time::Duration};

use http::StatusCode;

use crate::address::RefusedAddress;

/// Why a request has no response, or no usable one. No case shows more of a URL than its origin, because paths and
/// queries carry secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// Not a URL that can be requested.
    #[error("{0}")]
    Url(String),
    /// The policy refuses every address of the host.
    #[error("{}", refusal_text(.host, .refused))]
    Refused {
        /// The host as written in the URL.
        host: String,
        /// One of its addresses.
        refused: RefusedAddress,
    },
    /// The name means this machine, whatever a resolver returns.
    #[error("{0} is this machine: start the server with --allow-private-webhooks to allow it")]
    Localhost(String),
    /// No connection: nothing was sent, so a retry is safe.
    #[error("{to} cannot be reached: {why}")]
    Unreachable {
        /// Scheme, host and port; or the host, if its name did not resolve.
        to: String,
        /// The network error.
        why: String,
    },
    /// No response, or no more of it, within the limit. The request may have been carried out.
    #[error("{to} did not answer within {} s", .limit.as_secs_f32())]
    Timeout {
        /// Scheme, host and port.
        to: String,
        /// The limit that passed.
        limit: Duration,
    },
    /// The connection broke after the request was sent. The request may have been carried out.
    #[error("the connection to {to} broke off: {why}")]
    Cut {
        /// Scheme, host and port.
        to: String,
        /// The network error.
        why: String,
    },
    /// The response has a status that the caller does not accept.
    #[error("{to} answered HTTP {}{}{body}", .status.as_u16(), if .body.is_empty() { "" } else { ": " })]
    Status {
        /// Scheme, host and port.
        to: String,
        /// The HTTP status.
        status: StatusCode,
        /// The beginning of the body.
        body: String,
        /// How long to wait before a retry, if the response names a time.
        retry_after: Option<Duration>,
    },
    /// The body exceeds the caller's limit.
    #[error("the answer of {to} is longer than {max} bytes")]
    TooLarge {
        /// Scheme, host and port.
        to: String,
        /// The limit, in bytes.
        max: usize,
    },
    /// The HTTP client could not be built.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
}

/// A host that is written as an address is named once.
fn refusal_text(host: &str, refused: &RefusedAddress) -> String {
    let why = refused.to_string();
    match why.strip_prefix(host.trim_matches(['[', ']'])) {
        Some(is_what) if is_what.starts_with(' ') => format!("{host} is refused: it{is_what}"),
        _ => format!("{host} is refused: {why}"),
    }
}

impl OutboundError {
    /// Whether a retry would fail the same way as long as the server's configuration is unchanged.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Url(_) | Self::Refused { .. } | Self::Localhost(_))
    }

    /// Whether the request certainly did not reach the server.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Url(_)
            | Self::Refused { .. }
            | Self::Localhost(_)
            | Self::Unreachable { .. }
            | Self::Setup(_) => true,
            Self::Timeout { .. } | Self::Cut { .. } | Self::Status { .. } | Self::TooLarge { .. } => false,
        }
    }

    /// The network error alone, without the address, for a caller that names the address itself.
    pub fn reason(&self) -> String {
        match self {
            Self::Unreachable { why, .. } | Self::Cut { why, .. } => why.clone(),
            other => other.to_string(),
        }
    }
}

/// The limits of a request, to name the one that passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    pub(crate) connect: Option<Duration>,
    pub(crate) whole: Option<Duration>,
}

/// Maps the HTTP library's error. Its text is never shown as a whole, because it quotes the URL.
pub(crate) fn classify(to: &str, limits: RequestLimits, error: reqwest::Error) -> OutboundError {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(source) = cause.source() {
        // The resolver's own verdict.
        if let Some(verdict) = source.downcast_ref::<OutboundError>() {
            return verdict.clone();
        }
        cause = source;
    }
    let (to, why) = (to.to_owned(), cause.to_string());
    // A request that could not be built was not sent, either.
    if error.is_connect() || error.is_builder() {
        let why = match limits.connect {
            Some(limit) if error.is_timeout() => format!("no connection within {} s", limit.as_secs_f32()),
            _ => why,
        };
        return OutboundError::Unreachable { to, why };
    }
    match limits.whole {
        Some(limit) if error.is_timeout() => OutboundError::Timeout { to, limit },
        _ => OutboundError::Cut { to, why },
    }
}
