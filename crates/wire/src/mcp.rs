//! The messages of the Model Context Protocol, in all revisions.
//!
//! The revisions up to 2025-11-25 have sessions and let both sides send requests; 2026-07-28 has neither. Tasks,
//! tools and questions differ in a few members only, so each is written once and branches on the revision where
//! it matters. Each has both halves: what a server writes, a client reads here, and the other way round.

mod capabilities;
mod client_request;
mod content;
mod fault;
mod handshake;
mod header;
mod input_request;
mod listing;
mod meta;
mod notification;
mod params;
mod question;
mod result;
mod server_message;
mod task;
mod task_event;
mod version;

pub use capabilities::{ClientCapabilities, ServerCapabilities, TASKS};
pub use client_request::{
    ClientNotification, ClientRequest, ToolCallRequest, add_log_level, request_message,
};
pub use fault::{
    FORBIDDEN, HEADER_MISMATCH, MISSING_CAPABILITY, McpErrorBody, McpFault, RESOURCE_NOT_FOUND, TOO_FAST,
    UNAUTHENTICATED, UNSUPPORTED_VERSION, URL_REQUIRED, links_required_by, retry_after_in,
};
pub use handshake::{
    ClientDescription, DiscoverReply, InitializeResult, SERVER_INFO, ServerDescription,
    write_discover_result, write_initialize_result,
};
pub use header::{decode_value, mirrored_arguments, same_value, value_at};
pub use input_request::InputRequest;
pub use listing::{
    Implementation, ListedTool, ToolsPage, write_agent_as_tool, write_prompt, write_resource, write_template,
    write_tool,
};
pub use meta::{IDEMPOTENCY_KEY, ProgressToken, RequestMeta, parse_level, read_meta};
pub use notification::{
    ServerNotification, text_of_parts, write_bare_notification, write_cancelled, write_log, write_progress,
    write_resource_updated, write_subscribed, write_task_changed,
};
pub use params::{
    CompleteParams, CompletionReference, GetPromptParams, InitializeParams, ListParams, ListenParams,
    ReadResourceParams, SubscribeParams, TaskWishParams, ToolCallParams, UpdateTaskParams, read_params,
};
pub use question::{McpQuestion, NOTE, QUESTION, answer_in_error, answer_in_result, write_input_requests};
pub use result::{
    CallOutput, InputRequired, ToolCallReply, ToolResult, output_of, write_contents, write_output,
    write_prompt_output,
};
pub use server_message::{ClientResponse, McpMessage, McpPeerResponse, ServerRequest, read_messages};
pub use task::{
    McpTaskSnapshot, McpTaskStatus, McpTaskView, status_of, write_new_task, write_related, write_task,
};
pub use task_event::{EVENT_NOTIFICATION, EVENTS, TaskEventNotification, TaskEventRequest, write_task_event};
pub use version::McpVersion;
