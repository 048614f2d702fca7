//! Outbound HTTP against real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod filter;
mod http;
