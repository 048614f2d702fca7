//! Notifications: progress, log lines, and changes.

use nuncio_engine::{
    content::{Content, Part},
    event::{LogLine, Progress},
};

use super::ProgressToken;
use crate::{json, jsonrpc};

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
