//! The stream of one `subscriptions/listen` (2026-07-28): events of a task after a cursor, the task whenever it asks
//! or ends, and resources that were updated.
//!
//! The stream does not reconnect. Its reader opens another one, with the cursor of the last event that it received.

use http::HeaderMap;
use nuncio_wire::mcp::{ClientRequest, ListenParams, McpMessage, ServerNotification};

use super::{ToolClient, ToolError, ToolTaskView, error::ErrorContext};
use crate::mcp::peer::exchange::{ExchangeEvent, McpPeerExchange};

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

/// An open stream of changes. Dropping it ends the subscription.
pub struct ToolChanges {
    context: ErrorContext,
    exchange: McpPeerExchange,
    is_over: bool,
}

impl ToolClient {
    /// Follows a task and resources. An error of the server is the first change.
    pub async fn subscribe(&self, subscription: &ToolSubscription) -> Result<ToolChanges, ToolError> {
        let task = subscription.task.as_ref().map(|(task, after)| (task.as_str(), *after));
        let wanted = ListenParams {
            resource_subscriptions: subscription.resources.clone(),
            task_ids: task.iter().map(|(task, _)| (*task).to_owned()).collect(),
            ..ListenParams::default()
        };
        let request = ClientRequest::Listen { wanted: &wanted, events: task };
        tracing::debug!(?request, "to {}", self.endpoint());
        let opened = self.streams.exchange(request, HeaderMap::new()).await;
        let (_, exchange) = opened.map_err(|fail| self.context.error(fail))?;
        Ok(ToolChanges { context: self.context.clone(), exchange, is_over: false })
    }
}

impl ToolChanges {
    /// The next change; `None`: the server has ended the stream, because it stops. May be dropped at any time: what
    /// was received is returned by the next call.
    pub async fn next(&mut self) -> Result<Option<ToolChange>, ToolError> {
        while !self.is_over {
            let message = match self.exchange.next().await {
                Ok(ExchangeEvent::Message(message)) => message,
                Ok(ExchangeEvent::Cursor(_)) => continue,
                Err(fail) => {
                    self.is_over = true;
                    return Err(self.context.error(fail));
                }
            };
            tracing::debug!(?message, "from {}", self.context.at);
            match message {
                McpMessage::Answer(answer) => {
                    self.is_over = true;
                    answer.outcome.map_err(ToolError::Rpc)?;
                }
                McpMessage::Notification(notification) => {
                    if let Some(change) = ToolChange::of(notification)? {
                        return Ok(Some(change));
                    }
                }
                // This revision has no requests of the server.
                McpMessage::Request { .. } => {}
            }
        }
        Ok(None)
    }
}

impl std::fmt::Debug for ToolChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolChanges").field("at", &self.context.at).finish_non_exhaustive()
    }
}

impl ToolChange {
    /// The change that a notification reports; `None`: another notification.
    fn of(notification: ServerNotification) -> Result<Option<Self>, ToolError> {
        let lacking = |what: &str| ToolError::Malformed(format!("a notification without {what}"));
        Ok(Some(match notification {
            ServerNotification::Subscribed { tasks, resources } => Self::Acknowledged { tasks, resources },
            ServerNotification::TaskEvent(event) => {
                Self::Event(event.seq.ok_or_else(|| lacking("the number of its event"))?)
            }
            ServerNotification::Task(task) => Self::Task(Box::new(ToolTaskView::of(*task)?)),
            ServerNotification::ResourceUpdated(uri) => {
                Self::Resource(uri.ok_or_else(|| lacking("the URI of its resource"))?)
            }
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nuncio_wire::mcp::EVENT_NOTIFICATION;
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::ToolTaskStatus;

    #[test]
    fn a_notification_is_a_change() {
        let check = |method: &str, params: Value, expected: Option<ToolChange>| {
            let change = ToolChange::of(ServerNotification::read(method, params)).unwrap();
            assert_eq!(change, expected, "{method}");
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
        let check = |method: &str, params: Value| {
            assert!(ToolChange::of(ServerNotification::read(method, params)).is_err(), "{method}");
        };
        check(EVENT_NOTIFICATION, json!({ "seq": "7" }));
        check("notifications/tasks", json!({ "status": "working" }));
        check("notifications/resources/updated", json!({}));
    }
}
