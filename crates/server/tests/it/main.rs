//! The server crate against real sockets and a real store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod access;
mod auth;
mod cards;
mod dialects;
mod guests;
mod health;
mod hostile;
mod idempotency;
mod limits;
mod mcp;
mod push;
mod receiver;
mod schema_0_1;
mod shares;
mod site;
mod socket;
mod stopping;
mod streams;
mod tenants;
