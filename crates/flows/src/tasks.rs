//! The task tools, for clients that use only MCP tools: send, get, list, follow, answer, cancel. The engine
//! runs every call as the caller, and authorizes, rate-limits and audits it. A task of another caller is
//! answered like one that does not exist.

mod read_tools;
mod view;
mod write_tools;

use std::{future::Future, sync::Arc};

use nuncio_engine::{
    Engine, Surface,
    surface::{HandlerError, HandlerReply, HandlerRequest, SchemaError, Tool, ToolOutput, ToolProfile, tool},
};
use serde_json::{Value, json};

/// The longest name of a task, a context or an agent that is accepted.
const MAX_NAME: u64 = 256;

/// Registers the task tools on a surface.
pub fn install(engine: &Engine, surface: &Arc<Surface>) -> Result<(), SchemaError> {
    surface.add_tool(write_tools::send(engine))?;
    surface.add_tool(write_tools::reply(engine))?;
    surface.add_tool(write_tools::cancel(engine))?;
    surface.add_tool(read_tools::get(engine))?;
    surface.add_tool(read_tools::list(engine))?;
    surface.add_tool(read_tools::events(engine))
}

/// The reply of a tool: text, and the same as JSON.
struct TaskToolReply {
    text: String,
    value: Value,
}

/// A tool that is implemented by a call to the engine.
fn of_engine<F, A>(engine: &Engine, profile: ToolProfile, answer: F) -> impl Tool
where
    F: Fn(Engine, HandlerRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<TaskToolReply, HandlerError>> + Send + 'static,
{
    let engine = engine.clone();
    tool(profile, move |request: HandlerRequest| {
        let told = answer(engine.clone(), request);
        async move {
            let TaskToolReply { text, value } = told.await?;
            let mut output = ToolOutput::text(text);
            output.structured = Some(value);
            Ok(HandlerReply::Done(output))
        }
    })
}

/// The schema of a name.
fn name(about: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME, "description": about })
}

/// The schema of arguments, of which some are required.
fn arguments(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}
