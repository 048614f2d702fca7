//! The memory bank: JSON values under keys, in namespaces, for agents and people.

use std::sync::Arc;

use nuncio_engine::{Engine, Surface, surface::ShapeError};

/// What an operator may set about the memory bank.
#[derive(Debug, Clone, Default)]
pub struct MemoryOptions {}

/// The memory bank.
pub struct MemoryBank {
    engine: Engine,
    options: MemoryOptions,
}

impl MemoryBank {
    /// The memory bank in the engine's store.
    pub fn new(engine: Engine, options: MemoryOptions) -> Arc<Self> {
        Arc::new(Self { engine, options })
    }
}

/// Offers the memory bank on a surface.
pub fn install(bank: &Arc<MemoryBank>, surface: &Arc<Surface>) -> Result<(), ShapeError> {
    let _ = (&bank.engine, &bank.options, surface);
    Ok(())
}
