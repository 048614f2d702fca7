//! Messages of a server as a client reads them: requests, notifications and responses, single or in a batch.
//!
//! A client reads tolerantly: a member that is missing or has another type counts as absent, and what a message has
//! beyond the known members is ignored.

use serde_json::{Value, json};

use super::{InputRequest, ServerNotification};
use crate::jsonrpc::RpcErrorObject;

/// One message of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum McpMessage {
    /// A request of the server.
    Request {
        /// The id that the response must carry.
        id: Value,
        /// What the server requests.
        request: ServerRequest,
    },
    /// A notification.
    Notification(ServerNotification),
    /// A response to a request of this client.
    Answer(McpPeerResponse),
}

/// The response to a request of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct McpPeerResponse {
    /// The request's id; `null` if the server could not parse the request.
    pub id: Value,
    /// The result as received, or the error.
    pub outcome: Result<Value, RpcErrorObject>,
}

/// A request of a server to its client (up to 2025-11-25).
#[derive(Debug, Clone, PartialEq)]
pub enum ServerRequest {
    /// Whether the client is there.
    Ping,
    /// The client's root folders.
    ListRoots,
    /// A question to the user or to a model.
    Input(InputRequest),
    /// A method that is not known here.
    Unknown(String),
}

impl ServerRequest {
    fn read(method: String, params: Value) -> Self {
        match method.as_str() {
            "ping" => Self::Ping,
            "roots/list" => Self::ListRoots,
            "elicitation/create" | "sampling/createMessage" => Self::Input(InputRequest { method, params }),
            _ => Self::Unknown(method),
        }
    }
}

/// Parses a body, a line or an event. An error says what is wrong with it.
pub fn read_messages(bytes: &[u8]) -> Result<Vec<McpMessage>, String> {
    let message: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    match message {
        Value::Array(batch) => batch.into_iter().map(read_message).collect(),
        message => read_message(message).map(|message| vec![message]),
    }
}

fn read_message(mut message: Value) -> Result<McpMessage, String> {
    if !message.is_object() {
        return Err("a message that is no object".into());
    }
    let id = message.get("id").cloned().unwrap_or_default();
    if let Some(method) = message["method"].as_str() {
        let (method, params) = (method.to_owned(), message["params"].take());
        return Ok(match id {
            Value::Null => McpMessage::Notification(ServerNotification::read(&method, params)),
            id => McpMessage::Request { id, request: ServerRequest::read(method, params) },
        });
    }
    // Some servers send both members, one of them null.
    if let Some(error) = message.get_mut("error").filter(|error| !error.is_null()) {
        let error = serde_json::from_value(error.take()).map_err(|error| format!("error: {error}"))?;
        return Ok(McpMessage::Answer(McpPeerResponse { id, outcome: Err(error) }));
    }
    match message.get_mut("result") {
        Some(result) => Ok(McpMessage::Answer(McpPeerResponse { id, outcome: Ok(result.take()) })),
        None => Err("a message without a method, a result or an error".into()),
    }
}

/// A client's response to a request of the server.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientResponse {
    /// The response to [`ServerRequest::Ping`].
    Pong,
    /// The client has no root folders.
    NoRoots,
    /// A result that [`InputRequest`] wrote.
    Input(Value),
    /// An error.
    Refused {
        /// The JSON-RPC error code.
        code: i32,
        /// What is wrong.
        message: String,
    },
}

impl ClientResponse {
    /// The response as a message.
    pub fn to_message(&self, id: &Value) -> Value {
        let result = match self {
            Self::Pong => json!({}),
            Self::NoRoots => InputRequest::no_roots(),
            Self::Input(result) => result.clone(),
            Self::Refused { code, message } => {
                return json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
            }
        };
        json!({ "jsonrpc": "2.0", "id": id, "result": result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let check = |message: Value, expected: Option<&str>| {
            let read = read_messages(message.to_string().as_bytes()).ok().map(|messages| {
                let kinds = messages.iter().map(|message| match message {
                    McpMessage::Request { request, .. } => format!("{request:?}"),
                    McpMessage::Notification(notification) => format!("{notification:?}"),
                    McpMessage::Answer(McpPeerResponse { outcome: Ok(_), .. }) => "result".into(),
                    McpMessage::Answer(McpPeerResponse { outcome: Err(error), .. }) => {
                        format!("error {}", error.code)
                    }
                });
                kinds.collect::<Vec<_>>().join(", ")
            });
            assert_eq!(read.as_deref(), expected, "{message}");
        };
        check(json!({ "id": 1, "method": "ping" }), Some("Ping"));
        check(json!({ "id": "x", "method": "tasks/list", "params": 7 }), Some(r#"Unknown("tasks/list")"#));
        check(json!({ "method": "n", "params": {} }), Some(r#"Unknown("n")"#));
        check(json!({ "id": 1, "result": {}, "error": null }), Some("result"));
        check(json!({ "id": null, "error": { "code": -32700 } }), Some("error -32700"));
        check(json!([{ "id": 1, "result": {} }, { "method": "n" }]), Some(r#"result, Unknown("n")"#));
        check(json!({ "id": 1 }), None);
        check(json!(7), None);
        check(json!([7]), None);
    }
}
