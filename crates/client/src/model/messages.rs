//! What is said to a model and what it says, in words that belong to no provider.
//!
//! They are kept in journals as they are serialized here, so fields are only ever added.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A question to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    /// What it is told before anything else.
    pub system: Option<String>,
    /// What was said so far, oldest first.
    pub turns: Vec<ModelTurn>,
    /// What it may call.
    pub tools: Vec<ModelTool>,
    /// The longest answer, in tokens.
    pub max_tokens: Option<u32>,
    /// How freely it answers.
    pub temperature: Option<f64>,
}

impl ModelRequest {
    /// One question.
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
    /// The caller's side.
    User(String),
    /// What the model said before.
    Model(ModelReply),
    /// What came of the calls of the turn before, in their order.
    Results(Vec<ModelToolResult>),
}

/// Something that a model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelTool {
    /// Letters, digits, `-` and `_`, at most 64.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments: an object.
    pub schema: Value,
}

/// A call that a model wants to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelToolCall {
    /// The provider's name for it; empty where it has none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as the model wrote them: JSON, if it did well.
    pub arguments: String,
    /// What the provider wants to see again with the call, whatever it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

impl ModelToolCall {
    /// The arguments; what is wrong with them otherwise.
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

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelToolResult {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it said.
    pub text: String,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// Its text.
    pub text: String,
    /// The calls that it wants to be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ModelToolCall>,
    /// Why it ended.
    pub stop: StopReason,
    /// What it took.
    pub usage: ModelUsage,
    /// What the provider wants to see again with the answer, whatever it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The model had said what it had to say.
    #[default]
    End,
    /// It wants tools to be called.
    Tools,
    /// It ran out of tokens: the text is not all of it.
    Length,
    /// The model or its provider would not answer, in the provider's word.
    Refused(String),
    /// Something else, in the provider's word.
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

/// Tokens; `None` where the provider does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Of the question.
    pub input: Option<u64>,
    /// Of the answer.
    pub output: Option<u64>,
}
