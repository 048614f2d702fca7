//! The entries of the lists of tools, resources and prompts.

use nuncio_engine::{
    Profile, TaskUse,
    surface::{PromptProfile, ResourceProfile, ToolProfile},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{IDEMPOTENCY_KEY, McpVersion};
use crate::json::{self, JsonObject};

/// The name and version of a client or server.
#[derive(Debug, Clone, Serialize)]
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
