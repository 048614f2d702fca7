//! Clients for remote servers: A2A and MCP peers, OAuth, and language models.

pub mod a2a;
pub mod auth;
pub mod mcp;
pub mod model;
pub mod oauth;
pub mod peer;
