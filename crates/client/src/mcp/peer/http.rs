//! The HTTP layer of an MCP peer: one client, tokens and challenges, redirects, size limits.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, HttpResponse, OutboundError, ProxyRule,
    RedirectRule,
};
use url::Url;

use super::{
    error::{McpRequestError, body_excerpt},
    options::McpPeerOptions,
};
use crate::{auth::Authorizer, peer::PeerError};

/// Idle time after which TCP keep-alive probes the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Bytes of an error response that are read.
const MAX_REFUSAL: usize = 64 * 1024;

/// A server's address and its HTTP client.
pub(super) struct McpHttp {
    client: HttpClient,
    pub(super) url: Url,
    /// The address for display.
    pub(super) at: String,
    authorizer: Option<Arc<dyn Authorizer>>,
    pub(super) options: Arc<McpPeerOptions>,
}

impl McpHttp {
    pub(super) fn new(url: &Url, options: &Arc<McpPeerOptions>) -> Result<Self, PeerError> {
        let client = HttpClient::new(HttpClientOptions {
            connect_timeout: Some(options.connect_timeout),
            // Detects a server that vanished, even on an idle stream.
            keep_alive: Some(KEEP_ALIVE),
            tls: options.tls.for_url(url),
            ..HttpClientOptions::new(HttpDestination::Chosen {
                redirects: RedirectRule::SameOrigin,
                proxy: ProxyRule::Never,
                any_certificate: false,
            })
        });
        let client = client.map_err(|error| PeerError::Unsupported(error.to_string()))?;
        let (at, authorizer) = (display_url(url), options.authorizer.clone());
        Ok(Self { client, url: url.clone(), at, authorizer, options: Arc::clone(options) })
    }

    /// Sends a request and returns when the response headers are there. A challenge goes to the authorizer;
    /// if that yields a new token, the request is retried once.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
        limit: Duration,
    ) -> Result<HttpResponse, McpRequestError> {
        let mut asked = false;
        loop {
            let mut request = HttpRequest::new(method.clone(), url.clone()).headers(headers.clone());
            if method == Method::POST {
                request = request.body(body.clone());
            }
            if let Some(token) = self.token().await? {
                request = request.header(header::AUTHORIZATION, token);
            }
            let answered = self.client.send(request.response_timeout(limit)).await;
            let answered = answered.map_err(|error| self.not_sent(&error))?;
            let status = answered.status().as_u16();
            let challenge = answered.header(header::WWW_AUTHENTICATE).map(str::to_owned);
            if status != 401 && status != 403 {
                return Ok(answered);
            }
            let refused = |why: String| Err(McpRequestError::Unauthorized { status, why });
            match &self.authorizer {
                // A 403 without a challenge has another reason than the token.
                Some(authorizer) if !asked && (status == 401 || challenge.is_some()) => {
                    match authorizer.challenged(&self.url, status, challenge.as_deref()).await {
                        Ok(true) => asked = true,
                        Ok(false) => return refused(self.refusal(answered).await),
                        Err(why) => return refused(why),
                    }
                }
                _ => return refused(format!("HTTP {status}: {}", self.refusal(answered).await)),
            }
        }
    }

    /// The whole body, up to the cap.
    pub(super) async fn whole(&self, answered: HttpResponse) -> Result<Vec<u8>, McpRequestError> {
        let mut answered = answered.silence_limit(self.options.silence);
        answered.read_to_end(self.options.max_message).await.map_err(|error| self.broke_off(&error))
    }

    pub(super) fn silent(&self, limit: Duration) -> McpRequestError {
        McpRequestError::cut(format!("{} did not answer within {} s", self.at, limit.as_secs_f32()))
    }

    pub(super) fn broke_off(&self, error: &OutboundError) -> McpRequestError {
        match error {
            OutboundError::Timeout { limit, .. } => self.silent(*limit),
            OutboundError::TooLarge { max, .. } => {
                McpRequestError::malformed(&self.at, format!("a message longer than {max} bytes"))
            }
            error => McpRequestError::cut(format!("the answer of {} broke off: {}", self.at, error.reason())),
        }
    }

    async fn token(&self) -> Result<Option<HeaderValue>, McpRequestError> {
        let Some(authorizer) = &self.authorizer else { return Ok(None) };
        let Some(token) = authorizer.token(&self.url).await else { return Ok(None) };
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            let why = "the token has characters that no header takes".to_owned();
            PeerError::Unauthorized { at: self.at.clone(), why }
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The server's text in an error response.
    async fn refusal(&self, answered: HttpResponse) -> String {
        let mut answered = answered.silence_limit(self.options.request_timeout);
        body_excerpt(&answered.read_beginning(MAX_REFUSAL).await.0)
    }

    fn not_sent(&self, error: &OutboundError) -> McpRequestError {
        if error.is_unsent() {
            return PeerError::Unreachable { at: self.at.clone(), why: error.reason() }.into();
        }
        self.broke_off(error)
    }
}

/// A URL for display: without credentials, and without a query that may contain some.
pub(super) fn display_url(url: &Url) -> String {
    let mut url = url.clone();
    // They fail if the URL has no such part.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        let url = Url::parse("https://me:secret@example.com:8443/mcp?key=secret#x").unwrap();
        assert_eq!(display_url(&url), "https://example.com:8443/mcp");
    }
}
