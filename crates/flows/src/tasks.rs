//! The task tools, for clients that use only MCP tools: send, get, list, follow, answer, cancel. The engine
//! runs every call as the caller, and authorizes, rate-limits and audits it. A task of another caller is
//! answered like one that does not exist.

pub mod api;
mod read_tools;
mod view;
mod write_tools;

use std::sync::Arc;

use nuncio_engine::{Engine, Surface, surface::SchemaError};

/// Registers the task tools on a surface.
pub fn install(engine: &Engine, surface: &Arc<Surface>) -> Result<(), SchemaError> {
    write_tools::install(engine, surface)?;
    read_tools::install(engine, surface)
}
