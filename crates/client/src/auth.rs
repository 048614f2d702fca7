//! Who a peer takes us for: the seam between requests and whatever knows tokens.

use async_trait::async_trait;
use url::Url;

/// Knows what to show a server, and what to do when that was not enough.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// The bearer token for a request to that resource, if there is one.
    async fn token(&self, resource: &Url) -> Option<String>;

    /// The resource answered 401, or 403 for want of a scope, with this `WWW-Authenticate`. Returns whether it is
    /// worth another try: there is a new token. The error says what a person has to do.
    async fn challenged(
        &self,
        resource: &Url,
        status: u16,
        www_authenticate: Option<&str>,
    ) -> Result<bool, String>;
}

/// One token that never changes.
pub struct Bearer(pub String);

#[async_trait]
impl Authorizer for Bearer {
    async fn token(&self, _resource: &Url) -> Option<String> {
        Some(self.0.clone())
    }

    async fn challenged(&self, resource: &Url, status: u16, _: Option<&str>) -> Result<bool, String> {
        Err(format!("{resource} does not take the token that was given (HTTP {status}): give another one"))
    }
}
