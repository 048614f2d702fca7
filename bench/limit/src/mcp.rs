//! Just enough of MCP to answer with the same JSON: no sessions, no checks, nothing behind it.

use axum::{
    body::Bytes,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::rpc::result_of;

const TEXT_BYTES: usize = 1024;

/// Answers one request at `/mcp`.
pub(crate) async fn answer(body: Bytes) -> Response {
    let request: Value = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let params = &request["params"];
    let result = match request["method"].as_str() {
        Some("tools/call") => {
            let text = &params["arguments"]["text"];
            json!({ "content": [{ "type": "text", "text": text }], "isError": false })
        }
        Some("resources/read") => {
            let text = "x".repeat(TEXT_BYTES);
            json!({ "contents": [{ "uri": params["uri"], "mimeType": "text/plain", "text": text }] })
        }
        Some("initialize") => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {},
            "serverInfo": { "name": "limit", "version": "0" },
        }),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    result_of(&request["id"], &result.to_string())
}
