//! The HTTP client for addresses that a caller named: webhooks, cards, key sets.
//!
//! Every address is checked when the connection is opened. Names are resolved by a resolver that returns
//! only allowed addresses, so DNS rebinding between a check and a connection gains nothing; literal
//! addresses are checked before the request, because they never reach a resolver. No redirects, no proxy, no
//! cookies; time and size are capped. The content of requests is up to the caller.

use std::{error::Error as _, io, net::IpAddr, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use reqwest::{
    dns::{Addrs, Name, Resolve, Resolving},
    redirect,
};
use url::{Host, Url};

use crate::address::{AddressPolicy, RefusedAddress};

/// The `User-Agent` of this server.
pub const USER_AGENT: &str = concat!("nuncio/", env!("CARGO_PKG_VERSION"));

/// Bytes of a URL; no real webhook needs more.
const MAX_URL: usize = 2048;

/// Options of [`Outbound`].
#[derive(Debug, Clone)]
pub struct OutboundOptions {
    /// Which addresses may be connected to.
    pub policy: AddressPolicy,
    /// Limit for name lookup, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// Limit for a whole request, from name lookup to the end of the response.
    pub timeout: Duration,
    /// Bytes of a response that are read; then the connection is dropped.
    pub max_answer: usize,
}

impl Default for OutboundOptions {
    fn default() -> Self {
        Self {
            policy: AddressPolicy::default(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(15),
            max_answer: 64 * 1024,
        }
    }
}

/// Resolves host names. Injected, so that tests control it.
#[async_trait]
pub trait HostLookup: Send + Sync + 'static {
    /// The addresses of a host, in the order in which to try them.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemHostLookup;

#[async_trait]
impl HostLookup for SystemHostLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// A response. Every status is a response; the caller decides what it means.
#[derive(Debug, Clone)]
pub struct OutboundResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The response headers.
    pub headers: HeaderMap,
    /// The body as far as it was read.
    pub body: Bytes,
    /// Whether `body` is complete: not cut at the size cap, by the timeout, or by a broken connection.
    pub complete: bool,
}

/// Why there is no response. No case shows more of a URL than its host, because paths carry secrets.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OutboundError {
    /// Not a URL that can be requested.
    #[error("{0}")]
    Url(String),
    /// The policy refuses every address of the host.
    #[error("{host} is refused: {refused}")]
    Refused {
        /// The host as written in the URL.
        host: String,
        /// One of its addresses.
        refused: RefusedAddress,
    },
    /// The name means this machine, whatever a resolver returns.
    #[error("{0} is this machine: start the server with --allow-private-webhooks to allow it")]
    Localhost(String),
    /// No response within the timeout.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// No connection, or a broken one.
    #[error("{0}")]
    Failed(String),
    /// The HTTP client could not be built.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
}

impl OutboundError {
    /// Whether a retry would fail the same way as long as the server's configuration is unchanged.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Url(_) | Self::Refused { .. } | Self::Localhost(_))
    }
}

/// The HTTP client. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Outbound {
    http: reqwest::Client,
    options: OutboundOptions,
}

impl Outbound {
    /// A client that resolves names with the operating system.
    pub fn new(options: OutboundOptions) -> Result<Self, OutboundError> {
        Self::with_lookup(options, Arc::new(SystemHostLookup))
    }

