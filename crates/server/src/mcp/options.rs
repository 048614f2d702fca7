//! The operator's options for MCP. Every limit has a name and a default.

use std::time::Duration;

use super::ToolListFilter;

/// Options and limits of the MCP binding.
#[derive(Clone)]
pub struct McpOptions {
    /// The key that signs request states. All nodes of one store need the same key. If empty, the process
    /// generates one.
    pub secret: Vec<u8>,
    /// Instructions for clients on how to use this server, sent in the handshake.
    pub instructions: Option<String>,
    /// The tools that the list at `/mcp` shows. All others can be called, too.
    pub tools: ToolListFilter,
    /// Maximum concurrent sessions of one caller.
    pub max_sessions: usize,
    /// Idle time after which a session is deleted.
    pub session_idle: Duration,
    /// Maximum resources that one session, or one `subscriptions/listen`, may subscribe to.
    pub max_subscriptions: usize,
    /// Entries per page of a list.
    pub page_size: usize,
    /// Maximum messages in one batch (2025-03-26).
    pub max_batch: usize,
    /// How long a question of a stateless call can be answered.
    pub state_ttl: Duration,
    /// The interval at which clients are advised to poll a task.
    pub poll_interval: Duration,
    /// The reconnection delay that clients are advised to use after a stream was closed.
    pub retry: Duration,
    /// How long clients may cache lists.
    pub list_ttl: Duration,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self {
            secret: vec![],
            instructions: None,
            tools: ToolListFilter::default(),
            max_sessions: 10_000,
            session_idle: Duration::from_secs(24 * 3600),
            max_subscriptions: 256,
            page_size: 100,
            max_batch: 100,
            state_ttl: Duration::from_secs(24 * 3600),
            poll_interval: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            list_ttl: Duration::from_secs(60),
        }
    }
}
