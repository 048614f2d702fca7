//! The built-in agents on a real engine and a real store.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing where it looks has failed")]

mod bench;
mod built_in;
mod echo;
mod long_running;
mod remote;
mod research;
mod server;
mod travel;
