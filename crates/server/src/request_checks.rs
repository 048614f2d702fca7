//! The checks of a request before it is parsed: an allowed `Host` and `Origin`, the right content type, and a
//! body that is neither too large nor too slow.

use std::{pin::pin, time::Duration};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use nuncio_engine::count_refusal;

use crate::{auth::ConnectionPeer, options::ServerOptions, responses};

/// A request whose `Host` or `Origin` is not allowed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostRefusal {
    /// The setting that would allow it, which the refusal is counted under.
    rule: &'static str,
    why: &'static str,
}

impl HostRefusal {
    pub(crate) fn into_response(self) -> Response<Body> {
        count_refusal(self.rule);
        responses::refuse(&HttpRefusal { status: StatusCode::FORBIDDEN, message: self.why.into() })
    }
}

/// The host names that the server answers to. This stops DNS rebinding: a page in a browser can reach a local
/// server through a name that it points there, but it cannot choose the `Host` that the browser sends.
pub(crate) struct HostCheck {
    names: Vec<String>,
    public_origin: Option<PageOrigin>,
    any: bool,
}

/// The origin of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PageOrigin {
    scheme: Scheme,
    host: String,
    port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl PageOrigin {
    fn parse(url: &str) -> Option<Self> {
        let (scheme, _) = url.split_once("://")?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let authority = authority_of_url(url)?;
        let host = host_name(authority).to_ascii_lowercase();
        Some(Self { scheme, host, port: port_of(authority, scheme) })
    }
}

impl HostCheck {
    pub(crate) fn new(options: &ServerOptions) -> Self {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        names.extend(options.allowed_hosts.iter().map(|host| host_name(host).to_ascii_lowercase()));
        if let Some(authority) = options.public_url.as_deref().and_then(authority_of_url) {
            names.push(host_name(authority).to_ascii_lowercase());
        }
        let public_origin = options.public_url.as_deref().and_then(PageOrigin::parse);
        Self { names, public_origin, any: options.any_host }
    }

    /// Why the request is refused, if it is. `origin_allowed`: its `Origin` may call from elsewhere (CORS).
    pub(crate) fn refuse(
        &self,
        headers: &HeaderMap,
        peer: &ConnectionPeer,
        origin_allowed: bool,
    ) -> Option<HostRefusal> {
        let of_host = |why| Some(HostRefusal { rule: "allowed-hosts", why });
        if self.any {
            return None;
        }
        let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
            return of_host("the request names no Host");
        };
        if !self.allows_host(host_name(host)) {
            return of_host(
                "the Host of the request is not one of this server's names: \
                 set --public-url, or allowed-hosts in nuncio.toml, if it should be",
            );
        }
        match headers.get(header::ORIGIN).map(HeaderValue::to_str) {
            None => None,
            Some(_) if origin_allowed => None,
            Some(Ok(origin)) if self.is_own_origin(origin, host, peer.is_over_tls()) => None,
            Some(_) => Some(HostRefusal {
                rule: "cors.origins",
                why: "the Origin of the request does not belong to this server: \
                      name it in cors.origins in nuncio.toml, if its pages may call",
            }),
        }
    }

    /// Whether the page came from this server itself: from the origin of `public-url`, or from the same host
    /// and port that the request is for. Another port is another program, and so is plain HTTP where this server
    /// encrypts. Without TLS a proxy may encrypt, so either scheme may be the page's.
    fn is_own_origin(&self, origin: &str, host: &str, over_tls: bool) -> bool {
        let Some(origin) = PageOrigin::parse(origin) else { return false };
        if self.public_origin.as_ref() == Some(&origin) {
            return true;
        }
        if over_tls && origin.scheme == Scheme::Http {
            return false;
        }
        let own = PageOrigin {
            scheme: origin.scheme,
            host: host_name(host).into(),
            port: port_of(host, origin.scheme),
        };
        let same_host = own.host.eq_ignore_ascii_case(&origin.host)
            || (is_loopback_name(&own.host) && is_loopback_name(&origin.host));
        // The host of `public-url` has only one origin, which was compared above.
        let is_public = self.public_origin.as_ref().is_some_and(|public| public.host == origin.host);
        same_host && own.port == origin.port && !is_public && self.allows_host(&origin.host)
    }

    fn allows_host(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The host without its port; an IPv6 address keeps its brackets.
fn host_name(authority: &str) -> &str {
    match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => &authority[..colon],
        _ => authority,
    }
}

/// The port of an authority, or the scheme's default; `None` if it is not a number.
fn port_of(authority: &str, scheme: Scheme) -> Option<u16> {
    match authority[host_name(authority).len()..].strip_prefix(':') {
        Some(port) => port.parse().ok(),
        None if scheme == Scheme::Http => Some(80),
        None => Some(443),
    }
}

fn is_loopback_name(name: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|local| local.eq_ignore_ascii_case(name))
}

fn authority_of_url(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    rest.split(['/', '?', '#']).next()
}

