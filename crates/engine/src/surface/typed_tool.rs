//! Tools whose arguments and results are Rust types.
//!
//! The types are the contract: the schemas are derived from them (`derived_schema.rs`), and their doc comments
//! are the descriptions that clients read. A handler is boxed once, when the tool is made, so that nothing of it
//! is compiled again for each caller of the surface.

use std::pin::Pin;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    ContentBlock, HandlerError, HandlerReply, HandlerRequest, SchemaError, Surface, Tool, ToolGroup,
    ToolOutput, ToolProfile,
    derived_schema::{input_schema, limit_field, output_schema},
};
use crate::{access::Caller, agent::TaskUse};

/// One call of a typed tool.
#[derive(Debug, Clone)]
pub struct ToolCall<In> {
    /// The authenticated caller, with its grants.
    pub caller: Caller,
    /// The arguments.
    pub input: In,
}

/// The result of a typed tool.
#[derive(Debug, Clone)]
pub struct TypedOutput<Out> {
    /// The result for people and models.
    pub text: String,
    /// The result for programs.
    pub value: Out,
    /// Whether the result describes a failure.
    pub is_error: bool,
}

/// What the handler of a typed tool returns.
pub type TypedReply<Out> = Result<HandlerReply<TypedOutput<Out>>, HandlerError>;

/// A reply with a text for people and the same as a value for programs.
pub fn typed_reply<Out>(text: impl Into<String>, value: Out) -> TypedReply<Out> {
    Ok(HandlerReply::Done(TypedOutput { text: text.into(), value, is_error: false }))
}

/// A typed value as the arguments of a task, for a tool that hands over to an agent.
pub fn task_arguments(input: &impl Serialize) -> Result<Map<String, Value>, HandlerError> {
    match serde_json::to_value(input) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(other) => Err(HandlerError::Internal(format!("arguments that are no object: {other}"))),
        Err(error) => Err(HandlerError::Internal(error.to_string())),
    }
}

type HandlerFuture = Pin<Box<dyn Future<Output = Result<HandlerReply<ToolOutput>, HandlerError>> + Send>>;
type BoxedHandler = Box<dyn Fn(HandlerRequest) -> HandlerFuture + Send + Sync>;

/// A typed tool that is not registered yet.
#[must_use = "a tool is registered by `install`"]
pub struct TypedTool {
    profile: ToolProfile,
    handler: BoxedHandler,
    /// Why a limit could not be set.
    fault: Option<SchemaError>,
}

/// A tool that calls `handler` with a clone of `state`. The schemas are those of `In` and `Out`.
pub fn typed_tool<S, In, Out, F, A>(name: &str, about: &str, state: &S, handler: F) -> TypedTool
where
    S: Clone + Send + Sync + 'static,
    In: DeserializeOwned + JsonSchema,
    Out: Serialize + JsonSchema,
    F: Fn(S, ToolCall<In>) -> A + Send + Sync + 'static,
    A: Future<Output = TypedReply<Out>> + Send + 'static,
{
    structured_tool::<S, In, Out, _, _>(name, about, state, move |state, call| {
        let reply = handler(state, call);
        async move { untyped(reply.await?) }
    })
}

/// [`typed_tool`] for a handler that makes the output itself, where a value is too large to be made twice. Its
/// structured result has to satisfy the schema of `Out`.
pub fn structured_tool<S, In, Out, F, A>(name: &str, about: &str, state: &S, handler: F) -> TypedTool
where
    S: Clone + Send + Sync + 'static,
    In: DeserializeOwned + JsonSchema,
    Out: JsonSchema,
    F: Fn(S, ToolCall<In>) -> A + Send + Sync + 'static,
    A: Future<Output = Result<HandlerReply<ToolOutput>, HandlerError>> + Send + 'static,
{
    let state = state.clone();
    let handler: BoxedHandler = Box::new(move |request: HandlerRequest| -> HandlerFuture {
        let HandlerRequest { caller, arguments, .. } = request;
        match serde_json::from_value(Value::Object(arguments)) {
            Ok(input) => Box::pin(handler(state.clone(), ToolCall { caller, input })),
            Err(error) => Box::pin(std::future::ready(Err(HandlerError::Invalid(error.to_string())))),
        }
    });
    let profile = ToolProfile::new(name, about).input(input_schema::<In>()).output(output_schema::<Out>());
    TypedTool { profile, handler, fault: None }
}

