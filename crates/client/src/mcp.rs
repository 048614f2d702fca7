//! MCP as a client speaks it.

mod relay;
mod tools;

pub use relay::{Finder, Relay, RelayError};
pub use tools::{
    Called, Outcome, Progress, Question, TaskSeen, TaskStatus, ToolClient, ToolError, ToolOptions,
};
