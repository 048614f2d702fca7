//! The HTTP client for addresses that a caller named: webhooks, key sets, models, registered servers.
//!
//! Every address is checked when the connection is opened. Names are resolved by a resolver that returns
//! only allowed addresses, so DNS rebinding between a check and a connection gains nothing; literal
//! addresses are checked before the request, because they never reach a resolver. No redirects, no proxy, no
//! cookies; time and size are capped. The content of requests is up to the caller.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use url::Url;

use crate::{
    address::AddressPolicy,
    error::OutboundError,
    http::{HttpClient, HttpClientOptions, HttpDestination, HttpRequest},
    resolver::{HostLookup, SystemHostLookup},
    response::HttpResponse,
};

/// Bytes of a URL; no real webhook needs more.
const MAX_URL: usize = 2048;

/// Options of [`Outbound`].
#[derive(Debug, Clone, Copy)]
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

/// The HTTP client. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Outbound {
    http: HttpClient,
    max_answer: usize,
}

impl Outbound {
    /// A client that resolves names with the operating system.
    pub fn new(options: OutboundOptions) -> Result<Self, OutboundError> {
        Self::with_lookup(options, Arc::new(SystemHostLookup))
    }

    /// A client that resolves names with `lookup`.
    pub fn with_lookup(options: OutboundOptions, lookup: Arc<dyn HostLookup>) -> Result<Self, OutboundError> {
        let OutboundOptions { policy, connect_timeout, timeout, max_answer } = options;
        let http = HttpClient::new(HttpClientOptions {
            connect_timeout: Some(connect_timeout),
            timeout: Some(timeout),
            ..HttpClientOptions::new(HttpDestination::Named { policy, lookup })
        })?;
        Ok(Self { http, max_answer })
    }

    /// Checks a URL without resolving its name: the cheap part of the check, for URLs that are about to be
    /// stored. The address may still be refused when the connection is opened.
    pub fn check_url(&self, url: &str) -> Result<Url, OutboundError> {
        if url.len() > MAX_URL {
            return Err(OutboundError::Url(format!("the URL is longer than {MAX_URL} bytes")));
        }
        let url = Url::parse(url).map_err(|error| OutboundError::Url(format!("not a URL: {error}")))?;
        self.http.check_url(&url)?;
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
        let mut response = self.open(method, url, headers, body).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let (body, complete) = response.read_beginning(self.max_answer).await;
        Ok(OutboundResponse { status, headers, body: body.into(), complete })
    }

    /// Sends a request; the caller reads the response piece by piece and bounds what it reads.
    pub async fn open(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpResponse, OutboundError> {
        self.http.send(HttpRequest::new(method, url.clone()).headers(headers).body(body)).await
    }
}
