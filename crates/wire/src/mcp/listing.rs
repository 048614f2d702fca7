//! The entries of the lists of tools, resources and prompts. Written by the server; those of tools are read by the
//! client.

use nuncio_engine::{
    Profile, TaskUse,
    surface::{PromptProfile, ResourceProfile, ToolProfile},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{IDEMPOTENCY_KEY, McpVersion, notification::take};
use crate::json::{self, JsonObject};

/// The name and version of a client or server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Implementation {
    /// The program's name.
    pub name: String,
    /// The program's version.
    pub version: String,
}

/// Writes whether calls of a tool may or must be tasks (2025-11-25).
fn write_execution(object: &mut JsonObject<'_>, tasks: TaskUse) {
    let support = match tasks {
        TaskUse::Never => "forbidden",
        TaskUse::Offered => "optional",
        TaskUse::Required => "required",
    };
    object.object("execution", |execution| execution.value("taskSupport", support));
}

/// Writes a tool that answers within the call.
pub fn write_tool(out: &mut Vec<u8>, version: McpVersion, tool: &ToolProfile) {
    json::object(out, |object| {
        object.value("name", &tool.name);
        if version >= McpVersion::V2025_06_18 {
            object.optional("title", tool.title.as_ref());
        }
        object.value("description", &tool.description);
        object.value("inputSchema", &tool.input_schema);
        if version >= McpVersion::V2025_06_18 {
            object.optional("outputSchema", tool.output_schema.as_ref());
        }
        if version == McpVersion::V2025_11_25 && tool.tasks != TaskUse::Never {
            write_execution(object, tool.tasks);
        }
        if version >= McpVersion::V2025_03_26 && !tool.annotations.is_empty() {
            object.value("annotations", &tool.annotations);
        }
    });
}

/// Writes an agent as a tool.
pub fn write_agent_as_tool(out: &mut Vec<u8>, version: McpVersion, agent: &Profile) {
    json::object(out, |object| {
        object.value("name", &agent.name);
        if version >= McpVersion::V2025_06_18 {
            object.optional("title", agent.skills.first().map(|skill| &skill.name));
        }
        object.value("description", &agent.description);
        match &agent.input_schema {
            Some(schema) => object.value("inputSchema", schema),
            None => object.value("inputSchema", &text_schema()),
        }
        if version >= McpVersion::V2025_06_18 {
            object.optional("outputSchema", agent.output_schema.as_ref());
        }
        if version == McpVersion::V2025_11_25 {
            write_execution(object, agent.tasks);
        }
        // A call of an agent creates a task, so a retry with the same key finds that task.
        if version >= McpVersion::V2025_06_18 {
            object.object("_meta", |meta| meta.value(IDEMPOTENCY_KEY, &true));
        }
    });
}

/// The input schema of an agent that takes text.
fn text_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "text": { "type": "string", "description": "What to tell the agent." } },
        "required": ["text"],
    })
}

/// Writes a resource.
pub fn write_resource(out: &mut Vec<u8>, version: McpVersion, resource: &ResourceProfile) {
    json::object(out, |object| {
        object.value("uri", &resource.uri);
        write_about(object, version, resource);
    });
}

/// Writes a resource template.
pub fn write_template(out: &mut Vec<u8>, version: McpVersion, template: &ResourceProfile) {
    json::object(out, |object| {
        object.value("uriTemplate", &template.uri);
        write_about(object, version, template);
    });
}

fn write_about(object: &mut JsonObject<'_>, version: McpVersion, resource: &ResourceProfile) {
    object.value("name", &resource.name);
    if version >= McpVersion::V2025_06_18 {
        object.optional("title", resource.title.as_ref());
    }
    object.optional("description", resource.description.as_ref());
    object.optional("mimeType", resource.media_type.as_ref());
}

/// Writes a prompt.
pub fn write_prompt(out: &mut Vec<u8>, version: McpVersion, prompt: &PromptProfile) {
    json::object(out, |object| {
        object.value("name", &prompt.name);
        if version >= McpVersion::V2025_06_18 {
            object.optional("title", prompt.title.as_ref());
        }
        object.value("description", &prompt.description);
        object.array("arguments", &prompt.arguments, |out, argument| {
            json::object(out, |object| {
                object.value("name", &argument.name);
                object.value("description", &argument.description);
                object.value("required", &argument.required);
            });
        });
    });
}

/// A page of `tools/list`, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolsPage {
    /// The tools as received; [`ListedTool::read`] reads each.
    pub tools: Vec<Value>,
    /// The cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
}

impl ToolsPage {
    /// Reads a page. `None`: it has no list of tools.
    pub fn read(mut result: Value) -> Option<Self> {
        let Value::Array(tools) = take(&mut result, "tools") else { return None };
        Some(Self { tools, next_cursor: result["nextCursor"].as_str().map(str::to_owned) })
    }
}

/// A tool, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// The tool's name, which is not empty.
    pub name: String,
    /// The name for people, if it has one.
    pub title: Option<String>,
    /// What it does; empty if the server does not say.
    pub description: String,
    /// The schema of its arguments, if it is an object.
    pub input_schema: Option<Value>,
    /// The schema of its structured result, if it is an object.
    pub output_schema: Option<Value>,
    /// Whether calls may or must be tasks (2025-11-25).
    pub tasks: TaskUse,
    /// Whether a repeat with the same idempotency key is the same call.
    pub takes_key: bool,
    /// Whether the server declares that calling it twice has the same effect as calling it once.
    pub idempotent: bool,
}

impl ListedTool {
    /// Reads a tool. The error says why it is invalid. Tolerant: see [`super::read_messages`].
    pub fn read(tool: &Value) -> Result<Self, String> {
        let name = tool["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| "it has no name".to_owned())?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let schema = |member: &str| tool.get(member).filter(|schema| schema.is_object()).cloned();
        let annotations = &tool["annotations"];
        let hints = |hint: &str| annotations[hint].as_bool().unwrap_or(false);
        let takes_key = tool["_meta"][IDEMPOTENCY_KEY] == true;
        Ok(Self {
            name: name.to_owned(),
            title: text(&tool["title"]).or_else(|| text(&annotations["title"])),
            description: text(&tool["description"]).unwrap_or_default(),
            input_schema: schema("inputSchema"),
            output_schema: schema("outputSchema"),
            tasks: match tool["execution"]["taskSupport"].as_str() {
                Some("required") => TaskUse::Required,
                Some("optional") => TaskUse::Offered,
                _ => TaskUse::Never,
            },
            takes_key,
            idempotent: hints("idempotentHint") || hints("readOnlyHint") || takes_key,
        })
    }
}
