//! MCP as a client speaks it.

mod relay;

pub use relay::{Endpoint, Finder, Relay, RelayError};
