//! Requests over HTTP: counted by route and status, timed by route, and logged one by one where the operator wants that.
//!
//! A route is a template of a fixed list, so what a client puts into a path makes no new series. Handles are made at the first
//! request of their kind and found by their position from then on.

use std::{sync::OnceLock, time::Duration};

use axum::http::{Method, StatusCode};
use nuncio_engine::metric::{self, Counter, Histogram, OTHER};

use crate::{a2a::rest::RestRoute, auth::ConnectionPeer};

/// The templates of all routes, the frequent ones first. Those of REST stand for their forms below an agent, a tenant and
/// `/v1`, too.
const ROUTES: &[&str] = &[
    "/",
    "/mcp",
    GRPC,
    "/agents/{name}",
    "/agents/{name}/",
    "/agents/{name}/mcp",
    "/message:send",
    "/message:stream",
    "/tasks",
    "/tasks/{id}",
    "/tasks/{id}:cancel",
    "/tasks/{id}:subscribe",
    "/tasks/{id}/pushNotificationConfigs",
    "/tasks/{id}/pushNotificationConfigs/{id}",
    "/extendedAgentCard",
    "/.well-known/agent-card.json",
    "/.well-known/agent.json",
    "/agents/{name}/.well-known/agent-card.json",
    "/agents/{name}/.well-known/agent.json",
    "/.well-known/jwks.json",
    "/sse",
    "/messages",
    "/schemas/{name}",
    AUTHORIZATION,
    "/healthz",
    "/readyz",
    "/metrics",
    "/admin/dead-letters",
    "/admin/dead-letters/replay",
    "/admin/tokens",
    "/admin/tokens/{id}",
    "/admin/audit",
    "/admin/card-keys",
    "/admin/card-keys/rotate",
    "/admin/card-keys/{kid}",
    "/admin/webhook-key",
    "/admin/webhook-key/rotate",
    "/admin/tasks",
    "/admin/tasks/{id}",
    "/admin/tasks/{id}/cancel",
    "/admin/tasks/{id}/authorize",
    "/admin/tenants",
    "/admin/tenants/{name}",
    "/admin/tenants/{name}/suspend",
    "/admin/tenants/{name}/resume",
    "/admin/tenants/{name}/erase",
    "/admin/tenants/{name}/export",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-protected-resource/agents/{name}/mcp",
    CONSOLE_API,
    CONSOLE_PAGES,
    OTHER,
];
const GRPC: &str = "grpc";
const CONSOLE_API: &str = "/console/api";
const CONSOLE_PAGES: &str = "/console";
/// Its path holds a ticket, which is a credential.
const AUTHORIZATION: &str = "/authorizations/{ticket}";

/// The statuses that are counted each; all others share a label.
const CODES: [u16; 25] = [
    200, 201, 202, 204, 304, 307, 400, 401, 403, 404, 405, 406, 409, 410, 412, 413, 415, 422, 429, 500, 501,
    502, 503, 504, 505,
];

/// The longest path in a line of the access log, in bytes.
const MAX_LOGGED_PATH: usize = 256;

/// The route of a request: its position in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpRoute(usize);

impl HttpRoute {
    /// The route of a path, whatever the method. `rest`: its parts, if it belongs to the REST binding.
    pub(crate) fn of(path: &str, is_grpc: bool, rest: Option<&RestRoute>) -> Self {
        if is_grpc {
            return Self::named(GRPC);
        }
        if let Some(template) = rest.and_then(RestRoute::template) {
            return Self::named(template);
        }
        if path == CONSOLE_PAGES || path.starts_with("/console/") {
            let is_api = path.strip_prefix(CONSOLE_API).is_some_and(|rest| rest.starts_with('/'));
            return Self::named(if is_api { CONSOLE_API } else { CONSOLE_PAGES });
        }
        let found = ROUTES.iter().position(|template| template.starts_with('/') && matches(template, path));
        Self(found.unwrap_or(ROUTES.len() - 1))
    }

    fn named(template: &str) -> Self {
        Self(ROUTES.iter().position(|known| *known == template).unwrap_or(ROUTES.len() - 1))
    }

    fn template(self) -> &'static str {
        ROUTES[self.0]
    }
}

/// Whether a path has the form of a template: `{…}` stands for one segment.
fn matches(template: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found => {}
            (Some(wanted), Some(found)) if wanted.starts_with('{') && !found.is_empty() => {}
            _ => return false,
        }
    }
}

