//! The built-in agents on a real engine and a real store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that finds nothing where it looks has failed"
)]

mod answers;
mod attributes;
mod bench;
mod built_in;
mod card_keys;
mod contexts;
mod echo;
mod fleet;
mod http;
mod llm;
mod long_running;
mod process;
mod program;
mod redirects;
mod remote;
mod research;
mod server;
mod travel;
