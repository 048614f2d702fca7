//! The events of a task after a cursor: an extension of this server, declared as [`EVENTS`].
//!
//! A request for a task (`tasks/result`, `subscriptions/listen`) that names a cursor in its `_meta` gets every
//! later event of the task as a notification of its own, with its sequence number: the cursor to resume from. An
//! event has the form of a stream item in A2A 1.0, so that clients of both protocols read the same. Clients that
//! name no cursor get no such notifications.

use nuncio_engine::event::Entry;
use serde_json::{Value, value::to_raw_value};

use super::{notification::take, task::write_related};
use crate::{
    a2a::{Dialect, StreamEvent, TaskIds},
    json, jsonrpc,
};

/// The name of the extension: among the capabilities (`experimental` in 2025-11-25, `extensions` in 2026-07-28),
/// and in the `_meta` of a request, where it holds the cursor of each task, by task id.
pub const EVENTS: &str = "dev.nuncio/events";

/// The notification that carries an event.
pub const EVENT_NOTIFICATION: &str = "notifications/dev.nuncio/event";

/// The kind of request that an event belongs to.
#[derive(Debug, Clone, Copy)]
pub enum TaskEventRequest<'a> {
    /// `tasks/result` (2025-11-25): the event names the task.
    Task,
    /// `subscriptions/listen` (2026-07-28): the id of that request, as JSON.
    Subscription(&'a str),
}

/// Writes an event. Returns false, and writes nothing, if the event is not visible to clients.
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

/// An event of a task, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEventNotification {
    /// The task's id.
    pub task: Option<String>,
    /// The sequence number: the cursor after this event.
    pub seq: Option<u64>,
    event: Value,
}

impl TaskEventNotification {
    /// Reads the params of the notification. Tolerant: see [`super::read_messages`].
    pub(super) fn read(mut params: Value) -> Self {
        Self {
            task: params["taskId"].as_str().map(str::to_owned),
            seq: params["seq"].as_u64(),
            event: take(&mut params, "event"),
        }
    }

    /// Parses the event. The error says what is wrong with it.
    pub fn read_event(&self) -> Result<StreamEvent, String> {
        let event = to_raw_value(&self.event).map_err(|error| error.to_string())?;
        Dialect::V1.read_event(&event).map_err(|error| error.to_string())
    }
}
