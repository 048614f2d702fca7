//! One request and its response over HTTP: the headers, and the meaning of each status.

use std::{error::Error as _, time::Duration};

use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, header};
use nuncio_wire::{jsonrpc, mcp::McpVersion, sse};
use serde_json::Value;

use super::{ToolClient, ToolError, ToolProgress};
use crate::mcp::relay::envelope::{encoded, error_in};

impl ToolClient {
    pub(super) async fn exchange(
        &self,
        request: &Value,
        seen: &mut dyn FnMut(ToolProgress),
    ) -> Result<Value, ToolError> {
        let answered = self.send(request).await?;
        match is_stream(&answered) {
            true => self.follow(answered, seen).await,
            false => self.read_whole(answered).await,
        }
    }

    /// Sends a request. Returns the response before its body.
    pub(super) async fn send(&self, request: &Value) -> Result<reqwest::Response, ToolError> {
        let body = request.to_string();
        tracing::debug!(%body, "to {}", self.endpoint);
        let mut post = self.client.post(&self.endpoint).headers(headers(request)).body(body);
        let bearer = self.bearer.read().clone();
        if let Some(bearer) = bearer {
            post = post.header(header::AUTHORIZATION, bearer);
        }
        post.send().await.map_err(|error| self.not_sent(error))
    }

    /// Reads a response that is not a stream.
    pub(super) async fn read_whole(&self, answered: reqwest::Response) -> Result<Value, ToolError> {
        let (status, headers) = (answered.status().as_u16(), answered.headers().clone());
        let body = self.whole(answered).await?;
        tracing::debug!(status, body = %String::from_utf8_lossy(&body), "from {}", self.endpoint);
        match status {
            401 | 403 => Err(ToolError::Unauthorized {
                at: self.endpoint.clone(),
                status,
                supplied: self.bearer.read().is_some(),
                why: error_in(&body),
            }),
            429 | 503 => {
                Err(ToolError::TooFast { why: error_in(&body), retry_after: retry_after(&headers, &body) })
            }
            _ => match jsonrpc::parse_response(&body) {
                Ok(response) => read(response.outcome),
                Err(error) if status == 200 => Err(ToolError::Malformed(error.to_string())),
                Err(_) => Err(ToolError::Http { at: self.endpoint.clone(), status, why: error_in(&body) }),
            },
        }
    }

    /// Reads a stream up to the response.
    async fn follow(
        &self,
        answered: reqwest::Response,
        seen: &mut dyn FnMut(ToolProgress),
    ) -> Result<Value, ToolError> {
        let mut parser = sse::SseParser::new(self.options.max_answer);
        let mut pieces = answered.bytes_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| self.cut(error))?;
            let events = parser.feed(&piece).map_err(|error| ToolError::Malformed(error.to_string()))?;
            for event in events.into_iter().filter(|event| !event.data.is_empty()) {
                tracing::debug!(data = event.data, "from {}", self.endpoint);
                if let Ok(response) = jsonrpc::parse_response(event.data.as_bytes()) {
                    return read(response.outcome);
                }
                if let Some(progress) = progress_in(&event.data) {
                    seen(progress);
                }
            }
        }
        Err(ToolError::Cut { at: self.endpoint.clone(), why: "the stream ended without it".to_owned() })
    }

    async fn whole(&self, answered: reqwest::Response) -> Result<Vec<u8>, ToolError> {
        let mut body = vec![];
        let mut pieces = answered.bytes_stream();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(|error| self.cut(error))?);
            if body.len() > self.options.max_answer {
                let most = self.options.max_answer;
                return Err(ToolError::Malformed(format!("it is longer than {most} bytes")));
            }
        }
        Ok(body)
    }

    fn not_sent(&self, error: reqwest::Error) -> ToolError {
        let at = self.endpoint.clone();
        if error.is_connect() {
            return ToolError::Unreachable { at, why: root_of(error) };
        }
        ToolError::Cut { at, why: root_of(error) }
    }

    fn cut(&self, error: reqwest::Error) -> ToolError {
        ToolError::Cut { at: self.endpoint.clone(), why: root_of(error) }
    }
}

/// Whether the body is a stream of messages.
pub(super) fn is_stream(answered: &reqwest::Response) -> bool {
    let kind = answered.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    answered.status().as_u16() == 200 && kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn read(outcome: Result<&serde_json::value::RawValue, jsonrpc::RpcErrorObject>) -> Result<Value, ToolError> {
    let result = outcome.map_err(ToolError::Rpc)?;
    serde_json::from_str(result.get()).map_err(|error| ToolError::Malformed(error.to_string()))
}

/// The headers of a request, which repeat parts of its body.
fn headers(request: &Value) -> HeaderMap {
    let method = request["method"].as_str().unwrap_or_default();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert("mcp-protocol-version", HeaderValue::from_static(McpVersion::V2026_07_28.name()));
    if let Ok(method) = HeaderValue::from_str(method) {
        headers.insert("mcp-method", method);
    }
    let member = match method {
        "resources/read" => "uri",
        method if method.starts_with("tasks/") => "taskId",
        _ => "name",
    };
    if let Some(name) = request["params"][member].as_str().and_then(encoded) {
        headers.insert("mcp-name", name);
    }
    headers
}

fn progress_in(data: &str) -> Option<ToolProgress> {
    let message: Value = serde_json::from_str(data).ok()?;
    let params = &message["params"];
    Some(ToolProgress {
        done: params["progress"].as_f64().filter(|_| message["method"] == "notifications/progress")?,
        total: params["total"].as_f64(),
        text: params["message"].as_str().map(str::to_owned),
    })
}

/// How long to wait before a retry: in milliseconds if the body has it, otherwise from the header.
fn retry_after(headers: &HeaderMap, body: &[u8]) -> Option<Duration> {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let exact = message["error"]["data"]["retryAfterMs"].as_u64().map(Duration::from_millis);
    let seconds = || headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs);
    exact.or_else(seconds)
}

/// The innermost cause: the outer ones repeat the address.
pub(super) fn root_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.source().is_none() { error.to_string() } else { innermost.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_say_what_the_body_says() {
        let check = |method: &str, params: Value, name: Option<&str>| {
            let headers = headers(&json!({ "method": method, "params": params }));
            assert_eq!(headers["mcp-method"], method);
            assert_eq!(headers.get("mcp-name").map(|name| name.to_str().unwrap()), name, "{method}");
        };
        check("tools/call", json!({ "name": "memory_get" }), Some("memory_get"));
        check(
            "resources/read",
            json!({ "uri": "memory://data/a/ü" }),
            Some("=?base64?bWVtb3J5Oi8vZGF0YS9hL8O8?="),
        );
        check("tasks/get", json!({ "taskId": "t" }), Some("t"));
        check("server/discover", json!({}), None);
    }

    #[test]
    fn another_try_is_as_far_off_as_the_server_says() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers, b"busy"), None);
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("3"));
        assert_eq!(retry_after(&headers, b"busy"), Some(Duration::from_secs(3)));
        let body = br#"{"error":{"data":{"retryAfterMs":250}}}"#;
        assert_eq!(retry_after(&headers, body), Some(Duration::from_millis(250)));
    }
}
