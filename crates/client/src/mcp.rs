//! MCP as a client speaks it.

mod peer;
mod probe;
mod relay;
mod tools;

pub use peer::{Declared, LogLevel, McpOptions, McpPeer};
pub use probe::{Greeting, Introduced, ProbeError, probe};
pub use relay::{Endpoint, Finder, Relay, RelayError};
pub use tools::{
    Called, Outcome, Progress, Question, TaskSeen, TaskStatus, ToolClient, ToolError, ToolOptions,
};
