//! The JSON that a task and its events have on the wire.

use serde_json::{Value, json};

/// A finished task that echoes `text`.
pub(crate) fn completed(id: &str, context: &str, text: &str) -> String {
    json!({
        "id": id,
        "contextId": context,
        "status": { "state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-15T00:00:00.000Z" },
        "artifacts": [{ "artifactId": "out", "name": "echo", "parts": [{ "text": text }] }],
        "history": [{ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] }],
    })
    .to_string()
}

/// The event of a new state.
pub(crate) fn status(task: &str, context: &str, state: &str) -> Value {
    json!({ "statusUpdate": { "taskId": task, "contextId": context, "status": { "state": state } } })
}

/// The event of one chunk.
pub(crate) fn chunk(task: &str, context: &str, text: &str, append: bool, last: bool) -> Value {
    json!({ "artifactUpdate": {
        "taskId": task,
        "contextId": context,
        "append": append,
        "lastChunk": last,
        "artifact": { "artifactId": "out", "parts": [{ "text": text }] },
    } })
}
