//! The SQLite backend: the suite of all backends, and what only a file can get wrong.

#![allow(clippy::unwrap_used, reason = "tests")]

mod conformance;
mod disk;
mod model;
