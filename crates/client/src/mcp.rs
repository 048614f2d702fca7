//! MCP clients: a full peer, a client for the tools of one server over the same connection, and a relay from pipes
//! to HTTP.

mod peer;
mod relay;

pub use peer::{
    DeclaredCapabilities, McpLogLevel, McpPeer, McpPeerOptions, SESSION_STREAM_WAIT, ToolAnswer, ToolChange,
    ToolChanges, ToolClient, ToolError, ToolOptions, ToolStart, ToolSubscription, ToolTaskQuestion,
    ToolTaskStatus, ToolTaskView,
};
pub use relay::{EndpointFinder, Relay, RelayEndpoint, RelayError};