    /// A client that resolves names with `lookup`.
    pub fn with_lookup(options: OutboundOptions, lookup: Arc<dyn HostLookup>) -> Result<Self, OutboundError> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .dns_resolver(PolicyResolver { policy: options.policy, lookup })
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .http1_only()
            .user_agent(USER_AGENT)
            .connect_timeout(options.connect_timeout)
            .timeout(options.timeout)
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(8)
            .build()
            .map_err(|error| OutboundError::Setup(chain(&error)))?;
        Ok(Self { http, options })
    }

    /// Checks a URL without resolving its name: the cheap part of the check, for URLs that are about to be
    /// stored. The address may still be refused when the connection is opened.
    pub fn check_url(&self, url: &str) -> Result<Url, OutboundError> {
        if url.len() > MAX_URL {
            return Err(OutboundError::Url(format!("the URL is longer than {MAX_URL} bytes")));
        }
        let url = Url::parse(url).map_err(|error| OutboundError::Url(format!("not a URL: {error}")))?;
        self.check(&url)?;
        Ok(url)
    }

    /// Sends a request and reads the response up to the cap.
    pub async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<OutboundResponse, OutboundError> {
        let response = self.open(method, url, headers, body).await?;
        Ok(read(response, self.options.max_answer).await)
    }

    /// Sends a request; the caller reads the response piece by piece and bounds what it reads.
    pub async fn open(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, OutboundError> {
        self.check(url)?;
        let request = self.http.request(method, url.clone()).headers(headers).body(body);
        request.send().await.map_err(|error| self.explain(error))
    }

    fn check(&self, url: &Url) -> Result<(), OutboundError> {
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
            Some(Host::Domain(name)) => return self.check_name(name),
            None => return wrong("the URL names no host"),
        };
        let refuse = |refused| OutboundError::Refused { host: literal.to_string(), refused };
        self.options.policy.check(literal).map_err(refuse)
    }

    fn check_name(&self, name: &str) -> Result<(), OutboundError> {
        let bare = name.strip_suffix('.').unwrap_or(name);
        if bare.split('.').any(str::is_empty) {
            return Err(OutboundError::Url("the URL's host has an empty label".to_owned()));
        }
        // RFC 6761: these names are loopback, and must not be resolved.
        let localhost = bare.rsplit('.').next().is_some_and(|top| top.eq_ignore_ascii_case("localhost"));
        if localhost && !self.options.policy.allow_private {
            return Err(OutboundError::Localhost(name.to_owned()));
        }
        Ok(())
    }

    pub fn explain(&self, error: reqwest::Error) -> OutboundError {
        let error = error.without_url();
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(ours) = cause.downcast_ref::<OutboundError>() {
                return ours.clone();
            }
            source = cause.source();
        }
        if error.is_timeout() {
            let limit = if error.is_connect() { self.options.connect_timeout } else { self.options.timeout };
            return OutboundError::Timeout(limit);
        }
        OutboundError::Failed(chain(&error))
    }
}

/// Reads the body up to the cap. The status has arrived and is valid, so a body that breaks off is a short
/// body, not an error.
async fn read(mut response: reqwest::Response, max: usize) -> OutboundResponse {
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    let complete = loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= max => body.extend_from_slice(&chunk),
            Ok(Some(chunk)) => {
                body.extend_from_slice(&chunk[..max - body.len()]);
                break false;
            }
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    OutboundResponse { status, headers, body: body.into(), complete }
}

/// An error with its causes, in one line; a cause that the outer error already quotes is not repeated.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The resolver behind every connection; it returns only allowed addresses.
struct PolicyResolver {
    policy: AddressPolicy,
    lookup: Arc<dyn HostLookup>,
}

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup) = (self.policy, Arc::clone(&self.lookup));
        Box::pin(async move {
            let found = lookup.lookup(name.as_str()).await;
            let found =
                found.map_err(|error| failed(format!("{} has no address: {error}", name.as_str())))?;
            let allowed = allowed(policy, name.as_str(), &found)?;
            // Port 0 is replaced by the URL's.
            Ok(Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// The addresses that may be connected to, without the refused ones. If none is left, the error names one of
/// them.
fn allowed(policy: AddressPolicy, host: &str, found: &[IpAddr]) -> Result<Vec<IpAddr>, OutboundError> {
    let (mut allowed, mut first_refused) = (Vec::with_capacity(found.len()), None);
    for address in found {
        match policy.check(*address) {
            Ok(()) => allowed.push(*address),
            Err(refused) => first_refused = first_refused.or(Some(refused)),
        }
    }
    match first_refused {
        _ if !allowed.is_empty() => Ok(allowed),
        Some(refused) => Err(OutboundError::Refused { host: host.to_owned(), refused }),
        None => Err(failed(format!("{host} has no address"))),
    }
}

fn failed(why: String) -> OutboundError {
    OutboundError::Failed(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: &[&str], expected: &[&str]) {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let got = allowed(AddressPolicy::default(), "host.example", &parse(found));
        assert_eq!(got.unwrap_or_default(), parse(expected), "{found:?}");
    }

    #[test]
    fn only_allowed_addresses_are_handed_out() {
        check(&["8.8.8.8"], &["8.8.8.8"]);
        check(&["127.0.0.1", "8.8.8.8", "::1"], &["8.8.8.8"]);
        check(&["2606:4700::1111", "fe80::1", "1.1.1.1"], &["2606:4700::1111", "1.1.1.1"]);
        check(&["10.0.0.1", "::ffff:10.0.0.1"], &[]);
        check(&[], &[]);
    }

    #[test]
    fn a_refused_host_says_why() {
        let error = allowed(AddressPolicy::default(), "host.example", &[IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "host.example is refused: 127.0.0.1 is a loopback address: \
             start the server with --allow-private-webhooks to allow it"
        );
    }
}
