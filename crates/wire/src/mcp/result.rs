//! Results of tool calls, resource reads and prompts.

use nuncio_engine::{
    Content, Part, Role, State, Task,
    surface::{PromptOutput, ResourceContent, ToolOutput},
};
use serde_json::Value;

use super::{
    McpVersion,
    content::{write_block, write_content, write_part},
};
use crate::json::{self, JsonObject};

/// The output of a tool call.
#[derive(Debug, Clone, Copy)]
pub enum CallOutput<'a> {
    /// The output of a tool that answers within the call.
    Tool(&'a ToolOutput),
    /// The finished task of an agent.
    Task(&'a Task),
    /// The URI of the result of an agent that is still working.
    Link(&'a str),
}

/// The output of a finished task. `None`: it ended with a fault, which is an error and not a result.
pub fn output_of(task: &Task) -> Option<CallOutput<'_>> {
    (!task.is_fault()).then_some(CallOutput::Task(task))
}

/// Writes the members of a `tools/call` result, without `_meta` and `resultType`.
pub fn write_output(result: &mut JsonObject<'_>, version: McpVersion, output: CallOutput<'_>) {
    match output {
        CallOutput::Tool(output) => {
            result.array("content", &output.content, |out, block| write_block(out, version, block));
            if version >= McpVersion::V2025_06_18 {
                result.optional("structuredContent", output.structured.as_ref());
            }
            if output.is_error {
                result.value("isError", &true);
            }
        }
        CallOutput::Task(task) => write_task_output(result, version, task),
        CallOutput::Link(uri) => {
            let link = nuncio_engine::surface::ContentBlock::Link {
                uri: uri.to_owned(),
                name: "task".to_owned(),
                media_type: Some("application/json".to_owned()),
            };
            result.array("content", [link], |out, block| write_block(out, version, &block));
        }
    }
}

/// Writes the artifacts, then the agent's final message unless it only repeats them.
fn write_task_output(result: &mut JsonObject<'_>, version: McpVersion, task: &Task) {
    let made: Vec<(&str, &Part)> = task
        .artifacts
        .iter()
        .flat_map(|artifact| artifact.parts.iter().map(|part| (artifact.id.as_str(), part)))
        .collect();
    let repeats = |said: &Part| {
        said.as_text().is_some_and(|text| made.iter().any(|(_, part)| part.as_text() == Some(text)))
    };
    let last_word = task.status_message.iter().flat_map(|message| &message.parts);
    let said: Vec<(&str, &Part)> =
        last_word.filter(|part| !repeats(part)).map(|part| ("message", part)).collect();
    let blocks = made.iter().chain(&said);
    result.array("content", blocks, |out, (place, part)| write_part(out, version, part, place));
    if version >= McpVersion::V2025_06_18 {
        let mut data = made.iter().filter_map(|(_, part)| match &part.content {
            Content::Data(value @ Value::Object(_)) => Some(value),
            _ => None,
        });
        // With several, it would be ambiguous which is the result.
        if let (Some(value), None) = (data.next(), data.next()) {
            result.value("structuredContent", value);
        }
    }
    if task.state != State::Completed {
        result.value("isError", &true);
    }
}

/// Writes the members of a `resources/read` result, without `_meta`, `resultType` and cache hints.
pub fn write_contents(result: &mut JsonObject<'_>, contents: &[ResourceContent]) {
    result.array("contents", contents, write_content);
}

/// Writes the members of a `prompts/get` result, without `_meta` and `resultType`.
pub fn write_prompt_output(result: &mut JsonObject<'_>, version: McpVersion, output: &PromptOutput) {
    result.optional("description", output.description.as_ref());
    result.array("messages", &output.messages, |out, message| {
        json::object(out, |turn| {
            turn.value("role", if message.role == Role::User { "user" } else { "assistant" });
            write_block(turn.key("content"), version, &message.content);
        });
    });
}
