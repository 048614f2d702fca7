//! MCP clients: a full peer, a relay from pipes to HTTP, a stateless tool client, and a probe.

mod peer;
mod probe;
mod relay;
mod tools;

pub use peer::{DeclaredCapabilities, McpLogLevel, McpPeer, McpPeerOptions};
pub use probe::{HandshakeMethod, ProbeError, ServerIntroduction, probe};
pub use relay::{EndpointFinder, Relay, RelayEndpoint, RelayError};
pub use tools::{
    ToolAnswer, ToolChange, ToolChanges, ToolClient, ToolError, ToolOptions, ToolProgress, ToolStart,
    ToolSubscription, ToolTaskQuestion, ToolTaskStatus, ToolTaskView,
};
