//! The HTTP layer of the A2A client: headers, limits, credentials and network errors.
//!
//! Credentials are attached here and never logged. The log of a request holds its address without the query,
//! its body, and its duration.

use std::{
    error::Error as _,
    fmt,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use nuncio_outbound::USER_AGENT;
use nuncio_wire::a2a::Dialect;
use reqwest::{redirect, retry};
use url::{Host, Url};

use super::{A2aClientError, AgentCard};

/// Options of the HTTP layer.
#[derive(Debug, Clone)]
pub struct A2aHttpOptions {
    /// Whether to accept any TLS certificate. For development only.
    pub insecure: bool,
    /// Limit for establishing a connection.
    pub connect_timeout: Duration,
    /// Limit for the response to a request. For a stream, only the time until it begins.
    pub answer_timeout: Duration,
    /// Bytes of a response.
    pub max_answer: usize,
    /// Bytes of one event of a stream.
    pub max_event: usize,
    /// How many times in a row a cut stream is resumed without receiving a new event.
    pub resumes: u32,
}

impl Default for A2aHttpOptions {
    fn default() -> Self {
        Self {
            insecure: false,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(120),
            max_answer: 512 * 1024 * 1024,
            max_event: 64 * 1024 * 1024,
            resumes: 8,
        }
    }
}

/// Credentials and headers that every request carries.
#[derive(Clone, Default)]
pub struct A2aCredentials {
    /// A bearer token.
    pub bearer: Option<String>,
    /// An API key.
    pub api_key: Option<String>,
    /// Where the API key goes, unless the card names a place.
    pub api_key_place: ApiKeyPlace,
    /// Service parameters: additional headers.
    pub service_parameters: Vec<(HeaderName, HeaderValue)>,
}

/// Where an API key goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeyPlace {
    /// A header with this name.
    Header(String),
    /// A query parameter with this name.
    Query(String),
    /// A cookie with this name.
    Cookie(String),
}

impl Default for ApiKeyPlace {
    fn default() -> Self {
        Self::Header("X-API-Key".to_owned())
    }
}

impl fmt::Debug for A2aCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl A2aCredentials {
    /// The credentials, with the API key in the place that the card names.
    #[must_use]
    pub(super) fn placed_by(mut self, card: &AgentCard) -> Self {
        if let Some(place) = &card.api_key_place {
            self.api_key_place = place.clone();
        }
        self
    }
}

/// The HTTP client of one agent.
#[derive(Debug, Clone)]
pub(super) struct A2aHttp {
    client: reqwest::Client,
    options: A2aHttpOptions,
    headers: HeaderMap,
    /// The name and value of an API key in the query.
    query: Option<(String, String)>,
    authenticated: bool,
}

/// A stream whose response has begun.
pub(super) struct OpenedEventStream {
    pub(super) response: reqwest::Response,
    pub(super) max_event: usize,
    pub(super) resumes: u32,
}

impl A2aHttp {
    pub(super) fn new(options: &A2aHttpOptions, peer: &Url) -> Result<Self, A2aClientError> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .http1_only()
            .user_agent(USER_AGENT)
            .connect_timeout(options.connect_timeout)
            .tcp_keepalive(Duration::from_secs(15))
            .tls_danger_accept_invalid_certs(options.insecure);
        if is_loopback(peer) {
            // A proxy would resolve a loopback address to its own machine.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| A2aClientError::Setup(chain(&error)))?;
        Ok(Self {
            client,
            options: options.clone(),
            headers: HeaderMap::new(),
            query: None,
            authenticated: false,
        })
    }

    pub(super) fn with_credentials(mut self, credentials: &A2aCredentials) -> Result<Self, A2aClientError> {
        let secret = |text: String| {
            let value = HeaderValue::try_from(text);
            let mut value = value.map_err(|_| {
                A2aClientError::Setup("a credential has characters that no header takes".into())
            })?;
            value.set_sensitive(true);
            Ok::<_, A2aClientError>(value)
        };
        for (name, value) in &credentials.service_parameters {
            self.authenticated |= name == header::AUTHORIZATION;
            self.headers.append(name, value.clone());
        }
        if let Some(token) = &credentials.bearer {
            self.headers.insert(header::AUTHORIZATION, secret(format!("Bearer {token}"))?);
            self.authenticated = true;
        }
        if let Some(key) = &credentials.api_key {
            self.authenticated = true;
            match &credentials.api_key_place {
                ApiKeyPlace::Header(name) => {
                    let name = HeaderName::try_from(name.as_str()).map_err(|_| {
                        A2aClientError::Setup(format!(
                            "the card names {name:?} for its API key, which is not a valid header"
                        ))
                    })?;
                    self.headers.insert(name, secret(key.clone())?);
                }
                ApiKeyPlace::Cookie(name) => {
                    self.headers.insert(header::COOKIE, secret(format!("{name}={key}"))?);
                }
                ApiKeyPlace::Query(name) => self.query = Some((name.clone(), key.clone())),
            }
        }
        Ok(self)
    }

