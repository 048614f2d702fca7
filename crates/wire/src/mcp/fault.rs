//! Error responses: the protocol's codes, the mapping of engine errors to them, and what a client reads in them.

use std::time::Duration;

use nuncio_engine::Error;
use serde_json::{Value, json};

use super::{ClientCapabilities, InputRequest, McpVersion, TASKS, notification::take};
use crate::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcErrorObject};

/// The headers of a request contradict its body.
pub const HEADER_MISMATCH: i32 = -32020;
/// The client lacks a capability that the request needs.
pub const MISSING_CAPABILITY: i32 = -32021;
/// The server does not support the requested revision.
pub const UNSUPPORTED_VERSION: i32 = -32022;
/// There is no such resource; up to 2025-11-25.
pub const RESOURCE_NOT_FOUND: i32 = -32002;
/// The caller is not authenticated. Specific to this server: the protocol has no such code.
pub const UNAUTHENTICATED: i32 = -32004;
/// The caller lacks a grant. Specific to this server: the protocol has no such code.
pub const FORBIDDEN: i32 = -32003;
/// The caller exceeded its rate. Specific to this server: the protocol has no such code.
pub const TOO_FAST: i32 = -32029;
/// The user must open a link first; 2025-11-25.
pub const URL_REQUIRED: i32 = -32042;

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub struct McpFault {
    /// The JSON-RPC error code.
    pub code: i32,
    /// What is wrong, and what to do.
    pub message: String,
    /// Details for programs.
    pub data: Option<Value>,
    /// The HTTP status of the response.
    pub status: u16,
    /// When a retry may succeed.
    pub retry_after: Option<Duration>,
}

impl McpFault {
    /// A fault with the HTTP status of ordinary results, 200.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, status: 200, retry_after: None }
    }

    /// The params are invalid.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// The body is not a valid request.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message).with_status(400)
    }

    /// There is no such method.
    pub fn unknown_method(version: McpVersion, name: &str) -> Self {
        let fault =
            Self::new(METHOD_NOT_FOUND, format!("there is no method {name:?} in MCP {}", version.name()));
        if version.is_stateless() { fault.with_status(404) } else { fault }
    }

    /// The server failed internally.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }

    /// The headers contradict the body.
    pub fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(HEADER_MISMATCH, message).with_status(400)
    }

    /// There is no resource of that URI, or the caller may not see it.
    pub fn no_resource(version: McpVersion, uri: &str) -> Self {
        let code = if version.is_stateless() { INVALID_PARAMS } else { RESOURCE_NOT_FOUND };
        Self::new(code, format!("there is no resource {uri}")).with_data(json!({ "uri": uri }))
    }

    /// The server does not support the requested revision.
    pub fn unsupported_version(requested: &str) -> Self {
        let supported: Vec<&str> = McpVersion::ALL.iter().rev().map(|version| version.name()).collect();
        Self::new(UNSUPPORTED_VERSION, format!("this server does not speak MCP {requested:?}"))
            .with_data(json!({ "supported": supported, "requested": requested }))
            .with_status(400)
    }

    /// The client lacks these capabilities. Only the newest revision has a code for it.
    pub fn missing_capability(version: McpVersion, needed: ClientCapabilities) -> Self {
        let mut required = serde_json::Map::new();
        if needed.form || needed.url {
            let modes = match (needed.form, needed.url) {
                (_, false) => json!({}),
                (true, true) => json!({ "form": {}, "url": {} }),
                (false, true) => json!({ "url": {} }),
            };
            required.insert("elicitation".into(), modes);
        }
        for (needed, name) in [(needed.sampling, "sampling"), (needed.roots, "roots")] {
            if needed {
                required.insert(name.into(), json!({}));
            }
        }
        if needed.tasks {
            required.insert("extensions".into(), json!({ TASKS: {} }));
        }
        let names: Vec<&str> = required.keys().map(String::as_str).collect();
        let message = format!("this needs a client that declares: {}", names.join(", "));
        let data = json!({ "requiredCapabilities": required });
        match version.is_stateless() {
            true => Self::new(MISSING_CAPABILITY, message).with_data(data).with_status(400),
            false => Self::invalid_params(message).with_data(data),
        }
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Sets the HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

impl From<&Error> for McpFault {
    fn from(error: &Error) -> Self {
        let message = error.to_string();
        match error {
            Error::NoSuchTask(_)
            | Error::NoSuchAgent(_)
            | Error::Ended(_)
            | Error::Unanswered(_)
            | Error::NotCancelable(_)
            | Error::Invalid(_)
            | Error::Answer(_)
            | Error::ContentType(_)
            | Error::ExtensionRequired(_)
            | Error::Unsupported(_)
            | Error::StreamingUnsupported
            | Error::PushUnsupported
            | Error::NoSuchWebhook(_)
            | Error::NoWebhooks(_)
            | Error::KeyReused
            | Error::NotAsked(_)
            | Error::NoAuthorization { .. }
            | Error::UnknownCursor { .. }
            | Error::Limit(_) => Self::invalid_params(message),
            Error::Busy { retry_after, .. } => Self {
                data: Some(json!({ "retryAfterMs": retry_after.as_millis() as u64 })),
                status: 503,
                retry_after: Some(*retry_after),
                ..Self::internal(message)
            },
            Error::Forbidden(scope) | Error::NotOperator(scope) => {
                Self::new(FORBIDDEN, message).with_data(json!({ "requiredScope": scope })).with_status(403)
            }
            Error::Suspended(..) => Self::new(FORBIDDEN, message).with_status(403),
            Error::TooFast { retry_after, .. } => Self {
                data: Some(json!({ "retryAfterMs": retry_after.as_millis() as u64 })),
                status: 429,
                retry_after: Some(*retry_after),
                ..Self::new(TOO_FAST, message)
            },
            Error::Internal(_) => Self::internal(message),
        }
    }
}

impl From<Error> for McpFault {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// When a retry may succeed, if a server's error says so.
pub fn retry_after_in(error: &RpcErrorObject) -> Option<Duration> {
    error.data.as_ref().and_then(read_retry_after)
}

fn read_retry_after(data: &Value) -> Option<Duration> {
    data["retryAfterMs"].as_u64().map(Duration::from_millis)
}

/// The links that the user has to visit, from an error with the code [`URL_REQUIRED`] (2025-11-25). One that is no
/// object is returned as it is.
pub fn links_required_by(error: &mut RpcErrorObject) -> Vec<Result<InputRequest, Value>> {
    let links = error.data.as_mut().map(|data| take(data, "elicitations"));
    let Some(Value::Array(links)) = links else { return vec![] };
    links.into_iter().map(InputRequest::read_link).collect()
}

/// The body of an HTTP response whose status is not a success, as a client reads it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpErrorBody {
    /// The JSON-RPC error, if there is a valid one.
    pub error: Option<RpcErrorObject>,
    /// When a retry may succeed.
    pub retry_after: Option<Duration>,
    /// The text for people: of the JSON-RPC error, of an OAuth error, or of any other object.
    pub message: Option<String>,
}

impl McpErrorBody {
    /// Reads a body, which may be anything.
    pub fn read(body: &[u8]) -> Self {
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        let said = [&body["error"]["message"], &body["error_description"], &body["message"]];
        let message = said.into_iter().find_map(Value::as_str).map(str::to_owned);
        let retry_after = read_retry_after(&body["error"]["data"]);
        Self { message, retry_after, error: serde_json::from_value(take(&mut body, "error")).ok() }
    }
}
