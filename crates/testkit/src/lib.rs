//! What the tests of several crates share. No product crate depends on it.
//!
//! - [`mod@conformance`]: one check per guarantee of `Store`, for every backend.
//! - [`fault_injection`]: a store whose commits can be delayed, fail, or be the last action of a process.
//! - [`model_provider`]: a stand-in for the APIs of model providers.
//! - [`open_in`]: a store for one test, on the backend that the environment names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test suite: a failure is a panic with its place"
)]

pub mod certificates;
pub mod conformance;
pub mod fault_injection;
pub mod model_provider;
mod open;

pub use open::open_in;