/// A refusal based on the head of a request or its size.
#[derive(Debug)]
pub(crate) struct HttpRefusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

/// Whether the content type is JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(value)) = headers.get(header::CONTENT_TYPE).map(HeaderValue::to_str) else { return false };
    let essence = value.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("application/json") || essence.eq_ignore_ascii_case("application/a2a+json")
}

/// Reads the whole body, within the limits. A refusal is counted.
pub(crate) async fn read_body<B>(
    headers: &HeaderMap,
    body: B,
    max: usize,
    within: Duration,
) -> Result<Bytes, HttpRefusal>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let read = collect_body(headers, body, max, within).await;
    match read.as_ref().map_err(|refusal| refusal.status) {
        Err(StatusCode::PAYLOAD_TOO_LARGE) => count_refusal("http.max-body-bytes"),
        Err(StatusCode::REQUEST_TIMEOUT) => count_refusal("http.body-timeout"),
        _ => {}
    }
    read
}

async fn collect_body<B>(
    headers: &HeaderMap,
    body: B,
    max: usize,
    within: Duration,
) -> Result<Bytes, HttpRefusal>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let too_large = || {
        let message = format!("the body is larger than {max} bytes (max_body_bytes)");
        HttpRefusal { status: StatusCode::PAYLOAD_TOO_LARGE, message }
    };
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|l| l.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > max as u64) {
        return Err(too_large());
    }
    let mut body = pin!(Limited::new(body, max).collect());
    // Most bodies arrive with their head; only the others need a timer.
    let read = match (&mut body).now_or_never() {
        Some(read) => Ok(read),
        None => tokio::time::timeout(within, body).await,
    };
    match read {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(HttpRefusal {
            status: StatusCode::BAD_REQUEST,
            message: format!("the body broke off: {error}"),
        }),
        Err(_) => {
            let message = format!("the body did not arrive within {within:?} (body_timeout)");
            Err(HttpRefusal { status: StatusCode::REQUEST_TIMEOUT, message })
        }
    }
}

/// The body, if all of it has arrived already. Never waits: for a request that is refused anyway.
pub(crate) fn take_arrived_body<B>(headers: &HeaderMap, body: B, max: usize) -> Option<Bytes>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    collect_body(headers, body, max, Duration::ZERO).now_or_never()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, origin: Option<&str>, allowed: bool) {
        check_from(&ConnectionPeer::unknown(), host, origin, allowed);
    }

    fn check_from(peer: &ConnectionPeer, host: &str, origin: Option<&str>, allowed: bool) {
        let options = ServerOptions {
            public_url: Some("https://agents.example.org/base".into()),
            allowed_hosts: vec!["other.example:8443".into()],
            ..ServerOptions::default()
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        let refused = HostCheck::new(&options).refuse(&headers, peer, false);
        assert_eq!(refused.is_none(), allowed, "{host} {origin:?}: {refused:?}");
    }

    #[test]
    fn a_name_that_belongs_here_passes_and_no_other() {
        check("localhost", None, true);
        check("LOCALHOST:8080", None, true);
        check("127.0.0.1:1", None, true);
        check("[::1]:8080", None, true);
        check("[::1]", None, true);
        check("agents.example.org", None, true);
        check("other.example", None, true);
        check("evil.example", None, false);
        check("localhost.evil.example", None, false);
        check("127.0.0.1.evil.example", None, false);
        check("localhost:3000", Some("http://localhost:3000"), true);
        check("127.0.0.1:3000", Some("http://localhost:3000"), true);
        check("localhost", Some("https://agents.example.org"), true);
        check("agents.example.org", Some("https://AGENTS.example.org:443"), true);
        check("other.example:8443", Some("https://other.example:8443"), true);
        check("other.example", Some("https://other.example"), true);
        // Another port or scheme is another program, which may belong to another user.
        check("localhost:8080", Some("http://localhost:3000"), false);
        check("localhost", Some("http://localhost:3000"), false);
        check("agents.example.org", Some("http://agents.example.org"), false);
        check("agents.example.org", Some("https://agents.example.org:8443"), false);
        check("other.example", Some("https://other.example:8443"), false);
        check("localhost:8080", Some("app://localhost:8080"), false);
        check("localhost:8080", Some("http://localhost:x"), false);
        check("localhost", Some("http://evil.example"), false);
        check("localhost", Some("null"), false);
    }
    #[test]
    fn a_page_without_tls_is_none_of_a_server_that_encrypts() {
        let peer = ConnectionPeer::unknown().over_tls(None);
        check_from(&peer, "localhost:8443", Some("https://localhost:8443"), true);
        check_from(&peer, "localhost:8443", Some("http://localhost:8443"), false);
        check_from(&peer, "other.example", Some("https://other.example"), true);
        check_from(&peer, "other.example", Some("http://other.example"), false);
        check_from(&peer, "agents.example.org", Some("https://agents.example.org"), true);
    }
}
