//! MCP as a client speaks it.

mod relay;

pub use relay::{Finder, Relay, RelayError};
