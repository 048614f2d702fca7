//! The calls of handlers that respond at once and may ask questions first: plain tools, resources, prompts.
//!
//! In a stateless call each round is a request of its own, and the answers so far travel with the client,
//! signed. In a session the questions are sent on the call's stream, and the rounds run here, one after
//! another.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::BoxFuture;
use nuncio_engine::{
    Answer, Error,
    surface::{
        Abilities, Answers, HandlerError, HandlerQuestion, HandlerQuestions, HandlerReply,
        HandlerRequest as Round,
    },
};
use nuncio_wire::{
    jsonrpc::{self, RpcId},
    mcp::{ClientCapabilities, McpFault, McpQuestion, ProgressToken, answer_in_result, write_input_requests},
};
use serde_json::{Map, Value};

use super::{
    Mcp,
    call_stream::{CallStream, HandlerStream, McpFrame},
    client::McpClient,
    dispatch::{McpReply, McpResponse},
    request_state::{RequestState, digest},
};

/// How often one question is sent to a client that answers it wrongly; then the call fails.
const MAX_ASKS: usize = 3;
/// Maximum rounds of questions within one call of a session.
const MAX_ROUNDS: usize = 32;

/// The options of a call, besides its arguments.
#[derive(Debug, Clone, Default)]
pub(super) struct CallOptions {
    /// The token for progress notifications.
    pub(super) token: Option<ProgressToken>,
    /// W3C trace context.
    pub(super) trace: Option<String>,
    /// Respond at once, with a link to the task.
    pub(super) background: bool,
    /// The client requests a task (2025-11-25).
    pub(super) as_task: bool,
    /// Whether the client will follow the task by cursor.
    pub(super) events: bool,
    /// The idempotency key: a repeat under the same key is the same call.
    pub(super) idempotency_key: Option<String>,
}

/// Runs one round of a handler.
pub(super) type McpHandler<T> =
    Arc<dyn Fn(Round) -> BoxFuture<'static, Result<HandlerReply<T>, HandlerError>> + Send + Sync>;
/// Writes the final response of a handler.
pub(super) type ResponseWriter<T> =
    Arc<dyn Fn(&Mcp, &McpClient, &RpcId, Result<T, McpFault>) -> McpResponse + Send + Sync>;

/// One call of a handler.
pub(super) struct HandlerCall<T> {
    pub(super) method: &'static str,
    /// The name of the tool or prompt, or the URI of the resource.
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) input_responses: Option<BTreeMap<String, Value>>,
    pub(super) request_state: Option<String>,
    /// The call's options, for an agent that it is handed over to.
    pub(super) options: CallOptions,
    pub(super) handler: McpHandler<T>,
    pub(super) write: ResponseWriter<T>,
}

