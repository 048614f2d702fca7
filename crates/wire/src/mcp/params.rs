//! The params of methods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};

use super::McpFault;

/// Parses the params of a method. An error names the path of the wrong member.
pub fn read_params<T: DeserializeOwned + Default>(params: Option<&RawValue>) -> Result<T, McpFault> {
    let Some(params) = params else {
        // Either all members are optional, or the error names the first missing one.
        return serde_json::from_str("{}").map_err(|e| McpFault::invalid_params(format!("params: {e}")));
    };
    serde_json::from_str(params.get()).or_else(|_| {
        let mut input = serde_json::Deserializer::from_str(params.get());
        serde_path_to_error::deserialize(&mut input).map_err(|e| match e.path().to_string().as_str() {
            "." => McpFault::invalid_params(format!("params: {}", e.inner())),
            path => McpFault::invalid_params(format!("{path}: {}", e.inner())),
        })
    })
}

/// The params of `initialize`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// The revision that the client requests.
    pub protocol_version: String,
    /// The client's capabilities, unparsed.
    #[serde(default)]
    pub capabilities: Value,
    /// The client's name and version, unparsed.
    #[serde(default)]
    pub client_info: Value,
}

/// The params of `tools/call`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallParams {
    /// The tool's name.
    pub name: String,
    /// The tool's arguments.
    #[serde(default)]
    pub arguments: Option<Map<String, Value>>,
    /// Present if the client wants a task (2025-11-25).
    #[serde(default)]
    pub task: Option<TaskWishParams>,
    /// The answers to the questions of the previous round (2026-07-28).
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
    /// The signed state that the server returned in the previous round (2026-07-28).
    #[serde(default)]
    pub request_state: Option<String>,
}

/// The request for a task instead of a result (2025-11-25).
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub struct TaskWishParams {
    /// How long the task is retained, in milliseconds.
    #[serde(default)]
    pub ttl: Option<u64>,
}

/// The params of `resources/read`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResourceParams {
    /// The resource's URI.
    pub uri: String,
    /// As in [`ToolCallParams`].
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
    /// As in [`ToolCallParams`].
    #[serde(default)]
    pub request_state: Option<String>,
}

/// The params of `prompts/get`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPromptParams {
    /// The prompt's name.
    pub name: String,
    /// The prompt's arguments.
    #[serde(default)]
    pub arguments: Option<Map<String, Value>>,
    /// As in [`ToolCallParams`].
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
    /// As in [`ToolCallParams`].
    #[serde(default)]
    pub request_state: Option<String>,
}

/// The params of every list method: `tools/list` and its like, `tasks/list`.
#[derive(Debug, Default, Deserialize)]
pub struct ListParams {
    /// The cursor from the previous page.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// The params of `resources/subscribe` and `resources/unsubscribe`.
#[derive(Debug, Default, Deserialize)]
pub struct SubscribeParams {
    /// The resource's URI.
    pub uri: String,
}

/// The params of `tasks/update` (2026-07-28); without the responses, of `tasks/get`, `tasks/result` and
/// `tasks/cancel`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateTaskParams {
    /// The task's id.
    pub task_id: String,
    /// The answers, by the key of the question.
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
}

/// The params of `completion/complete`.
#[derive(Debug, Deserialize)]
pub struct CompleteParams {
    /// The prompt or template that is being filled in.
    #[serde(rename = "ref")]
    pub reference: CompletionReference,
    /// The argument, as far as it is typed.
    pub argument: CompletionArgument,
    /// The arguments chosen so far.
    #[serde(default)]
    pub context: Option<CompletionContext>,
}

impl Default for CompleteParams {
    fn default() -> Self {
        let argument = CompletionArgument { name: String::new(), value: String::new() };
        Self { reference: CompletionReference::Prompt { name: String::new() }, argument, context: None }
    }
}

/// The prompt or template that is being filled in.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub enum CompletionReference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The prompt's name.
        name: String,
    },
    /// A resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The URI template.
        uri: String,
    },
}

/// An argument, as far as it is typed.
#[derive(Debug, Deserialize)]
pub struct CompletionArgument {
    /// The argument's name.
    pub name: String,
    /// The text typed so far.
    pub value: String,
}

/// The arguments chosen so far.
#[derive(Debug, Default, Deserialize)]
pub struct CompletionContext {
    /// Values by argument name.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// The params of `subscriptions/listen` (2026-07-28).
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenParams {
    /// Changes of the list of tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tools_list_changed: bool,
    /// Changes of the list of prompts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompts_list_changed: bool,
    /// Changes of the list of resources.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resources_list_changed: bool,
    /// Updates of the resources with these URIs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
    /// Events of the tasks with these ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<String>,
}
