//! What methods take.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};

use super::McpFault;

/// Reads the params of a method. What is wrong is told with the place where it is.
pub fn read_params<T: DeserializeOwned + Default>(params: Option<&RawValue>) -> Result<T, McpFault> {
    let Some(params) = params else {
        // All members may be missing, or one of them is missed by name.
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

/// `initialize`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// The revision that the client wants.
    pub protocol_version: String,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Value,
    /// Who it is.
    #[serde(default)]
    pub client_info: Value,
}

/// `tools/call`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallParams {
    /// The tool.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Option<Map<String, Value>>,
    /// Whether a task is wanted (2025-11-25).
    #[serde(default)]
    pub task: Option<TaskWishParams>,
    /// What was asked in an earlier round (2026-07-28).
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
    /// What we gave along in an earlier round (2026-07-28).
    #[serde(default)]
    pub request_state: Option<String>,
}

/// The wish for a task (2025-11-25).
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub struct TaskWishParams {
    /// How long it is to be kept, in milliseconds.
    #[serde(default)]
    pub ttl: Option<u64>,
}

/// `resources/read`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResourceParams {
    /// The address.
    pub uri: String,
    /// As in [`Call`].
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
    /// As in [`Call`].
    #[serde(default)]
    pub request_state: Option<String>,
}

/// `prompts/get`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPromptParams {
    /// The prompt.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Option<Map<String, Value>>,
    /// As in [`Call`].
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
    /// As in [`Call`].
    #[serde(default)]
    pub request_state: Option<String>,
}

/// Every list: `tools/list` and its like, `tasks/list`.
#[derive(Debug, Default, Deserialize)]
pub struct ListParams {
    /// Where the page begins.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// `resources/subscribe` and `unsubscribe`.
#[derive(Debug, Default, Deserialize)]
pub struct SubscribeParams {
    /// The address.
    pub uri: String,
}

/// `tasks/update` (2026-07-28); without the responses, `tasks/get`, `tasks/result` and `tasks/cancel`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateTaskParams {
    /// The task.
    pub task_id: String,
    /// The answers, by the key of what was asked.
    #[serde(default)]
    pub input_responses: Option<BTreeMap<String, Value>>,
}

/// `completion/complete`.
#[derive(Debug, Deserialize)]
pub struct CompleteParams {
    /// What is being filled in.
    #[serde(rename = "ref")]
    pub reference: CompletionReference,
    /// The argument, as far as it is typed.
    pub argument: CompletionArgument,
    /// What is chosen already.
    #[serde(default)]
    pub context: Option<CompletionContext>,
}

impl Default for CompleteParams {
    fn default() -> Self {
        let argument = CompletionArgument { name: String::new(), value: String::new() };
        Self { reference: CompletionReference::Prompt { name: String::new() }, argument, context: None }
    }
}

/// What is being filled in.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub enum CompletionReference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// Its name.
        name: String,
    },
    /// A resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The template.
        uri: String,
    },
}

/// An argument as far as it is typed.
#[derive(Debug, Deserialize)]
pub struct CompletionArgument {
    /// Its name.
    pub name: String,
    /// What is typed.
    pub value: String,
}

/// Arguments that are chosen already.
#[derive(Debug, Default, Deserialize)]
pub struct CompletionContext {
    /// By name.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// `subscriptions/listen` (2026-07-28).
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenParams {
    /// Other tools.
    #[serde(default)]
    pub tools_list_changed: bool,
    /// Other prompts.
    #[serde(default)]
    pub prompts_list_changed: bool,
    /// Other resources.
    #[serde(default)]
    pub resources_list_changed: bool,
    /// These resources.
    #[serde(default)]
    pub resource_subscriptions: Vec<String>,
    /// These tasks.
    #[serde(default)]
    pub task_ids: Vec<String>,
}
