//! SPARC workflows: five phases, each of which ends at a gate.

use std::sync::Arc;

use nuncio_engine::{Agent, Engine, Surface, surface::ShapeError};

/// What an operator may set.
#[derive(Debug, Clone, Default)]
pub struct SparcOptions {}

/// SPARC workflows: five phases, each of which ends at a gate.
pub struct Sparc {
    options: SparcOptions,
}

impl Sparc {
    /// With these options.
    pub fn new(options: SparcOptions) -> Self {
        Self { options }
    }

    /// The agents that belong to it.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        vec![]
    }

    /// Offers it on a surface.
    pub fn install(self: &Arc<Self>, engine: &Engine, surface: &Arc<Surface>) -> Result<(), ShapeError> {
        let _ = (&self.options, engine, surface);
        Ok(())
    }
}
