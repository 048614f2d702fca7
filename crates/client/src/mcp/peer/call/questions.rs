//! The questions of a call: as requests of the server, or in place of a result; and their answers.

use nuncio_engine::question::Answer;
use nuncio_wire::{
    jsonrpc::{INVALID_PARAMS, RpcErrorObject},
    mcp::{ClientRequest, ClientResponse, InputRequest, InputRequired, links_required_by},
};
use serde_json::{Map, Value};

use super::{McpCall, McpCallPhase};
use crate::{
    mcp::peer::{
        connection::McpConnection,
        question::{AnswerRoute, OpenQuestion},
    },
    peer::{CallEvent, PeerCallEnd, PeerError},
};

impl McpCall {
    /// Handles a request of the server (up to 2025-11-25).
    pub(super) async fn asked(&mut self, id: &Value, request: InputRequest) {
        // The server asked again after a disconnect while the answer was on its way; it has the answer by
        // now.
        if request.name().is_some_and(|name| self.answered.contains(name)) {
            return;
        }
        // After a disconnect, or after a rejected answer, the server repeats a question under another id.
        let known = self
            .open
            .iter_mut()
            .find(|open| matches!(open.to, AnswerRoute::Request(_)) && open.is_same(&request));
        if let Some(known) = known {
            // Its kind stays the one that the follower was asked.
            known.request.params = request.params;
            (known.to, known.again) = (AnswerRoute::Request(id.clone()), false);
            if let Ok(question) = known.question() {
                self.emit_handle();
                self.outbox.push_back(CallEvent::Question(question));
            }
            return;
        }
        let name = id.as_str().map_or_else(|| format!("request-{id}"), str::to_owned);
        let open = OpenQuestion::new(name, request, AnswerRoute::Request(id.clone()));
        if let Err(message) = self.put_question(open) {
            respond(&self.connection, id, ClientResponse::Refused { code: INVALID_PARAMS, message }).await;
        }
    }

    /// Sends a question to the follower. The error is why it cannot be shown.
    pub(super) fn put_question(&mut self, open: OpenQuestion) -> Result<(), String> {
        let question = open.question()?;
        self.shared.remember_question(&open.id, &open.request.params);
        self.open.push(open);
        self.emit_handle();
        self.outbox.push_back(CallEvent::Question(question));
        Ok(())
    }

    /// Sends the questions that were open when another process left the call.
    pub(super) fn ask_again(&mut self) {
        let by_cursor = matches!(&self.phase, McpCallPhase::Task(task) if task.events.is_some());
        for open in &self.open {
            // The server repeats it by itself, and an answer sent now could cross with that.
            if by_cursor && matches!(open.to, AnswerRoute::Request(_)) {
                continue;
            }
            self.shared.remember_question(&open.id, &open.request.params);
            if let Ok(question) = open.question() {
                self.outbox.push_back(CallEvent::Question(question));
            }
        }
    }

