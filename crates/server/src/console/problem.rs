//! Errors of the console's API: a status, a code for programs, and a message for people.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use nuncio_engine::{Error, State, error::whole_seconds};
use serde_json::{Map, Value, json};

use crate::{
    auth::{self, AuthError},
    request_checks::HttpRefusal,
    responses,
};

/// Why a request was refused.
#[derive(Debug)]
pub(super) struct ConsoleProblem {
    status: StatusCode,
    code: &'static str,
    message: String,
    details: Box<Map<String, Value>>,
    retry_after: Option<u64>,
}

impl ConsoleProblem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: Box::default(), retry_after: None }
    }

    /// A parameter or member that cannot be used.
    pub(super) fn bad_request(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message).with("field", field.into())
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Adds a member beside the code and the message.
    pub(super) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.details.insert(member.to_owned(), value.into());
        self
    }

    /// Names the part of the request that is refused, unless a closer one is named.
    pub(super) fn in_field(mut self, field: &str) -> Self {
        self.details.entry("field").or_insert_with(|| field.into());
        self
    }

    pub(super) fn retry(mut self, after: std::time::Duration) -> Self {
        let seconds = whole_seconds(after);
        self.retry_after = Some(seconds);
        self.with("retryAfterSeconds", seconds)
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut error = Map::from_iter([
            ("code".to_owned(), json!(self.code)),
            ("message".to_owned(), json!(self.message)),
        ]);
        error.extend(*self.details);
        let mut response = responses::json(json!({ "error": error }).to_string());
        *response.status_mut() = self.status;
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<Error> for ConsoleProblem {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let problem = |status, code| Self::new(status, code, message.clone());
        match error {
            Error::NoSuchTask(_) => problem(StatusCode::NOT_FOUND, "not_found"),
            Error::Forbidden(scope) | Error::NotOperator(scope) => {
                problem(StatusCode::FORBIDDEN, "scope_missing").with("scope", scope)
            }
            Error::Suspended(..) => problem(StatusCode::FORBIDDEN, "suspended"),
            Error::UnknownCursor { last, .. } => {
                problem(StatusCode::CONFLICT, "cursor_beyond").with("last", last)
            }
            Error::Invalid(_) | Error::Limit(_) => problem(StatusCode::BAD_REQUEST, "bad_request"),
            Error::Answer(_) => problem(StatusCode::UNPROCESSABLE_ENTITY, "answer_invalid").with("at", ""),
            Error::NotAsked(_) => problem(StatusCode::CONFLICT, "not_asked"),
            Error::Ended(state) | Error::NotCancelable(state) => {
                problem(StatusCode::CONFLICT, "ended").with("state", state.name())
            }
            Error::Unanswered(_) => {
                problem(StatusCode::CONFLICT, "ended").with("state", State::Failed.name())
            }
            Error::TooFast { retry_after, .. } => {
                problem(StatusCode::TOO_MANY_REQUESTS, "too_fast").retry(retry_after)
            }
            Error::Busy { retry_after, .. } => {
                problem(StatusCode::SERVICE_UNAVAILABLE, "busy").retry(retry_after)
            }
            error => {
                tracing::error!(%error, "a request of the console failed");
                problem(StatusCode::INTERNAL_SERVER_ERROR, "internal")
            }
        }
    }
}

impl From<&AuthError> for ConsoleProblem {
    fn from(error: &AuthError) -> Self {
        let message = auth::message(error);
        match error {
            AuthError::Suspended(_) => Self::new(StatusCode::FORBIDDEN, "suspended", message),
            AuthError::Unavailable(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
                .retry(std::time::Duration::from_secs(2)),
            AuthError::Missing | AuthError::Invalid(_) => {
                Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
            }
        }
    }
}

impl From<HttpRefusal> for ConsoleProblem {
    fn from(refusal: HttpRefusal) -> Self {
        let code = match refusal.status {
            StatusCode::PAYLOAD_TOO_LARGE => "too_large",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
            StatusCode::FORBIDDEN => "foreign_origin",
            _ => "bad_request",
        };
        Self::new(refusal.status, code, refusal.message)
    }
}
