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
        ToolOutput, ToolProfile, tool,
    },
};
use serde_json::{Map, Value, json};

use super::{AgentLocation, Registry, RegistryEntry};
use crate::resource::{self, CachePolicy, ResourceDetails, iso};

/// The URI of the registry resource.
pub const URI: &str = "a2a://agents/registry";
/// The name of the registry in grants.
const REGISTRY: &str = "registry";
/// The name of the schema.
const SCHEMA: &str = "a2a-registry";

pub(super) fn install(
    registry: &Arc<Registry>,
    engine: &Engine,
    surface: &Arc<Surface>,
) -> Result<(), SchemaError> {
    surface.add_schema(SCHEMA, schema());
    surface.add_resource(RegistryResource { registry: Arc::clone(registry), engine: engine.clone() });
    add_list(registry, engine, surface)?;
    add_probe(registry, engine, surface)
}

fn allow(engine: &Engine, caller: &Caller, action: Action, operation: &'static str) -> Result<(), Error> {
    engine.allow(
        caller,
        &AccessRequest { action, kind: AccessKind::A2a, name: REGISTRY, operation, resource: &URI },
    )
}

struct RegistryResource {
    registry: Arc<Registry>,
    engine: Engine,
}

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
        let Self { registry, engine } = self;
        allow(engine, &request.caller, Action::Read, "registry.read")?;
        let all = seen_by(&request.caller, registry.agents());
        let value = json!({
            "agents": all.iter().map(with_card).collect::<Vec<_>>(),
            "discovery": discovery(registry, &all),
        });
        let about = ResourceDetails {
            kind: AccessKind::A2a,
            name: REGISTRY,
            schema: SCHEMA,
            modified: registry.last_scan().unwrap_or_else(|| engine.clock().now()),
            policy: CachePolicy::Realtime,
        };
        let surface = engine.catalog().surface();
        Ok(HandlerReply::Done(vec![resource::content(surface, &request.caller, URI, &about, &value)]))
    }
}

fn add_list(registry: &Arc<Registry>, engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    let profile = ToolProfile::new(
        "agents_list",
        "Lists the agents of this server and the configured remotes, and how they are.",
    )
    .input(json!({
        "type": "object",
        "properties": {
            "status": { "enum": ["healthy", "unhealthy"], "description": "Only those who are so." },
            "skill": { "type": "string", "maxLength": 256, "description": "Only those who have this skill." },
        },
        "additionalProperties": false,
    }))
    .output(json!({
        "type": "object",
        "properties": { "agents": { "type": "array", "items": entry(false) }, "discovery": discovery_schema() },
        "required": ["agents", "discovery"],
        "additionalProperties": false,
    }));
    let (registry, engine) = (Arc::clone(registry), engine.clone());
    surface.add_tool(tool(profile, move |request: HandlerRequest| {
        let (registry, engine) = (Arc::clone(&registry), engine.clone());
        async move {
            allow(&engine, &request.caller, Action::Read, "registry.list")?;
            let all = seen_by(&request.caller, registry.agents());
            let fits = |known: &&RegistryEntry| {
                request.text("status").is_none_or(|status| status == status_of(known))
                    && request
                        .text("skill")
                        .is_none_or(|skill| known.capabilities.iter().any(|can| can == skill))
            };
            let listed: Vec<&RegistryEntry> = all.iter().filter(fits).collect();
            let lines: Vec<String> = listed.iter().map(|known| line(known)).collect();
            let text = if lines.is_empty() { "there is no such agent".to_owned() } else { lines.join("\n") };
            let agents: Vec<Value> = listed.into_iter().map(summary).collect();
            let mut output = ToolOutput::text(text);
            output.structured = Some(json!({ "agents": agents, "discovery": discovery(&registry, &all) }));
            Ok(HandlerReply::Done(output))
        }
    }))
}

fn add_probe(registry: &Arc<Registry>, engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
    let profile = ToolProfile::new(
        "agents_probe",
        "Looks now how an agent is, instead of waiting for the next probe, and tells what it found.",
    )
    .input(json!({
        "type": "object",
        "properties": { "name": { "type": "string", "maxLength": 64, "description": "As agents_list has it." } },
        "required": ["name"],
        "additionalProperties": false,
    }))
    .output(entry(true));
    let (registry, engine) = (Arc::clone(registry), engine.clone());
    surface.add_tool(tool(profile, move |request: HandlerRequest| {
        let (registry, engine) = (Arc::clone(&registry), engine.clone());
        async move {
            allow(&engine, &request.caller, Action::Execute, "registry.probe")?;
            let name = request.text("name").unwrap_or_default();
            let Some(known) = registry.probe(name).await else {
                let why = format!("there is no agent {name:?}: agents_list names those that there are");
                return Err(HandlerError::Failed(why));
            };
            let known = seen_by(&request.caller, [known]);
            let mut output = ToolOutput::text(known.iter().map(line).collect::<String>());
            output.structured = known.first().map(with_card);
            Ok(HandlerReply::Done(output))
        }
    }))
}

