//! MCP as a client speaks it.

mod probe;
mod relay;
mod tools;

pub use probe::{Greeting, Introduced, ProbeError, probe};
pub use relay::{Endpoint, Finder, Relay, RelayError};
pub use tools::{
    Called, Outcome, Progress, Question, TaskSeen, TaskStatus, ToolClient, ToolError, ToolOptions,
};
