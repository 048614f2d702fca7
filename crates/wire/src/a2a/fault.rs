//! Errors on the wire: one table of problems, with the code that each dialect has for it.

use nuncio_engine::error::{Error, whole_seconds};
use serde_json::{Map, Value, json};

use super::{Dialect, input::Malformed};
use crate::jsonrpc::{self, Id};

/// Everything that can be wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Problem {
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushUnsupported,
    UnsupportedOperation,
    /// The agent's card says `streaming: false`.
    StreamingUnsupported,
    /// A message to a task that has ended.
    TaskEnded,
    ContentTypeNotSupported,
    /// The agent's card does not announce another card for callers that are known.
    ExtendedCardUnsupported,
    /// It does, and there is none.
    ExtendedCardNotConfigured,
    ExtensionRequired,
    VersionNotSupported,
    Unauthenticated,
    Forbidden,
    /// A cap was reached.
    LimitReached,
    /// The caller does it too often.
    TooFast,
    /// Too much to do; later it may go.
    Unavailable,
}

/// Problems with their reason, as 1.0 names it, and their codes in 0.1, 0.3 and 1.0.
///
/// Where a dialect has no code of its own for a problem, it is the one that a client of that dialect handles
/// best: 0.3 took the refusal of messages to ended tasks for invalid params, and no dialect after 0.1 has codes
/// for load and access, for which the specification names the internal error.
#[rustfmt::skip]
const PROBLEMS: [(Problem, &str, [i32; 3]); 21] = [
    (Problem::ParseError,                "PARSE_ERROR",                        [-32700, -32700, -32700]),
    (Problem::InvalidRequest,            "INVALID_REQUEST",                    [-32600, -32600, -32600]),
    (Problem::MethodNotFound,            "METHOD_NOT_FOUND",                   [-32601, -32601, -32601]),
    (Problem::InvalidParams,             "INVALID_PARAMS",                     [-32602, -32602, -32602]),
    (Problem::Internal,                  "INTERNAL_ERROR",                     [-32603, -32603, -32603]),
    (Problem::TaskNotFound,              "TASK_NOT_FOUND",                     [-32001, -32001, -32001]),
    (Problem::TaskNotCancelable,         "TASK_NOT_CANCELABLE",                [-32002, -32002, -32002]),
    (Problem::PushUnsupported,           "PUSH_NOTIFICATION_NOT_SUPPORTED",    [-32003, -32003, -32003]),
    (Problem::UnsupportedOperation,      "UNSUPPORTED_OPERATION",              [-32004, -32004, -32004]),
    (Problem::StreamingUnsupported,      "UNSUPPORTED_OPERATION",              [-32006, -32004, -32004]),
    (Problem::TaskEnded,                 "UNSUPPORTED_OPERATION",              [-32009, -32602, -32004]),
    (Problem::ContentTypeNotSupported,   "CONTENT_TYPE_NOT_SUPPORTED",         [-32005, -32005, -32005]),
    (Problem::ExtendedCardUnsupported,   "UNSUPPORTED_OPERATION",              [-32004, -32007, -32004]),
    (Problem::ExtendedCardNotConfigured, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", [-32004, -32007, -32007]),
    (Problem::ExtensionRequired,         "EXTENSION_SUPPORT_REQUIRED",         [-32004, -32004, -32008]),
    (Problem::VersionNotSupported,       "VERSION_NOT_SUPPORTED",              [-32004, -32009, -32009]),
    (Problem::Unauthenticated,           "UNAUTHENTICATED",                    [-32007, -32603, -32603]),
    (Problem::Forbidden,                 "PERMISSION_DENIED",                  [-32008, -32603, -32603]),
    (Problem::LimitReached,              "LIMIT_REACHED",                      [-32010, -32602, -32602]),
    (Problem::TooFast,                   "RATE_LIMIT_EXCEEDED",                [-32010, -32603, -32603]),
    (Problem::Unavailable,               "UNAVAILABLE",                        [-32011, -32603, -32603]),
];

/// The longest text of a fault, about. What it quotes may be as large as a request, and is not said back whole.
const LONGEST: usize = 800;

/// An error, ready to be written in the dialect that made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// What kind of problem.
    pub problem: Problem,
    /// Its JSON-RPC code.
    pub code: i32,
    /// The words for people: what was wrong, where, and what to do.
    pub message: String,
    /// The member of the request that was wrong, where one was.
    pub field: Option<String>,
    /// What a program may want to know.
    pub metadata: Vec<(&'static str, String)>,
}

impl Fault {
    /// Adds a detail for programs.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.metadata.push((key, clipped(value.into())));
        self
    }

    fn reason(&self) -> &'static str {
        entry(self.problem).1
    }

    /// The details as 1.0 has them: a list of typed objects.
    fn details(&self) -> Value {
        let metadata: Map<_, _> =
            self.metadata.iter().map(|(key, value)| ((*key).to_owned(), value.as_str().into())).collect();
        let mut details = vec![json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason(),
            "domain": "a2a-protocol.org",
            "metadata": metadata,
        })];
        if let Some(field) = &self.field {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{ "field": field, "description": self.message }],
            }));
        }
        Value::Array(details)
    }

    /// The details as the older dialects have them: an object, where there is anything to say.
    fn plain_details(&self) -> Option<Value> {
        let field = self.field.as_ref().map(|field| ("field", field));
        let details = self.metadata.iter().map(|(key, value)| (*key, value)).chain(field);
        let details: Map<_, _> =
            details.map(|(key, value)| (key.to_owned(), value.as_str().into())).collect();
        (!details.is_empty()).then_some(Value::Object(details))
    }
}

