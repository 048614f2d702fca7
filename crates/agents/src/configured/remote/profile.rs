//! How an agent presents itself that stands for somebody elsewhere: by the table's words first, then by theirs.

use nuncio_client::peer::PeerCapability;
use nuncio_engine::{
    Profile, Skill,
    surface::{self, CompiledSchema},
};
use serde_json::{Value, json};

use super::AgentSpec;

/// The profile of a table over these offers. `None`: the other side was not seen yet.
pub(super) fn of(spec: &AgentSpec, has_tools: bool, offers: Option<&[PeerCapability]>) -> Profile {
    let offers = offers.unwrap_or_default();
    let theirs = match (has_tools, offers) {
        (false, [offer, ..]) if !offer.description.is_empty() => offer.description.clone(),
        (false, _) => "An agent elsewhere, spoken to in A2A.".into(),
        (true, []) => "Tools of an MCP server.".into(),
        (true, _) => format!("Tools of an MCP server: {}.", names(offers).join(", ")),
    };
    let mut profile = spec.profile(&theirs);
    if spec.skills.is_empty() {
        let skills: Vec<Skill> = match has_tools {
            true => offers.iter().map(tool).collect(),
            false => offers.first().map(|offer| offer.skills.clone()).unwrap_or_default(),
        };
        if !skills.is_empty() {
            profile.skills = skills;
        }
    }
    // Whatever is said goes over: the other side refuses what it does not take.
    profile.input_modes.push("*/*".into());
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

/// Whether a schema of the other side can be used here: one that is too dear would keep the agent out of the catalog.
fn is_usable(schema: &Value) -> bool {
    schema.is_object()
        && surface::check_foreign_cost(schema).is_ok()
        && CompiledSchema::compile(schema).is_ok()
}

/// The names of what is offered.
pub(super) fn names(offers: &[PeerCapability]) -> Vec<&str> {
    offers.iter().map(|offer| offer.name.as_str()).collect()
}

/// A tool as a skill.
fn tool(offer: &PeerCapability) -> Skill {
    let name = offer.title.as_deref().unwrap_or(&offer.name);
    Skill::new(&offer.name, name, &offer.description)
}

/// The input of an agent that has several tools: which one, and what that one takes.
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

/// Whether a schema means the same inside of another one: what it refers to would be looked for at the top.
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
