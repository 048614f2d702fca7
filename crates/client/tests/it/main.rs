//! The client crate against real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod a2a;
mod cards;
mod grpc;
mod mcp;
mod model;
mod oauth;
mod peer;
mod relay;
