//! The wire, as a server and a client see it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod calls;
mod cards;
mod choosing;
mod faults;
mod grpc;
mod jsonrpc;
mod losses;
mod mcp;
mod mcp_round_trips;
mod proto_0_3;
mod protobuf;
mod round_trips;
mod samples;
mod schema_0_1;
mod snapshots;
mod sse;
mod strategies;

use serde_json::{Value, value::RawValue};

/// What a writer wrote, as text.
fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = vec![];
    write(&mut out);
    String::from_utf8(out).unwrap()
}

/// What a writer wrote, as a reader takes it.
fn raw(write: impl FnOnce(&mut Vec<u8>)) -> Box<RawValue> {
    RawValue::from_string(text(write)).unwrap()
}

/// What a writer wrote, as a value.
fn value(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    serde_json::from_str(&text(write)).unwrap()
}
