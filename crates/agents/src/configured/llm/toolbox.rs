//! The tools of the model: agents of this server, the memory bank, and the caller.
//!
//! An agent for an MCP server takes `{"tool": …, "arguments": …}`; each of its skills becomes a tool. Names
//! are adapted to what all providers accept.

use std::collections::HashSet;

use nuncio_client::model::ModelTool;
use nuncio_engine::{Catalog, Profile, Skill};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::spec::LlmSpec;

/// The longest tool name that all providers accept.
const MAX_NAME: usize = 64;

/// A tool and its target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LlmTool {
    pub(super) tool: ModelTool,
    pub(super) target: LlmToolTarget,
}

/// The target of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LlmToolTarget {
    /// An agent that receives the arguments unchanged.
    Agent(String),
    /// A tool of an agent for an MCP server.
    Skill { agent: String, skill: String },
    /// Reads an entry of the memory bank.
    MemoryGet,
    /// Writes an entry of the memory bank.
    MemorySet,
    /// Searches the memory bank.
    MemorySearch,
    /// Asks the caller.
    Person,
}

/// The available tools, and why configured ones are missing.
pub(super) fn available_tools(
    catalog: &Catalog,
    spec: &LlmSpec,
    can_ask: bool,
) -> (Vec<LlmTool>, Vec<String>) {
    let (mut tools, mut missing) = (vec![], vec![]);
    for wanted in &spec.tools {
        let (agent, skill) = match wanted.split_once('/') {
            Some((agent, skill)) => (agent, Some(skill)),
            None => (wanted.as_str(), None),
        };
        match catalog.get(agent) {
            Ok(registered) => match of_agent(&registered.profile, skill) {
                Ok(of_agent) => tools.extend(of_agent),
                Err(why) => missing.push(format!("the tool {wanted:?} is not offered: {why}")),
            },
            Err(_) => {
                missing.push(format!("the tool {wanted:?} is not offered: there is no agent {agent:?}"));
            }
        }
    }
    if spec.memory.is_some() {
        tools.extend(memory());
    }
    if can_ask {
        tools.push(person());
    }
    distinct(&mut tools);
    (tools, missing)
}

fn of_agent(profile: &Profile, skill: Option<&str>) -> Result<Vec<LlmTool>, String> {
    let wanted = |one: &&Skill| skill.is_none_or(|skill| one.id == skill);
    let skills: Vec<&Skill> = profile.skills.iter().filter(wanted).collect();
    if let (Some(skill), true) = (skill, skills.is_empty()) {
        let there: Vec<&str> = profile.skills.iter().map(|skill| skill.id.as_str()).collect();
        return Err(format!("{} has no skill {skill:?}; it has: {}", profile.name, there.join(", ")));
    }
    let schema = profile.input_schema.as_ref().filter(|schema| schema["type"] == "object");
    if let Some(schema) = schema.filter(|schema| takes_tools(schema)) {
        let offered = skills.into_iter().map(|skill| LlmTool {
            tool: ModelTool {
                name: format!("{}__{}", profile.name, skill.id),
                description: about(skill, profile),
                schema: arguments_of(schema, &skill.id),
            },
            target: LlmToolTarget::Skill { agent: profile.name.clone(), skill: skill.id.clone() },
        });
        return Ok(offered.collect());
    }
    let one = skill.and(skills.first().copied());
    let tool = ModelTool {
        name: one.map_or_else(|| profile.name.clone(), |skill| format!("{}__{}", profile.name, skill.id)),
        description: one.map_or_else(|| profile.description.clone(), |skill| about(skill, profile)),
        schema: schema.cloned().unwrap_or_else(text_schema),
    };
    Ok(vec![LlmTool { tool, target: LlmToolTarget::Agent(profile.name.clone()) }])
}

/// Whether an agent stands for an MCP server: its input names a tool and the arguments.
fn takes_tools(schema: &Value) -> bool {
    let choices = ["oneOf", "anyOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    std::iter::once(schema).chain(choices).any(|schema| {
        schema["properties"]["tool"].is_object() && !schema["properties"]["arguments"].is_null()
    })
}

/// The arguments of one tool of such an agent: from the schema if it lists them per tool, otherwise any
/// object.
fn arguments_of(schema: &Value, skill: &str) -> Value {
    let choices = ["oneOf", "anyOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    let own = choices
        .map(|choice| &choice["properties"])
        .find(|properties| {
            let tool = &properties["tool"];
            tool["const"] == skill || tool["enum"].as_array().is_some_and(|one| one[..] == [json!(skill)])
        })
        .map(|properties| &properties["arguments"]);
    let arguments = own.unwrap_or(&schema["properties"]["arguments"]);
    match arguments["type"] == "object" {
        true => arguments.clone(),
        false => json!({ "type": "object" }),
    }
}

fn about(skill: &Skill, profile: &Profile) -> String {
    let text = if skill.description.is_empty() { &skill.name } else { &skill.description };
    format!("{text} ({})", profile.name)
}

/// The input schema of an agent that takes text.
fn text_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "text": { "type": "string", "description": "What to tell the agent." } },
        "required": ["text"],
        "additionalProperties": false,
    })
}

