//! The paths of the REST binding: which agent, which generation, which operation.
//!
//! Parsed by hand, because the router cannot match `/tasks/{id}:cancel`. Segments are decoded once, after the verb was
//! split off: an id may contain an encoded colon or slash.
//!
//! | path | generation |
//! | --- | --- |
//! | `/…`, `/agents/{name}/…` | 1.0 |
//! | `/{tenant}/…`, `/agents/{name}/{tenant}/…` | 1.0; the tenant is the name of an agent |
//! | `/v1/…`, `/agents/{name}/v1/…` | 0.3 |
//!
//! A path that can be read with and without a tenant has none: `/tasks/tasks` is the task `tasks`.

use axum::http::Method;
use nuncio_wire::a2a::{Dialect, RestOperation};
use percent_encoding::percent_decode_str;

/// Segments of the longest path: an agent's, with a tenant, of one webhook of a task.
const MAX_SEGMENTS: usize = 7;

/// First segments of the server's other paths. An agent of such a name is reached under `/agents`.
const RESERVED: [&str; 11] = [
    ".well-known",
    "admin",
    "agents",
    "authorizations",
    "healthz",
    "mcp",
    "messages",
    "metrics",
    "readyz",
    "schemas",
    "sse",
];

/// A path of the REST binding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RestRoute {
    /// The agent of a path under `/agents/{name}`.
    pub(crate) agent: Option<String>,
    /// The tenant of the path.
    pub(crate) tenant: Option<String>,
    pub(crate) dialect: Dialect,
    resource: RestResource,
}

/// What a path addresses.
#[derive(Debug, PartialEq, Eq)]
enum RestResource {
    Send,
    Stream,
    Tasks,
    Task(String),
    Cancel(String),
    Subscribe(String),
    Webhooks(String),
    Webhook(String, String),
    Card,
    /// Nothing, below a path that only this binding has.
    Unknown,
}

/// Why a path and a method are no operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoOperation {
    UnknownPath,
    /// The path has other methods: the value of the `Allow` header.
    OtherMethod(&'static str),
    /// 0.3 has no such operation.
    NoList,
}

