//! Tools that answer at once and ask no questions.

use std::sync::Arc;

use nuncio::{
    engine::surface::{
        Abilities, ContentBlock, HandlerError, HandlerReply, HandlerRequest, PromptOutput, PromptProfile,
        ResourceContent, SchemaError, Tool, ToolOutput, ToolProfile,
    },
    prelude::*,
};

use crate::{media, prompts::Told};

/// The result of a handler call.
pub(crate) type Answered = Result<HandlerReply<ToolOutput>, HandlerError>;

/// A tool built from one function.
pub(crate) struct Plain {
    profile: ToolProfile,
    answer: Box<dyn Fn(&HandlerRequest) -> Answered + Send + Sync>,
}

impl Plain {
    /// A tool without arguments.
    pub(crate) fn new(
        name: &str,
        description: &str,
        answer: impl Fn(&HandlerRequest) -> Answered + Send + Sync + 'static,
    ) -> Self {
        Self { profile: ToolProfile::new(name, description), answer: Box::new(answer) }
    }

    /// Hands over to an agent; callers poll for the result.
    pub(crate) fn handing_over(mut self) -> Self {
        self.profile = self.profile.tasks(TaskUse::Required);
        self
    }

    /// Sets the JSON Schema of the arguments.
    pub(crate) fn input(mut self, schema: Value) -> Self {
        self.profile = self.profile.input(schema);
        self
    }
}

#[async_trait]
impl Tool for Plain {
    fn profile(&self) -> ToolProfile {
        self.profile.clone()
    }

    async fn call(&self, request: HandlerRequest) -> Answered {
        (self.answer)(&request)
    }
}

pub(crate) fn offer(surface: &Arc<Surface>) -> Result<(), SchemaError> {
    // The suite calls the first listed tool without arguments and expects no error. Lists are sorted by name,
    // and no other fixture this early in the list accepts that.
    surface.add_tool(Plain::new("about", "Says what this server is.", |_| {
        said("This server offers what the MCP conformance suite asks for.")
    }))?;
    surface.add_tool(Plain::new("test_simple_text", "Returns a text.", |_| {
        said("This is a simple text response for testing.")
    }))?;
    surface
        .add_tool(Plain::new("test_image_content", "Returns a picture.", |_| shown(vec![media::image()])))?;
    surface
        .add_tool(Plain::new("test_audio_content", "Returns a sound.", |_| shown(vec![media::audio()])))?;
    surface.add_tool(Plain::new("test_embedded_resource", "Returns a resource, whole.", |_| {
        let text = "This is an embedded resource content.";
        shown(vec![ContentBlock::Resource(ResourceContent::text(
            "test://embedded-resource",
            "text/plain",
            text,
        ))])
    }))?;
    surface.add_tool(Plain::new(
        "test_multiple_content_types",
        "Returns a text, a picture and a resource.",
        |_| {
            let data = json!({ "test": "data", "value": 123 });
            shown(vec![
                ContentBlock::Text("Multiple content types test:".into()),
                media::image(),
                ContentBlock::Resource(ResourceContent::json("test://mixed-content-resource", &data)),
            ])
        },
    ))?;
    surface.add_tool(Plain::new("test_error_handling", "Fails.", |_| {
        Err(HandlerError::Failed("This tool intentionally returns an error for testing".into()))
    }))?;
    surface.add_tool(
        Plain::new("json_schema_2020_12_tool", "Has a schema of many words.", |request| {
            said(Value::Object(request.arguments.clone()).to_string())
        })
        .input(many_words()),
    )?;
    surface.add_tool(
        Plain::new("test_custom_header", "Returns what a header repeats.", |request| {
            said(request.text("value").unwrap_or_default())
        })
        .input(json!({
            "type": "object",
            "properties": { "value": { "type": "string", "x-mcp-header": "Value" } },
            "required": ["value"],
        })),
    )?;
    surface.add_tool(
        Plain::new("greet", "Greets somebody by name.", |request| {
            said(format!("Hello, {}!", request.text("name").unwrap_or("stranger")))
        })
        .input(json!({ "type": "object", "properties": { "name": { "type": "string" } } })),
    )?;
    surface.add_tool(Plain::new(
        "test_missing_capability",
        "Is only for clients with a model.",
        |request| {
            if !request.abilities.sample {
                return Err(HandlerError::Needs(Abilities { sample: true, ..Abilities::default() }));
            }
            said("The client has a model.")
        },
    ))?;
    offer_triggers(surface)
}

/// The added items are withdrawn at once: the suite expects a change notification, and lists that stay the
/// same.
fn offer_triggers(surface: &Arc<Surface>) -> Result<(), SchemaError> {
    let changed = Arc::clone(surface);
    surface.add_tool(Plain::new("test_trigger_tool_change", "Changes the tools.", move |_| {
        let passing = Plain::new("test_passing_tool", "Is soon gone.", |_| said("Still here."));
        changed.add_tool(passing).map_err(|error| HandlerError::Internal(error.to_string()))?;
        changed.remove_tool("test_passing_tool");
        said("The tools have changed.")
    }))?;
    let changed = Arc::clone(surface);
    surface.add_tool(Plain::new("test_trigger_prompt_change", "Changes the prompts.", move |_| {
        let profile = PromptProfile::new("test_passing_prompt", "Is soon gone.");
        changed.add_prompt(Told::new(profile, |_| {
            Ok(HandlerReply::Done(PromptOutput::user(ContentBlock::Text("Still here.".into()))))
        }));
        changed.remove_prompt("test_passing_prompt");
        said("The prompts have changed.")
    }))
}

/// A text as the final result.
pub(crate) fn said(text: impl Into<String>) -> Answered {
    Ok(HandlerReply::Done(ToolOutput::text(text)))
}

fn shown(blocks: Vec<ContentBlock>) -> Answered {
    Ok(HandlerReply::Done(ToolOutput::blocks(blocks)))
}

/// A schema with keywords that servers tend to drop.
fn many_words() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
