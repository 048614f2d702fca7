//! What an operator may set about MCP. Every limit has a name and a default.

use std::time::Duration;

/// How MCP is served, and what is refused.
#[derive(Clone)]
pub struct McpOptions {
    /// What request states are signed with. All nodes of one store have the same. Empty: something that this
    /// process makes up.
    pub secret: Vec<u8>,
    /// Said to clients about how to use this server.
    pub instructions: Option<String>,
    /// Sessions of one caller at once.
    pub max_sessions: usize,
    /// A session that is not used for so long is forgotten.
    pub session_idle: Duration,
    /// Resources that one session, or one subscription, may follow.
    pub max_subscriptions: usize,
    /// Entries on one page of a list.
    pub page_size: usize,
    /// Messages in one batch (2025-03-26).
    pub max_batch: usize,
    /// For how long a question of a stateless call can be answered.
    pub state_ttl: Duration,
    /// How often clients are told to ask for a task.
    pub poll_interval: Duration,
    /// How long a client waits before it comes again for a stream that was let go.
    pub retry: Duration,
    /// For how long clients may keep lists.
    pub list_ttl: Duration,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self {
            secret: vec![],
            instructions: None,
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
