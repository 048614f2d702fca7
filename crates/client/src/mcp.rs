//! MCP as a client speaks it.

mod probe;
mod relay;

pub use probe::{Greeting, Introduced, ProbeError, probe};
pub use relay::{Endpoint, Finder, Relay, RelayError};