    /// The server asks for the call to be sent again with answers (2026-07-28).
    pub(super) async fn input_required(&mut self, required: InputRequired) -> Result<(), PeerError> {
        let at = self.connection.at.clone();
        let malformed = |why: &str| PeerError::Malformed { at: at.clone(), why: why.into() };
        let McpCallPhase::Call(again) = &mut self.phase else { return Ok(()) };
        let (round, most) = (again.round, self.connection.options.max_rounds);
        if round >= most {
            return Err(malformed(&format!("it asked for input {most} times (max_rounds)")));
        }
        again.state = required.state;
        again.answers = Map::new();
        let requests = match required.requests {
            Some(requests) => requests,
            None if again.state.is_some() => vec![],
            None => return Err(malformed("it asks for more, and does not say what")),
        };
        let (roots, asked): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|(_, request)| request.asks_for_roots());
        again.answers.extend(roots.into_iter().map(|(key, _)| (key, InputRequest::no_roots())));
        for (key, request) in asked {
            // A later round may reuse a key for another question.
            let id = if round == 1 { key.clone() } else { format!("{key}#{round}") };
            let open = OpenQuestion::new(id, request, AnswerRoute::Input(key));
            self.put_question(open).map_err(|why| malformed(&why))?;
        }
        if self.open.is_empty() {
            self.emit_handle();
            tokio::time::sleep(self.connection.options.backoff(round)).await;
        }
        self.all_answered().await
    }

    /// The user has to visit links before the call can be made (2025-11-25).
    pub(super) fn links_required(
        &mut self,
        mut error: RpcErrorObject,
    ) -> Result<Option<PeerCallEnd>, PeerError> {
        let links = links_required_by(&mut error);
        if links.is_empty() {
            return Ok(Some(self.failed(&error.message)));
        }
        let at = self.connection.at.clone();
        let malformed = |why: String| PeerError::Malformed { at: at.clone(), why };
        for (n, link) in links.into_iter().enumerate() {
            let link = link.map_err(|other| malformed(format!("a link that is no object: {other}")))?;
            let id = link.elicitation_id().as_str().map_or_else(|| format!("link-{n}"), str::to_owned);
            self.put_question(OpenQuestion::new(id, link, AnswerRoute::Visit)).map_err(malformed)?;
        }
        Ok(None)
    }

    /// Sends an answer along its route.
    pub(super) async fn answer(&mut self, question: &str, answer: Answer) -> Result<(), PeerError> {
        let Some(at) = self.open.iter().position(|open| open.id == question) else {
            return Err(PeerError::Gone(format!("the question {question:?} is not open")));
        };
        let open = &self.open[at];
        if let (AnswerRoute::Input(_), Answer::Unavailable) = (&open.to, &answer) {
            return Err(self.unanswered(at).await);
        }
        match &open.to {
            AnswerRoute::Request(id) => {
                let response = match open.request.write_reply(&answer) {
                    Ok(result) => ClientResponse::Input(result),
                    Err((code, message)) => ClientResponse::Refused { code, message },
                };
                if let Err(fail) = self.connection.send(&response.to_message(id)).await {
                    self.open[at].again = true;
                    return Err(fail.into_peer(&self.connection.at));
                }
                self.answered.extend(open.request.name().map(str::to_owned));
            }
            AnswerRoute::Input(key) => match &mut self.phase {
                McpCallPhase::Call(again) => {
                    again.answers.insert(key.clone(), open.request.write_result(&answer));
                }
                McpCallPhase::Task(task) => {
                    let answers = Map::from_iter([(key.clone(), open.request.write_result(&answer))]);
                    let update = ClientRequest::UpdateTask { task: &task.id, answers };
                    let told = self.connection.request(update).await;
                    told.map_err(|fail| fail.into_peer(&self.connection.at))?;
                    task.answered.insert(key.clone());
                    task.soon();
                }
            },
            AnswerRoute::Visit if matches!(answer, Answer::Accept(_)) => {}
            AnswerRoute::Visit => self.turned_down = true,
        }
        self.close_question(at);
        self.emit_handle();
        Ok(())
    }

    /// Ends the call because of a question that cannot be answered here. In this revision only results are
    /// accepted as answers, and each would claim that a person gave it. So nothing is sent, and the question
    /// stays open.
    async fn unanswered(&mut self, at: usize) -> PeerError {
        let asked = self.open[at].question().map(|question| question.text).unwrap_or_default();
        if let McpCallPhase::Task(task) = &self.phase {
            let id = task.id.clone();
            if let Err(fail) = self.connection.request(ClientRequest::CancelTask(&id)).await {
                tracing::debug!(?fail, "the cancellation could not be sent to {}", self.connection.at);
            }
        }
        PeerError::Unsupported(format!(
            "{} waits for the answer to {asked:?}, and nobody is here who could give one: call it from where a person, \
             or a model, can be asked",
            self.connection.at
        ))
    }

    /// Sends the call again when no question is open.
    pub(super) async fn all_answered(&mut self) -> Result<(), PeerError> {
        let waits = matches!(self.phase, McpCallPhase::Call(_)) && self.exchange.is_none();
        if !waits || !self.open.is_empty() {
            return Ok(());
        }
        if self.turned_down {
            return Err(PeerError::Refused(format!(
                "{} does not work on {} before its link was visited",
                self.connection.at, self.name
            )));
        }
        self.cursor = None;
        self.make_again().await
    }

    /// The server reports that the visit to a link is complete.
    pub(super) async fn visited(&mut self, elicitation: &Value) -> Result<(), PeerError> {
        let found = self.open.iter().position(|open| {
            let request = &open.request;
            request.is_link() && request.elicitation_id() == elicitation && !elicitation.is_null()
        });
        let Some(at) = found else { return Ok(()) };
        if let AnswerRoute::Request(id) = &self.open[at].to {
            // The server still waits for an answer to its request.
            respond(&self.connection, id, ClientResponse::Input(InputRequest::write_visited())).await;
        }
        let settled = self.close_question(at);
        self.outbox.push_back(CallEvent::QuestionClosed(settled.id));
        self.emit_handle();
        self.all_answered().await
    }

    /// The server withdraws a question.
    pub(super) fn withdrawn(&mut self, request: &Value) {
        let asked = self.open.iter().position(|open| open.to == AnswerRoute::Request(request.clone()));
        if let Some(at) = asked {
            let settled = self.close_question(at);
            self.outbox.push_back(CallEvent::QuestionClosed(settled.id));
            self.emit_handle();
        }
    }

    /// Removes a question from the open ones.
    pub(super) fn close_question(&mut self, at: usize) -> OpenQuestion {
        let open = self.open.remove(at);
        self.shared.forget_questions([open.id.as_str()]);
        open
    }
}

/// Sends a response on which nothing depends here.
async fn respond(connection: &McpConnection, id: &Value, response: ClientResponse) {
    if let Err(fail) = connection.send(&response.to_message(id)).await {
        tracing::debug!(?fail, "{} rejected an answer", connection.at);
    }
}
