//! The registry on the surface: `a2a://agents/registry`, and the tools `agents_list` and `agents_probe`.
//!
//! The addresses, cards and errors of remotes reveal the operator's network. Callers of other tenants than the
//! operator's see only names, capabilities and health.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{
    AccessKind, Action, Caller, Engine, Error, Surface,
    access::HOME_TENANT,
    access_control::AccessRequest,
    surface::{
        HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile, SchemaError,
        ToolCall, ToolGroup, TypedReply, output_schema, typed_reply, typed_tool,
    },
};
use serde_json::Value;

use super::{
    AgentLocation, Registry, RegistryEntry, RemoteKind,
    api::{
        AgentDetails, AgentHealth, AgentRegistryAnswer, AgentSummary, AgentsListAnswer, AgentsListRequest,
        AgentsProbeRequest, DiscoverySummary, ListedAgentKind,
    },
};
use crate::resource::{self, CachePolicy, ResourceDetails, iso};

/// The URI of the registry resource.
pub const URI: &str = "a2a://agents/registry";
/// The name of the registry in grants.
const REGISTRY: &str = "registry";
/// The name of the schema.
const SCHEMA: &str = "a2a-registry";

#[derive(Clone)]
struct RegistryTools {
    registry: Arc<Registry>,
    engine: Engine,
}

pub(super) fn install(
    registry: &Arc<Registry>,
    engine: &Engine,
    surface: &Arc<Surface>,
) -> Result<(), SchemaError> {
    let mut schema = output_schema::<AgentRegistryAnswer>();
    schema["title"] = "The agents that are known".into();
    surface.add_schema(SCHEMA, schema);
    let tools = RegistryTools { registry: Arc::clone(registry), engine: engine.clone() };
    surface.add_resource(RegistryResource(tools.clone()));
    let about = "Lists the agents of this server and the configured remotes, and how they are.";
    typed_tool("agents_list", about, &tools, RegistryTools::list).install(ToolGroup::Registry, surface)?;
    let about = "Looks now how an agent is, instead of waiting for the next probe, and tells what it found.";
    typed_tool("agents_probe", about, &tools, RegistryTools::probe).install(ToolGroup::Registry, surface)
}

impl RegistryTools {
    fn allow(&self, caller: &Caller, action: Action, operation: &'static str) -> Result<(), Error> {
        self.engine.allow(
            caller,
            &AccessRequest { action, kind: AccessKind::A2a, name: REGISTRY, operation, resource: &URI },
        )
    }

    async fn list(self, call: ToolCall<AgentsListRequest>) -> TypedReply<AgentsListAnswer> {
        self.allow(&call.caller, Action::Read, "registry.list")?;
        let all = seen_by(&call.caller, self.registry.agents());
        let AgentsListRequest { status, skill } = call.input;
        let fits = |known: &&RegistryEntry| {
            status.is_none_or(|status| status == health(known))
                && skill.as_ref().is_none_or(|skill| known.capabilities.contains(skill))
        };
        let listed: Vec<&RegistryEntry> = all.iter().filter(fits).collect();
        let lines: Vec<String> = listed.iter().map(|known| line(known)).collect();
        let text = if lines.is_empty() { "there is no such agent".to_owned() } else { lines.join("\n") };
        let agents = listed.into_iter().map(AgentSummary::from).collect();
        typed_reply(text, AgentsListAnswer { agents, discovery: self.discovery(&all) })
    }

    async fn probe(self, call: ToolCall<AgentsProbeRequest>) -> TypedReply<AgentDetails> {
        self.allow(&call.caller, Action::Execute, "registry.probe")?;
        let name = &call.input.name;
        let Some(known) = self.registry.probe(name).await else {
            let why = format!("there is no agent {name:?}: agents_list names those that there are");
            return Err(HandlerError::Failed(why));
        };
        let known = visible_to(&call.caller, known);
        typed_reply(line(&known), AgentDetails::from(&known))
    }

