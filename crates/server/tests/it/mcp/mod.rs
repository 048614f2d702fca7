//! MCP over real sockets and pipes: what the official conformance suite does not look at.
//!
//! `stage` is a server whose agents wait for the test where that matters; `client` speaks to it in any
//! revision; `shapes` holds everything that the server says against the protocol's schemas.

mod across;
mod bad_input;
mod batches;
mod client;
mod discovery;
mod endpoints;
mod events;
mod extension;
mod live_streams;
mod old_sse;
mod pipes;
mod replies;
mod restart;
mod resuming;
mod session_tasks;
mod shapes;
mod stage;
mod stateless;
mod versions;

/// The newest revision with sessions.
const V2025: &str = "2025-11-25";
/// The revision without.
const V2026: &str = "2026-07-28";
/// All revisions with sessions, oldest first.
const WITH_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", V2025];

/// The name of the tasks extension.
const TASKS: &str = "io.modelcontextprotocol/tasks";
/// Where a message of 2025-11-25 says to which task it belongs.
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// Where a message says to which subscription it belongs.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