impl RestRoute {
    /// Reads a path. `None`: it does not belong to this binding.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        // Clients join paths to the URL of a card, and not all of them see that it ends with a slash.
        let path = path.trim_start_matches('/');
        if path.is_empty() {
            return None;
        }
        let segments: Vec<&str> = path.splitn(MAX_SEGMENTS + 1, '/').collect();
        let (agent, segments) = match segments.as_slice() {
            ["agents", name, rest @ ..] => (Some(decode(name)), rest),
            segments => (None, segments),
        };
        let route = |dialect, tenant, resource| Some(Self { agent, tenant, dialect, resource });
        if let ["v1", rest @ ..] = segments {
            let resource = RestResource::parse(Dialect::V0_3, rest).unwrap_or(RestResource::Unknown);
            return route(Dialect::V0_3, None, resource);
        }
        if let Some(resource) = RestResource::parse(Dialect::V1, segments) {
            return route(Dialect::V1, None, resource);
        }
        match segments {
            ["tasks", ..] => route(Dialect::V1, None, RestResource::Unknown),
            [first] if first.starts_with("message:") => route(Dialect::V1, None, RestResource::Unknown),
            [tenant, rest @ ..] if !tenant.is_empty() && !RESERVED.contains(tenant) => {
                let resource = RestResource::parse(Dialect::V1, rest)?;
                route(Dialect::V1, Some(decode(tenant)), resource)
            }
            _ => None,
        }
    }

    /// The template of the path, without what precedes its resource. `None` where nothing is there.
    pub(crate) fn template(&self) -> Option<&'static str> {
        Some(match self.resource {
            RestResource::Send => "/message:send",
            RestResource::Stream => "/message:stream",
            RestResource::Tasks => "/tasks",
            RestResource::Task(_) => "/tasks/{id}",
            RestResource::Cancel(_) => "/tasks/{id}:cancel",
            RestResource::Subscribe(_) => "/tasks/{id}:subscribe",
            RestResource::Webhooks(_) => "/tasks/{id}/pushNotificationConfigs",
            RestResource::Webhook(..) => "/tasks/{id}/pushNotificationConfigs/{id}",
            RestResource::Card => "/extendedAgentCard",
            RestResource::Unknown => return None,
        })
    }

    /// The operation of a method on this path.
    pub(crate) fn operation(&self, method: &Method) -> Result<RestOperation, NoOperation> {
        let (get, post, delete) =
            (*method == Method::GET, *method == Method::POST, *method == Method::DELETE);
        let task = String::clone;
        Ok(match &self.resource {
            RestResource::Send if post => RestOperation::Send,
            RestResource::Stream if post => RestOperation::Stream,
            RestResource::Tasks if get && self.dialect < Dialect::V1 => return Err(NoOperation::NoList),
            RestResource::Tasks if get => RestOperation::List,
            RestResource::Task(id) if get => RestOperation::Get { task: task(id) },
            RestResource::Cancel(id) if post => RestOperation::Cancel { task: task(id) },
            // The proto file says GET, the text of the specification POST; clients send both.
            RestResource::Subscribe(id) if post || get => RestOperation::Subscribe { task: task(id) },
            RestResource::Webhooks(id) if post => RestOperation::SetWebhook { task: task(id) },
            RestResource::Webhooks(id) if get => RestOperation::ListWebhooks { task: task(id) },
            RestResource::Webhook(id, config) if get => {
                RestOperation::GetWebhook { task: task(id), id: config.clone() }
            }
            RestResource::Webhook(id, config) if delete => {
                RestOperation::DeleteWebhook { task: task(id), id: config.clone() }
            }
            RestResource::Card if get => RestOperation::ExtendedCard,
            RestResource::Unknown => return Err(NoOperation::UnknownPath),
            RestResource::Send | RestResource::Stream | RestResource::Cancel(_) => {
                return Err(NoOperation::OtherMethod("POST"));
            }
            RestResource::Tasks | RestResource::Task(_) | RestResource::Card => {
                return Err(NoOperation::OtherMethod("GET"));
            }
            RestResource::Subscribe(_) | RestResource::Webhooks(_) => {
                return Err(NoOperation::OtherMethod("GET,POST"));
            }
            RestResource::Webhook(..) => return Err(NoOperation::OtherMethod("DELETE,GET")),
        })
    }
}

impl RestResource {
    fn parse(dialect: Dialect, segments: &[&str]) -> Option<Self> {
        Some(match segments {
            ["message:send"] => Self::Send,
            ["message:stream"] => Self::Stream,
            ["tasks"] => Self::Tasks,
            ["tasks", task] if !task.is_empty() => match task.rsplit_once(':') {
                Some((id, "cancel")) if !id.is_empty() => Self::Cancel(decode(id)),
                Some((id, "subscribe")) if !id.is_empty() => Self::Subscribe(decode(id)),
                _ => Self::Task(decode(task)),
            },
            ["tasks", task, "pushNotificationConfigs"] if !task.is_empty() => Self::Webhooks(decode(task)),
            ["tasks", task, "pushNotificationConfigs", id] if !task.is_empty() && !id.is_empty() => {
                Self::Webhook(decode(task), decode(id))
            }
            ["extendedAgentCard"] if dialect >= Dialect::V1 => Self::Card,
            ["card"] if dialect < Dialect::V1 => Self::Card,
            _ => return None,
        })
    }
}