    fn discovery(&self, all: &[RegistryEntry]) -> DiscoverySummary {
        DiscoverySummary {
            last_scan: self.registry.last_scan().map(iso),
            total_agents: all.len() as u64,
            healthy_agents: all.iter().filter(|known| known.healthy).count() as u64,
        }
    }
}

struct RegistryResource(RegistryTools);

#[async_trait]
impl Resource for RegistryResource {
    fn profile(&self) -> ResourceProfile {
        let about = "All agents that are known: those of this server and the configured remotes, with their cards \
                     and how they are.";
        resource::profile(URI, "agents", about, CachePolicy::Realtime)
    }

    async fn read(
        &self,
        request: HandlerRequest,
    ) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        let RegistryTools { registry, engine } = &self.0;
        self.0.allow(&request.caller, Action::Read, "registry.read")?;
        let all = seen_by(&request.caller, registry.agents());
        let answer = AgentRegistryAnswer {
            agents: all.iter().map(AgentDetails::from).collect(),
            discovery: self.0.discovery(&all),
        };
        let about = ResourceDetails {
            kind: AccessKind::A2a,
            name: REGISTRY,
            schema: SCHEMA,
            modified: registry.last_scan().unwrap_or_else(|| engine.clock().now()),
            policy: CachePolicy::Realtime,
        };
        let surface = engine.catalog().surface();
        Ok(HandlerReply::Done(vec![resource::content(surface, &request.caller, URI, &about, &answer)]))
    }
}

/// The entries with the fields that the caller may see.
fn seen_by(caller: &Caller, all: impl IntoIterator<Item = RegistryEntry>) -> Vec<RegistryEntry> {
    all.into_iter().map(|known| visible_to(caller, known)).collect()
}

fn visible_to(caller: &Caller, mut known: RegistryEntry) -> RegistryEntry {
    if caller.tenant() == HOME_TENANT {
        return known;
    }
    // Also for a local agent that proxies a remote one: its errors name addresses, paths and programs.
    known.last_error = None;
    if known.location != AgentLocation::Local {
        (known.url, known.card, known.server_info) = (None, None, None);
    }
    known
}

fn health(known: &RegistryEntry) -> AgentHealth {
    if known.healthy { AgentHealth::Healthy } else { AgentHealth::Unhealthy }
}

/// One entry as a line of text.
fn line(known: &RegistryEntry) -> String {
    let (name, status, place) = (&known.name, health(known).name(), known.location.name());
    let breaker = known.breaker.name();
    match &known.last_error {
        None if known.healthy || known.location == AgentLocation::Local => {
            format!("{name} ({place}) is {status}")
        }
        None => format!("{name} ({place}) is {status}, its breaker is {breaker}"),
        Some(why) => format!("{name} ({place}) is {status}, its breaker is {breaker}: {why}"),
    }
}

impl From<&RegistryEntry> for AgentSummary {
    fn from(known: &RegistryEntry) -> Self {
        Self {
            agent_type: known.name.clone(),
            url: known.url.clone(),
            status: health(known),
            capabilities: known.capabilities.clone(),
            last_seen: known.last_seen.map(iso),
            kind: match known.location {
                AgentLocation::Local => ListedAgentKind::Local,
                AgentLocation::Remote(RemoteKind::A2a) => ListedAgentKind::A2a,
                AgentLocation::Remote(RemoteKind::Mcp) => ListedAgentKind::Mcp,
            },
            breaker: known.breaker,
            last_error: known.last_error.clone(),
            latency_ms: known.latency.map(|latency| (latency.as_secs_f64() * 1e6).round() / 1e3),
        }
    }
}

impl From<&RegistryEntry> for AgentDetails {
    fn from(known: &RegistryEntry) -> Self {
        let members = |value: &Option<Value>| value.as_ref().and_then(Value::as_object).cloned();
        Self {
            summary: known.into(),
            agent_card: members(&known.card),
            server_info: members(&known.server_info),
        }
    }
}
