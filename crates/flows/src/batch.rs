//! The batch engine: many operations as one durable task.

use std::sync::Arc;

use crate::memory::MemoryBank;
use nuncio_engine::{Agent, Engine, Surface, surface::ShapeError};
/// What an operator may set.
#[derive(Debug, Clone, Default)]
pub struct BatchOptions {}

/// The batch engine: many operations as one durable task.
pub struct Batch {
    options: BatchOptions,
}

impl Batch {
    /// With these options.
    pub fn new(options: BatchOptions) -> Self {
        Self { options }
    }

    /// The agents that belong to it.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        vec![]
    }

    /// Offers it on a surface.
    pub fn install(
        self: &Arc<Self>,
        engine: &Engine,
        bank: &Arc<MemoryBank>,
        surface: &Arc<Surface>,
    ) -> Result<(), ShapeError> {
        let _ = (&self.options, engine, bank, surface);
        Ok(())
    }
}
