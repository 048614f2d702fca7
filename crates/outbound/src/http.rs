//! The HTTP client behind every outbound request, and its only builder.
//!
//! Who chose the address decides what the client may do. An address that a caller named is filtered when the
//! connection is opened; there are no redirects, no proxy and few idle connections, and the type has no way to ask
//! for them. An address that the operator or the user of the command line chose may be anywhere, and each user of
//! the client says whether it follows redirects and uses the proxy of the environment.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::redirect;
use url::{Host, Url};

use crate::{
    address::AddressPolicy,
    error::{OutboundError, RequestLimits, classify},
    resolver::{HostLookup, PolicyResolver},
    response::HttpResponse,
    tls::TlsClientOptions,
};

/// The `User-Agent` of every request.
pub const USER_AGENT: &str = concat!("nuncio/", env!("CARGO_PKG_VERSION"));

/// Redirects that are followed, within the same origin.
const MAX_REDIRECTS: usize = 3;
/// Idle connections to one host that a caller named, and how long each stays open. Callers choose the hosts, so
/// both are small.
const IDLE_CONNECTIONS: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Bytes of the headers, or of the trailers, of a response over HTTP/2.
const MAX_HEADERS: u32 = 64 * 1024;

/// Which addresses a client may connect to, and what follows from that.
#[derive(Clone)]
pub enum HttpDestination {
    /// Addresses that a caller named: only those that the policy allows. No redirects, no proxy.
    Named {
        /// Which addresses are allowed.
        policy: AddressPolicy,
        /// Resolves names; the policy applies to what it returns.
        lookup: Arc<dyn HostLookup>,
    },
    /// Addresses that the operator or the user chose: all.
    Chosen {
        /// What to do about a redirect.
        redirects: RedirectRule,
        /// Whether requests go through a proxy.
        proxy: ProxyRule,
        /// Whether to accept any TLS certificate. For development only.
        any_certificate: bool,
    },
}

impl HttpDestination {
    /// Addresses that the operator or the user chose, with no redirects and valid certificates only.
    pub fn chosen(proxy: ProxyRule) -> Self {
        Self::Chosen { redirects: RedirectRule::Return, proxy, any_certificate: false }
    }
}

/// What to do about a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectRule {
    /// Return it as the response.
    Return,
    /// Follow up to three in a row that keep the method (307, 308) and the origin. A redirect to another origin is
    /// returned: the request carries a credential, which belongs to one origin.
    SameOrigin,
}

/// Whether requests go through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyRule {
    /// Never.
    Never,
    /// Through the proxy that the environment names (`HTTPS_PROXY`, `NO_PROXY` and so on).
    Environment,
}

impl ProxyRule {
    /// The proxy of the environment, unless the URL names this machine: a proxy would resolve a loopback address to
    /// its own machine.
    pub fn unless_loopback(url: &Url) -> Self {
        let loopback = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            None => false,
        };
        if loopback { Self::Never } else { Self::Environment }
    }
}

/// Options of an [`HttpClient`].
#[derive(Clone)]
pub struct HttpClientOptions {
    /// Which addresses the client may connect to.
    pub destination: HttpDestination,
    /// Limit for name lookup, connection and TLS handshake together.
    pub connect_timeout: Option<Duration>,
    /// Limit for a whole request, from name lookup to the end of the response.
    pub timeout: Option<Duration>,
    /// Idle time after which TCP keep-alive probes a connection, so that a server that vanished is noticed.
    pub keep_alive: Option<Duration>,
    /// Whether to speak HTTP/2, and nothing else: by ALPN over TLS, with prior knowledge over plain HTTP. gRPC needs it.
    pub http2: bool,
    /// Whom to trust beside the system's CAs, and the client's certificate. Only for addresses that the operator or the
    /// user chose.
    pub tls: TlsClientOptions,
}

impl HttpClientOptions {
    /// Options without time limits: each request sets its own.
    pub fn new(destination: HttpDestination) -> Self {
        Self {
            destination,
            connect_timeout: None,
            timeout: None,
            keep_alive: None,
            http2: false,
            tls: TlsClientOptions::default(),
        }
    }
}

/// A client of HTTP/1.1, or of HTTP/2. It never retries, has no cookies, and sends no `Referer`. Cheap to clone; clones share their
/// connections.
#[derive(Clone)]
pub struct HttpClient {
    client: reqwest::Client,
    /// Of addresses that callers name.
    policy: Option<AddressPolicy>,
    limits: RequestLimits,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// One request.
#[derive(Clone)]
pub struct HttpRequest {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    response_timeout: Option<Duration>,
    timeout: Option<Duration>,
}

impl HttpRequest {
    /// A request without headers and body.
    pub fn new(method: Method, url: Url) -> Self {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        Self { method, url, headers, body, response_timeout: None, timeout: None }
    }

    /// A GET request.
    pub fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    /// A POST request.
    pub fn post(url: Url) -> Self {
        Self::new(Method::POST, url)
    }

