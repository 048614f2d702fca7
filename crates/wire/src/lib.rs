//! Wire formats without IO: JSON-RPC and SSE framing, and the dialects of A2A and MCP as pairs of conversions.
//!
//! Bytes go in and engine types come out, or the other way round. Nothing here waits, stores state between calls
//! (except the SSE parser of a client) or depends on a server: authentication, lookup and the time of a response
//! are decided elsewhere.

pub mod a2a;
pub mod canonical_json;
pub mod grpc;
pub mod json;
pub mod jsonrpc;
pub mod mcp;
pub mod protobuf;
pub mod sse;
pub mod timestamp;
