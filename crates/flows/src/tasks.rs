//! Tasks as tools, for those who speak MCP and nothing else: send, look, list, follow, answer, cancel. Everything is
//! done in the caller's name by the engine, which lets through, counts and audits; a task of somebody else is answered
//! as one that does not exist.

mod act;
mod look;
mod shown;

use std::{future::Future, sync::Arc};

use nuncio_engine::{
    Engine, Surface,
    surface::{HandlerError, Request, Said, ShapeError, Tool, ToolOutput, ToolProfile, tool},
};
use serde_json::{Value, json};

/// The longest name of a task, a context or an agent that is looked for.
const MAX_NAME: u64 = 256;

/// Offers them on a surface.
pub fn install(engine: &Engine, surface: &Arc<Surface>) -> Result<(), ShapeError> {
    surface.add_tool(act::send(engine))?;
    surface.add_tool(act::reply(engine))?;
    surface.add_tool(act::cancel(engine))?;
    surface.add_tool(look::get(engine))?;
    surface.add_tool(look::list(engine))?;
    surface.add_tool(look::events(engine))
}

/// What a tool says: words, and the same for programs.
struct Told {
    text: String,
    value: Value,
}

/// A tool that asks the engine for something.
fn of_engine<F, A>(engine: &Engine, profile: ToolProfile, answer: F) -> impl Tool
where
    F: Fn(Engine, Request) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Told, HandlerError>> + Send + 'static,
{
    let engine = engine.clone();
    tool(profile, move |request: Request| {
        let told = answer(engine.clone(), request);
        async move {
            let Told { text, value } = told.await?;
            let mut output = ToolOutput::text(text);
            output.structured = Some(value);
            Ok(Said::Done(output))
        }
    })
}

/// The name of something.
fn name(about: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME, "description": about })
}

/// Arguments, of which some must be given.
fn arguments(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}