fn clipped(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

fn entry(problem: Problem) -> &'static (Problem, &'static str, [i32; 3]) {
    &PROBLEMS[problem as usize]
}

impl Dialect {
    /// A problem that the engine does not know of, in words for people.
    pub fn problem(self, problem: Problem, message: impl Into<String>) -> Fault {
        let code = entry(problem).2[self as usize];
        Fault { problem, code, message: clipped(message.into()), field: None, metadata: vec![] }
    }

    /// What the engine said, in this dialect.
    pub fn fault(self, error: &Error) -> Fault {
        let problem = match error {
            // A config that is not there is, by the specification, a task that is not there.
            Error::NoSuchTask(_) | Error::NoSuchWebhook(_) | Error::NoWebhooks(_) => Problem::TaskNotFound,
            Error::NoSuchAgent(_) => Problem::InvalidRequest,
            Error::Ended(_) => Problem::TaskEnded,
            Error::NotCancelable(_) => Problem::TaskNotCancelable,
            Error::Invalid(_)
            | Error::Answer(_)
            | Error::NotAsked(_)
            | Error::KeyReused
            | Error::UnknownCursor { .. } => Problem::InvalidParams,
            Error::ContentType(_) => Problem::ContentTypeNotSupported,
            Error::Unsupported(_) => Problem::UnsupportedOperation,
            Error::StreamingUnsupported => Problem::StreamingUnsupported,
            Error::PushUnsupported => Problem::PushUnsupported,
            Error::Limit(_) => Problem::LimitReached,
            Error::Forbidden(_) | Error::Suspended(..) | Error::NotOperator(_) => Problem::Forbidden,
            Error::TooFast { .. } => Problem::TooFast,
            Error::Busy { .. } => Problem::Unavailable,
            Error::Internal(_) => Problem::Internal,
        };
        // The words that the specification has for some of them, which official tools look for.
        let message = match error {
            Error::PushUnsupported => format!("Push notifications are not supported: {error}"),
            Error::Unsupported(_) => format!("This operation is not supported: {error}"),
            Error::ContentType(_) => format!("Incompatible content types: {error}"),
            _ => error.to_string(),
        };
        let fault = self.problem(problem, message);
        match error {
            Error::NoSuchTask(task) => fault.with("taskId", task),
            Error::Forbidden(scope) | Error::NotOperator(scope) => fault.with("requiredScope", scope),
            Error::Busy { retry_after, .. } | Error::TooFast { retry_after, .. } => {
                fault.with("retryAfterSeconds", whole_seconds(*retry_after).to_string())
            }
            _ => fault,
        }
    }

    /// Params that are not what the method takes.
    pub(super) fn malformed(self, malformed: &Malformed) -> Fault {
        let field = malformed.path.strip_prefix("params.").unwrap_or(&malformed.path);
        Fault {
            field: Some(clipped(field.to_owned())),
            ..self.problem(Problem::InvalidParams, malformed.to_string())
        }
    }

    /// Writes the fault as a JSON-RPC error response.
    pub fn write_fault(self, out: &mut Vec<u8>, id: Option<&Id>, fault: &Fault) {
        let data = if self == Self::V1 { Some(fault.details()) } else { fault.plain_details() };
        jsonrpc::write_error(out, id, fault.code, &fault.message, data.as_ref());
    }
}
