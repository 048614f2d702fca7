//! The questions of a call: as requests of the server, or in place of a result; and their answers.

use nuncio_engine::question::Answer;
use nuncio_wire::jsonrpc::{INVALID_PARAMS, RpcErrorObject};
use serde_json::{Map, Value, json};

use super::{McpCall, McpCallPhase};
use crate::{
    mcp::peer::{
        incoming::reply,
        question::{AnswerRoute, OpenQuestion, name_of},
    },
    peer::{CallEvent, PeerCallEnd, PeerError},
};

impl McpCall {
    /// Handles a request of the server (up to 2025-11-25).
    pub(super) async fn asked(&mut self, id: &Value, method: &str, params: Value) {
        // The server asked again after a disconnect while the answer was on its way; it has the answer by
        // now.
        if name_of(&params).is_some_and(|name| self.answered.contains(name)) {
            return;
        }
        // After a disconnect, or after a rejected answer, the server repeats a question under another id.
        let known = self
            .open
            .iter_mut()
            .find(|open| matches!(open.to, AnswerRoute::Request(_)) && open.is_same(method, &params));
        if let Some(known) = known {
            (known.to, known.params, known.again) = (AnswerRoute::Request(id.clone()), params, false);
            if let Ok(question) = known.question() {
                self.emit_handle();
                self.outbox.push_back(CallEvent::Question(question));
            }
            return;
        }
        let name = id.as_str().map_or_else(|| format!("request-{id}"), str::to_owned);
        let open = OpenQuestion {
            id: name,
            method: method.to_owned(),
            params,
            to: AnswerRoute::Request(id.clone()),
            again: false,
        };
        if let Err(why) = self.put_question(open) {
            let refused = reply(id, Err((INVALID_PARAMS, why)));
            if let Err(fail) = self.connection.send(&refused).await {
                tracing::debug!(?fail, "{} rejected an answer", self.connection.at);
            }
        }
    }

    /// Sends a question to the follower. The error is why it cannot be shown.
    pub(super) fn put_question(&mut self, open: OpenQuestion) -> Result<(), String> {
        let question = open.question()?;
        self.shared.remember_question(&open.id, &open.params);
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
            self.shared.remember_question(&open.id, &open.params);
            if let Ok(question) = open.question() {
                self.outbox.push_back(CallEvent::Question(question));
            }
        }
    }

    /// The server asks for the call to be sent again with answers (2026-07-28).
    pub(super) async fn input_required(&mut self, mut result: Value) -> Result<(), PeerError> {
        let at = self.connection.at.clone();
        let malformed = |why: &str| PeerError::Malformed { at: at.clone(), why: why.into() };
        let McpCallPhase::Call(again) = &mut self.phase else { return Ok(()) };
        let (round, most) = (again.round, self.connection.options.max_rounds);
        if round >= most {
            return Err(malformed(&format!("it asked for input {most} times (max_rounds)")));
        }
        again.state = result["requestState"].as_str().map(str::to_owned);
        again.answers = Map::new();
        let requests = match result["inputRequests"].take() {
            Value::Object(requests) => requests,
            _ if again.state.is_some() => Map::new(),
            _ => return Err(malformed("it asks for more, and does not say what")),
        };
        for (key, request) in &requests {
            if request["method"] == "roots/list" {
                again.answers.insert(key.clone(), json!({ "roots": [] }));
            }
        }
        let asked = requests.into_iter().filter(|(_, request)| request["method"] != "roots/list");
        for (key, mut request) in asked {
            // A later round may reuse a key for another question.
            let id = if round == 1 { key.clone() } else { format!("{key}#{round}") };
            let method = request["method"].as_str().unwrap_or_default().to_owned();
            let params = request.get_mut("params").map(Value::take).unwrap_or_default();
            let open = OpenQuestion { id, method, params, to: AnswerRoute::Input(key), again: false };
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
        let links = error.data.as_mut().and_then(|data| data.get_mut("elicitations")).map(Value::take);
        let links = links.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        if links.is_empty() {
            return Ok(Some(self.failed(&error.message)));
        }
        for (n, mut params) in links.into_iter().enumerate() {
            let Some(members) = params.as_object_mut() else {
                let why = format!("a link that is no object: {params}");
                return Err(PeerError::Malformed { at: self.connection.at.clone(), why });
            };
            members.insert("mode".into(), "url".into());
            let id = params["elicitationId"].as_str().map_or_else(|| format!("link-{n}"), str::to_owned);
            let open = OpenQuestion {
                id,
                method: "elicitation/create".into(),
                params,
                to: AnswerRoute::Visit,
                again: false,
            };
            self.put_question(open)
                .map_err(|why| PeerError::Malformed { at: self.connection.at.clone(), why })?;
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
                let sent = self.connection.send(&reply(id, open.reply(&answer))).await;
                if let Err(fail) = sent {
                    self.open[at].again = true;
                    return Err(fail.into_peer(&self.connection.at));
                }
                self.answered.extend(name_of(&open.params).map(str::to_owned));
            }
            AnswerRoute::Input(key) => match &mut self.phase {
                McpCallPhase::Call(again) => drop(again.answers.insert(key.clone(), open.input(&answer))),
                McpCallPhase::Task(task) => {
                    let params = json!({ "taskId": task.id, "inputResponses": { key: open.input(&answer) } });
                    let told = self.connection.request("tasks/update", params).await;
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
            let params = json!({ "taskId": task.id });
            if let Err(fail) = self.connection.request("tasks/cancel", params).await {
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
            open.params["mode"] == "url"
                && open.params["elicitationId"] == *elicitation
                && !elicitation.is_null()
        });
        let Some(at) = found else { return Ok(()) };
        if let AnswerRoute::Request(id) = &self.open[at].to {
            // The server still waits for an answer to its request.
            let accepted = reply(id, Ok(json!({ "action": "accept" })));
            if let Err(fail) = self.connection.send(&accepted).await {
                tracing::debug!(?fail, "{} rejected an answer", self.connection.at);
            }
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
