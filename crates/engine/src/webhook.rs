//! Where a caller wants to be told, in words of no protocol. The store keeps it as opaque bytes.

use serde::{Deserialize, Serialize};

/// A registered webhook: an address, how to authenticate there, and in which dialect to speak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookConfig {
    /// Unique within the task.
    pub id: String,
    /// Where to POST.
    pub url: String,
    /// Sent back in a header, so that the receiver knows its own registration. Write-only: never read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How to authenticate at the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
    /// The dialect of whoever registered it, e.g. `a2a/0.3`: the payload is in that dialect.
    pub dialect: String,
}

/// How to authenticate at a webhook's receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authentication {
    /// Names of HTTP authentication schemes, best first.
    pub schemes: Vec<String>,
    /// What follows the scheme in `Authorization`. Write-only: never read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

impl WebhookConfig {
    /// The config as it is shown to callers: without its secrets.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.token = None;
        if let Some(authentication) = &mut self.authentication {
            authentication.credentials = None;
        }
        self
    }
}
