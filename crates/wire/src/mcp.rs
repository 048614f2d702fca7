//! The Model Context Protocol, all revisions: what its messages say.
//!
//! The revisions to 2025-11-25 have sessions and let both sides ask; 2026-07-28 has neither. What a task, a
//! tool or a question looks like differs in a few members only, so each is written once and asks the
//! revision where it matters.

mod client;
mod content;
mod events;
mod fault;
mod header;
mod meta;
mod notice;
mod offer;
mod params;
mod question;
mod result;
mod task;
mod version;

pub use client::{Capabilities, TASKS};
pub use events::{EVENT_NOTIFICATION, EVENTS, EventOf, write_task_event};
pub use fault::{
    FORBIDDEN, Fault, HEADER_MISMATCH, MISSING_CAPABILITY, RESOURCE_NOT_FOUND, TOO_FAST, UNAUTHENTICATED,
    UNSUPPORTED_VERSION, URL_REQUIRED,
};
pub use header::{decode_value, mirrored, same_value, value_at};
pub use meta::{IDEMPOTENCY_KEY, Meta, Token, level_of, meta_of};
pub use notice::{text_of_parts, write_log, write_notice, write_progress, write_updated};
pub use offer::{Implementation, write_prompt, write_resource, write_template, write_tool, write_tool_of};
pub use params::{
    Call, Complete, CompleteRef, Get, Initialize, Listen, Page, Read, Subscribe, TaskParams, Update, read,
};
pub use question::{Asked, NOTE, QUESTION, answer_in_error, answer_in_result, write_inquiry, write_question};
pub use result::{Output, output_of, write_contents, write_output, write_prompt_output};
pub use task::{Status, TaskView, status_of, write_new_task, write_related, write_task};
pub use version::Version;