/// The entries with the fields that the caller may see.
fn seen_by(caller: &Caller, all: impl IntoIterator<Item = RegistryEntry>) -> Vec<RegistryEntry> {
    let seen = |mut known: RegistryEntry| {
        if caller.tenant() == HOME_TENANT {
            return known;
        }
        // Also for a local agent that proxies a remote one: its errors name addresses, paths and programs.
        known.last_error = None;
        if known.location != AgentLocation::Local {
            (known.url, known.card, known.server_info) = (None, None, None);
        }
        known
    };
    all.into_iter().map(seen).collect()
}

fn status_of(known: &RegistryEntry) -> &'static str {
    if known.healthy { "healthy" } else { "unhealthy" }
}

/// One entry as a line of text.
fn line(known: &RegistryEntry) -> String {
    let (name, status, place) = (&known.name, status_of(known), known.location.name());
    let breaker = known.breaker.name();
    match &known.last_error {
        None if known.healthy || known.location == AgentLocation::Local => {
            format!("{name} ({place}) is {status}")
        }
        None => format!("{name} ({place}) is {status}, its breaker is {breaker}"),
        Some(why) => format!("{name} ({place}) is {status}, its breaker is {breaker}: {why}"),
    }
}

fn summary(known: &RegistryEntry) -> Value {
    Value::Object(members(known))
}

fn with_card(known: &RegistryEntry) -> Value {
    let mut entry = members(known);
    entry.insert("agentCard".into(), json!(known.card));
    entry.insert("serverInfo".into(), json!(known.server_info));
    Value::Object(entry)
}

fn members(known: &RegistryEntry) -> Map<String, Value> {
    let latency = known.latency.map(|latency| (latency.as_secs_f64() * 1e6).round() / 1e3);
    Map::from_iter([
        ("agentType".to_owned(), json!(known.name)),
        ("url".to_owned(), json!(known.url)),
        ("status".to_owned(), json!(status_of(known))),
        ("capabilities".to_owned(), json!(known.capabilities)),
        ("lastSeen".to_owned(), json!(known.last_seen.map(iso))),
        ("kind".to_owned(), json!(known.location.name())),
        ("breaker".to_owned(), json!(known.breaker.name())),
        ("lastError".to_owned(), json!(known.last_error)),
        ("latencyMs".to_owned(), json!(latency)),
    ])
}

fn discovery(registry: &Registry, all: &[RegistryEntry]) -> Value {
    json!({
        "lastScan": registry.last_scan().map(iso),
        "totalAgents": all.len(),
        "healthyAgents": all.iter().filter(|known| known.healthy).count(),
    })
}

fn discovery_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "lastScan": { "type": ["string", "null"], "format": "date-time" },
            "totalAgents": { "type": "integer", "minimum": 0 },
            "healthyAgents": { "type": "integer", "minimum": 0 },
        },
        "required": ["lastScan", "totalAgents", "healthyAgents"],
        "additionalProperties": false,
    })
}

fn entry(with_card: bool) -> Value {
    let mut entry = json!({
        "type": "object",
        "properties": {
            "agentType": { "type": "string", "description": "The name of the agent." },
            "url": {
                "type": ["string", "null"],
                "description": "Null for a remote, like its card and its errors, unless the caller is of the operator's tenant.",
            },
            "status": { "enum": ["healthy", "unhealthy"] },
            "capabilities": { "type": "array", "items": { "type": "string" } },
            "lastSeen": { "type": ["string", "null"], "format": "date-time" },
            "kind": { "enum": ["local", "a2a", "mcp"] },
            "breaker": { "enum": ["closed", "open", "half-open"] },
            "lastError": { "type": ["string", "null"] },
            "latencyMs": {
                "type": ["number", "null"], "minimum": 0,
                "description": "How long the last probe took; null where nobody was probed.",
            },
        },
        "required": [
            "agentType", "url", "status", "capabilities", "lastSeen", "kind", "breaker", "lastError", "latencyMs",
        ],
        "additionalProperties": false,
    });
    if with_card {
        entry["properties"]["agentCard"] = json!({ "type": ["object", "null"] });
        entry["properties"]["serverInfo"] = json!({ "type": ["object", "null"] });
        if let Some(required) = entry["required"].as_array_mut() {
            required.extend([json!("agentCard"), json!("serverInfo")]);
        }
    }
    entry
}

fn schema() -> Value {
    json!({
        "title": "The agents that are known",
        "type": "object",
        "properties": { "agents": { "type": "array", "items": entry(true) }, "discovery": discovery_schema() },
        "required": ["agents", "discovery"],
        "additionalProperties": false,
    })
}
