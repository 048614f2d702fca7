//! Tools that answer within the call, without a task.

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::{HandlerError, HandlerReply, HandlerRequest, ResourceContent, ToolGroup};
use crate::agent::TaskUse;

/// A function that is called by name and answers within the call.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Its listing entry. Read once, when the tool is registered.
    fn profile(&self) -> ToolProfile;

    /// Answers one call. The arguments satisfy the input schema.
    async fn call(&self, request: HandlerRequest) -> Result<HandlerReply<ToolOutput>, HandlerError>;
}

/// A tool made from one function.
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

/// The listing entry of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProfile {
    /// The name that clients pass to `tools/call`.
    pub name: String,
    /// A display name.
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// A JSON Schema of its arguments.
    pub input_schema: Value,
    /// A JSON Schema of its structured result, where it has one.
    pub output_schema: Option<Value>,
    /// Whether it hands over to an agent; its callers then wait for the task or poll it.
    pub tasks: TaskUse,
    /// Hints about its behaviour, by their MCP names (`readOnlyHint` and others).
    pub annotations: Map<String, Value>,
    /// The group by which it is listed; a tool without one is always listed.
    pub group: Option<ToolGroup>,
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
            group: None,
        }
    }

    /// Sets the JSON Schema of the arguments.
    #[must_use]
    pub fn input(mut self, schema: Value) -> Self {
        self.input_schema = schema;
        self
    }

    /// Sets how callers get the result of an agent that it hands over to.
    #[must_use]
    pub fn tasks(mut self, tasks: TaskUse) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets the group by which it is listed.
    #[must_use]
    pub fn group(mut self, group: ToolGroup) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets the JSON Schema of the structured result.
    #[must_use]
    pub fn output(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }
}

/// The result of a tool call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// The result for people and models.
    pub content: Vec<ContentBlock>,
    /// The result for programs; satisfies the output schema.
    pub structured: Option<Value>,
    /// Whether the result describes a failure.
    pub is_error: bool,
}

impl ToolOutput {
    /// A result of one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ContentBlock::Text(text.into())], ..Self::default() }
    }

    /// A result of several blocks.
    pub fn blocks(content: Vec<ContentBlock>) -> Self {
        Self { content, ..Self::default() }
    }

    /// A structured result, repeated as text for clients that read only text.
    pub fn structured(value: Value) -> Self {
        Self {
            content: vec![ContentBlock::Text(value.to_string())],
            structured: Some(value),
            is_error: false,
        }
    }
}

/// A content block of a tool's result or a prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum ContentBlock {
    /// Plain text.
    Text(String),
    /// An image.
    Image {
        /// The decoded bytes.
        data: Vec<u8>,
        /// For example `image/png`.
        media_type: String,
    },
    /// An audio clip.
    Audio {
        /// The decoded bytes.
        data: Vec<u8>,
        /// For example `audio/wav`.
        media_type: String,
    },
    /// An embedded resource.
    Resource(ResourceContent),
    /// A link to a resource.
    Link {
        /// The resource's URI.
        uri: String,
        /// A display name.
        name: String,
        /// The resource's media type, if known.
        media_type: Option<String>,
    },
}
