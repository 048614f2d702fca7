//! The HTTP layer of the A2A client: headers, limits, credentials and network errors.
//!
//! Credentials are attached here and never logged. The log of a request holds its address without the query,
//! its body, and its duration.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use nuncio_outbound::{
    HttpClient, HttpClientOptions, HttpDestination, HttpRequest, HttpResponse, OutboundError, ProxyRule,
    RedirectRule, TlsClientOptions, origin,
};
use nuncio_wire::a2a::Dialect;
use serde_json::Value;
use url::Url;

use super::{A2aClientError, AgentCard};

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// Idle time after which TCP keep-alive probes a connection: a stream may be silent for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Limit for the response to a probe for the version of HTTP.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// Where the bearer token is read anew for each request.
    pub bearer_source: Option<RenewedBearer>,
    /// An API key.
    pub api_key: Option<String>,
    /// Where the API key goes, unless the card names a place.
    pub api_key_place: ApiKeyPlace,
    /// Service parameters: additional headers.
    pub service_parameters: Vec<(HeaderName, HeaderValue)>,
}

/// Reads a bearer token that changes while a client lives, such as the secret of a local server, which is another one
/// after each start.
#[derive(Clone)]
pub struct RenewedBearer(Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl RenewedBearer {
    /// A source that reads the token with this function; without a token the one of the credentials is sent.
    pub fn new(read: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The `Authorization` of now.
    fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", (self.0)()?)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for RenewedBearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedBearer").finish_non_exhaustive()
    }
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
    /// Whether there is anything secret. A service parameter may be.
    pub(super) fn is_any(&self) -> bool {
        self.bearer.is_some()
            || self.api_key.is_some()
            || self.service_parameters.iter().any(|(name, _)| name.as_str() != "traceparent")
    }

    /// The credentials, with the API key in the place that the card names.
    #[must_use]
    pub(super) fn placed_by(mut self, card: &AgentCard) -> Self {
        if let Some(place) = &card.api_key_place {
            self.api_key_place = place.clone();
        }
        self
    }
}

/// Whether what comes from a URL cannot be replaced on the way: by TLS, or because it does not leave this machine.
pub(super) fn is_private_transport(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_local)
}

/// The HTTP client of one agent.
#[derive(Debug, Clone)]
pub(super) struct A2aHttp {
    /// Built by the first request: most interfaces of a card are never called.
    client: Arc<OnceLock<HttpClient>>,
    peer: Url,
    http2: bool,
    /// Whether there ever was a response.
    answered: Arc<AtomicBool>,
    options: A2aHttpOptions,
    headers: HeaderMap,
    bearer_source: Option<RenewedBearer>,
    /// The name and value of an API key in the query.
    query: Option<(String, String)>,
    authenticated: bool,
}

/// A request of a binding over HTTP.
pub(super) struct Exchange {
    pub(super) method: Method,
    pub(super) url: Url,
    /// The JSON to send, if any.
    pub(super) body: Option<Vec<u8>>,
    pub(super) dialect: Dialect,
    /// The media type of the response: [`JSON_ONLY`] or [`STREAM_ONLY`].
    pub(super) accept: &'static str,
}

pub(super) const JSON_ONLY: &str = "application/json";
pub(super) const STREAM_ONLY: &str = "text/event-stream";

impl A2aHttp {
    pub(super) fn new(options: &A2aHttpOptions, peer: &Url) -> Self {
        Self {
            client: Arc::default(),
            peer: peer.clone(),
            http2: false,
            answered: Arc::default(),
            options: options.clone(),
            headers: HeaderMap::new(),
            bearer_source: None,
            query: None,
            authenticated: false,
        }
    }

    /// The same, over HTTP/2 alone.
    #[must_use]
    pub(super) fn over_http2(self) -> Self {
        Self { client: Arc::default(), http2: true, ..self }
    }

    /// Whether the port speaks HTTP/1 and not HTTP/2: then a first request over HTTP/2 that broke off was not carried out.
    ///
    /// HTTP/1 is probed first. A server that crashed meanwhile answers neither, and one that is back answers both.
    pub(super) async fn lacks_http2(&self) -> bool {
        if !self.http2 || self.answered.load(Ordering::Relaxed) {
            return false;
        }
        let older = Self { client: Arc::default(), http2: false, ..self.clone() };
        older.probe().await.is_ok() && matches!(self.probe().await, Err(OutboundError::Cut { .. }))
    }

    /// Asks for the root of the server, without credentials. Every response is one.
    async fn probe(&self) -> Result<(), OutboundError> {
        let mut url = self.peer.clone();
        url.set_path("/");
        url.set_query(None);
        let client = self.client().map_err(|error| OutboundError::Setup(error.to_string()))?;
        let request = HttpRequest::new(Method::HEAD, url).response_timeout(PROBE_TIMEOUT);
        client.send(request).await.map(drop)
    }

