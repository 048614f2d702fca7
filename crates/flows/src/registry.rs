//! The registry: who can be reached, and how they are.

use std::sync::Arc;

use nuncio_engine::{Engine, Surface, surface::ShapeError};

/// What an operator may set.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {}

/// The registry: who can be reached, and how they are.
pub struct Registry {
    options: RegistryOptions,
}

impl Registry {
    /// With these options.
    pub fn new(options: RegistryOptions) -> Self {
        Self { options }
    }

    /// Offers it on a surface.
    pub fn install(self: &Arc<Self>, engine: &Engine, surface: &Arc<Surface>) -> Result<(), ShapeError> {
        let _ = (&self.options, engine, surface);
        Ok(())
    }
}
