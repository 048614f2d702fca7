//! Pure protocol: JSON-RPC and SSE framing, and the dialects of A2A and MCP as pairs of conversions. No IO.
//!
//! Bytes go in and engine types come out, or the other way round. Nothing here waits, keeps state between
//! calls (but for the SSE parser of a client) or knows of a server: who is calling, what exists and when to
//! answer is decided elsewhere.

pub mod a2a;
pub mod json;
pub mod jsonrpc;
pub mod mcp;
pub mod sse;
pub mod timestamp;
