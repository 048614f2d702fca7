//! Requests and notifications that a client sends, each with its method and params in the form of a revision.

use nuncio_engine::Level;
use serde_json::{Map, Value, json};

use super::{EVENTS, IDEMPOTENCY_KEY, McpVersion};

/// A request of a client.
#[derive(Debug, Clone)]
pub enum ClientRequest<'a> {
    /// Whether the server is there: `ping`, or `server/discover` where there is no `ping`.
    Ping,
    /// A page of the tools, after that cursor.
    ListTools(Option<&'a str>),
    /// A tool call.
    CallTool(ToolCallRequest<'a>),
    /// The content of the resource with that URI.
    ReadResource(&'a str),
    /// The state of a task.
    GetTask(&'a str),
    /// Answers to questions of a task, by their keys (2026-07-28).
    UpdateTask {
        /// The task's id.
        task: &'a str,
        /// The answers, as [`super::InputRequest`] writes them.
        answers: Map<String, Value>,
    },
    /// The cancellation of a task.
    CancelTask(&'a str),
    /// The stream that announces changes of a task: `tasks/result`, or `subscriptions/listen` from 2026-07-28 on.
    FollowTask {
        /// The task's id.
        task: &'a str,
        /// The cursor after which its events are requested, if they are ([`EVENTS`]).
        after: Option<u64>,
    },
    /// The subscription to changes of the tools (2026-07-28).
    SubscribeToTools,
    /// The lowest level of log lines to send in this session (up to 2025-11-25).
    SetLogLevel(Level),
    /// Any other request.
    Other {
        /// The method.
        method: &'a str,
        /// Its params; `null` for none.
        params: Value,
    },
}

/// A tool call.
#[derive(Debug, Clone, Default)]
pub struct ToolCallRequest<'a> {
    /// The tool's name.
    pub name: &'a str,
    /// The tool's arguments.
    pub arguments: Value,
    /// The token for progress notifications, if they are wanted.
    pub progress_token: Option<&'a str>,
    /// Whether the events of its task are requested ([`EVENTS`]).
    pub with_events: bool,
    /// The idempotency key.
    pub idempotency_key: Option<&'a str>,
    /// W3C `traceparent`.
    pub trace: Option<&'a str>,
    /// The answers to the questions of the previous round (2026-07-28).
    pub answers: Map<String, Value>,
    /// The state that the server returned in the previous round (2026-07-28).
    pub state: Option<&'a str>,
    /// Whether to request a task ([`super::ServerCapabilities::wants_task_request`]).
    pub as_task: bool,
}

impl ClientRequest<'_> {
    /// The method in that revision.
    pub fn method(&self, version: McpVersion) -> &str {
        match self {
            Self::Ping if version.is_stateless() => "server/discover",
            Self::Ping => "ping",
            Self::ListTools(_) => "tools/list",
            Self::CallTool(_) => "tools/call",
            Self::ReadResource(_) => "resources/read",
            Self::GetTask(_) => "tasks/get",
            Self::UpdateTask { .. } => "tasks/update",
            Self::CancelTask(_) => "tasks/cancel",
            Self::FollowTask { .. } if !version.is_stateless() => "tasks/result",
            Self::FollowTask { .. } | Self::SubscribeToTools => "subscriptions/listen",
            Self::SetLogLevel(_) => "logging/setLevel",
            Self::Other { method, .. } => method,
        }
    }

    /// The params in that revision, without what every request of the revision carries.
    pub fn into_params(self, version: McpVersion) -> Value {
        match self {
            Self::Ping | Self::ListTools(None) => json!({}),
            Self::ListTools(Some(cursor)) => json!({ "cursor": cursor }),
            Self::CallTool(call) => call.into_params(),
            Self::ReadResource(uri) => json!({ "uri": uri }),
            Self::GetTask(task) | Self::CancelTask(task) => json!({ "taskId": task }),
            Self::UpdateTask { task, answers } => json!({ "taskId": task, "inputResponses": answers }),
            Self::FollowTask { task, after } => {
                let mut params = match version.is_stateless() {
                    true => json!({ "notifications": { "taskIds": [task] } }),
                    false => json!({ "taskId": task }),
                };
                if let Some(after) = after {
                    params["_meta"][EVENTS] = json!({ task: after });
                }
                params
            }
            Self::SubscribeToTools => json!({ "notifications": { "toolsListChanged": true } }),
            Self::SetLogLevel(level) => json!({ "level": level }),
            Self::Other { params: Value::Null, .. } => json!({}),
            Self::Other { params, .. } => params,
        }
    }
}

impl ToolCallRequest<'_> {
    fn into_params(self) -> Value {
        let mut params = json!({ "name": self.name, "arguments": self.arguments });
        let meta = [
            ("progressToken", self.progress_token.map(Value::from)),
            (EVENTS, self.with_events.then(|| json!({}))),
            (IDEMPOTENCY_KEY, self.idempotency_key.map(Value::from)),
            ("traceparent", self.trace.map(Value::from)),
        ];
        for (name, value) in meta {
            if let Some(value) = value {
                params["_meta"][name] = value;
            }
        }
        if !self.answers.is_empty() {
            params["inputResponses"] = Value::Object(self.answers);
        }
        if let Some(state) = self.state {
            params["requestState"] = state.into();
        }
        if self.as_task {
            params["task"] = json!({});
        }
        params
    }
}

/// Adds the lowest level of log lines that a stateless request wants.
pub fn add_log_level(params: &mut Value, level: Level) {
    params["_meta"]["io.modelcontextprotocol/logLevel"] = json!(level);
}

/// A request as a message.
pub fn request_message(id: &Value, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A notification of a client.
#[derive(Debug, Clone, Copy)]
pub enum ClientNotification<'a> {
    /// The session begins (up to 2025-11-25).
    Initialized,
    /// A request is no longer wanted.
    Cancelled {
        /// The id of the request.
        request: &'a Value,
        /// Why, for people.
        reason: &'a str,
    },
}

impl ClientNotification<'_> {
    /// The notification as a message.
    pub fn to_message(self) -> Value {
        let (method, params) = match self {
            Self::Initialized => ("notifications/initialized", json!({})),
            Self::Cancelled { request, reason } => {
                ("notifications/cancelled", json!({ "requestId": request, "reason": reason }))
            }
        };
        json!({ "jsonrpc": "2.0", "method": method, "params": params })
    }
}
