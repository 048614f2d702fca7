//! The web console at `/console/`: its pages, which are part of the binary, and the HTTP API behind them.
//!
//! The API is public (`docs/console-api.md`): a program with a token uses it as the console does. Every operation goes
//! through the engine's access control; nothing here reads the store. It is stricter towards browsers than the other
//! endpoints: only pages of this very origin may call it, and it sends no CORS header.

mod api;
mod audit;
mod configuration;
mod events;
mod forks;
mod journal;
mod live;
mod live_resource;
mod live_rows;
mod me;
mod nodes;
mod openapi;
mod pages;
mod problem;
mod pulse;
mod questions;
mod selections;
mod sender;
mod session;
mod streams;
mod tasks;
mod tokens;
mod webhooks;
mod wire_frames;

use std::sync::Arc;

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header},
};

pub(crate) use self::session::{SESSION_PREFIX, verify_session};
use self::{pages::Pages, problem::ConsoleProblem};
use crate::{app::App, auth::ConnectionPeer};

/// The policy of every response: scripts and styles of this server alone, no HTML from text, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
     connect-src 'self'; frame-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// The console of one server.
pub(crate) struct Console {
    pages: Pages,
}

impl Console {
    /// `base_url`: where clients reach the server.
    pub(crate) fn new(base_url: &str) -> Self {
        Self { pages: Pages::new(base_url) }
    }

    /// The path of a request below `/console`, if it is one for the console: `""`, or with a leading slash.
    pub(crate) fn path_of(path: &str) -> Option<&str> {
        let rest = path.strip_prefix("/console")?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Leads a browser to the console.
    pub(crate) fn redirect(&self, status: StatusCode) -> Response<Body> {
        self.pages.redirect(status)
    }

    pub(crate) async fn serve<B>(
        &self,
        app: &Arc<App>,
        request: Request<B>,
        peer: &ConnectionPeer,
    ) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = Self::path_of(request.uri().path()).unwrap_or_default().to_owned();
        let mut response = match path.strip_prefix("/api/") {
            Some(operation) => {
                let served = api::serve(app, operation, request, peer).await;
                served.unwrap_or_else(ConsoleProblem::into_response)
            }
            None => self.pages.serve(request.method(), &path, request.headers()),
        };
        protect(response.headers_mut());
        response
    }
}

fn protect(headers: &mut HeaderMap) {
    const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
    const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER, HeaderValue::from_static("same-origin"));
    headers.insert(RESOURCE, HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
