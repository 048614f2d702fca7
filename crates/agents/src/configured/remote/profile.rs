//! The profile of a remote agent: the table's values first, then the peer's.

use nuncio_client::peer::PeerCapability;
use nuncio_engine::{
    Profile, Skill,
    surface::{self, CompiledSchema},
};
use serde_json::{Value, json};

use super::AgentSpec;

/// The profile of a table with these capabilities. `None`: the peer has not been reached yet.
pub(super) fn of(spec: &AgentSpec, has_tools: bool, offers: Option<&[PeerCapability]>) -> Profile {
    let offers = offers.unwrap_or_default();
    let theirs = match (has_tools, offers) {
        (false, [offer, ..]) if !offer.description.is_empty() => offer.description.clone(),
        (false, _) => "An agent elsewhere, spoken to in A2A.".into(),
        (true, []) => "Tools of an MCP server.".into(),
        (true, _) => format!("Tools of an MCP server: {}.", names(offers).join(", ")),
    };
    let mut profile = spec.profile(&theirs);
    if !spec.has_public_skills() {
        let skills: Vec<Skill> = match has_tools {
            true => offers.iter().map(tool).collect(),
            false => offers.first().map(|offer| offer.skills.clone()).unwrap_or_default(),
        };
        if !skills.is_empty() {
            profile.skills = skills;
        }
    }
    // Every message is forwarded: the peer rejects what it does not support.
    if spec.card.input_modes.is_none() {
        profile.input_modes.push("*/*".into());
    }
    if profile.input_schema.is_none() {
        profile.input_schema = match (has_tools, offers) {
            (true, [only]) => only.input_schema.clone().filter(is_usable),
            (true, [_, ..]) => Some(choice(offers)),
            _ => None,
        };
    }
    if let (true, [only]) = (has_tools, offers) {
        profile.output_schema = only.output_schema.clone().filter(is_usable);
    }
    profile
}

/// Whether a schema of the peer can be used: one that is too expensive would keep the agent out of the
/// catalog.
fn is_usable(schema: &Value) -> bool {
    schema.is_object()
        && surface::check_foreign_cost(schema).is_ok()
        && CompiledSchema::compile(schema).is_ok()
}

/// The names of the capabilities.
pub(super) fn names(offers: &[PeerCapability]) -> Vec<&str> {
    offers.iter().map(|offer| offer.name.as_str()).collect()
}

/// A tool as a skill.
fn tool(offer: &PeerCapability) -> Skill {
    let name = offer.title.as_deref().unwrap_or(&offer.name);
    Skill::new(&offer.name, name, &offer.description)
}

/// The input schema of an agent with several tools: the tool, and that tool's arguments.
fn choice(offers: &[PeerCapability]) -> Value {
    let of = |offer: &PeerCapability| {
        let any = json!({ "type": "object" });
        let is_own = |schema: &Value| {
            schema["type"] == "object" && stands_alone(schema) && surface::check_foreign_cost(schema).is_ok()
        };
        let own = offer.input_schema.clone().filter(is_own);
        json!({ "properties": { "tool": { "const": offer.name }, "arguments": own.unwrap_or(any) } })
    };
    json!({
        "type": "object",
        "properties": {
            "tool": { "type": "string", "enum": names(offers), "description": "The tool to call." },
            "arguments": { "type": "object", "description": "What the tool takes." },
        },
        "required": ["tool"],
        "oneOf": offers.iter().map(of).collect::<Vec<_>>(),
    })
}

/// Whether a schema means the same inside another one: its references are resolved from the root.
fn stands_alone(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            !members.contains_key("$ref")
                && !members.contains_key("$dynamicRef")
                && members.values().all(stands_alone)
        }
        Value::Array(items) => items.iter().all(stands_alone),
        _ => true,
    }
}
