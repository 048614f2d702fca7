//! Notifications of a server: progress, log lines, and changes. Written by the server, read by the client.

use nuncio_engine::{
    Level, Task,
    content::{Content, Part},
    event::{LogLine, Progress},
};
use serde_json::Value;

use super::{
    EVENT_NOTIFICATION, ListenParams, McpTaskSnapshot, McpTaskView, ProgressToken, TaskEventNotification,
    parse_level, write_task,
};
use crate::{json, jsonrpc};

/// A notification of a server, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerNotification {
    /// The progress of a call.
    Progress {
        /// The token of the call, if it is a string: clients here use no other.
        token: Option<String>,
        /// How far the call is.
        progress: Progress,
    },
    /// A log line.
    Log {
        /// The line.
        line: LogLine,
        /// The task that it belongs to (2025-11-25).
        task: Option<String>,
    },
    /// The user has completed the elicitation with this id.
    ElicitationComplete(Value),
    /// The server withdraws its request with this id.
    Cancelled(Value),
    /// The state of a task.
    Task(Box<McpTaskSnapshot>),
    /// The tasks whose changes the server announces from now on (2026-07-28).
    Subscribed(Vec<String>),
    /// An event of a task.
    TaskEvent(TaskEventNotification),
    /// The list of tools has changed.
    ToolsChanged,
    /// A notification that is not known here, by its method.
    Unknown(String),
}

impl ServerNotification {
    /// Reads a notification. Tolerant: see [`super::read_messages`].
    pub fn read(method: &str, mut params: Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match method {
            "notifications/progress" => {
                let done = params["progress"].as_f64().unwrap_or_default();
                let (total, words) = (params["total"].as_f64(), text(&params["message"]));
                let progress = Progress { done, total, text: words, data: None };
                Self::Progress { token: text(&params["progressToken"]), progress }
            }
            "notifications/message" => {
                let level = params["level"].as_str().and_then(|name| parse_level(name).ok());
                let line = LogLine {
                    level: level.unwrap_or(Level::Info),
                    text: text(&params["data"]).unwrap_or_else(|| params["data"].to_string()),
                };
                Self::Log { line, task: related_task(&params).map(str::to_owned) }
            }
            "notifications/elicitation/complete" => {
                Self::ElicitationComplete(take(&mut params, "elicitationId"))
            }
            "notifications/cancelled" => Self::Cancelled(take(&mut params, "requestId")),
            "notifications/tasks" | "notifications/tasks/status" => {
                Self::Task(Box::new(McpTaskSnapshot::read(params)))
            }
            "notifications/subscriptions/acknowledged" => {
                let tasks = params["notifications"]["taskIds"].as_array();
                Self::Subscribed(tasks.into_iter().flatten().filter_map(text).collect())
            }
            EVENT_NOTIFICATION => Self::TaskEvent(TaskEventNotification::read(params)),
            "notifications/tools/list_changed" => Self::ToolsChanged,
            _ => Self::Unknown(method.to_owned()),
        }
    }
}

/// Takes a member out of a value; `null` if it has none.
pub(super) fn take(value: &mut Value, member: &str) -> Value {
    value.get_mut(member).map(Value::take).unwrap_or_default()
}

/// The task that a message names in its metadata (2025-11-25).
pub(super) fn related_task(params: &Value) -> Option<&str> {
    params["_meta"][super::task::RELATED_TASK]["taskId"].as_str()
}

/// Writes the progress of a call, for the token that came with it. `task`: the task that it belongs to, if the
/// revision requires it.
pub fn write_progress(out: &mut Vec<u8>, token: &ProgressToken, progress: &Progress, task: Option<&str>) {
    jsonrpc::write_notification(out, "notifications/progress", |out| {
        json::object(out, |params| {
            params.key("progressToken").extend_from_slice(token.as_json().as_bytes());
            params.value("progress", &number(progress.done));
            params.optional("total", progress.total.map(number).as_ref());
            params.optional("message", progress.text.as_ref());
            write_related_task(params, task);
        });
    });
}

