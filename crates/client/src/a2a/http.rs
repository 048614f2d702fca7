//! The HTTP layer of the A2A client: headers, limits, credentials and network errors.
//!
//! Credentials are attached here and never logged. The log of a request holds its address without the query,
//! its body, and its duration.

use std::{
    fmt,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, HttpResponse, ProxyRule, RedirectRule,
    TlsClientOptions, origin,
};
use nuncio_wire::a2a::Dialect;
use url::Url;

use super::{
    A2aClientError, AgentCard,
    rest::{self, RestClientRequest},
};

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// Idle time after which TCP keep-alive probes a connection: a stream may be silent for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Options of the HTTP layer.
#[derive(Debug, Clone)]
pub struct A2aHttpOptions {
    /// Whether to accept any TLS certificate. For development only.
    pub insecure: bool,
    /// Whom to trust beside the system's CAs, and the client's certificate.
    pub tls: TlsClientOptions,
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
            tls: TlsClientOptions::default(),
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
    client: HttpClient,
    options: A2aHttpOptions,
    headers: HeaderMap,
    /// The name and value of an API key in the query.
    query: Option<(String, String)>,
    authenticated: bool,
}

/// A stream whose response has begun.
pub(super) struct OpenedEventStream {
    pub(super) response: HttpResponse,
    pub(super) max_event: usize,
    pub(super) resumes: u32,
}

impl A2aHttp {
    pub(super) fn new(options: &A2aHttpOptions, peer: &Url) -> Result<Self, A2aClientError> {
        let client = HttpClient::new(HttpClientOptions {
            connect_timeout: Some(options.connect_timeout),
            keep_alive: Some(KEEP_ALIVE),
            tls: options.tls.for_url(peer),
            ..HttpClientOptions::new(HttpDestination::Chosen {
                redirects: RedirectRule::Return,
                proxy: ProxyRule::unless_loopback(peer),
                any_certificate: options.insecure,
            })
        })?;
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
        let request = HttpRequest::get(url.clone()).headers(self.headers.clone());
        let request = request.header(header::ACCEPT, HeaderValue::from_static(accept));
        let response = self.send(url, request).await?;
        if response.status().is_redirection() {
            let target = response.header(header::LOCATION);
            let body = target.map(|target| format!("moved to {target}")).unwrap_or_default();
            let status = response.status().as_u16();
            return Err(A2aClientError::Http { at: origin(url), status, body, retry_after: None });
        }
        let (head, body) = self.read(response).await?;
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
        let (head, answer) = self.read(response).await?;
        tracing::debug!(target: "nuncio_client::wire", status = head.status.as_u16(), body = %lossy(&answer), "received");
        // A JSON-RPC error is more specific than the HTTP status that it came with.
        let is_answer = nuncio_wire::jsonrpc::parse_response(&answer).is_ok();
        if is_auth(head.status) || (!head.status.is_success() && !is_answer) {
            return Err(self.refused(url, &head, &answer));
        }
        Ok(answer)
    }

    /// Sends a request of HTTP+JSON and returns the body of the response.
    pub(super) async fn exchange(
        &self,
        rest: RestClientRequest,
        dialect: Dialect,
    ) -> Result<Vec<u8>, A2aClientError> {
        let url = rest.url.clone();
        let response = self.send(&url, self.rest_request(rest, dialect, "application/json")).await?;
        let (head, answer) = self.read(response).await?;
        tracing::debug!(target: "nuncio_client::wire", status = head.status.as_u16(), body = %lossy(&answer), "received");
        match head.status.is_success() {
            true => Ok(answer),
            false => Err(self.rest_error(&url, &head, &answer)),
        }
    }

    /// Sends a request of HTTP+JSON whose response is a stream.
    pub(super) async fn open_rest(
        &self,
        rest: RestClientRequest,
        dialect: Dialect,
        after: Option<&str>,
    ) -> Result<OpenedEventStream, A2aClientError> {
        let url = rest.url.clone();
        let request = self.rest_request(rest, dialect, "text/event-stream");
        let response = self.send(&url, with_cursor(request, after)?).await?;
        if response.status().is_success() && response.is_event_stream() {
            let A2aHttpOptions { max_event, resumes, .. } = self.options;
            return Ok(OpenedEventStream { response, max_event, resumes });
        }
        let (head, answer) = self.read(response).await?;
        tracing::debug!(target: "nuncio_client::wire", status = head.status.as_u16(), body = %lossy(&answer), "received");
        match head.status.is_success() {
            true => Err(A2aClientError::NotAStream),
            false => Err(self.rest_error(&url, &head, &answer)),
        }
    }