fn untyped<Out: Serialize>(
    reply: HandlerReply<TypedOutput<Out>>,
) -> Result<HandlerReply<ToolOutput>, HandlerError> {
    Ok(match reply {
        HandlerReply::Done(TypedOutput { text, value, is_error }) => {
            let value =
                serde_json::to_value(value).map_err(|error| HandlerError::Internal(error.to_string()))?;
            let content = vec![ContentBlock::Text(text)];
            HandlerReply::Done(ToolOutput { content, structured: Some(value), is_error })
        }
        HandlerReply::Ask(questions) => HandlerReply::Ask(questions),
        HandlerReply::HandOver { agent, arguments } => HandlerReply::HandOver { agent, arguments },
    })
}

impl TypedTool {
    /// Sets a keyword of the input schema, as [`limit_field`] does. A field that the input does not have makes
    /// [`TypedTool::install`] fail.
    pub fn limit(mut self, field: &str, keyword: &str, value: impl Into<Value>) -> Self {
        let name = &self.profile.name;
        if let Err(why) = limit_field(&mut self.profile.input_schema, field, keyword, value.into()) {
            self.fault = Some(SchemaError::new(format!("{name}: {why}")));
        }
        self
    }

    /// Sets how callers get the result of an agent that it hands over to.
    pub fn tasks(mut self, tasks: TaskUse) -> Self {
        self.profile.tasks = tasks;
        self
    }

    /// Sets a hint about its behaviour, by its MCP name.
    pub fn hint(mut self, name: &str, hint: bool) -> Self {
        self.profile.annotations.insert(name.into(), hint.into());
        self
    }

    /// Hints that it changes nothing.
    pub fn read_only(self) -> Self {
        self.hint("readOnlyHint", true)
    }

    /// Publishes no output schema: the result is that of the agent which it hands over to.
    pub fn without_output_schema(mut self) -> Self {
        self.profile.output_schema = None;
        self
    }

    /// Registers it in a group, replacing a tool of the same name.
    pub fn install(mut self, group: ToolGroup, surface: &Surface) -> Result<(), SchemaError> {
        self.profile.group = Some(group);
        match self.fault {
            Some(fault) => Err(fault),
            None => surface.add_tool(BoxedTool { profile: self.profile, handler: self.handler }),
        }
    }
}

struct BoxedTool {
    profile: ToolProfile,
    handler: BoxedHandler,
}

#[async_trait]
impl Tool for BoxedTool {
    fn profile(&self) -> ToolProfile {
        self.profile.clone()
    }

    async fn call(&self, request: HandlerRequest) -> Result<HandlerReply<ToolOutput>, HandlerError> {
        (self.handler)(request).await
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct DoubleRequest {
        /// What is doubled.
        number: u32,
        #[serde(default)]
        words: Vec<String>,
    }

    #[derive(Serialize, JsonSchema)]
    struct DoubleAnswer {
        doubled: u32,
    }

    async fn double(factor: u32, call: ToolCall<DoubleRequest>) -> TypedReply<DoubleAnswer> {
        let doubled = call.input.number * factor + call.input.words.len() as u32;
        typed_reply(doubled.to_string(), DoubleAnswer { doubled })
    }

    #[tokio::test]
    async fn a_typed_tool_reads_its_arguments_and_writes_its_result() {
        let surface = Surface::default();
        typed_tool("double", "Doubles.", &2, double)
            .limit("number", "maximum", 21)
            .limit("words[]", "maxLength", 3)
            .read_only()
            .install(ToolGroup::Tasks, &surface)
            .unwrap_or_else(|error| panic!("{error}"));
        let tool = surface.tool("double").unwrap_or_else(|| panic!("it is not there"));
        let input = &tool.profile.input_schema["properties"];
        let number =
            json!({ "type": "integer", "minimum": 0, "maximum": 21, "description": "What is doubled." });
        assert_eq!(input["number"], number);
        assert_eq!(input["words"]["items"], json!({ "type": "string", "maxLength": 3 }));
        let call = async |arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            tool.handler.call(HandlerRequest::new(Caller::local(), arguments)).await
        };
        let done = call(json!({ "number": 21 })).await;
        let Ok(HandlerReply::Done(output)) = done else { panic!("{done:?}") };
        assert_eq!(output.structured, Some(json!({ "doubled": 42 })));
        assert_eq!(output.content, [ContentBlock::Text("42".into())]);
        let refused = call(json!({ "number": 1, "other": 2 })).await;
        assert!(matches!(&refused, Err(HandlerError::Invalid(why)) if why.contains("other")), "{refused:?}");
    }

    #[test]
    fn a_limit_of_a_field_that_is_not_there_is_refused() {
        let tool = typed_tool("double", "Doubles.", &2, double).limit("nummer", "maximum", 21);
        let refused = tool.install(ToolGroup::Tasks, &Surface::default());
        let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("double") && why.contains("nummer"), "{why}");
    }
}
