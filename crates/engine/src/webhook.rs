//! The configuration of a webhook, independent of any protocol. The store keeps it as opaque bytes.

use serde::{Deserialize, Serialize};

/// A registered webhook: its URL, its credentials, and the dialect of its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookConfig {
    /// Unique within the task.
    pub id: String,
    /// The URL that receives the POST requests.
    pub url: String,
    /// Sent in a header of every delivery, so that the receiver recognizes its registration. Write-only:
    /// never read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How to authenticate at the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
    /// The dialect of the client that registered it, e.g. `a2a/0.3`: the payload is in that dialect.
    pub dialect: String,
}

/// How to authenticate at a webhook's receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authentication {
    /// Names of HTTP authentication schemes, best first.
    pub schemes: Vec<String>,
    /// The credentials after the scheme in `Authorization`. Write-only: never read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

impl WebhookConfig {
    /// The config as callers see it: without its secrets.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.token = None;
        if let Some(authentication) = &mut self.authentication {
            authentication.credentials = None;
        }
        self
    }
}