    fn client(&self) -> Result<&HttpClient, A2aClientError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = HttpClient::new(HttpClientOptions {
            connect_timeout: Some(self.options.connect_timeout),
            keep_alive: Some(KEEP_ALIVE),
            http2: self.http2,
            tls: self.options.tls.for_url(&self.peer),
            ..HttpClientOptions::new(HttpDestination::Chosen {
                redirects: RedirectRule::Return,
                proxy: ProxyRule::unless_loopback(&self.peer),
                any_certificate: self.options.insecure,
            })
        })?;
        Ok(self.client.get_or_init(|| client))
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
        self.bearer_source.clone_from(&credentials.bearer_source);
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
        let none = DocumentValidator::default();
        Ok(self.get_unless(url, accept, &none).await?.body.unwrap_or_default())
    }

    /// Fetches a document, unless it still is the one with this validator.
    pub(super) async fn get_unless(
        &self,
        url: &Url,
        accept: &'static str,
        validator: &DocumentValidator,
    ) -> Result<FetchedDocument, A2aClientError> {
        let request = HttpRequest::get(url.clone()).headers(self.headers.clone());
        let mut request = request.header(header::ACCEPT, HeaderValue::from_static(accept));
        // An `ETag` is the stronger of the two.
        match validator {
            DocumentValidator { etag: Some(etag), .. } => {
                request = request.header(header::IF_NONE_MATCH, etag.clone());
            }
            DocumentValidator { last_modified: Some(at), .. } => {
                request = request.header(header::IF_MODIFIED_SINCE, at.clone());
            }
            DocumentValidator { etag: None, last_modified: None } => {}
        }
        let response = self.send(url, request).await?;
        let headers = response.headers().clone();
        if response.status() == StatusCode::NOT_MODIFIED && validator.is_any() {
            return Ok(FetchedDocument { headers, body: None });
        }
        if response.status().is_redirection() {
            let target = response.header(header::LOCATION);
            let body = target.map(|target| format!("moved to {target}")).unwrap_or_default();
            let status = response.status().as_u16();
            return Err(A2aClientError::Http { at: origin(url), status, body, retry_after: None });
        }
        let (head, body) = self.read(response).await?;
        if !head.status.is_success() {
            return Err(ReadResponse { head, body, at: origin(url), supplied: self.authenticated }.refused());
        }
        Ok(FetchedDocument { headers, body: Some(body) })
    }

    /// The most bytes of one event of a stream.
    pub(super) fn max_event(&self) -> usize {
        self.options.max_event
    }

    /// The most bytes of a response.
    pub(super) fn max_answer(&self) -> usize {
        self.options.max_answer
    }

    /// How long a response may take.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.options.answer_timeout
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// The headers of every request, for a binding that has nothing else to put a credential into.
    pub(super) fn metadata(&self) -> Result<HeaderMap, A2aClientError> {
        match self.query {
            None => Ok(self.headers.clone()),
            Some(_) => Err(A2aClientError::Unsupported(
                "the agent's card wants the API key in the query of a URL, and gRPC has none".to_owned(),
            )),
        }
    }

    /// Logs a request.
    pub(super) fn log_sent(to: &Url, body: &[u8]) {
        tracing::debug!(target: "nuncio_client::wire", to = %without_query(to), body = %lossy(body), "sending");
    }

    /// Sends a request and reads the response, whatever its status. `after`: a cursor.
    pub(super) async fn exchange(
        &self,
        request: Exchange,
        after: Option<&str>,
    ) -> Result<ReadResponse, A2aClientError> {
        let url = request.url.clone();
        let response = self.send(&url, self.request(request, after)?).await?;
        self.read_answer(&url, response).await
    }

    /// Sends a request whose response is a stream. `Err` within: a response that is none.
    pub(super) async fn open(
        &self,
        request: Exchange,
        after: Option<&str>,
    ) -> Result<Result<HttpResponse, ReadResponse>, A2aClientError> {
        let url = request.url.clone();
        let response = self.send(&url, self.request(request, after)?).await?;
        if response.status().is_success() && response.is_event_stream() {
            return Ok(Ok(response));
        }
        self.read_answer(&url, response).await.map(Err)
    }

    pub(super) async fn read_answer(
        &self,
        url: &Url,
        response: HttpResponse,
    ) -> Result<ReadResponse, A2aClientError> {
        let (head, body) = self.read(response).await?;
        tracing::debug!(target: "nuncio_client::wire", status = head.status.as_u16(), body = %lossy(&body), "received");
        Ok(ReadResponse { head, body, at: origin(url), supplied: self.authenticated })
    }

    fn request(&self, request: Exchange, after: Option<&str>) -> Result<HttpRequest, A2aClientError> {
        let Exchange { method, mut url, body, dialect, accept } = request;
        let shown = body.as_deref().map(lossy).unwrap_or_default();
        tracing::debug!(target: "nuncio_client::wire", %method, to = %without_query(&url), body = %shown, "sending");
        if let Some((name, key)) = &self.query {
            url.query_pairs_mut().append_pair(name, key);
        }
        let mut request = HttpRequest::new(method, url)
            .headers(self.headers.clone())
            .header(header::ACCEPT, HeaderValue::from_static(accept))
            .header(A2A_VERSION, HeaderValue::from_static(dialect.version()));
        if let Some(body) = body {
            request = request.json(body);
        }
        Self::with_cursor(request, after)
    }

    /// The request, for the events after a cursor.
    pub(super) fn with_cursor(
        request: HttpRequest,
        after: Option<&str>,
    ) -> Result<HttpRequest, A2aClientError> {
        let Some(cursor) = after else { return Ok(request) };
        let cursor = HeaderValue::from_str(cursor)
            .map_err(|_| A2aClientError::Malformed("an event has an id that no header takes".to_owned()))?;
        Ok(request.header(HeaderName::from_static("last-event-id"), cursor))
    }

    pub(super) async fn send(&self, url: &Url, request: HttpRequest) -> Result<HttpResponse, A2aClientError> {
        let Some(source) = &self.bearer_source else { return self.send_once(url, request).await };
        let with = |request: HttpRequest, shown: &Option<HeaderValue>| match shown {
            Some(shown) => request.header(header::AUTHORIZATION, shown.clone()),
            None => request,
        };
        let shown = source.header();
        let response = self.send_once(url, with(request.clone(), &shown)).await?;
        let current = source.header();
        // The token was read before its issuer replaced it. A refused request has done nothing.
        if response.status() == StatusCode::UNAUTHORIZED && current.is_some() && current != shown {
            return self.send_once(url, with(request, &current)).await;
        }
        Ok(response)
    }

    async fn send_once(&self, url: &Url, request: HttpRequest) -> Result<HttpResponse, A2aClientError> {
        let started = Instant::now();
        let response = self.client()?.send(request.response_timeout(self.options.answer_timeout)).await?;
        self.answered.store(true, Ordering::Relaxed);
        let elapsed = started.elapsed();
        tracing::debug!(to = %without_query(url), status = response.status().as_u16(), ?elapsed, "answered");
        Ok(response)
    }

    async fn read(&self, response: HttpResponse) -> Result<(ResponseHead, Vec<u8>), A2aClientError> {
        let head = ResponseHead::of(&response);
        let mut response = response.body_limit(self.options.answer_timeout);
        Ok((head, response.read_to_end(self.options.max_answer).await?))
    }
}

