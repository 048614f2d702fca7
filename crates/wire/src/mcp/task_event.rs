//! The events of a task after a cursor: an extension of this server, declared as [`EVENTS`].
//!
//! A request for a task (`tasks/result`, `subscriptions/listen`) that names a cursor in its `_meta` gets every later
//! event of the task as a notification of its own, with its sequence number: the cursor to come back with. An event
//! is written as A2A 1.0 writes an item of a stream, so that clients of both protocols read the same. Clients that
//! name no cursor get none of it.

use nuncio_engine::event::Entry;

use super::task::write_related;
use crate::{
    a2a::{Dialect, TaskIds},
    json, jsonrpc,
};

/// The name of the extension: among the capabilities (`experimental` in 2025-11-25, `extensions` in 2026-07-28), and
/// in the `_meta` of a request, where it holds the cursor of each task, by the task's id.
pub const EVENTS: &str = "dev.nuncio/events";

/// The notification that carries an event.
pub const EVENT_NOTIFICATION: &str = "notifications/dev.nuncio/event";

/// What says which request an event was asked for with.
#[derive(Debug, Clone, Copy)]
pub enum TaskEventRequest<'a> {
    /// `tasks/result` (2025-11-25): the task says it.
    Task,
    /// `subscriptions/listen` (2026-07-28): the id of that request, as JSON.
    Subscription(&'a str),
}

/// Writes an event. False: it is not shown to clients, and nothing was written.
pub fn write_task_event(
    out: &mut Vec<u8>,
    ids: &TaskIds<'_>,
    seq: u64,
    entry: &Entry,
    of: TaskEventRequest<'_>,
) -> bool {
    let mut event = Vec::with_capacity(256);
    if Dialect::V1.write_event_or_log(&mut event, ids, seq, entry).is_none() {
        return false;
    }
    jsonrpc::write_notification(out, EVENT_NOTIFICATION, |out| {
        json::object(out, |params| {
            params.value("taskId", ids.task);
            params.value("seq", &seq);
            params.key("event").extend_from_slice(&event);
            params.object("_meta", |meta| match of {
                TaskEventRequest::Task => write_related(meta, ids.task),
                TaskEventRequest::Subscription(id) => {
                    meta.key("io.modelcontextprotocol/subscriptionId").extend_from_slice(id.as_bytes());
                }
            });
        });
    });
    true
}
