//! The interface between a peer's requests and the source of their bearer tokens.

use async_trait::async_trait;
use url::{Origin, Url};

/// Supplies bearer tokens and reacts to challenges.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// The bearer token for a request to that resource, if there is one.
    async fn token(&self, resource: &Url) -> Option<String>;

    /// The resource answered 401, or 403 for a missing scope, with this `WWW-Authenticate`. Returns whether
    /// a retry is worthwhile because there is a new token. The error tells the user what to do.
    async fn challenged(
        &self,
        resource: &Url,
        status: u16,
        www_authenticate: Option<&str>,
    ) -> Result<bool, String>;
}

/// One token for one origin. It is sent to no other origin, whatever a card or a redirect names.
pub struct Bearer {
    source: BearerSource,
    origin: Origin,
}

enum BearerSource {
    Token(String),
    /// Read for every request, so that the token can be replaced while the program runs.
    File(std::path::PathBuf),
}

impl Bearer {
    /// A token for the origin of that address.
    pub fn new(token: impl Into<String>, at: &Url) -> Self {
        Self { source: BearerSource::Token(token.into()), origin: at.origin() }
    }

    /// A token for the origin of that address, read from a file.
    pub fn in_file(path: impl Into<std::path::PathBuf>, at: &Url) -> Self {
        Self { source: BearerSource::File(path.into()), origin: at.origin() }
    }
}

#[async_trait]
impl Authorizer for Bearer {
    async fn token(&self, resource: &Url) -> Option<String> {
        if resource.origin() != self.origin {
            return None;
        }
        match &self.source {
            BearerSource::Token(token) => Some(token.clone()),
            BearerSource::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Some(text.trim().to_owned()).filter(|token| !token.is_empty()),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "the token cannot be read");
                    None
                }
            },
        }
    }

    async fn challenged(&self, resource: &Url, status: u16, _: Option<&str>) -> Result<bool, String> {
        if resource.origin() != self.origin {
            return Err(format!(
                "the token is for {}, and {resource} is somewhere else: give that address itself to let it have the token",
                self.origin.ascii_serialization()
            ));
        }
        let what = match &self.source {
            BearerSource::Token(_) => "the token that was given".to_owned(),
            BearerSource::File(path) => format!("the token in {}", path.display()),
        };
        Err(format!("{resource} does not take {what} (HTTP {status}): give another one"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_shown_to_its_own_origin_only() {
        let url = |text: &str| Url::parse(text).unwrap();
        let bearer = Bearer::new("t", &url("https://a.example/agents/x"));
        assert_eq!(bearer.token(&url("https://a.example/mcp")).await.as_deref(), Some("t"));
        for other in [
            "http://a.example/",
            "https://a.example:8443/",
            "https://b.example/",
            "https://a.example.evil.org/",
        ] {
            assert_eq!(bearer.token(&url(other)).await, None, "{other}");
            let why = bearer.challenged(&url(other), 401, None).await.unwrap_err();
            assert!(why.contains("the token is for https://a.example"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_token_in_a_file_may_be_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let at = Url::parse("https://a.example/").unwrap();
        let bearer = Bearer::in_file(file.path(), &at);
        assert_eq!(bearer.token(&at).await, None);
        for token in ["one", "two"] {
            std::fs::write(file.path(), format!("{token}\n")).unwrap();
            assert_eq!(bearer.token(&at).await.as_deref(), Some(token));
        }
    }
}
