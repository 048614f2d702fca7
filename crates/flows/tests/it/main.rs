//! What is shared, over a real store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod batch;
mod memory;
mod plan;
mod published_figures;
mod published_tools;
mod registry;
mod registry_network;
mod sparc;
mod task_tools;
mod test_engine;