/// Writes a log line.
pub fn write_log(out: &mut Vec<u8>, logger: &str, line: &LogLine, task: Option<&str>) {
    jsonrpc::write_notification(out, "notifications/message", |out| {
        json::object(out, |params| {
            params.value("level", &line.level);
            params.value("logger", logger);
            params.value("data", &line.text);
            write_related_task(params, task);
        });
    });
}

/// Parts as one text: what a person reads of an artifact before the result is complete.
pub fn text_of_parts(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.to_string(),
        Content::Url(url) => url.clone(),
        Content::Bytes(bytes) => {
            let name = part.filename.as_deref().or(part.media_type.as_deref()).unwrap_or("file");
            format!("{name} ({} bytes)", bytes.len())
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Writes a notification without params of its own. `subscription`: the id of the request that subscribed.
pub fn write_bare_notification(out: &mut Vec<u8>, method: &str, subscription: Option<&str>) {
    jsonrpc::write_notification(out, method, |out| {
        json::object(out, |params| write_subscription(params, subscription));
    });
}

/// Writes that the content of a resource has changed.
pub fn write_resource_updated(out: &mut Vec<u8>, uri: &str, subscription: Option<&str>) {
    jsonrpc::write_notification(out, "notifications/resources/updated", |out| {
        json::object(out, |params| {
            params.value("uri", uri);
            write_subscription(params, subscription);
        });
    });
}

/// Writes which subscriptions the server accepted (2026-07-28): the first message of their stream.
pub fn write_subscribed(out: &mut Vec<u8>, accepted: &ListenParams, subscription: Option<&str>) {
    jsonrpc::write_notification(out, "notifications/subscriptions/acknowledged", |out| {
        json::object(out, |params| {
            params.object("notifications", |agreed| {
                for (on, key) in [
                    (accepted.tools_list_changed, "toolsListChanged"),
                    (accepted.prompts_list_changed, "promptsListChanged"),
                    (accepted.resources_list_changed, "resourcesListChanged"),
                ] {
                    if on {
                        agreed.value(key, &true);
                    }
                }
                agreed.list("resourceSubscriptions", &accepted.resource_subscriptions);
                agreed.list("taskIds", &accepted.task_ids);
            });
            write_subscription(params, subscription);
        });
    });
}

/// Writes the state of a task to its subscriber (2026-07-28).
pub fn write_task_changed(out: &mut Vec<u8>, task: &Task, view: McpTaskView, subscription: Option<&str>) {
    jsonrpc::write_notification(out, "notifications/tasks", |out| {
        json::object(out, |params| {
            write_task(params, task, view);
            write_subscription(params, subscription);
        });
    });
}

/// Writes that the request with this id, as JSON, is over without a result.
pub fn write_cancelled(out: &mut Vec<u8>, request: &str, subscription: Option<&str>) {
    jsonrpc::write_notification(out, "notifications/cancelled", |out| {
        json::object(out, |params| {
            params.key("requestId").extend_from_slice(request.as_bytes());
            write_subscription(params, subscription);
        });
    });
}

fn write_subscription(params: &mut json::JsonObject<'_>, subscription: Option<&str>) {
    if let Some(id) = subscription {
        params.object("_meta", |meta| {
            meta.key("io.modelcontextprotocol/subscriptionId").extend_from_slice(id.as_bytes());
        });
    }
}

fn write_related_task(params: &mut json::JsonObject<'_>, task: Option<&str>) {
    if let Some(task) = task {
        params.object("_meta", |meta| super::task::write_related(meta, task));
    }
}

/// Whole numbers are written without a fraction: some clients read only integers.
fn number(value: f64) -> serde_json::Number {
    let whole = value as i64;
    if whole as f64 == value {
        whole.into()
    } else {
        serde_json::Number::from_f64(value).unwrap_or_else(|| 0.into())
    }
}