    pub(super) fn set_header(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// Fetches a document.
    pub(super) async fn get(&self, url: &Url, accept: &'static str) -> Result<Vec<u8>, A2aClientError> {
        let request =
            self.client.get(url.clone()).headers(self.headers.clone()).header(header::ACCEPT, accept);
        let response = self.send(url, request).await?;
        if response.status().is_redirection() {
            let target = response.headers().get(header::LOCATION).and_then(|target| target.to_str().ok());
            let body = target.map(|target| format!("moved to {target}")).unwrap_or_default();
            let status = response.status().as_u16();
            return Err(A2aClientError::Http { at: origin(url), status, body, retry_after: None });
        }
        let (head, body) = self.read(url, response).await?;
        if !head.status.is_success() {
            return Err(self.refused(url, &head, &body));
        }
        Ok(body)
    }

    /// Sends a JSON-RPC request and returns the body of the response.
    pub(super) async fn post(
        &self,
        url: &Url,
        dialect: Dialect,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, A2aClientError> {
        let response = self.send(url, self.request(url, dialect, body, "application/json")).await?;
        let (head, answer) = self.read(url, response).await?;
        tracing::debug!(target: "nuncio_client::wire", status = head.status.as_u16(), body = %lossy(&answer), "received");
        // A JSON-RPC error is more specific than the HTTP status that it came with.
        let is_answer = nuncio_wire::jsonrpc::parse_response(&answer).is_ok();
        if is_auth(head.status) || (!head.status.is_success() && !is_answer) {
            return Err(self.refused(url, &head, &answer));
        }
        Ok(answer)
    }

    /// Sends a JSON-RPC request whose response is a stream.
    pub(super) async fn open(
        &self,
        url: &Url,
        dialect: Dialect,
        body: Vec<u8>,
        after: Option<&str>,
    ) -> Result<OpenedEventStream, A2aClientError> {
        let mut request = self.request(url, dialect, body, "text/event-stream");
        if let Some(cursor) = after {
            request = request.header("Last-Event-ID", cursor);
        }
        let response = self.send(url, request).await?;
        let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let streams = content_type.is_some_and(|value| value.starts_with("text/event-stream"));
        if response.status().is_success() && streams {
            let A2aHttpOptions { max_event, resumes, .. } = self.options;
            return Ok(OpenedEventStream { response, max_event, resumes });
        }
        let (head, answer) = self.read(url, response).await?;
        tracing::debug!(target: "nuncio_client::wire", status = head.status.as_u16(), body = %lossy(&answer), "received");
        if is_auth(head.status) {
            return Err(self.refused(url, &head, &answer));
        }
        match super::result_of(&answer) {
            Err(error @ A2aClientError::Rpc(_)) => Err(error),
            _ if !head.status.is_success() => Err(self.refused(url, &head, &answer)),
            _ => Err(A2aClientError::Malformed("expected a stream of events".into())),
        }
    }

    fn request(
        &self,
        url: &Url,
        dialect: Dialect,
        body: Vec<u8>,
        accept: &'static str,
    ) -> reqwest::RequestBuilder {
        tracing::debug!(target: "nuncio_client::wire", to = %without_query(url), body = %lossy(&body), "sending");
        let mut url = url.clone();
        if let Some((name, key)) = &self.query {
            url.query_pairs_mut().append_pair(name, key);
        }
        self.client
            .post(url)
            .headers(self.headers.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, accept)
            .header("A2A-Version", dialect.version())
            .body(body)
    }

    async fn send(
        &self,
        url: &Url,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, A2aClientError> {
        let started = Instant::now();
        let answer = tokio::time::timeout(self.options.answer_timeout, request.send()).await;
        let limit = self.options.answer_timeout;
        let response = answer.map_err(|_| A2aClientError::Timeout { at: origin(url), limit })?;
        let response = response.map_err(|error| unreachable_peer(url, error))?;
        let elapsed = started.elapsed();
        tracing::debug!(to = %without_query(url), status = response.status().as_u16(), ?elapsed, "answered");
        Ok(response)
    }

    async fn read(
        &self,
        url: &Url,
        mut response: reqwest::Response,
    ) -> Result<(ResponseHead, Vec<u8>), A2aClientError> {
        let head = ResponseHead::of(&response);
        let mut body = Vec::new();
        let all = async {
            while let Some(chunk) = response.chunk().await.map_err(|error| unreachable_peer(url, error))? {
                if body.len() + chunk.len() > self.options.max_answer {
                    let max = self.options.max_answer;
                    return Err(A2aClientError::Malformed(format!("it is longer than {max} bytes")));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(())
        };
        let limit = self.options.answer_timeout;
        tokio::time::timeout(limit, all)
            .await
            .map_err(|_| A2aClientError::Timeout { at: origin(url), limit })??;
        Ok((head, body))
    }

    fn refused(&self, url: &Url, head: &ResponseHead, body: &[u8]) -> A2aClientError {
        let (at, status) = (origin(url), head.status.as_u16());
        let body = lossy(body).trim().chars().take(200).collect();
        if is_auth(head.status) {
            let (supplied, challenge) = (self.authenticated, head.challenge.clone());
            return A2aClientError::Unauthorized { at, status, supplied, body, challenge };
        }
        A2aClientError::Http { at, status, body, retry_after: head.retry_after }
    }
}

/// The parts of a response's head that are needed later.
struct ResponseHead {
    status: StatusCode,
    challenge: Option<String>,
    retry_after: Option<Duration>,
}

impl ResponseHead {
    fn of(response: &reqwest::Response) -> Self {
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let seconds = text(header::RETRY_AFTER).and_then(|text| text.trim().parse().ok());
        Self {
            status: response.status(),
            challenge: text(header::WWW_AUTHENTICATE).map(str::to_owned),
            retry_after: seconds.map(Duration::from_secs),
        }
    }
}

fn is_auth(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

fn unreachable_peer(url: &Url, error: reqwest::Error) -> A2aClientError {
    let sent = !error.is_connect();
    A2aClientError::Unreachable { at: origin(url), why: chain(&error.without_url()), sent }
}

/// Scheme, host and port: the part of a URL that is safe to show.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn without_query(url: &Url) -> String {
    format!("{}{}", origin(url), url.path())
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The innermost cause: the network error without the layers around it.
fn chain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut source = error.source();
    while let Some(inner) = source {
        cause = inner;
        source = inner.source();
    }
    cause.to_string()
}
