//! The server crate against real sockets and a real store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod hostile;
mod limits;
mod push;
mod receiver;
mod site;
mod socket;
