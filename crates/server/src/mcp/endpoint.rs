//! The MCP endpoints: `/mcp` with everything that the server has, and `/agents/NAME/mcp` with one agent alone.
//!
//! An endpoint decides what a client reaches there, and which of it the lists show; the caller's scopes decide what the
//! caller may use of that. At an agent's endpoint exist the agent as the only tool, and its tasks of the caller. The task
//! tools can be called there, without being listed: a client that cannot be asked, because it has neither elicitation nor
//! the task methods, has no other way to answer what its background call asks.

use std::{borrow::Cow, sync::Arc};

use axum::http::{StatusCode, Uri};
use nuncio_engine::{
    AccessKind, Action, Caller, Profile,
    surface::{ToolGroup, ToolProfile},
};
use percent_encoding::percent_decode_str;

use super::{Mcp, task_resource::task_of, tool_list_filter::ToolListFilter};
use crate::{request_checks::HttpRefusal, similar_name::similar_name};

/// The path of the server's endpoint.
const PATH: &str = "/mcp";
/// The parameter of the server's endpoint that replaces the configured filter of tools, for one client.
const TOOLS: &str = "tools";
/// The task tool that names an agent: not reached at the endpoint of one agent.
const TASK_SEND: &str = "task_send";

/// What a client reaches at the endpoint that it uses, and what the lists show there.
#[derive(Debug, Clone)]
pub(crate) struct McpEndpoint {
    /// The only agent; `None` at the server's endpoint.
    agent: Option<Arc<str>>,
    tools: Arc<ToolListFilter>,
}

impl McpEndpoint {
    /// The server's endpoint.
    pub(crate) fn of_server(tools: Arc<ToolListFilter>) -> Self {
        Self { agent: None, tools }
    }

    /// The endpoint of a request. The caller is known by now: who may not call an agent does not learn its name.
    pub(super) fn find(mcp: &Mcp, uri: &Uri, caller: &Caller) -> Result<Self, HttpRefusal> {
        let refused = |status, message| Err(HttpRefusal { status, message });
        let tools = filter_in(uri.query().unwrap_or_default());
        let Some(name) = agent_in(uri.path()) else {
            return match tools.map(|names| names.parse::<ToolListFilter>()) {
                None => Ok(Self::of_server(Arc::clone(&mcp.listed))),
                Some(Ok(tools)) => Ok(Self::of_server(Arc::new(tools))),
                Some(Err(error)) => refused(StatusCode::BAD_REQUEST, format!("{TOOLS}: {error}")),
            };
        };
        if tools.is_some() {
            let message = format!("{TOOLS}: this endpoint has one agent alone; {PATH} has a choice of tools");
            return refused(StatusCode::BAD_REQUEST, message);
        }
        match mcp.engine.catalog().get(name) {
            Ok(agent) => {
                Ok(Self { agent: Some(agent.profile.name.as_str().into()), tools: Arc::clone(&mcp.listed) })
            }
            Err(error) => {
                let served: Vec<_> = mcp.engine.catalog().iter().collect();
                let names = served.iter().map(|agent| agent.profile.name.as_str());
                let callable = names.filter(|name| caller.may(Action::Execute, AccessKind::A2a, name));
                let hint = match similar_name(name, callable) {
                    Some(similar) => format!("is {similar:?} meant (/agents/{similar}/mcp)?"),
                    None => format!("tools/list at {PATH} names the agents that there are"),
                };
                refused(StatusCode::NOT_FOUND, format!("{error}; {hint}"))
            }
        }
    }

