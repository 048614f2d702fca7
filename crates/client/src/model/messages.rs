//! Requests to a model and its replies, independent of the provider.
//!
//! Journals store them as they are serialized here, so fields may only be added.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation so far, oldest first.
    pub turns: Vec<ModelTurn>,
    /// The tools that the model may call.
    pub tools: Vec<ModelTool>,
    /// The longest reply, in tokens.
    pub max_tokens: Option<u32>,
    /// The sampling temperature.
    pub temperature: Option<f64>,
}

impl ModelRequest {
    /// A request with one prompt.
    pub fn prompt(system: Option<&str>, prompt: &str, max_tokens: u32) -> Self {
        Self {
            system: system.map(str::to_owned),
            turns: vec![ModelTurn::User(prompt.to_owned())],
            max_tokens: Some(max_tokens),
            ..Self::default()
        }
    }
}

/// One turn of a conversation with a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelTurn {
    /// A message of the user.
    User(String),
    /// An earlier reply of the model.
    Model(ModelReply),
    /// The results of the calls of the turn before, in their order.
    Results(Vec<ModelToolResult>),
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelTool {
    /// Letters, digits, `-` and `_`, at most 64.
    pub name: String,
    /// What it does, for the model to read.
    pub description: String,
    /// The JSON Schema of its arguments: an object.
    pub schema: Value,
}

/// A tool call that a model requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelToolCall {
    /// The provider's id; empty if it has none.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as the model wrote them: JSON, unless the model made a mistake.
    pub arguments: String,
    /// Opaque data that the provider requires back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

impl ModelToolCall {
    /// The parsed arguments, or the error in them.
    pub fn arguments(&self) -> Result<Map<String, Value>, String> {
        if self.arguments.trim().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Err("the arguments are not a JSON object".into()),
            Err(error) => Err(format!("the arguments are not JSON: {error}")),
        }
    }
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelToolResult {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The result's text.
    pub text: String,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// A complete reply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The text of the reply.
    pub text: String,
    /// The tool calls that it requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ModelToolCall>,
    /// Why the reply ended.
    pub stop: StopReason,
    /// The tokens that it used.
    pub usage: ModelUsage,
    /// Opaque data that the provider requires back with the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// Why a reply ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The reply is complete.
    #[default]
    End,
    /// The model requests tool calls.
    Tools,
    /// The token limit was reached: the text is incomplete.
    Length,
    /// The model or its provider refused; the provider's stop reason.
    Refused(String),
    /// Any other stop reason of the provider.
    Other(String),
}

impl fmt::Display for StopReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => out.write_str("it had ended"),
            Self::Tools => out.write_str("it wants tools to be called"),
            Self::Length => out.write_str("it ran out of tokens"),
            Self::Refused(why) => write!(out, "it was refused: {why}"),
            Self::Other(why) => write!(out, "it stopped: {why}"),
        }
    }
}

/// Token counts; `None` where the provider gives none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Tokens of the request.
    pub input: Option<u64>,
    /// Tokens of the reply.
    pub output: Option<u64>,
}
