//! The serialized state of a call handle, with which another process resumes the call.

use nuncio_wire::mcp::McpVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::question::OpenQuestion;
use crate::peer::{CallHandle, PeerError};

/// The position in a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ResumeState {
    /// The revision that the call was made in.
    pub(super) version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// The progress token of the call.
    pub(super) token: String,
    /// Open questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) questions: Vec<OpenQuestion>,
    /// How to resume the call.
    pub(super) way: ResumeVia,
    /// The number of the last task event received, if the task is followed by its events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<u64>,
}

/// How to resume a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ResumeVia {
    /// By reopening the session's stream after an event.
    Stream {
        /// The id of the request.
        request: Value,
        /// The id of the last event received.
        event: String,
    },
    /// By sending the call again, with the answers so far.
    Again(CallResend),
    /// Not at all: the call was sent again with answers, and whether the server received it is unknown.
    Sent,
    /// By the id of its task.
    Task,
}

/// A call that is sent again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallResend {
    /// The original arguments.
    pub(super) arguments: Value,
    /// W3C `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<String>,
    /// The idempotency key, if the tool honours one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// The server's `requestState`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    /// The answers so far.
    #[serde(default)]
    pub(super) answers: Map<String, Value>,
    /// How many times the call was sent.
    pub(super) round: u32,
}

impl ResumeState {
    /// Reads the state of a handle.
    pub(super) fn read(handle: &CallHandle) -> Result<(Self, McpVersion), PeerError> {
        let kept: Self = serde_json::from_value(handle.state.clone())
            .map_err(|error| PeerError::Gone(format!("the handle leads to no MCP call: {error}")))?;
        let version = McpVersion::parse(&kept.version).ok_or_else(|| {
            PeerError::Gone(format!("the call was made in MCP {:?}, which is not known here", kept.version))
        })?;
        if kept.way == ResumeVia::Sent {
            let why = "the call was sent again with its answers and cannot be resumed";
            return Err(PeerError::Gone(why.into()));
        }
        if kept.way == ResumeVia::Task && handle.task.is_none() {
            return Err(PeerError::Gone("the handle leads to a task, and does not name it".into()));
        }
        Ok((kept, version))
    }

    /// Builds a handle with this state.
    pub(super) fn handle(&self, offer: &str, task: Option<&str>) -> CallHandle {
        // Strings and JSON values always serialize.
        let state = serde_json::to_value(self).unwrap_or_default();
        CallHandle { offer: offer.to_owned(), task: task.map(str::to_owned), state }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_handle_is_read_as_it_was_written() {
        let check = |way: ResumeVia, task: Option<&str>| {
            let kept = ResumeState {
                after: task.map(|_| 7),
                version: "2025-11-25".into(),
                session: Some("s".into()),
                token: "t".into(),
                questions: vec![],
                way,
            };
            let written = serde_json::to_string(&kept.handle("tool", task)).unwrap();
            let read = ResumeState::read(&serde_json::from_str(&written).unwrap());
            assert_eq!(read, Ok((kept, McpVersion::V2025_11_25)));
        };
        check(ResumeVia::Stream { request: 7.into(), event: "e.1".into() }, None);
        check(
            ResumeVia::Again(CallResend { arguments: json!({ "a": 1 }), round: 2, ..CallResend::default() }),
            None,
        );
        check(ResumeVia::Task, Some("task"));
    }

    #[test]
    fn a_stored_question_keeps_its_form() {
        // As earlier releases stored it.
        let stored = concat!(
            r#"{"version":"2025-11-25","token":"t","questions":[{"id":"q:1","method":"elicitation/create","#,
            r#""params":{"message":"Who?","n":18446744073709551615,"x":-1.5},"to":{"request":7}}],"way":"task"}"#
        );
        let kept: ResumeState = serde_json::from_str(stored).unwrap();
        assert_eq!(kept.questions[0].request.method, "elicitation/create");
        assert_eq!(kept.questions[0].request.params["n"], u64::MAX);
        assert_eq!(serde_json::to_string(&kept).unwrap(), stored);
        let lacking = stored.replace(r#""method":"elicitation/create","#, "");
        serde_json::from_str::<ResumeState>(&lacking).unwrap_err();
    }

    #[test]
    fn what_is_no_handle_of_ours_leads_nowhere() {
        let check = |state: Value| {
            let handle = CallHandle { offer: "tool".into(), task: None, state };
            assert!(matches!(ResumeState::read(&handle), Err(PeerError::Gone(_))), "{handle:?}");
        };
        check(json!({ "cursor": 7 }));
        check(json!({ "version": "2999-01-01", "token": "t", "way": "task" }));
        check(json!({ "version": "2026-07-28", "token": "t", "way": "task" }));
        check(json!({ "version": "2026-07-28", "token": "t", "way": "sent" }));
    }
}