impl Mcp {
    /// Runs a handler to its response, or to its first question.
    pub(super) async fn handle<T: Send + 'static>(
        self: &Arc<Self>,
        client: &McpClient,
        id: &RpcId,
        handling: HandlerCall<T>,
    ) -> Result<McpReply, McpFault> {
        let now = self.engine.clock().now();
        // Computed only when needed: most calls ask no questions.
        let digest = || digest(handling.method, &handling.name, &handling.arguments);
        let mut kept = match &handling.request_state {
            Some(state) => self.state_signer.verify_state(&client.caller, &digest(), now, state)?,
            None => RequestState { task: None, answers: Answers::new(), state: None },
        };
        if handling.input_responses.as_ref().is_some_and(|given| !given.is_empty()) {
            // Runs the handler once to learn its questions: they decide which answers are accepted, and their
            // schema.
            if let Ok(HandlerReply::Ask(asking)) = (handling.handler)(round(client, &handling, &kept)).await {
                for (key, response) in handling.input_responses.iter().flatten() {
                    let answer = answer_in_result(response).ok();
                    let fits =
                        asking.questions.get(key).zip(answer).filter(|(asked, answer)| asked.takes(answer));
                    // Any other answer was not requested, or is invalid: its question is sent again if it is
                    // still open.
                    if let Some((_, answer)) = fits {
                        kept.answers.insert(key.clone(), answer);
                    }
                }
            }
        }
        let round = round(client, &handling, &kept);
        let asking = match (handling.handler)(round).await {
            Ok(HandlerReply::Done(output)) => {
                return Ok(McpReply::Now((handling.write)(self, client, id, Ok(output))));
            }
            Ok(HandlerReply::HandOver { agent, arguments }) => {
                let (along, digest) = (handling.options.clone(), digest());
                return self.hand_over(client, id, &agent, arguments, along, digest).await;
            }
            Ok(HandlerReply::Ask(asking)) => asking,
            Err(error) => return self.refuse(client, id, &handling, error),
        };
        check_abilities(client, &asking)?;
        if client.version.is_stateless() {
            let kept = RequestState { state: asking.state, ..kept };
            let until = now.after(self.options.state_ttl);
            let state = self.state_signer.sign_state(&client.caller, &digest(), until, kept);
            let body = self.result_of(
                client.version,
                id,
                "input_required",
                |result| {
                    if !asking.questions.is_empty() {
                        let asked = asking.questions.iter();
                        let asked =
                            asked.map(|(name, inquiry)| (name.as_str(), McpQuestion::Inquiry(inquiry)));
                        write_input_requests(result, client.version, asked);
                    }
                    result.value("requestState", &state);
                },
                |_| {},
            );
            return Ok(McpReply::Now(McpResponse::result(body)));
        }
        let (frames, stream) = HandlerStream::new();
        let (session, request) = (client.session.clone(), id.clone());
        let (mcp, client, id) = (Arc::clone(self), client.clone(), id.clone());
        let work = tokio::spawn(async move {
            let rounds =
                HandlerRounds { mcp: &mcp, client: &client, id: &id, handling: &handling, frames: &frames };
            rounds.run(kept.answers, asking).await;
        });
        if let Some(session) = &session {
            session.runs_handler(&request, work.abort_handle());
        }
        Ok(McpReply::Call(CallStream::Handler(stream.of(work.abort_handle(), session, request))))
    }

    fn refuse<T>(
        &self,
        client: &McpClient,
        id: &RpcId,
        handling: &HandlerCall<T>,
        error: HandlerError,
    ) -> Result<McpReply, McpFault> {
        let fault = self.fault_of(client, error);
        Ok(McpReply::Now((handling.write)(self, client, id, Err(fault))))
    }

    pub(super) fn fault_of(&self, client: &McpClient, error: HandlerError) -> McpFault {
        match error {
            // Tools report it in a result; the other methods have no better error.
            HandlerError::Failed(why) | HandlerError::Internal(why) => McpFault::internal(why),
            HandlerError::Invalid(why) => McpFault::invalid_params(why),
            HandlerError::NotFound(uri) => McpFault::no_resource(client.version, &uri),
            HandlerError::Forbidden(scope) => Error::Forbidden(scope).into(),
            HandlerError::NotOperator(scope) => Error::NotOperator(scope).into(),
            HandlerError::Later { why, retry_after, too_fast: true } => {
                Error::TooFast { why, retry_after }.into()
            }
            HandlerError::Later { why, retry_after, .. } => Error::Busy { why, retry_after }.into(),
            HandlerError::Needs(abilities) => McpFault::missing_capability(client.version, needed(abilities)),
        }
    }
}

fn round<T>(client: &McpClient, handling: &HandlerCall<T>, kept: &RequestState) -> Round {
    Round {
        caller: client.caller.clone(),
        arguments: handling.arguments.clone(),
        answers: kept.answers.clone(),
        state: kept.state.clone(),
        abilities: client.abilities(),
    }
}

fn needed(abilities: Abilities) -> ClientCapabilities {
    let Abilities { ask, authorize, sample, roots } = abilities;
    ClientCapabilities { form: ask, url: authorize, sampling: sample, roots, tasks: false }
}

/// Refuses questions that the client did not declare it can answer.
fn check_abilities(client: &McpClient, asking: &HandlerQuestions) -> Result<(), McpFault> {
    let mut missing = ClientCapabilities::default();
    for inquiry in asking
        .questions
        .values()
        .filter(|inquiry| !McpQuestion::Inquiry(inquiry).is_supported_by(client.capabilities))
    {
        match inquiry {
            HandlerQuestion::Form { .. } => missing.form = true,
            HandlerQuestion::Link { .. } => missing.url = true,
            HandlerQuestion::Sample { .. } => missing.sampling = true,
            HandlerQuestion::Roots => missing.roots = true,
        }
    }
    if missing == ClientCapabilities::default() {
        Ok(())
    } else {
        Err(McpFault::missing_capability(client.version, missing))
    }
}

/// Why a handler's question has no answer. No default replaces one: the call ends.
enum UnansweredQuestion {
    /// The client has closed the call's stream.
    Disconnected,
    /// The client's answer does not match the question.
    Wrong(McpFault),
}