/// What tells whether a document is the same as before: `ETag` and `Last-Modified`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DocumentValidator {
    pub(super) etag: Option<HeaderValue>,
    pub(super) last_modified: Option<HeaderValue>,
}

impl DocumentValidator {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let header = |name| headers.get(name).cloned();
        Self { etag: header(header::ETAG), last_modified: header(header::LAST_MODIFIED) }
    }

    pub(super) fn is_any(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }
}

/// A document, or that it has not changed.
pub(super) struct FetchedDocument {
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
}

/// A response that was read to its end.
pub(super) struct ReadResponse {
    head: ResponseHead,
    pub(super) body: Vec<u8>,
    /// Scheme, host and port of the server.
    at: String,
    /// Whether the request carried credentials.
    supplied: bool,
}

impl ReadResponse {
    pub(super) fn is_success(&self) -> bool {
        self.head.status.is_success()
    }

    pub(super) fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// Whether the server asks for credentials, or refuses these.
    pub(super) fn is_about_access(&self) -> bool {
        matches!(self.head.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }

    /// The error of a response that has none of the protocol.
    pub(super) fn refused(&self) -> A2aClientError {
        let (at, status) = (self.at.clone(), self.head.status.as_u16());
        let said = said_in(&self.body).unwrap_or_else(|| lossy(&self.body).trim().to_owned());
        let body = said.chars().take(200).collect();
        if self.is_about_access() {
            let (supplied, challenge) = (self.supplied, self.head.challenge.clone());
            return A2aClientError::Unauthorized { at, status, supplied, body, challenge };
        }
        A2aClientError::Http { at, status, body, retry_after: self.head.retry_after }
    }
}

/// The message of an error in the form of JSON-RPC, of REST and of many others; else there is nothing to pick out.
fn said_in(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body["error"]["message"].as_str().filter(|message| !message.is_empty()).map(str::to_owned)
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

fn without_query(url: &Url) -> String {
    format!("{}{}", origin(url), url.path())
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
