//! The server crate against real sockets and a real store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod push;
mod receiver;
