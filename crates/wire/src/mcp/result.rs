//! Results of tool calls, resource reads and prompts. Written by the server; those of tools are read by the client.

use nuncio_engine::{
    Content, Part, Role, State, Task,
    surface::{PromptOutput, ResourceContent, ToolOutput},
};
use serde_json::Value;

use super::{
    InputRequest, McpTaskSnapshot, McpVersion,
    content::{read_block, write_block, write_content, write_part},
    notification::take,
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

/// The result of `tools/call`, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolCallReply {
    /// The tool has finished.
    Complete(ToolResult),
    /// The tool goes on as this task.
    Task(Box<McpTaskSnapshot>),
    /// The call has to be sent again with answers (2026-07-28).
    InputRequired(InputRequired),
    /// A `resultType` that is not known.
    Unknown(String),
}

impl ToolCallReply {
    /// Reads a result. Tolerant: see [`super::read_messages`]. A result has the form of any revision, whatever the
    /// revision of the connection is.
    pub fn read(mut result: Value) -> Self {
        match result["resultType"].as_str() {
            Some("input_required") => Self::InputRequired(InputRequired::read(result)),
            Some("task") => Self::Task(Box::new(McpTaskSnapshot::read(result))),
            None | Some("complete") if result["task"]["taskId"].is_string() => {
                Self::Task(Box::new(McpTaskSnapshot::read(take(&mut result, "task"))))
            }
            None | Some("complete") => Self::Complete(ToolResult::read(result)),
            Some(other) => Self::Unknown(other.to_owned()),
        }
    }
}

/// The request of a server for answers, with which the call is sent again (2026-07-28).
#[derive(Debug, Clone, PartialEq)]
pub struct InputRequired {
    /// The state to return with the answers.
    pub state: Option<String>,
    /// The questions by their keys; `None` if there is no such member.
    pub requests: Option<Vec<(String, InputRequest)>>,
}

impl InputRequired {
    fn read(mut result: Value) -> Self {
        Self {
            state: result["requestState"].as_str().map(str::to_owned),
            requests: InputRequest::read_all(take(&mut result, "inputRequests")),
        }
    }
}

/// The output of a tool, as a client reads it: of `tools/call`, of `tasks/result`, or in a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolResult {
    /// The structured result, if there is one.
    pub structured: Option<Value>,
    /// Whether the tool reports an error.
    pub is_error: bool,
    blocks: Vec<Value>,
}

impl ToolResult {
    /// Reads a result. Tolerant: see [`super::read_messages`].
    pub fn read(mut result: Value) -> Self {
        let blocks = match take(&mut result, "content") {
            Value::Array(blocks) => blocks,
            _ => vec![],
        };
        Self {
            structured: Some(take(&mut result, "structuredContent")).filter(|value| !value.is_null()),
            is_error: result["isError"].as_bool() == Some(true),
            blocks,
        }
    }

    /// The texts of all blocks.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| block["text"].as_str());
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The content blocks as parts, and the structured result if there is one.
    pub fn parts(&self) -> Vec<Part> {
        // Servers repeat the structured result as text for older clients.
        let repeats = |block: &&Value| {
            let text = block["text"].as_str().filter(|_| block["type"] == "text");
            self.structured.is_some()
                && text.and_then(|text| serde_json::from_str::<Value>(text).ok()) == self.structured
        };
        let blocks = self.blocks.iter().filter(|block| !repeats(block)).map(read_block);
        blocks.chain(self.structured.clone().map(Part::data)).collect()
    }
}
