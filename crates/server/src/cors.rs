//! Pages of other origins that may call from a browser (CORS). Off unless the operator names some.
//!
//! Credentials travel in the `Authorization` header, which a page sets itself; cookies and the like are never
//! allowed, so that `*` gives away nothing but what anybody gets. Where everybody is the operator that would be
//! everything: there a server does not start with it.

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
/// How headers begin that repeat the arguments of a tool.
const PARAM: &str = "mcp-param-";
/// How long a browser may remember the answer, in seconds.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

/// Which origins may call.
pub(crate) struct Cors {
    any: bool,
    origins: Vec<String>,
}

impl Cors {
    /// None where no origin is named.
    pub(crate) fn new(origins: &[String]) -> Option<Self> {
        let any = origins.iter().any(|origin| origin == "*");
        let origins =
            origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()).collect();
        Some(Self { any, origins }).filter(|cors: &Self| !cors.origins.is_empty())
    }

    /// What the answer names as allowed, where the request comes from a page that may call.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        if self.any {
            return Some(HeaderValue::from_static("*"));
        }
        let said = origin.to_str().ok()?;
        self.origins.iter().any(|known| known.eq_ignore_ascii_case(said)).then(|| origin.clone())
    }

    /// The answer to a browser that asks first.
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

    /// Marks an answer so that the page may read it.
    pub(crate) fn mark(&self, response: &mut Response<Body>, origin: HeaderValue) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// The headers that may be sent, with those of the request that repeat a tool's arguments (MCP 2026-07-28).
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
