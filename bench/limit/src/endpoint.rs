//! An endpoint as agents of kind `http` ask one: it gives the text back.

use axum::{
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// Answers one request at `/endpoint`.
pub(crate) async fn answer(body: Bytes) -> Response {
    let input: Value = match serde_json::from_slice(&body) {
        Ok(input) => input,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let body = json!({ "artifacts": [{ "id": "out", "text": input["text"] }] }).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
