//! The backends: the suite of all of them, what only a file can get wrong, and what only a shared database can.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "measurements")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod archive;
mod conformance;
mod disk;
mod golden;
mod memory_model;
mod model;
mod postgres;
mod searching;
mod turns;
