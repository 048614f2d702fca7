//! The library in another program.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod conformance;
mod embedding;
mod itk;