    /// The protocol's error, if the response has one; access is a matter of HTTP in every binding.
    fn rest_error(&self, url: &Url, head: &ResponseHead, body: &[u8]) -> A2aClientError {
        let named = (!is_auth(head.status)).then(|| rest::error_of(body)).flatten();
        named.unwrap_or_else(|| self.refused(url, head, body))
    }

    fn rest_request(&self, rest: RestClientRequest, dialect: Dialect, accept: &'static str) -> HttpRequest {
        let RestClientRequest { method, mut url, body } = rest;
        let shown = body.as_deref().map(lossy).unwrap_or_default();
        tracing::debug!(target: "nuncio_client::wire", %method, to = %without_query(&url), body = %shown, "sending");
        if let Some((name, key)) = &self.query {
            url.query_pairs_mut().append_pair(name, key);
        }
        let request = HttpRequest::new(method, url)
            .headers(self.headers.clone())
            .header(header::ACCEPT, HeaderValue::from_static(accept))
            .header(A2A_VERSION, HeaderValue::from_static(dialect.version()));
        match body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// Sends a JSON-RPC request whose response is a stream.
    pub(super) async fn open(
        &self,
        url: &Url,
        dialect: Dialect,
        body: Vec<u8>,
        after: Option<&str>,
    ) -> Result<OpenedEventStream, A2aClientError> {
        let request = with_cursor(self.request(url, dialect, body, "text/event-stream"), after)?;
        let response = self.send(url, request).await?;
        if response.status().is_success() && response.is_event_stream() {
            let A2aHttpOptions { max_event, resumes, .. } = self.options;
            return Ok(OpenedEventStream { response, max_event, resumes });
        }
        let (head, answer) = self.read(response).await?;
        tracing::debug!(target: "nuncio_client::wire", status = head.status.as_u16(), body = %lossy(&answer), "received");
        if is_auth(head.status) {
            return Err(self.refused(url, &head, &answer));
        }
        match super::result_of(&answer) {
            Err(error @ A2aClientError::Rpc(_)) => Err(error),
            _ if !head.status.is_success() => Err(self.refused(url, &head, &answer)),
            _ => Err(A2aClientError::NotAStream),
        }
    }

    fn request(&self, url: &Url, dialect: Dialect, body: Vec<u8>, accept: &'static str) -> HttpRequest {
        tracing::debug!(target: "nuncio_client::wire", to = %without_query(url), body = %lossy(&body), "sending");
        let mut url = url.clone();
        if let Some((name, key)) = &self.query {
            url.query_pairs_mut().append_pair(name, key);
        }
        HttpRequest::post(url)
            .headers(self.headers.clone())
            .json(body)
            .header(header::ACCEPT, HeaderValue::from_static(accept))
            .header(A2A_VERSION, HeaderValue::from_static(dialect.version()))
    }

    async fn send(&self, url: &Url, request: HttpRequest) -> Result<HttpResponse, A2aClientError> {
        let started = Instant::now();
        let response = self.client.send(request.response_timeout(self.options.answer_timeout)).await?;
        let elapsed = started.elapsed();
        tracing::debug!(to = %without_query(url), status = response.status().as_u16(), ?elapsed, "answered");
        Ok(response)
    }

    async fn read(&self, response: HttpResponse) -> Result<(ResponseHead, Vec<u8>), A2aClientError> {
        let head = ResponseHead::of(&response);
        let mut response = response.body_limit(self.options.answer_timeout);
        Ok((head, response.read_to_end(self.options.max_answer).await?))
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

/// The request, for the events after a cursor.
fn with_cursor(request: HttpRequest, after: Option<&str>) -> Result<HttpRequest, A2aClientError> {
    let Some(cursor) = after else { return Ok(request) };
    let cursor = HeaderValue::from_str(cursor)
        .map_err(|_| A2aClientError::Malformed("an event has an id that no header takes".to_owned()))?;
    Ok(request.header(HeaderName::from_static("last-event-id"), cursor))
}

/// The parts of a response's head that are needed later.
struct ResponseHead {
    status: StatusCode,
    challenge: Option<String>,
    retry_after: Option<Duration>,
}

impl ResponseHead {
    fn of(response: &HttpResponse) -> Self {
        Self {
            status: response.status(),
            challenge: response.header(header::WWW_AUTHENTICATE).map(str::to_owned),
            retry_after: response.retry_after(),
        }
    }
}

fn is_auth(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

fn without_query(url: &Url) -> String {
    format!("{}{}", origin(url), url.path())
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