/// The rounds of a handler within one call of a session.
struct HandlerRounds<'a, T> {
    mcp: &'a Arc<Mcp>,
    client: &'a McpClient,
    id: &'a RpcId,
    handling: &'a HandlerCall<T>,
    frames: &'a tokio::sync::mpsc::Sender<McpFrame>,
}

impl<T: Send + 'static> HandlerRounds<'_, T> {
    async fn run(&self, mut answers: Answers, mut asking: HandlerQuestions) {
        for _ in 0..MAX_ROUNDS {
            match self.ask(&mut answers, &asking).await {
                Ok(()) => {}
                Err(UnansweredQuestion::Disconnected) => return,
                Err(UnansweredQuestion::Wrong(fault)) => return self.send_result(Err(fault)).await,
            }
            let round = Round {
                caller: self.client.caller.clone(),
                arguments: self.handling.arguments.clone(),
                answers: answers.clone(),
                state: asking.state.take(),
                abilities: self.client.abilities(),
            };
            let fault = match (self.handling.handler)(round).await {
                Ok(HandlerReply::Done(output)) => return self.send_result(Ok(output)).await,
                Ok(HandlerReply::HandOver { agent, arguments }) => {
                    return self.hand_over(&agent, arguments).await;
                }
                Ok(HandlerReply::Ask(next)) => match check_abilities(self.client, &next) {
                    Ok(()) => {
                        asking = next;
                        continue;
                    }
                    Err(fault) => fault,
                },
                Err(error) => self.mcp.fault_of(self.client, error),
            };
            return self.send_result(Err(fault)).await;
        }
        let fault = McpFault::internal(format!("it asked {MAX_ROUNDS} times and did not come to an end"));
        self.send_result(Err(fault)).await;
    }

    /// Sends the questions one after another, because clients show one at a time.
    async fn ask(&self, answers: &mut Answers, asking: &HandlerQuestions) -> Result<(), UnansweredQuestion> {
        for (name, inquiry) in &asking.questions {
            let mut taken = None;
            for _ in 0..MAX_ASKS {
                taken = self.ask_client(inquiry).await?.filter(|answer| inquiry.takes(answer));
                if taken.is_some() {
                    break;
                }
            }
            let Some(answer) = taken else {
                let why =
                    format!("{name}: it was answered {MAX_ASKS} times in a way that does not fit its schema");
                return Err(UnansweredQuestion::Wrong(McpFault::invalid_params(why)));
            };
            answers.insert(name.clone(), answer);
        }
        Ok(())
    }

    /// Waits for the client's answer; `None` where it cannot be read.
    async fn ask_client(&self, inquiry: &HandlerQuestion) -> Result<Option<Answer>, UnansweredQuestion> {
        let Some(session) = &self.client.session else { return Ok(Some(Answer::Unavailable)) };
        let (id, asked) =
            self.mcp.client_questions.register_question(session.id(), self.mcp.engine.clock().new_id());
        let mut data = Vec::with_capacity(256);
        let inquiry = McpQuestion::Inquiry(inquiry);
        jsonrpc::write_request(&mut data, &id, inquiry.method(), |out| {
            let name = id.as_text().unwrap_or_default();
            inquiry.write_params(out, self.client.version, &name, None);
        });
        match self.frames.send(McpFrame::plain(data)).await {
            Ok(()) => Ok(asked.wait_for_answer().await),
            Err(_) => Err(UnansweredQuestion::Disconnected),
        }
    }

    async fn send_result(&self, said: Result<T, McpFault>) {
        let response = (self.handling.write)(self.mcp, self.client, self.id, said);
        let _ = self.frames.send(McpFrame::plain(response.body)).await;
    }

    async fn hand_over(&self, agent: &str, arguments: Map<String, Value>) {
        let along = self.handling.options.clone();
        let handed = self.mcp.hand_over(self.client, self.id, agent, arguments, along, String::new()).await;
        let mut stream = match handed {
            Ok(McpReply::Call(stream)) => stream,
            Ok(McpReply::Now(response)) => {
                return drop(self.frames.send(McpFrame::plain(response.body)).await);
            }
            Ok(McpReply::Listen(_)) => return,
            Err(fault) => return self.send_result(Err(fault)).await,
        };
        while let Some(frame) = Box::pin(stream.next()).await {
            // With its event id: from here on the call can be resumed.
            if self.frames.send(frame).await.is_err() {
                return;
            }
        }
    }
}
