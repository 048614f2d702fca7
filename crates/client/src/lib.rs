//! Clients for remote servers: outbound HTTP with an address filter, A2A and MCP peers, OAuth, and language
//! models.

pub mod a2a;
pub mod address;
pub mod auth;
pub mod mcp;
pub mod model;
pub mod oauth;
pub mod outbound;
pub mod peer;
