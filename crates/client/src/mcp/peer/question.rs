//! An open question of a call: the server's request, and where its answer goes.

use nuncio_engine::question::Question;
use nuncio_wire::mcp::InputRequest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An open question. Stored in the handle of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenQuestion {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) request: InputRequest,
    /// Where the answer goes.
    pub(super) to: AnswerRoute,
    /// Whether the server may repeat it, because the stream was cut or the answer rejected.
    #[serde(skip)]
    pub(super) again: bool,
}

/// Where an answer goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerRoute {
    /// To the request of the server with this id.
    Request(Value),
    /// Into the repeated call, or to its task, under this key.
    Input(String),
    /// Nowhere: the call is sent again after the link was visited.
    Visit,
}

impl OpenQuestion {
    pub(super) fn new(id: String, request: InputRequest, to: AnswerRoute) -> Self {
        Self { id, request, to, again: false }
    }

    /// The question for the engine; the error is why it cannot be shown.
    pub(super) fn question(&self) -> Result<Question, String> {
        let (text, ask) = self.request.read_question()?;
        Ok(Question { id: self.id.clone(), text, ask, callback: None })
    }

    /// Whether this is the same question again. A name that the server gave decides; without one, a question
    /// that may be repeated is compared by its content.
    pub(super) fn is_same(&self, request: &InputRequest) -> bool {
        match (self.request.name(), request.name()) {
            (Some(own), Some(other)) => own == other,
            _ => self.again && self.request.has_same_content(request),
        }
    }
}
