//! The memory bank: JSON values under keys, in namespaces, for agents and people.
//!
//! The engine keeps it and decides who may do what ([`nuncio_engine::memory`]); here it is offered, as resources
//! `memory://…` and as tools `memory_*`.
//!
//! Search by pattern: `*` stands for any characters, `?` for one, `[abc]`, `[a-z]` and `[!a]` for one of (or not
//! of) these. The score of a key is the number of characters that the pattern says literally, divided by the
//! number of characters of the key, rounded to four digits: `task:*:specification` finds
//! `task:123:specification` with 19 ÷ 22 = 0.8636, a key that is spelled out has 1, and `*` alone gives 0. The best
//! come first, then by key. Search by text finds values that have all of the words in them, and the score is the
//! store's own rank, from 0 to 1, which compares the results of one search with each other: a word that most
//! values have says little, and its rank is near 0.
//!
//! Only what is read by its key counts as a read (`accessed`, `accessCount`, that read included); lists,
//! searches and exports do not.

mod entry_json;
mod preview;
mod resources;
mod schemas;
mod tools;
mod transfer;

use std::sync::Arc;

use nuncio_engine::{
    Engine, Memory, Surface,
    knowledge::MemoryQuery,
    memory::words,
    surface::{HandlerError, SchemaError},
};

/// What an operator may set about the memory bank. What it holds at most is set in the engine.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Bytes of values that one export returns; one value is returned whatever its size.
    pub export_bytes: u64,
    /// Bytes that one import takes.
    pub import_bytes: usize,
    /// Lines that one import takes.
    pub import_lines: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { export_bytes: 2 * 1024 * 1024, import_bytes: 4 * 1024 * 1024, import_lines: 1_000 }
    }
}

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

    /// What the engine offers of it.
    pub fn memory(&self) -> Memory {
        self.engine.memory()
    }
}

/// Offers the memory bank on a surface.
pub fn install(bank: &Arc<MemoryBank>, surface: &Arc<Surface>) -> Result<(), SchemaError> {
    schemas::publish(surface);
    resources::install(bank, surface);
    tools::install(bank, surface)
}

/// What to search for, of which exactly one is to be given.
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
