//! The messages of the Model Context Protocol, in all revisions.
//!
//! The revisions up to 2025-11-25 have sessions and let both sides send requests; 2026-07-28 has neither. Tasks,
//! tools and questions differ in a few members only, so each is written once and branches on the revision where
//! it matters.

mod capabilities;
mod content;
mod fault;
mod header;
mod listing;
mod meta;
mod notification;
mod params;
mod question;
mod result;
mod task;
mod task_event;
mod version;

pub use capabilities::{ClientCapabilities, TASKS};
pub use fault::{
    FORBIDDEN, HEADER_MISMATCH, MISSING_CAPABILITY, McpFault, RESOURCE_NOT_FOUND, TOO_FAST, UNAUTHENTICATED,
    UNSUPPORTED_VERSION, URL_REQUIRED,
};
pub use header::{decode_value, mirrored_arguments, same_value, value_at};
pub use listing::{
    Implementation, write_agent_as_tool, write_prompt, write_resource, write_template, write_tool,
};
pub use meta::{IDEMPOTENCY_KEY, ProgressToken, RequestMeta, parse_level, read_meta};
pub use notification::{
    text_of_parts, write_bare_notification, write_log, write_progress, write_resource_updated,
};
pub use params::{
    CompleteParams, CompletionReference, GetPromptParams, InitializeParams, ListParams, ListenParams,
    ReadResourceParams, SubscribeParams, TaskWishParams, ToolCallParams, UpdateTaskParams, read_params,
};
pub use question::{
    McpQuestion, NOTE, QUESTION, answer_in_error, answer_in_result, write_inquiry, write_question,
};
pub use result::{CallOutput, output_of, write_contents, write_output, write_prompt_output};
pub use task::{McpTaskStatus, McpTaskView, status_of, write_new_task, write_related, write_task};
pub use task_event::{EVENT_NOTIFICATION, EVENTS, TaskEventRequest, write_task_event};
pub use version::McpVersion;
