//! Messages of a server: requests, notifications and responses, single or in a batch.

use nuncio_wire::jsonrpc::RpcErrorObject;
use serde_json::{Value, json};

/// One message of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum McpMessage {
    /// A request of the server.
    Request {
        /// The id that the response must carry.
        id: Value,
        method: String,
        params: Value,
    },
    /// A notification.
    Notice {
        /// Its name, with the prefix `notifications/`.
        method: String,
        params: Value,
    },
    /// A response to a request of this client.
    Answer(McpPeerResponse),
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpPeerResponse {
    /// The request's id; `null` if the server could not parse the request.
    pub(super) id: Value,
    pub(super) outcome: Result<Value, RpcErrorObject>,
}

/// Parses a body, a line or an event.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<McpMessage>, String> {
    let message: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    match message {
        Value::Array(batch) => batch.into_iter().map(one).collect(),
        message => one(message).map(|message| vec![message]),
    }
}

fn one(mut message: Value) -> Result<McpMessage, String> {
    if !message.is_object() {
        return Err("a message that is no object".into());
    }
    let id = message.get("id").cloned().unwrap_or_default();
    if let Some(method) = message["method"].as_str() {
        let (method, params) = (method.to_owned(), message["params"].take());
        return Ok(match id {
            Value::Null => McpMessage::Notice { method, params },
            id => McpMessage::Request { id, method, params },
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

/// Builds a request.
pub(super) fn request(id: &Value, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Builds a notification.
pub(super) fn notice(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Builds the response to a server's request: a result, or an error code and text.
pub(super) fn reply(id: &Value, outcome: Result<Value, (i32, String)>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let check = |message: Value, expected: Option<&str>| {
            let read = read(message.to_string().as_bytes()).ok().map(|messages| {
                let kinds = messages.iter().map(|message| match message {
                    McpMessage::Request { method, .. } => format!("request {method}"),
                    McpMessage::Notice { method, .. } => format!("notice {method}"),
                    McpMessage::Answer(McpPeerResponse { outcome: Ok(_), .. }) => "result".into(),
                    McpMessage::Answer(McpPeerResponse { outcome: Err(error), .. }) => {
                        format!("error {}", error.code)
                    }
                });
                kinds.collect::<Vec<_>>().join(", ")
            });
            assert_eq!(read.as_deref(), expected, "{message}");
        };
        check(json!({ "id": 1, "method": "ping" }), Some("request ping"));
        check(json!({ "method": "n", "params": {} }), Some("notice n"));
        check(json!({ "id": 1, "result": {}, "error": null }), Some("result"));
        check(json!({ "id": null, "error": { "code": -32700 } }), Some("error -32700"));
        check(json!([{ "id": 1, "result": {} }, { "method": "n" }]), Some("result, notice n"));
        check(json!({ "id": 1 }), None);
        check(json!(7), None);
        check(json!([7]), None);
    }
}