    /// The path under which the metadata of a protected resource describes the endpoint of a request (RFC 9728). Decided
    /// without a look at the agents: who is not known does not learn which there are.
    pub(crate) fn protected_path(path: &str) -> Cow<'_, str> {
        match agent_in(path).filter(|name| is_agent_name(name)) {
            Some(_) => Cow::Borrowed(path),
            None => Cow::Borrowed(PATH),
        }
    }

    /// The path of the metadata of an agent's endpoint; `None` for what cannot be an agent's name.
    pub(crate) fn path_of_agent(name: &str) -> Option<String> {
        is_agent_name(name).then(|| format!("/agents/{name}{PATH}"))
    }

    /// The path of this endpoint.
    pub(super) fn path(&self) -> Cow<'static, str> {
        match &self.agent {
            Some(name) => Cow::Owned(format!("/agents/{name}{PATH}")),
            None => Cow::Borrowed(PATH),
        }
    }

    /// The only agent of this endpoint.
    pub(super) fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The caller as it is known here: at an agent's endpoint only its tasks of that agent exist.
    pub(super) fn limit(&self, caller: Caller) -> Caller {
        match &self.agent {
            Some(agent) => caller.at_agent(Arc::clone(agent)),
            None => caller,
        }
    }

    pub(super) fn lists_tool(&self, tool: &ToolProfile) -> bool {
        self.agent.is_none() && self.tools.lists_tool(tool)
    }

    pub(super) fn lists_agent(&self, agent: &Profile) -> bool {
        match &self.agent {
            Some(only) => **only == *agent.name,
            None => self.tools.lists_agent(agent),
        }
    }

    /// Whether the tool can be called here, listed or not.
    pub(super) fn reaches_tool(&self, tool: &ToolProfile) -> bool {
        self.agent.is_none() || (tool.group == Some(ToolGroup::Tasks) && tool.name != TASK_SEND)
    }

    /// Whether the agent can be called here, listed or not.
    pub(super) fn reaches_agent(&self, name: &str) -> bool {
        self.agent.as_deref().is_none_or(|only| only == name)
    }

    /// Whether the resource, or the template, of that canonical URI exists here.
    pub(super) fn reaches_resource(&self, uri: &str) -> bool {
        self.agent.is_none() || task_of(uri).is_some()
    }

    /// Why a tool cannot be called here.
    pub(super) fn no_tool(&self, name: &str) -> String {
        match &self.agent {
            Some(agent) => {
                format!(
                    "there is no tool {name:?} here: this is the endpoint of {agent} alone, {PATH} has all tools"
                )
            }
            None => format!("there is no tool {name:?}: tools/list names those that there are"),
        }
    }
}

/// The agent of a path `/agents/NAME/mcp`.
fn agent_in(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/agents/")?.strip_suffix(PATH)?;
    Some(name).filter(|name| !name.contains('/'))
}

/// Whether it can be an agent's name, and stand in a header.
fn is_agent_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(legal)
}

/// The filter of tools that the query of a URL names.
fn filter_in(query: &str) -> Option<Cow<'_, str>> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, names) = pairs.find(|(key, _)| *key == TOOLS)?;
    Some(percent_decode_str(names).decode_utf8_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_agent() {
        for (path, agent) in [
            ("/mcp", None),
            ("/sse", None),
            ("/agents/echo/mcp", Some("echo")),
            ("/agents/a/b/mcp", None),
            ("/agents//mcp", Some("")),
            ("/agents/echo/mcp/", None),
        ] {
            assert_eq!(agent_in(path), agent, "{path}");
        }
        assert_eq!(McpEndpoint::protected_path("/agents/echo/mcp"), "/agents/echo/mcp");
        for other in ["/mcp", "/sse", "/agents/%22/mcp", "/agents//mcp"] {
            assert_eq!(McpEndpoint::protected_path(other), "/mcp");
        }
    }

    #[test]
    fn a_query_names_tools() {
        for (query, tools) in [
            ("", None),
            ("a=b", None),
            ("tools=memory,batch", Some("memory,batch")),
            ("x=1&tools=agent%3Aecho%2Ctasks", Some("agent:echo,tasks")),
            ("tools", Some("")),
        ] {
            assert_eq!(filter_in(query).as_deref(), tools, "{query}");
        }
    }
}
