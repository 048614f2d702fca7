//! Talks to other people's servers: one outbound HTTP client with an address filter, and clients of A2A and MCP.

pub mod a2a;
pub mod address;
pub mod auth;
pub mod mcp;
pub mod model;
pub mod oauth;
pub mod outbound;
pub mod peer;