/// Bytes that are no UTF-8 are replaced: no id contains the replacement.
fn decode(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &Method, path: &str, expected: &str) {
        let read = match RestRoute::parse(path) {
            None => "-".to_owned(),
            Some(route) => {
                let place = [route.agent.as_deref(), route.tenant.as_deref()].map(|name| name.unwrap_or("-"));
                format!("{} {} {:?}", route.dialect.version(), place.join(" "), route.operation(method))
            }
        };
        assert_eq!(read, expected, "{method} {path}");
    }

    #[test]
    fn a_path_names_the_agent_the_generation_and_the_operation() {
        let (get, post) = (&Method::GET, &Method::POST);
        check(post, "/message:send", "1.0 - - Ok(Send)");
        check(post, "/v1/message:stream", "0.3 - - Ok(Stream)");
        check(post, "//message:send", "1.0 - - Ok(Send)");
        check(post, "//v1/message:send", "0.3 - - Ok(Send)");
        check(get, "//", "-");
        check(post, "/agents/a/message:send", "1.0 a - Ok(Send)");
        check(post, "/b/message:send", "1.0 - b Ok(Send)");
        check(post, "/agents/a/b/message:send", "1.0 a b Ok(Send)");
        check(get, "/agents/a/v1/card", "0.3 a - Ok(ExtendedCard)");
        check(get, "/extendedAgentCard", "1.0 - - Ok(ExtendedCard)");
        check(get, "/tasks", "1.0 - - Ok(List)");
        check(get, "/v1/tasks", "0.3 - - Err(NoList)");
        check(get, "/agents/a/tasks", "1.0 a - Ok(List)");
        // Ids.
        check(get, "/tasks/urn:x:1", "1.0 - - Ok(Get { task: \"urn:x:1\" })");
        check(get, "/tasks/a%2Fb%3Acancel", "1.0 - - Ok(Get { task: \"a/b:cancel\" })");
        check(post, "/tasks/a%3Ab:cancel", "1.0 - - Ok(Cancel { task: \"a:b\" })");
        check(get, "/tasks/a:subscribe", "1.0 - - Ok(Subscribe { task: \"a\" })");
        check(post, "/tasks/a:subscribe", "1.0 - - Ok(Subscribe { task: \"a\" })");
        check(get, "/tasks/%FF", "1.0 - - Ok(Get { task: \"\u{FFFD}\" })");
        check(get, "/tasks/%2561", "1.0 - - Ok(Get { task: \"%61\" })");
        // Without a tenant first.
        check(get, "/tasks/tasks", "1.0 - - Ok(Get { task: \"tasks\" })");
        check(get, "/x%2Fy/tasks/t", "1.0 - x/y Ok(Get { task: \"t\" })");
        let longest = "/agents/a/a/tasks/t/pushNotificationConfigs/c";
        check(get, longest, "1.0 a a Ok(GetWebhook { task: \"t\", id: \"c\" })");
        // Other methods, other paths.
        check(get, "/message:send", "1.0 - - Err(OtherMethod(\"POST\"))");
        check(post, "/tasks", "1.0 - - Err(OtherMethod(\"GET\"))");
        check(get, "/tasks/a:cancel", "1.0 - - Err(OtherMethod(\"POST\"))");
        check(&Method::PUT, "/tasks/a/pushNotificationConfigs/b", "1.0 - - Err(OtherMethod(\"DELETE,GET\"))");
        check(get, "/tasks/a/b", "1.0 - - Err(UnknownPath)");
        check(get, "/tasks/", "1.0 - - Err(UnknownPath)");
        check(post, "/message:shout", "1.0 - - Err(UnknownPath)");
        check(get, "/v1/extendedAgentCard", "0.3 - - Err(UnknownPath)");
        for other in [
            "/",
            "/mcp",
            "/agents/a",
            "/agents/a/",
            "/agents/tasks",
            "/agents/a/.well-known/agent-card.json",
            "/admin/tasks",
            "/admin/tasks/x",
            "/authorizations/tasks",
            "/schemas/tasks",
            "/nothing",
            &"/".repeat(30_000),
            &"/tasks".repeat(5_000).replacen("/tasks", "/x", 1),
        ] {
            check(get, other, "-");
        }
    }
}
