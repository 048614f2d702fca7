//! Tasks as tools, for those who speak MCP and nothing else; and what is known of live streams.

use std::sync::Arc;

use nuncio_engine::{Engine, Surface, surface::ShapeError};

/// Offers them on a surface.
pub fn install(engine: &Engine, surface: &Arc<Surface>) -> Result<(), ShapeError> {
    let _ = (engine, surface);
    Ok(())
}
