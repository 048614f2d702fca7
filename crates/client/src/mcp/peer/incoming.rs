//! Messages of a server, as the transports read them.

pub(super) use nuncio_wire::mcp::{McpMessage, McpPeerResponse, read_messages as read};
