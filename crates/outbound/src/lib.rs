//! The one way out over HTTP, below every crate that sends requests.
//!
//! One builder of HTTP clients, one error, one reader of bodies, one reader of `Retry-After`, and the backoff
//! between attempts to reach a server. What a request says, and what a status means, is up to the caller.

mod address;
mod backoff;
mod error;
mod filtered;
mod http;
mod resolver;
mod response;
mod tls;

pub use url::Url;

pub use self::{
    address::{AddressPolicy, RefusedAddress},
    backoff::Backoff,
    error::OutboundError,
    filtered::{Outbound, OutboundOptions, OutboundResponse},
    http::{
        HttpClient, HttpClientOptions, HttpDestination, HttpRequest, ProxyRule, RedirectRule, USER_AGENT,
        origin,
    },
    resolver::{HostLookup, SystemHostLookup},
    response::{HttpResponse, retry_after},
    tls::{TlsClientFiles, TlsClientOptions},
};
