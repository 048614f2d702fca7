//! Errors as HTTP: the status of each problem, and the body (1.0, section 11.6).

use super::super::{
    Dialect,
    fault::{A2aFault, A2aProblem},
};
use crate::{json, jsonrpc};

/// The HTTP status in 1.0 (section 5.4 of 1.0.1), the name of the status in google.rpc, and the HTTP status in 0.3,
/// which its official server defines.
fn statuses(problem: A2aProblem) -> (u16, &'static str, u16) {
    match problem {
        A2aProblem::ParseError | A2aProblem::InvalidRequest => (400, "INVALID_ARGUMENT", 400),
        A2aProblem::MethodNotFound => (404, "NOT_FOUND", 404),
        A2aProblem::InvalidParams | A2aProblem::LimitReached => (400, "INVALID_ARGUMENT", 422),
        A2aProblem::Internal => (500, "INTERNAL", 500),
        A2aProblem::TaskNotFound => (404, "NOT_FOUND", 404),
        A2aProblem::TaskNotCancelable => (400, "FAILED_PRECONDITION", 409),
        A2aProblem::PushUnsupported
        | A2aProblem::UnsupportedOperation
        | A2aProblem::StreamingUnsupported
        | A2aProblem::ExtensionRequired => (400, "FAILED_PRECONDITION", 501),
        // 0.3 reports it as invalid params.
        A2aProblem::TaskEnded => (400, "FAILED_PRECONDITION", 422),
        A2aProblem::ContentTypeNotSupported => (400, "INVALID_ARGUMENT", 415),
        A2aProblem::ExtendedCardUnsupported | A2aProblem::ExtendedCardNotConfigured => {
            (400, "FAILED_PRECONDITION", 404)
        }
        A2aProblem::VersionNotSupported => (400, "FAILED_PRECONDITION", 400),
        A2aProblem::Unauthenticated => (401, "UNAUTHENTICATED", 401),
        A2aProblem::Forbidden => (403, "PERMISSION_DENIED", 403),
        A2aProblem::TooFast => (429, "RESOURCE_EXHAUSTED", 429),
        A2aProblem::Unavailable => (503, "UNAVAILABLE", 503),
    }
}

/// The name in google.rpc of an HTTP status that no problem of A2A has.
fn status_name(status: u16) -> &'static str {
    match status {
        404 => "NOT_FOUND",
        405 => "UNIMPLEMENTED",
        408 => "DEADLINE_EXCEEDED",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

impl Dialect {
    /// The HTTP status of a problem.
    pub fn rest_status(self, problem: A2aProblem) -> u16 {
        let (newer, _, older) = statuses(problem);
        if self >= Self::V1 { newer } else { older }
    }

    /// Writes the body of an error response with that HTTP status.
    pub fn write_rest_fault(self, out: &mut Vec<u8>, status: u16, fault: &A2aFault) {
        let (_, name, _) = statuses(fault.problem);
        json::object(out, |body| {
            // Clients of 0.3 read the code of JSON-RPC beside the message.
            if self < Self::V1 {
                body.value("code", &fault.code);
                body.value("message", &fault.message);
                body.optional("data", fault.plain_details().as_ref());
            }
            body.object("error", |error| {
                error.value("code", &status);
                error.value("status", name);
                error.value("message", &fault.message);
                error.value("details", &fault.details());
            });
        });
    }

    /// Writes the body of a refusal that A2A has no error for, such as an unknown path.
    pub fn write_rest_refusal(self, out: &mut Vec<u8>, status: u16, message: &str) {
        json::object(out, |body| {
            if self < Self::V1 {
                body.value("code", &jsonrpc::INVALID_REQUEST);
                body.value("message", message);
            }
            body.object("error", |error| {
                error.value("code", &status);
                error.value("status", status_name(status));
                error.value("message", message);
                error.array("details", [(); 0], |_, ()| {});
            });
        });
    }
}