/// The metrics of one route.
#[derive(Default)]
struct RouteMetrics {
    duration: OnceLock<Histogram>,
    /// By position in [`CODES`]; the last is that of all others.
    requests: [OnceLock<Counter>; CODES.len() + 1],
}

/// The metrics of all routes, and whether requests are logged.
pub(crate) struct HttpMetrics {
    routes: Vec<RouteMetrics>,
    access_log: bool,
}

impl HttpMetrics {
    pub(crate) fn new(access_log: bool) -> Self {
        Self { routes: ROUTES.iter().map(|_| RouteMetrics::default()).collect(), access_log }
    }

    /// Whether [`HttpMetrics::log`] is to be called.
    pub(crate) fn logs_access(&self) -> bool {
        self.access_log
    }

    /// Counts a request whose response begins.
    pub(crate) fn record(&self, route: HttpRoute, status: StatusCode, took: Duration) {
        let (metrics, template) = (&self.routes[route.0], route.template());
        let status = status.as_u16();
        let code = CODES.iter().position(|code| *code == status);
        let counter = metrics.requests[code.unwrap_or(CODES.len())].get_or_init(|| {
            let label = code.map_or_else(|| OTHER.to_owned(), |_| status.to_string());
            metric::HTTP_REQUESTS.counter(&[template, &label])
        });
        counter.increment(1);
        metrics.duration.get_or_init(|| metric::HTTP_DURATION.histogram(&[template])).record(took);
    }
}

/// A line of the access log. Without the query, which may hold credentials, as a path of an authorization does.
pub(crate) fn log_access(
    route: HttpRoute,
    (method, path): &(Method, String),
    peer: &ConnectionPeer,
    status: StatusCode,
    took: Duration,
) {
    let path = if route.template() == AUTHORIZATION { AUTHORIZATION } else { path.as_str() };
    let path = &path[..path.floor_char_boundary(MAX_LOGGED_PATH)];
    let (method, status, seconds) = (method.as_str(), status.as_u16(), took.as_secs_f64());
    tracing::info!(target: "nuncio::access", method, path, status, seconds, peer = peer.text(), "request");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: &str) {
        let rest = RestRoute::parse(path);
        assert_eq!(HttpRoute::of(path, false, rest.as_ref()).template(), expected, "{path}");
    }

    #[test]
    fn a_path_has_its_template_and_an_unknown_one_none() {
        check("/", "/");
        check("/mcp", "/mcp");
        check("/agents/echo", "/agents/{name}");
        check("/agents/echo/", "/agents/{name}/");
        check("/agents/echo/.well-known/agent.json", "/agents/{name}/.well-known/agent.json");
        check("/tasks/1", "/tasks/{id}");
        check("/tasks/1:cancel", "/tasks/{id}:cancel");
        check("/v1/message:send", "/message:send");
        check("/agents/a/b/tasks/t/pushNotificationConfigs/c", "/tasks/{id}/pushNotificationConfigs/{id}");
        check("/message:shout", OTHER);
        check("/console", CONSOLE_PAGES);
        check("/console/app.js", CONSOLE_PAGES);
        check("/console/api/tasks/1", CONSOLE_API);
        check("/admin/tenants/acme/erase", "/admin/tenants/{name}/erase");
        check("/authorizations/secret", AUTHORIZATION);
        check("/admin/tenants/acme/other", OTHER);
        check("/agents//", OTHER);
        check("/other", OTHER);
        check("//", OTHER);
        assert_eq!(HttpRoute::of("/x.Y/Z", true, None).template(), GRPC);
    }

    /// A route that is not in the list would be counted among all others.
    #[test]
    fn every_route_of_the_server_is_in_the_list() {
        let routes = include_str!("app.rs").split(".route(\"").skip(1);
        let routes: Vec<&str> = routes.filter_map(|rest| rest.split('"').next()).collect();
        assert!(routes.len() > 20, "{routes:?}");
        for route in routes.into_iter().chain([crate::card_keys::KEY_SET_PATH]) {
            assert!(ROUTES.contains(&route), "{route}");
        }
    }

    #[test]
    fn codes_are_in_order_and_each_once() {
        assert!(CODES.is_sorted_by(|a, b| a < b));
    }
}
