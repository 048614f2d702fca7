//! Talks to other people's servers: one outbound HTTP client with an address filter, and an A2A client.

pub mod a2a;
pub mod address;
pub mod outbound;
