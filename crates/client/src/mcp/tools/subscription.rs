//! The stream of one `subscriptions/listen` (2026-07-28): events of a task after a cursor, the task whenever it asks
//! or ends, and resources that were updated.
//!
//! The stream does not reconnect. Its reader opens another one, with the cursor of the last event that it received.

use std::time::Duration;

use futures_util::StreamExt as _;
use nuncio_wire::{
    jsonrpc,
    mcp::{EVENT_NOTIFICATION, EVENTS},
    sse::SseParser,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{ToolClient, ToolError, ToolTaskView, exchange, with_tasks};

/// What to follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolSubscription {
    /// A task, and the last event of it that is known; 0 for all events.
    pub task: Option<(String, u64)>,
    /// The URIs of resources.
    pub resources: Vec<String>,
}

/// A change of what is followed.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolChange {
    /// The server follows these; what it leaves out does not exist for this caller. The first change of a stream.
    Acknowledged {
        /// The ids of tasks.
        tasks: Vec<String>,
        /// The URIs of resources.
        resources: Vec<String>,
    },
    /// The task has an event with this number.
    Event(u64),
    /// The task, because it asks, goes on or has ended.
    Task(Box<ToolTaskView>),
    /// The resource with this URI was updated.
    Resource(String),
}

/// An open stream of changes.
pub struct ToolChanges {
    pieces: futures_util::stream::BoxStream<'static, Result<Vec<u8>, reqwest::Error>>,
    parser: SseParser,
    at: String,
    /// How long the server may send nothing, not even a comment that keeps the connection open.
    silence: Duration,
    /// Messages of the last piece, the next one last.
    received: Vec<String>,
    is_over: bool,
}

impl ToolClient {
    /// Follows a task and resources.
    pub async fn subscribe(&self, subscription: &ToolSubscription) -> Result<ToolChanges, ToolError> {
        let mut params = json!({ "notifications": { "resourceSubscriptions": subscription.resources } });
        if let Some((task, after)) = &subscription.task {
            params["notifications"]["taskIds"] = json!([task]);
            params["_meta"][EVENTS] = json!({ task: after });
        }
        let request = self.prepare("subscriptions/listen", params, &with_tasks());
        let silence = self.options.silence;
        let opened = tokio::time::timeout(silence, self.send(&request)).await;
        let answered = match opened {
            Ok(answered) => answered?,
            Err(_) => return Err(ToolError::Timeout { at: self.endpoint.clone(), limit: silence }),
        };
        if !exchange::is_stream(&answered) {
            // Only an error: this request is answered with a stream.
            let result = self.read_whole(answered).await?;
            return Err(ToolError::Malformed(format!("{result} where a stream was expected")));
        }
        Ok(ToolChanges {
            pieces: answered.bytes_stream().map(|piece| piece.map(|piece| piece.to_vec())).boxed(),
            parser: SseParser::new(self.options.max_answer),
            at: self.endpoint.clone(),
            silence,
            received: vec![],
            is_over: false,
        })
    }
}

impl ToolChanges {
    /// The next change; `None`: the server has ended the stream, because it stops. May be dropped at any time: what
    /// was received is returned by the next call.
    pub async fn next(&mut self) -> Result<Option<ToolChange>, ToolError> {
        loop {
            while let Some(message) = self.received.pop() {
                tracing::debug!(data = message, "from {}", self.at);
                if let Ok(response) = jsonrpc::parse_response(message.as_bytes()) {
                    self.is_over = true;
                    response.outcome.map_err(ToolError::Rpc)?;
                    return Ok(None);
                }
                if let Some(change) = change_in(&message)? {
                    return Ok(Some(change));
                }
            }
            if self.is_over {
                return Ok(None);
            }
            let cut = |why: String| ToolError::Cut { at: self.at.clone(), why };
            let piece = match tokio::time::timeout(self.silence, self.pieces.next()).await {
                Ok(Some(piece)) => piece.map_err(|error| cut(exchange::root_of(error)))?,
                Ok(None) => return Err(cut("the stream ended".to_owned())),
                Err(_) => return Err(cut(format!("nothing came for {} s", self.silence.as_secs_f32()))),
            };
            let events = self.parser.feed(&piece).map_err(|error| ToolError::Malformed(error.to_string()))?;
            let messages = events.into_iter().map(|event| event.data).filter(|data| !data.is_empty());
            self.received.extend(messages);
            self.received.reverse();
        }
    }
}