    /// Sets a header, in place of those with the same name.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets headers, in place of those with the same names.
    #[must_use]
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        let mut last = None;
        for (name, value) in headers {
            // Only the first of several values of one header comes with its name.
            match (name, &last) {
                (Some(name), _) => {
                    self.headers.insert(name.clone(), value);
                    last = Some(name);
                }
                (None, Some(name)) => {
                    self.headers.append(name.clone(), value);
                }
                (None, None) => {}
            }
        }
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a JSON body, with its content type.
    #[must_use]
    pub fn json(self, body: impl Into<Bytes>) -> Self {
        self.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body)
    }

    /// Limits the time until the response headers have arrived.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = Some(limit);
        self
    }

    /// Limits the time until the end of the response, in place of the client's limit.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }
}

impl HttpClient {
    /// Builds a client.
    pub fn new(options: HttpClientOptions) -> Result<Self, OutboundError> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let HttpClientOptions { destination, connect_timeout, timeout, keep_alive, http2, tls } = options;
        let mut builder = reqwest::Client::builder()
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(USER_AGENT)
            .redirect(redirect::Policy::none())
            .tcp_keepalive(keep_alive);
        builder = match http2 {
            false => builder.http1_only(),
            // No pings: official gRPC servers end connections that ping more than once in five minutes without data.
            // TCP keep-alive notices a server that vanished.
            true => builder.http2_prior_knowledge().http2_max_header_list_size(MAX_HEADERS),
        };
        if let Some(limit) = connect_timeout {
            builder = builder.connect_timeout(limit);
        }
        if let Some(limit) = timeout {
            builder = builder.timeout(limit);
        }
        let mut named = None;
        match destination {
            HttpDestination::Named { policy, lookup } => {
                named = Some(policy);
                builder = builder
                    .dns_resolver(PolicyResolver { policy, lookup })
                    .no_proxy()
                    .pool_idle_timeout(IDLE_TIME)
                    .pool_max_idle_per_host(IDLE_CONNECTIONS);
            }
            HttpDestination::Chosen { redirects, proxy, any_certificate } => {
                builder = match tls.is_default() {
                    true => builder.tls_danger_accept_invalid_certs(any_certificate),
                    false => builder.tls_backend_preconfigured(tls.client_config(any_certificate, http2)?),
                };
                if proxy == ProxyRule::Never {
                    builder = builder.no_proxy();
                }
                if redirects == RedirectRule::SameOrigin {
                    builder = builder.redirect(redirect::Policy::custom(follow_within_origin));
                }
            }
        }
        let client = builder.build().map_err(|error| OutboundError::Setup(setup_error(&error)))?;
        let limits = RequestLimits { connect: connect_timeout, whole: timeout };
        Ok(Self { client, policy: named, limits })
    }

    /// Sends a request and returns when the response headers have arrived. Every status is a response; the caller
    /// decides what it means, and bounds what it reads of the body.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, OutboundError> {
        let HttpRequest { method, url, headers, body, response_timeout, timeout } = request;
        // Literal addresses never reach a resolver.
        self.check_url(&url)?;
        let to = origin(&url);
        let mut sending = self.client.request(method, url).headers(headers);
        if !body.is_empty() {
            sending = sending.body(body);
        }
        let mut limits = self.limits;
        if let Some(limit) = timeout {
            limits.whole = Some(limit);
            sending = sending.timeout(limit);
        }
        let sent = match response_timeout {
            None => sending.send().await,
            Some(limit) => match tokio::time::timeout(limit, sending.send()).await {
                Ok(sent) => sent,
                Err(_) => return Err(OutboundError::Timeout { to, limit }),
            },
        };
        match sent {
            Ok(response) => Ok(HttpResponse::new(response, to, limits)),
            Err(error) => Err(classify(&to, limits, error)),
        }
    }

    /// Checks a URL without resolving its name. Every URL passes if the operator or the user chose it.
    pub(crate) fn check_url(&self, url: &Url) -> Result<(), OutboundError> {
        let Some(policy) = self.policy else { return Ok(()) };
        let wrong = |why: &str| Err(OutboundError::Url(why.to_owned()));
        if !matches!(url.scheme(), "http" | "https") {
            return wrong("the URL must begin with http:// or https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return wrong("the URL carries a user name or a password: give credentials apart from it");
        }
        if url.port() == Some(0) {
            return wrong("the URL names port 0");
        }
        let literal = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(name)) => return check_name(policy, name),
            None => return wrong("the URL names no host"),
        };
        let refuse = |refused| OutboundError::Refused { host: literal.to_string(), refused };
        policy.check(literal).map_err(refuse)
    }
}

fn check_name(policy: AddressPolicy, name: &str) -> Result<(), OutboundError> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.split('.').any(str::is_empty) {
        return Err(OutboundError::Url("the URL's host has an empty label".to_owned()));
    }
    // RFC 6761: these names are loopback, and must not be resolved.
    let localhost = bare.rsplit('.').next().is_some_and(|top| top.eq_ignore_ascii_case("localhost"));
    if localhost && !policy.allow_private {
        return Err(OutboundError::Localhost(name.to_owned()));
    }
    Ok(())
}

/// Scheme, host and port: the part of a URL that is safe to show.
pub fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn follow_within_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps = matches!(attempt.status().as_u16(), 307 | 308);
    let same = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    if keeps && same && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

/// The innermost cause: the outer ones name the library's layers.
fn setup_error(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
