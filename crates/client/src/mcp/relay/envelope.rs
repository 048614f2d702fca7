//! The parts of a message that a relay needs: the requests in it, the requests that it answers, and its
//! headers.

use std::collections::HashMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use nuncio_wire::{
    jsonrpc::RpcId,
    mcp::{mirrored_arguments, value_at},
};
use serde_json::Value;

/// A client's message or batch.
pub(super) struct RelayMessage {
    pub(super) bytes: Vec<u8>,
    message: Value,
    /// The ids of the requests in it.
    pub(super) ids: Vec<RpcId>,
}

impl RelayMessage {
    pub(super) fn read(bytes: Vec<u8>) -> Self {
        let message: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let requests = |message: &Value| message.get("method").is_some().then(|| id_of(message)).flatten();
        let ids = each(&message).iter().filter_map(requests).collect();
        Self { bytes, message, ids }
    }

    pub(super) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// The id of the request that it cancels.
    pub(super) fn cancels(&self) -> Option<RpcId> {
        let cancels = self.method() == "notifications/cancelled";
        cancels.then(|| RpcId::from_json(&self.message["params"]["requestId"].to_string())).flatten()
    }

    /// The headers of a stateless request (2026-07-28), which repeat parts of its body. `None` for all
    /// others.
    pub(super) fn headers(&self) -> Option<HeaderMap> {
        let params = &self.message["params"];
        let version = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str()?;
        let mut headers = HeaderMap::new();
        headers.insert("mcp-protocol-version", HeaderValue::from_str(version).ok()?);
        headers.insert("mcp-method", HeaderValue::from_str(self.method()).ok()?);
        let member = match self.method() {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            method if method.starts_with("tasks/") => "taskId",
            _ => return Some(headers),
        };
        if let Some(named) = params[member].as_str() {
            headers.insert("mcp-name", encoded(named)?);
        }
        Some(headers)
    }
}

/// Arguments of tools that are also sent as headers, collected from the tool lists that passed by.
#[derive(Default)]
pub(super) struct MirroredHeaders(HashMap<String, Vec<(HeaderName, Vec<String>)>>);

impl MirroredHeaders {
    /// Collects the annotations if the message is a list of tools.
    pub(super) fn learn(&mut self, message: &Value) {
        for tool in message["result"]["tools"].as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else { continue };
            let header = |name: &str| HeaderName::try_from(format!("mcp-param-{name}")).ok();
            let mirrors = mirrored_arguments(&tool["inputSchema"]).into_iter();
            let mirrors = mirrors.filter_map(|(name, path)| Some((header(&name)?, path))).collect();
            self.0.insert(name.to_owned(), mirrors);
        }
    }

    /// The headers of a call.
    pub(super) fn headers(&self, line: &RelayMessage) -> HeaderMap {
        let params = &line.message["params"];
        let mirrors = params["name"].as_str().filter(|_| line.method() == "tools/call");
        let mirrors = mirrors.and_then(|name| self.0.get(name));
        let value = |path: &[String]| match value_at(&params["arguments"], path)? {
            Value::String(text) => encoded(text),
            other => HeaderValue::from_str(&other.to_string()).ok(),
        };
        let headers = mirrors.into_iter().flatten();
        headers.filter_map(|(name, path)| Some((name.clone(), value(path)?))).collect()
    }
}

/// The ids of the requests that a server's message answers.
pub(super) fn answers_in(body: &[u8]) -> Vec<RpcId> {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let answered = |message: &Value| {
        let is_answer = message.get("result").is_some() || message.get("error").is_some();
        is_answer.then(|| id_of(message)).flatten()
    };
    each(&message).iter().filter_map(answered).collect()
}

/// The text of a JSON-RPC error, or the beginning of the body.
pub(in crate::mcp) fn error_in(body: &[u8]) -> String {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    match message["error"]["message"].as_str() {
        Some(words) => words.to_owned(),
        None => String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
    }
}

fn each(message: &Value) -> &[Value] {
    match message {
        Value::Array(batch) => batch,
        one => std::slice::from_ref(one),
    }
}

fn id_of(message: &Value) -> Option<RpcId> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    RpcId::from_json(&id.to_string())
}

/// Encodes a text as a header value.
pub(in crate::mcp) fn encoded(text: &str) -> Option<HeaderValue> {
    let plain = !text.is_empty()
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    let value = if plain { text.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(text)) };
    HeaderValue::from_str(&value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(message: &Value) -> RelayMessage {
        RelayMessage::read(message.to_string().into_bytes())
    }

    #[test]
    fn requests_and_answers_are_told_from_all_else() {
        let ids =
            |message: Value| line(&message).ids.iter().map(|id| id.as_json().to_owned()).collect::<Vec<_>>();
        assert_eq!(ids(json!({ "id": 1, "method": "ping" })), ["1"]);
        assert_eq!(
            ids(json!([{ "id": "a", "method": "x" }, { "method": "n" }, { "id": 2, "result": {} }])),
            ["\"a\""]
        );
        assert!(ids(json!({ "id": 1, "result": {} })).is_empty());
        let answers = |message: Value| answers_in(message.to_string().as_bytes()).len();
        assert_eq!(answers(json!({ "id": 1, "result": {} })), 1);
        assert_eq!(answers(json!([{ "id": 1, "error": {} }, { "id": 2, "result": {} }])), 2);
        assert_eq!(answers(json!({ "id": null, "error": {} })), 0);
        assert_eq!(answers(json!({ "id": 1, "method": "elicitation/create" })), 0);
        let cancel = json!({ "method": "notifications/cancelled", "params": { "requestId": "a" } });
        assert_eq!(line(&cancel).cancels(), Some(RpcId::string("a")));
    }

    #[test]
    fn what_a_stateless_request_says_stands_in_its_headers() {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
        let call = |arguments: Value| {
            let params = json!({ "name": "wetter übermorgen", "arguments": arguments, "_meta": meta });
            line(&json!({ "id": 1, "method": "tools/call", "params": params }))
        };
        let headers = call(json!({})).headers().unwrap();
        assert_eq!(headers["mcp-method"], "tools/call");
        assert_eq!(headers["mcp-name"], "=?base64?d2V0dGVyIMO8YmVybW9yZ2Vu?=");
        assert!(line(&json!({ "id": 1, "method": "tools/call" })).headers().is_none());
        let mut mirrors = MirroredHeaders::default();
        let schema = json!({ "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
        mirrors.learn(
            &json!({ "result": { "tools": [{ "name": "wetter übermorgen", "inputSchema": schema }] } }),
        );
        assert_eq!(mirrors.headers(&call(json!({ "region": "eu" })))["mcp-param-region"], "eu");
        assert!(mirrors.headers(&call(json!({ "region": null }))).is_empty());
    }
}
