//! Errors of a model call, with the provider's own text where there is one.

use std::time::Duration;

use http::StatusCode;
use nuncio_outbound::OutboundError;
use serde_json::Value;

/// Bytes of a provider's text that an error quotes.
const MAX_QUOTED: usize = 500;

/// Error codes for an account that has run out: a retry does not help, whatever the status is.
const FINAL_CODES: [&str; 5] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "credit_balance_exhausted",
    "enforced_spend_limit_reached",
];

/// Why there is no reply. No case contains the key.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No connection, or no response.
    #[error("the model could not be asked: {0}")]
    Outbound(OutboundError),
    /// No whole reply within the limit for one.
    #[error(
        "the model at {to} gave no whole reply within {} s: check that it is up, or raise its timeout (`timeout` of the \
         agent, or of [model])",
        .limit.as_secs_f32()
    )]
    Timeout {
        /// Scheme, host and port.
        to: String,
        /// The limit that passed.
        limit: Duration,
    },
    /// The key is not a valid header value.
    #[error("the model's key contains characters that are not allowed in a header")]
    Key,
    /// The provider responded with an error.
    #[error("the model answered {}: {text}", shown(*.status))]
    Status {
        /// The HTTP status.
        status: StatusCode,
        /// The provider's error text.
        text: String,
        /// Whether a retry may succeed, if the provider itself declares it.
        passing: Option<bool>,
    },
    /// The provider ended its stream with an error.
    #[error("the model broke its answer off: {text}")]
    Broken {
        /// The provider's error text.
        text: String,
        /// Whether a retry may succeed.
        passing: bool,
    },
    /// The reply ended without its end marker.
    #[error("the model's answer was cut off before its end")]
    Cut,
    /// The provider requests a longer wait than allowed.
    #[error("{text}; it requests a wait of {} s before a retry, longer than the limit of {} s (max_wait)", .wanted.as_secs(), .most.as_secs())]
    Wait {
        /// The provider's error text.
        text: String,
        /// The requested wait.
        wanted: Duration,
        /// The longest allowed wait.
        most: Duration,
    },
    /// The response is not a reply, or exceeds the size limit.
    #[error("the model's answer cannot be used: {0}")]
    Answer(String),
}

impl From<OutboundError> for ModelError {
    fn from(error: OutboundError) -> Self {
        match error {
            OutboundError::Timeout { to, limit } => Self::Timeout { to, limit },
            error => Self::Outbound(error),
        }
    }
}

impl ModelError {
    /// Whether a retry may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Outbound(error) => !error.is_permanent(),
            Self::Status { passing: Some(passing), .. } | Self::Broken { passing, .. } => *passing,
            Self::Status { status, .. } => is_passing(*status),
            Self::Cut | Self::Timeout { .. } => true,
            Self::Key | Self::Answer(_) | Self::Wait { .. } => false,
        }
    }

    /// The error for a response that does not have the provider's format.
    pub(super) fn strange(error: &serde_json::Error) -> Self {
        Self::Answer(format!("a piece of it is not what was expected: {error}"))
    }

    /// The error for an error object in the stream.
    pub(super) fn in_stream(error: &Value) -> Self {
        let (codes, text) = error_text(error);
        let status =
            error["code"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        let known = codes.iter().any(|code| {
            FINAL_CODES.contains(&&**code)
                || matches!(&**code, "invalid_request_error" | "authentication_error" | "permission_error")
        });
        Self::Broken { text, passing: !known && status.is_none_or(is_passing) }
    }

    /// Removes the key from the text, in case the provider repeated it.
    pub(super) fn without_key(self, key: Option<&str>) -> Self {
        match self {
            Self::Broken { text, passing } => Self::Broken { text: without(text, key), passing },
            Self::Answer(text) => Self::Answer(without(text, key)),
            other => other,
        }
    }

    /// The error for an error response, without the key if the text repeats it.
    pub(super) fn refused(status: StatusCode, told: Option<bool>, body: &[u8], key: Option<&str>) -> Self {
        let (codes, text) = match serde_json::from_slice::<Value>(body) {
            // For a streaming request Gemini wraps the error in a list.
            Ok(Value::Array(mut items)) if !items.is_empty() => error_text(&items.swap_remove(0)["error"]),
            Ok(value) if !value["error"].is_null() => error_text(&value["error"]),
            _ => (vec![], shortened(&String::from_utf8_lossy(body))),
        };
        let exhausted = codes.iter().any(|code| FINAL_CODES.contains(&&**code));
        let text = match text.is_empty() {
            true => "it says nothing more".to_owned(),
            false => without(text, key),
        };
        Self::Status { status, text, passing: if exhausted { Some(false) } else { told } }
    }
}

