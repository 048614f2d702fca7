//! The engine on its real store: what a task may become, what survives a crash, and who is told what.
//!
//! `world` is what the stories are told with; every other module is about one promise.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod calling;
mod cancel;
mod caps;
mod disk;
mod expiry;
mod follow;
mod fork;
mod golden;
mod input;
mod keys;
mod list_permits;
mod listing;
mod memory;
mod operator;
mod passing;
mod probation;
mod questions;
mod random;
mod replay;
mod replies;
mod running;
mod runs;
mod script;
mod selections;
mod sending;
mod shares;
mod states;
mod stored;
mod traces;
mod unanswered;
mod waiting;
mod webhooks;
mod world;
