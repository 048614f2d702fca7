//! The memory bank on the surface: JSON values under keys, in namespaces, for agents and people.
//!
//! The engine stores the values and authorizes access ([`nuncio_engine::memory`]). This module publishes them
//! as resources `memory://…` and as tools `memory_*`.
//!
//! Search by pattern: `*` matches any characters, `?` one character, `[abc]`, `[a-z]` and `[!a]` one of (or not
//! of) a set. The score of a key is the number of literal characters in the pattern, divided by the number of
//! characters of the key, rounded to four digits: `task:*:specification` finds `task:123:specification` with 19
//! ÷ 22 = 0.8636, an exact key scores 1, and `*` alone scores 0. Results are sorted by score, then by key.
//! Search by text finds values that contain all of the words. Its score is the store's rank, from 0 to 1, which
//! is comparable only within one search: a word that most values contain ranks near 0.
//!
//! Only a read by key counts as an access (`accessed`, `accessCount`, that read included); lists, searches and
//! exports do not.

mod answers;
pub mod api;
mod preview;
mod resources;
mod tools;
mod transfer;

use std::sync::Arc;

use nuncio_engine::{
    Engine, Memory, Surface,
    knowledge::MemoryQuery,
    memory::words,
    surface::{HandlerError, SchemaError},
};

/// Keys on a page of a list by default. It is short because a model reads it.
const LIST_LIMIT: usize = 100;
/// Search results on a page by default.
const SEARCH_LIMIT: usize = 10;

/// The memory bank options that an operator can set. Capacity limits are set in the engine.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Maximum bytes of values that one export returns. One value is always returned, whatever its size.
    pub export_bytes: u64,
    /// Maximum bytes of one import.
    pub import_bytes: usize,
    /// Maximum lines of one import.
    pub import_lines: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { export_bytes: 2 * 1024 * 1024, import_bytes: 4 * 1024 * 1024, import_lines: 1_000 }
    }
}

/// The memory bank, as published on the surface.
pub struct MemoryBank {
    engine: Engine,
    options: MemoryOptions,
}

impl MemoryBank {
    /// The memory bank in the engine's store.
    pub fn new(engine: Engine, options: MemoryOptions) -> Arc<Self> {
        Arc::new(Self { engine, options })
    }

    /// The engine's API to the memory bank.
    pub fn memory(&self) -> Memory {
        self.engine.memory()
    }
}

/// Registers the memory bank's tools and resources on a surface.
pub fn install(bank: &Arc<MemoryBank>, surface: &Arc<Surface>) -> Result<(), SchemaError> {
    resources::publish_schemas(surface);
    resources::install(bank, surface);
    tools::install(bank, surface)
}

/// The query of a search: exactly one of the two must be given.
fn sought(pattern: Option<&str>, text: Option<&str>) -> Result<MemoryQuery, HandlerError> {
    match (pattern, text) {
        (Some(pattern), None) => Ok(MemoryQuery::Keys(pattern.to_owned())),
        (None, Some(text)) => match words(text) {
            words if words.is_empty() => {
                Err(HandlerError::Invalid("text: has no letters or digits to search for".into()))
            }
            words => Ok(MemoryQuery::Words(words)),
        },
        (Some(_), Some(_)) => Err(HandlerError::Invalid(
            "pattern, text: give one of them, either a pattern of keys or words in values".into(),
        )),
        (None, None) => Err(HandlerError::Invalid(
            "pattern: must be given, such as task:*; or text, to search in values".into(),
        )),
    }
}