impl std::fmt::Debug for ToolChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolChanges").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The change that a notification reports; `None`: another notification.
fn change_in(message: &str) -> Result<Option<ToolChange>, ToolError> {
    #[derive(Deserialize)]
    struct Notification<'a> {
        method: &'a str,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Acknowledged {
        notifications: Agreed,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Agreed {
        task_ids: Vec<String>,
        resource_subscriptions: Vec<String>,
    }
    // The event itself is not read: it may be large, and its number is what the cursor needs.
    #[derive(Deserialize)]
    struct Numbered {
        seq: u64,
    }
    #[derive(Deserialize)]
    struct Updated {
        uri: String,
    }
    fn params<'a, T: Deserialize<'a>>(of: &Notification<'a>) -> Result<T, ToolError> {
        let text = of.params.map_or("{}", RawValue::get);
        serde_json::from_str(text).map_err(|error| ToolError::Malformed(format!("{}: {error}", of.method)))
    }
    let notification: Notification<'_> =
        serde_json::from_str(message).map_err(|error| ToolError::Malformed(error.to_string()))?;
    Ok(Some(match notification.method {
        "notifications/subscriptions/acknowledged" => {
            let Acknowledged { notifications } = params(&notification)?;
            ToolChange::Acknowledged {
                tasks: notifications.task_ids,
                resources: notifications.resource_subscriptions,
            }
        }
        EVENT_NOTIFICATION => ToolChange::Event(params::<Numbered>(&notification)?.seq),
        "notifications/tasks" => {
            ToolChange::Task(Box::new(ToolTaskView::read(&params::<Value>(&notification)?)?))
        }
        "notifications/resources/updated" => ToolChange::Resource(params::<Updated>(&notification)?.uri),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::ToolTaskStatus;

    #[test]
    fn a_notification_is_a_change() {
        let check = |method: &str, params: Value, expected: Option<ToolChange>| {
            let message = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
            assert_eq!(change_in(&message).unwrap(), expected, "{message}");
        };
        check(
            "notifications/subscriptions/acknowledged",
            json!({ "notifications": { "taskIds": ["t"] }, "_meta": {} }),
            Some(ToolChange::Acknowledged { tasks: vec!["t".into()], resources: vec![] }),
        );
        let event = json!({ "taskId": "t", "seq": 7, "event": { "statusUpdate": {} } });
        check(EVENT_NOTIFICATION, event, Some(ToolChange::Event(7)));
        let view = ToolTaskView {
            id: "t".into(),
            status: ToolTaskStatus::Working,
            message: None,
            poll: Duration::from_secs(1),
        };
        check(
            "notifications/tasks",
            json!({ "taskId": "t", "status": "working" }),
            Some(ToolChange::Task(Box::new(view))),
        );
        check(
            "notifications/resources/updated",
            json!({ "uri": "a:b" }),
            Some(ToolChange::Resource("a:b".into())),
        );
        check("notifications/cancelled", json!({}), None);
        check("notifications/message", json!({ "level": "info" }), None);
    }

    #[test]
    fn a_notification_that_lies_about_its_shape_is_an_error() {
        let check = |message: &str| assert!(change_in(message).is_err(), "{message}");
        check("no JSON");
        check(r#"{"method": "notifications/dev.nuncio/event", "params": {"seq": "7"}}"#);
        check(r#"{"method": "notifications/tasks", "params": {"status": "working"}}"#);
        check(r#"{"method": "notifications/resources/updated"}"#);
    }
}
