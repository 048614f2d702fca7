//! Cross-origin requests of browser pages (CORS). Off unless the operator names origins.
//!
//! Credentials travel in the `Authorization` header, which a page sets itself; cookies and the like are never
//! allowed, so that `*` exposes only what is public anyway. On a server where every request acts as the
//! operator that would be everything: such a server does not start with `*`.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header},
};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Accept, A2A-Version, A2A-Extensions, MCP-Protocol-Version, Mcp-Session-Id, \
     Mcp-Method, Mcp-Name, Last-Event-ID, Idempotency-Key, traceparent",
);
const EXPOSED: HeaderValue =
    HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate, Retry-After, ETag, A2A-Version");
/// The prefix of headers that repeat the arguments of a tool.
const PARAM: &str = "mcp-param-";
/// How long a browser may cache a preflight response, in seconds.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

/// The origins that may call.
pub(crate) struct Cors {
    any: bool,
    origins: Vec<String>,
}

impl Cors {
    /// `None` if no origin is named.
    pub(crate) fn new(origins: &[String]) -> Option<Self> {
        let any = origins.iter().any(|origin| origin == "*");
        let origins =
            origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()).collect();
        Some(Self { any, origins }).filter(|cors: &Self| !cors.origins.is_empty())
    }

    /// The allowed origin to name in the response, if the request comes from a page that may call.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        if self.any {
            return Some(HeaderValue::from_static("*"));
        }
        let said = origin.to_str().ok()?;
        self.origins.iter().any(|known| known.eq_ignore_ascii_case(said)).then(|| origin.clone())
    }

    /// The response to a preflight request.
    pub(crate) fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        if request.method() != Method::OPTIONS
            || !request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, with_params(request.headers()));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
        Some(response)
    }

    /// Marks a response so that the page may read it.
    pub(crate) fn mark(&self, response: &mut Response<Body>, origin: HeaderValue) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// The headers that may be sent, including those of the request that repeat a tool's arguments (MCP
/// 2026-07-28).
fn with_params(headers: &HeaderMap) -> HeaderValue {
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|wanted| wanted.to_str().ok());
    let params = wanted.unwrap_or_default().split(',').map(str::trim);
    let params = params.filter(|name| {
        name.get(..PARAM.len()).is_some_and(|start| start.eq_ignore_ascii_case(PARAM))
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    });
    let known = HEADERS.to_str().unwrap_or_default().to_owned();
    let all = params.fold(known, |all, name| format!("{all}, {name}"));
    HeaderValue::from_str(&all).unwrap_or(HEADERS)
}
