//! Tools that answer at once.

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::{HandlerError, HandlerReply, HandlerRequest, ResourceContent};
use crate::agent::TaskUse;

/// Something that can be called by name and answers at once.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// How it presents itself. Read once, when the tool is offered.
    fn profile(&self) -> ToolProfile;

    /// Answers one call. The arguments satisfy the input schema.
    async fn call(&self, request: HandlerRequest) -> Result<HandlerReply<ToolOutput>, HandlerError>;
}

/// A tool that is one function.
pub fn tool<F, A>(profile: ToolProfile, answer: F) -> impl Tool
where
    F: Fn(HandlerRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<HandlerReply<ToolOutput>, HandlerError>> + Send + 'static,
{
    FunctionTool { profile, answer }
}

struct FunctionTool<F> {
    profile: ToolProfile,
    answer: F,
}

#[async_trait]
impl<F, A> Tool for FunctionTool<F>
where
    F: Fn(HandlerRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<HandlerReply<ToolOutput>, HandlerError>> + Send + 'static,
{
    fn profile(&self) -> ToolProfile {
        self.profile.clone()
    }

    async fn call(&self, request: HandlerRequest) -> Result<HandlerReply<ToolOutput>, HandlerError> {
        (self.answer)(request).await
    }
}

/// How a tool presents itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProfile {
    /// The name it is called by.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// A JSON Schema of its arguments.
    pub input_schema: Value,
    /// A JSON Schema of its structured result, where it has one.
    pub output_schema: Option<Value>,
    /// Whether it hands over to an agent, and its callers then wait or come back.
    pub tasks: TaskUse,
    /// Hints about its behaviour, by MCP's names (`readOnlyHint` and others).
    pub annotations: Map<String, Value>,
}

impl ToolProfile {
    /// A tool without arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: json!({ "type": "object", "properties": {} }),
            output_schema: None,
            tasks: TaskUse::Never,
            annotations: Map::new(),
        }
    }

    /// Sets the JSON Schema of the arguments.
    #[must_use]
    pub fn input(mut self, schema: Value) -> Self {
        self.input_schema = schema;
        self
    }

    /// Says how callers get the result of an agent that it hands over to.
    #[must_use]
    pub fn tasks(mut self, tasks: TaskUse) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets the JSON Schema of the structured result.
    #[must_use]
    pub fn output(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }
}

/// What a tool returns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// For people and models.
    pub content: Vec<ContentBlock>,
    /// For programs.
    pub structured: Option<Value>,
    /// Whether it tells of a failure.
    pub is_error: bool,
}

impl ToolOutput {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ContentBlock::Text(text.into())], ..Self::default() }
    }

    /// Several pieces.
    pub fn blocks(content: Vec<ContentBlock>) -> Self {
        Self { content, ..Self::default() }
    }

    /// A structured result, with the same as text for those who read no other.
    pub fn structured(value: Value) -> Self {
        Self {
            content: vec![ContentBlock::Text(value.to_string())],
            structured: Some(value),
            is_error: false,
        }
    }
}

/// A piece of a tool's or a prompt's content.
#[derive(Debug, Clone, PartialEq)]
pub enum ContentBlock {
    /// Text.
    Text(String),
    /// A picture.
    Image {
        /// Its bytes.
        data: Vec<u8>,
        /// For example `image/png`.
        media_type: String,
    },
    /// A sound.
    Audio {
        /// Its bytes.
        data: Vec<u8>,
        /// For example `audio/wav`.
        media_type: String,
    },
    /// A resource, whole.
    Resource(ResourceContent),
    /// A resource, by its address.
    Link {
        /// The address.
        uri: String,
        /// A name for people.
        name: String,
        /// What it holds, where that is known.
        media_type: Option<String>,
    },
}