fn shown(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// 408 and 409 mean a conflict with another request; 529 is an overloaded provider.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 425 | 429)
}

/// The codes and the text of an error.
fn error_text(error: &Value) -> (Vec<String>, String) {
    let text = error["message"].as_str().or_else(|| error.as_str()).unwrap_or_default();
    let codes = ["type", "code", "status"].iter().filter_map(|key| error[*key].as_str());
    let codes: Vec<String> = codes.map(str::to_owned).collect();
    let text = match codes.first() {
        Some(code) if !text.is_empty() => format!("{text} ({code})"),
        Some(code) => code.clone(),
        None if text.is_empty() => error.to_string(),
        None => text.to_owned(),
    };
    (codes, shortened(&text))
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Removes the key from a text.
fn without(text: String, key: Option<&str>) -> String {
    match key {
        Some(key) if !key.is_empty() && text.contains(key) => text.replace(key, "[key]"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> (String, bool) {
        let status = StatusCode::from_u16(status).unwrap();
        let error = ModelError::refused(status, None, body.as_bytes(), Some("k-1"));
        (error.to_string(), error.is_transient())
    }

    #[test]
    fn refusals_are_told_in_the_providers_words() {
        let check = |status, body: &str, words: &str, passing| {
            assert_eq!(refused(status, body), (words.to_owned(), passing));
        };
        check(
            401,
            r#"{"error":{"message":"Incorrect API key provided: k-1.","type":"invalid_request_error"}}"#,
            "the model answered 401 Unauthorized: Incorrect API key provided: [key]. (invalid_request_error)",
            false,
        );
        check(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "the model answered 529: Overloaded (overloaded_error)",
            true,
        );
        check(
            429,
            r#"[{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED"}}]"#,
            "the model answered 429 Too Many Requests: Quota (RESOURCE_EXHAUSTED)",
            true,
        );
        check(
            404,
            r#"{"error":"model 'x' not found"}"#,
            "the model answered 404 Not Found: model 'x' not found",
            false,
        );
        check(502, "<html>k-1", "the model answered 502 Bad Gateway: <html>[key]", true);
        check(500, "", "the model answered 500 Internal Server Error: it says nothing more", true);
        check(
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota"}}"#,
            "the model answered 429 Too Many Requests: You exceeded your current quota (insufficient_quota)",
            false,
        );
    }

    #[test]
    fn a_provider_may_say_whether_another_try_is_worth_it() {
        let status = StatusCode::BAD_REQUEST;
        assert!(ModelError::refused(status, Some(true), b"", None).is_transient());
        assert!(!ModelError::refused(StatusCode::BAD_GATEWAY, Some(false), b"", None).is_transient());
    }

    #[test]
    fn an_error_within_an_answer_passes_unless_it_says_otherwise() {
        let passing = |error: Value| ModelError::in_stream(&error).is_transient();
        assert!(passing(serde_json::json!({ "type": "overloaded_error", "message": "Overloaded" })));
        assert!(passing(serde_json::json!("the runner has stopped")));
        assert!(passing(serde_json::json!({ "code": 503, "status": "UNAVAILABLE" })));
        assert!(!passing(serde_json::json!({ "code": 400, "status": "INVALID_ARGUMENT" })));
        assert!(!passing(serde_json::json!({ "type": "invalid_request_error" })));
    }
}
