//! Error responses: one table of problems, with the code of each dialect.

use nuncio_engine::error::{Error, whole_seconds};
use serde_json::{Map, Value, json};

use super::{Dialect, input::MalformedInput, status};
use crate::jsonrpc::{self, RpcId};

/// The problems of a request that A2A can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum A2aProblem {
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushUnsupported,
    UnsupportedOperation,
    /// The agent's card has `streaming: false`.
    StreamingUnsupported,
    /// A message to a task that has ended.
    TaskEnded,
    ContentTypeNotSupported,
    /// The agent's card does not announce an extended card.
    ExtendedCardUnsupported,
    /// The card announces an extended card, but there is none.
    ExtendedCardNotConfigured,
    ExtensionRequired,
    VersionNotSupported,
    Unauthenticated,
    Forbidden,
    /// A cap was reached.
    LimitReached,
    /// The caller exceeded its rate.
    TooFast,
    /// The server is overloaded; a retry may succeed.
    Unavailable,
}

/// Problems with their reason in 1.0, and their codes in 0.1, 0.3 and 1.0.
///
/// If a dialect has no code for a problem, this is the code that its clients handle best. 0.3 reports a message
/// to an ended task as invalid params. No dialect after 0.1 has codes for load and access, for which the
/// specification names the internal error.
#[rustfmt::skip]
const PROBLEMS: [(A2aProblem, &str, [i32; 3]); 21] = [
    (A2aProblem::ParseError,                "PARSE_ERROR",                        [-32700, -32700, -32700]),
    (A2aProblem::InvalidRequest,            "INVALID_REQUEST",                    [-32600, -32600, -32600]),
    (A2aProblem::MethodNotFound,            "METHOD_NOT_FOUND",                   [-32601, -32601, -32601]),
    (A2aProblem::InvalidParams,             "INVALID_PARAMS",                     [-32602, -32602, -32602]),
    (A2aProblem::Internal,                  "INTERNAL_ERROR",                     [-32603, -32603, -32603]),
    (A2aProblem::TaskNotFound,              "TASK_NOT_FOUND",                     [-32001, -32001, -32001]),
    (A2aProblem::TaskNotCancelable,         "TASK_NOT_CANCELABLE",                [-32002, -32002, -32002]),
    (A2aProblem::PushUnsupported,           "PUSH_NOTIFICATION_NOT_SUPPORTED",    [-32003, -32003, -32003]),
    (A2aProblem::UnsupportedOperation,      "UNSUPPORTED_OPERATION",              [-32004, -32004, -32004]),
    (A2aProblem::StreamingUnsupported,      "UNSUPPORTED_OPERATION",              [-32006, -32004, -32004]),
    (A2aProblem::TaskEnded,                 "UNSUPPORTED_OPERATION",              [-32009, -32602, -32004]),
    (A2aProblem::ContentTypeNotSupported,   "CONTENT_TYPE_NOT_SUPPORTED",         [-32005, -32005, -32005]),
    (A2aProblem::ExtendedCardUnsupported,   "UNSUPPORTED_OPERATION",              [-32004, -32007, -32004]),
    (A2aProblem::ExtendedCardNotConfigured, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", [-32004, -32007, -32007]),
    (A2aProblem::ExtensionRequired,         "EXTENSION_SUPPORT_REQUIRED",         [-32004, -32004, -32008]),
    (A2aProblem::VersionNotSupported,       "VERSION_NOT_SUPPORTED",              [-32004, -32009, -32009]),
    (A2aProblem::Unauthenticated,           "UNAUTHENTICATED",                    [-32007, -32603, -32603]),
    (A2aProblem::Forbidden,                 "PERMISSION_DENIED",                  [-32008, -32603, -32603]),
    (A2aProblem::LimitReached,              "LIMIT_REACHED",                      [-32010, -32602, -32602]),
    (A2aProblem::TooFast,                   "RATE_LIMIT_EXCEEDED",                [-32010, -32603, -32603]),
    (A2aProblem::Unavailable,               "UNAVAILABLE",                        [-32011, -32603, -32603]),
];

/// The approximate maximum length of a message. It may quote a value as large as a request, which is cut.
const LONGEST: usize = 800;

/// An error, ready to be written in the dialect that created it.
#[derive(Debug, Clone, PartialEq)]
pub struct A2aFault {
    /// The kind of problem.
    pub problem: A2aProblem,
    /// Its JSON-RPC code.
    pub code: i32,
    /// The text for people: what was wrong, where, and what to do.
    pub message: String,
    /// The member of the request that was wrong, if there was one.
    pub field: Option<String>,
    /// Details for programs.
    pub metadata: Vec<(&'static str, String)>,
}

impl A2aFault {
    /// Adds a detail for programs.
    #[must_use]
    pub fn with_detail(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.metadata.push((key, clip_text(value.into())));
        self
    }

    fn reason(&self) -> &'static str {
        entry(self.problem).1
    }

    /// The details in the form of 1.0: a list of typed objects.
    pub(super) fn details(&self) -> Value {
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

    /// The details in the form of older dialects: an object, if there are any.
    pub(super) fn plain_details(&self) -> Option<Value> {
        let field = self.field.as_ref().map(|field| ("field", field));
        let details = self.metadata.iter().map(|(key, value)| (*key, value)).chain(field);
        let details: Map<_, _> =
            details.map(|(key, value)| (key.to_owned(), value.as_str().into())).collect();
        (!details.is_empty()).then_some(Value::Object(details))
    }
}

fn clip_text(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

fn entry(problem: A2aProblem) -> &'static (A2aProblem, &'static str, [i32; 3]) {
    &PROBLEMS[problem as usize]
}

impl Dialect {
    /// A fault for a problem that the engine does not know, with a text for people.
    pub fn problem(self, problem: A2aProblem, message: impl Into<String>) -> A2aFault {
        let code = entry(problem).2[self as usize];
        A2aFault { problem, code, message: clip_text(message.into()), field: None, metadata: vec![] }
    }

    /// The fault for an engine error.
    pub fn fault(self, error: &Error) -> A2aFault {
        let problem = match error {
            // By the specification, a missing webhook is reported as a missing task.
            Error::NoSuchTask(_) | Error::NoSuchWebhook(_) | Error::NoWebhooks(_) => A2aProblem::TaskNotFound,
            Error::NoSuchAgent(_) => A2aProblem::InvalidRequest,
            Error::Ended(_) | Error::Unanswered(_) => A2aProblem::TaskEnded,
            Error::NotCancelable(_) => A2aProblem::TaskNotCancelable,
            Error::Invalid(_)
            | Error::Answer(_)
            | Error::NotAsked(_)
            | Error::NoAuthorization { .. }
            | Error::KeyReused
            | Error::UnknownCursor { .. } => A2aProblem::InvalidParams,
            Error::ContentType(_) => A2aProblem::ContentTypeNotSupported,
            Error::ExtensionRequired(_) => A2aProblem::ExtensionRequired,
            Error::Unsupported(_) => A2aProblem::UnsupportedOperation,
            Error::StreamingUnsupported => A2aProblem::StreamingUnsupported,
            Error::PushUnsupported => A2aProblem::PushUnsupported,
            Error::Limit(_) => A2aProblem::LimitReached,
            Error::Forbidden(_) | Error::Suspended(..) | Error::NotOperator(_) => A2aProblem::Forbidden,
            Error::TooFast { .. } => A2aProblem::TooFast,
            Error::Busy { .. } => A2aProblem::Unavailable,
            Error::Internal(_) => A2aProblem::Internal,
        };
        // The specification's phrases for some of them, which official tools search for. States have the names that the
        // client knows them by.
        let message = match error {
            Error::NoSuchTask(task) => format!("Task not found: {task}"),
            Error::NotCancelable(state) => {
                format!("Task cannot be canceled: {}", status::state_name(self, *state))
            }
            Error::Ended(state) => format!(
                "the task has ended ({}) and takes no more messages: start a new task, in the same context if it \
                 belongs together",
                status::state_name(self, *state)
            ),
            Error::PushUnsupported => format!("Push notifications are not supported: {error}"),
            Error::Unsupported(_) => format!("This operation is not supported: {error}"),
            Error::ContentType(_) => format!("Incompatible content types: {error}"),
            _ => error.to_string(),
        };
        let fault = self.problem(problem, message);
        match error {
            Error::NoSuchTask(task) => fault.with_detail("taskId", task),
            Error::ExtensionRequired(uri) => fault.with_detail("extension", uri),
            Error::Forbidden(scope) | Error::NotOperator(scope) => fault.with_detail("requiredScope", scope),
            Error::Busy { retry_after, .. } | Error::TooFast { retry_after, .. } => {
                fault.with_detail("retryAfterSeconds", whole_seconds(*retry_after).to_string())
            }
            _ => fault,
        }
    }

    /// The fault for malformed params.
    pub(super) fn malformed(self, malformed: &MalformedInput) -> A2aFault {
        let field = malformed.path.strip_prefix("params.").unwrap_or(&malformed.path);
        A2aFault {
            field: Some(clip_text(field.to_owned())),
            ..self.problem(A2aProblem::InvalidParams, malformed.to_string())
        }
    }

    /// Writes the fault as a JSON-RPC error response.
    pub fn write_fault(self, out: &mut Vec<u8>, id: Option<&RpcId>, fault: &A2aFault) {
        let data = if self >= Self::V1 { Some(fault.details()) } else { fault.plain_details() };
        jsonrpc::write_error(out, id, fault.code, &fault.message, data.as_ref());
    }
}
