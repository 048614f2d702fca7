//! The HTTP layer of an MCP peer: one client, tokens and challenges, redirects, size limits.

use std::{error::Error as _, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, Method, header};
use nuncio_outbound::USER_AGENT;
use reqwest::{Client, Response, redirect, retry};
use url::Url;

use super::{
    error::{McpRequestError, body_excerpt},
    options::McpPeerOptions,
};
use crate::{auth::Authorizer, peer::PeerError};

/// Redirects that are followed, within the same origin.
const REDIRECTS: usize = 3;
/// Idle time after which TCP keep-alive probes the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Bytes of an error response that are read.
const MAX_REFUSAL: usize = 64 * 1024;

/// A server's address and its HTTP client.
pub(super) struct McpHttp {
    client: Client,
    pub(super) url: Url,
    /// The address for display.
    pub(super) at: String,
    authorizer: Option<Arc<dyn Authorizer>>,
    pub(super) options: Arc<McpPeerOptions>,
}

impl McpHttp {
    pub(super) fn new(url: &Url, options: &Arc<McpPeerOptions>) -> Result<Self, PeerError> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::custom(same_place))
            .retry(retry::never())
            .no_proxy()
            .referer(false)
            .connect_timeout(options.connect_timeout)
            // Detects a server that vanished, even on an idle stream.
            .tcp_keepalive(KEEP_ALIVE)
            .user_agent(USER_AGENT)
            .build()
            .map_err(|error| PeerError::Unsupported(format!("cannot build an HTTP client: {error}")))?;
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
    ) -> Result<Response, McpRequestError> {
        let mut asked = false;
        loop {
            let mut request = self.client.request(method.clone(), url.clone()).headers(headers.clone());
            if method == Method::POST {
                request = request.body(body.clone());
            }
            if let Some(token) = self.token().await? {
                request = request.header(header::AUTHORIZATION, token);
            }
            let answered = match tokio::time::timeout(limit, request.send()).await {
                Ok(answered) => answered.map_err(|error| self.not_sent(error))?,
                Err(_) => return Err(self.silent(limit)),
            };
            let status = answered.status().as_u16();
            let challenge = answered.headers().get(header::WWW_AUTHENTICATE);
            let challenge = challenge.and_then(|value| value.to_str().ok()).map(str::to_owned);
            if status != 401 && status != 403 {
                return Ok(answered);
            }
            let refused = |why: String| Err(PeerError::Unauthorized { at: self.at.clone(), why }.into());
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
    pub(super) async fn whole(&self, answered: Response) -> Result<Vec<u8>, McpRequestError> {
        let most = self.options.max_message;
        let mut body = vec![];
        let mut pieces = answered.bytes_stream();
        loop {
            match tokio::time::timeout(self.options.silence, pieces.next()).await {
                Err(_) => return Err(self.silent(self.options.silence)),
                Ok(None) => return Ok(body),
                Ok(Some(Err(error))) => return Err(self.broke_off(error)),
                Ok(Some(Ok(piece))) if body.len() + piece.len() > most => {
                    return Err(McpRequestError::malformed(
                        &self.at,
                        format!("a message longer than {most} bytes"),
                    ));
                }
                Ok(Some(Ok(piece))) => body.extend_from_slice(&piece),
            }
        }
    }

    pub(super) fn silent(&self, limit: Duration) -> McpRequestError {
        McpRequestError::cut(format!("{} did not answer within {} s", self.at, limit.as_secs_f32()))
    }

    pub(super) fn broke_off(&self, error: reqwest::Error) -> McpRequestError {
        McpRequestError::cut(format!("the answer of {} broke off: {}", self.at, root_of(error)))
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
    async fn refusal(&self, answered: Response) -> String {
        let (mut body, mut pieces) = (vec![], answered.bytes_stream());
        while let Ok(Some(Ok(piece))) =
            tokio::time::timeout(self.options.request_timeout, pieces.next()).await
        {
            body.extend_from_slice(&piece);
            if body.len() > MAX_REFUSAL {
                break;
            }
        }
        body_excerpt(&body)
    }

    fn not_sent(&self, error: reqwest::Error) -> McpRequestError {
        let at = self.at.clone();
        if error.is_connect() || error.is_builder() {
            return PeerError::Unreachable { at, why: root_of(error) }.into();
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

/// Follows redirects within the same origin only, because the request carries a token.
fn same_place(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps = matches!(attempt.status().as_u16(), 307 | 308);
    let same = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    if keeps && same && attempt.previous().len() <= REDIRECTS { attempt.follow() } else { attempt.stop() }
}

/// Whether a response is an event stream.
pub(super) fn is_stream(answered: &Response) -> bool {
    let kind = answered.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// The innermost cause: the outer ones repeat the address.
fn root_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.source().is_none() { error.to_string() } else { innermost.to_string() }
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