fn memory() -> [LlmTool; 3] {
    let offered = |name: &str, description: &str, schema, target| LlmTool {
        tool: ModelTool { name: name.into(), description: description.into(), schema },
        target,
    };
    let key = json!({ "type": "string", "description": "The key of the entry." });
    [
        offered(
            "memory_get",
            "Reads an entry of the memory that outlives this conversation.",
            json!({ "type": "object", "properties": { "key": key }, "required": ["key"] }),
            LlmToolTarget::MemoryGet,
        ),
        offered(
            "memory_set",
            "Writes an entry of the memory that outlives this conversation, in the place of what is there.",
            json!({
                "type": "object",
                "properties": { "key": key, "value": { "description": "Any JSON value." } },
                "required": ["key", "value"],
            }),
            LlmToolTarget::MemorySet,
        ),
        offered(
            "memory_search",
            "Finds entries of the memory that have all of these words in their values.",
            json!({
                "type": "object",
                "properties": { "words": { "type": "string", "description": "Words, with spaces between." } },
                "required": ["words"],
            }),
            LlmToolTarget::MemorySearch,
        ),
    ]
}

/// A question to the caller, with a flat form.
fn person() -> LlmTool {
    let field = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1 },
            "type": { "type": "string", "enum": ["string", "number", "integer", "boolean"] },
            "description": { "type": "string" },
            "required": { "type": "boolean" },
            "options": { "type": "array", "items": { "type": "string" }, "description": "For texts: what may be chosen." },
        },
        "required": ["name", "type"],
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "question": { "type": "string", "minLength": 1, "description": "What to ask." },
            "fields": { "type": "array", "items": field, "description": "The fields of the form; without them the answer is a text." },
        },
        "required": ["question"],
    });
    let description =
        "Asks the person who asked you, and waits for the answer. Only for what you cannot find out.";
    LlmTool {
        tool: ModelTool { name: "ask_person".into(), description: description.into(), schema },
        target: LlmToolTarget::Person,
    }
}

/// Adapts names to what providers accept, and makes them unique.
fn distinct(tools: &mut [LlmTool]) {
    let mut taken = HashSet::new();
    for LlmTool { tool, .. } in tools {
        let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        let plain: String = tool.name.chars().map(legal).take(MAX_NAME).collect();
        let mut name = plain.clone();
        for n in 2.. {
            if taken.insert(name.clone()) {
                break;
            }
            let suffix = format!("_{n}");
            name = plain.chars().take(MAX_NAME - suffix.len()).chain(suffix.chars()).collect();
        }
        tool.name = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tools: &[LlmTool]) -> Vec<&str> {
        tools.iter().map(|offered| offered.tool.name.as_str()).collect()
    }

    #[test]
    fn an_agent_is_one_tool_and_an_mcp_server_one_for_each_skill() {
        let plain = Profile::new("adder", "Adds.");
        let [one] = &of_agent(&plain, None).unwrap()[..] else { panic!("one tool") };
        assert_eq!((one.tool.name.as_str(), &one.target), ("adder", &LlmToolTarget::Agent("adder".into())));
        assert_eq!(one.tool.schema["required"], json!(["text"]));

        let mut server = Profile::new("files", "An MCP server.");
        server.skills = vec![Skill::new("read", "read", "Reads."), Skill::new("write.all", "write", "")];
        let of = |skill: &str, arguments: Value| json!({ "properties": { "tool": { "const": skill }, "arguments": arguments } });
        let path = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
        server.input_schema = Some(json!({
            "type": "object",
            "properties": { "tool": { "type": "string" }, "arguments": { "type": "object" } },
            "oneOf": [of("read", path.clone()), of("write.all", json!({ "type": "object" }))],
        }));
        let mut both = of_agent(&server, None).unwrap();
        distinct(&mut both);
        assert_eq!(names(&both), ["files__read", "files__write_all"]);
        assert_eq!(both[0].tool.schema, path);
        assert_eq!(both[1].target, LlmToolTarget::Skill { agent: "files".into(), skill: "write.all".into() });
        assert_eq!(of_agent(&server, Some("read")).unwrap().len(), 1);
        let why = of_agent(&server, Some("delete")).unwrap_err();
        assert_eq!(why, "files has no skill \"delete\"; it has: read, write.all");
    }

    #[test]
    fn names_are_distinct_and_short_enough() {
        let named = |name: String| LlmTool {
            tool: ModelTool { name, description: String::new(), schema: json!({}) },
            target: LlmToolTarget::Person,
        };
        let mut tools =
            vec![named("a.b".into()), named("a_b".into()), named("x".repeat(70)), named("x".repeat(80))];
        distinct(&mut tools);
        assert_eq!(names(&tools)[..2], ["a_b", "a_b_2"]);
        assert!(names(&tools).iter().all(|name| name.len() <= MAX_NAME));
        assert_eq!(names(&tools).into_iter().collect::<HashSet<_>>().len(), 4);
    }
}
