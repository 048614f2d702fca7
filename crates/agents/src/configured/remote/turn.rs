//! One turn of a call: from its beginning, or from an answer, until the peer ends the call or asks. Each
//! turn is the body of a step, so it may be repeated from where it began.

use std::time::Duration;

use nuncio_client::peer::{
    CallEvent, CallFollower, CallHandle, FollowOptions, FollowedEvent, PeerCallEnd, PeerCallRequest,
    PeerCapability, PeerError,
};
use nuncio_engine::{
    AgentError, Answer, Level, Message, StepContext, TaskContext, event::ArtifactChunk, question::Question,
    task::State,
};
use nuncio_outbound::Backoff;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    RemoteSide, artifacts::RemoteArtifacts, conversation::RemoteConversation, parked_calls::LiveCall,
};

/// The longest backoff.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A call that ends within this time is journaled together with its end. Any other is journaled after it, so
/// that it can be resumed; until then a crash leaves it as a call that was being begun.
const SOON: Duration = Duration::from_millis(10);
/// Events that are read ahead meanwhile.
const MOST_AHEAD: usize = 64;

/// A call to make at the peer.
pub(super) struct RemoteCallRequest {
    /// The name of the capability; `None`: the only one.
    pub(super) offer: Option<String>,
    pub(super) input: Message,
    /// The conversation that it belongs to, if the protocol has conversations.
    pub(super) conversation: Option<RemoteConversation>,
    pub(super) trace: Option<String>,
}

/// How a call began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum RemoteCallStart {
    /// The call is running. Without a handle it cannot be resumed.
    Live { handle: Option<CallHandle>, idempotent: bool },
    /// The call is already over.
    Over { turn: RemoteTurn, idempotent: bool },
    /// Whether the peer accepted the call is unknown.
    Lost {
        why: String,
        idempotent: bool,
        /// Whether it was lost because this server stopped.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped: bool,
    },
    /// The peer rejected the call.
    Refused(String),
    /// The peer is unreachable.
    Away(String),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum RemoteTurn {
    /// The call is over.
    Ended { state: State, message: Option<Message> },
    /// The peer asks a question.
    Asks { question: Question, handle: Option<CallHandle>, open: Vec<ArtifactChunk>, said: u32 },
    /// The call cannot be resumed.
    Lost(String),
    /// The peer is unreachable, or its messages are invalid.
    Failed(String),
}

/// Where a turn starts.
pub(super) struct TurnStart {
    pub(super) handle: Option<CallHandle>,
    pub(super) open: Vec<ArtifactChunk>,
    /// How many messages without figures there were.
    pub(super) text_count: u32,
    /// Whether there were figures, so that messages do not count as progress.
    pub(super) has_figures: bool,
    /// The last message that an earlier process reported. The first one received now may repeat it.
    pub(super) last_text: Option<String>,
    /// The last question of the call, with its answer.
    pub(super) answer: Option<(Question, Answer)>,
}

impl TurnStart {
    /// A start before the first message.
    pub(super) fn start(handle: Option<CallHandle>) -> Self {
        Self { handle, open: vec![], text_count: 0, has_figures: false, last_text: None, answer: None }
    }
}

/// The peer's capabilities, cached or read now. `Err`: the peer is unreachable.
pub(super) async fn find_capabilities(
    there: &RemoteSide,
    step: &StepContext,
    backoff: &mut Backoff,
) -> Result<Result<std::sync::Arc<[PeerCapability]>, String>, AgentError> {
    if let Some(known) = there.cached_capabilities() {
        return Ok(Ok(known));
    }
    loop {
        let began = Instant::now();
        match there.refresh_capabilities().await {
            Ok(offers) => return Ok(Ok(offers)),
            Err(error) if wait_before_retry(backoff, step, began, &error).await? => {}
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
}

/// Begins a call. Returns the live call beside its journal entry.
pub(super) async fn begin(
    there: &RemoteSide,
    step: &StepContext,
    job: &RemoteCallRequest,
    is_first: bool,
) -> Result<(RemoteCallStart, Option<LiveCall>), AgentError> {
    // One deadline for all that it takes to begin.
    let mut backoff = opening_backoff(there, there.remote.patience.begin);
    let offers = match find_capabilities(there, step, &mut backoff).await? {
        Ok(offers) => offers,
        Err(why) => return Ok((RemoteCallStart::Away(why), None)),
    };
    let offer = match &job.offer {
        Some(name) => offers.iter().find(|offer| offer.name == *name),
        None => offers.first(),
    };
    let name = offer.map(|offer| offer.name.clone()).or(job.offer.clone()).unwrap_or_default();
    let idempotent = offer.is_some_and(|offer| offer.idempotent);
    let mut context = match &job.conversation {
        Some(conversation) => conversation.name().await,
        None => None,
    };
    loop {
        let begin = PeerCallRequest {
            offer: name.clone(),
            input: job.input.clone(),
            context: context.clone(),
            trace: job.trace.clone(),
        };
        let error = match begin_and_await_handle(there, step, begin).await {
            Ok((mut live, handle)) => {
                // For a later call the messages before it have to be read first.
                if !is_first || !is_soon_over(step, &mut live).await {
                    return Ok((RemoteCallStart::Live { handle, idempotent }, Some(live)));
                }
                let from = TurnStart::start(handle);
                let turn = follow(there, step, job, from, &mut Some(live), None).await?;
                return Ok((RemoteCallStart::Over { turn, idempotent }, None));
            }
            Err(error) => error,
        };
        // The time of the attempt does not count: the peer may hold back its response while it works.
        if error.is_transient() && wait_before_retry(&mut backoff, step, Instant::now(), &error).await? {
            continue;
        }
        let begun = match error {
            // Not every peer lets clients name the conversation.
            PeerError::Refused(_) | PeerError::Gone(_) if context.take().is_some() => continue,
            PeerError::Refused(why) => RemoteCallStart::Refused(why),
            PeerError::Cut(why) => RemoteCallStart::Lost { why, idempotent, stopped: false },
            // The peer was called, so no other agent may be.
            error @ PeerError::Outage { .. } => {
                RemoteCallStart::Over { turn: RemoteTurn::Failed(error.to_string()), idempotent }
            }
            other => RemoteCallStart::Away(other.to_string()),
        };
        return Ok((begun, None));
    }
}

/// Begins a call and waits for its first event: the handle, if the call can be resumed.
async fn begin_and_await_handle(
    there: &RemoteSide,
    step: &StepContext,
    begin: PeerCallRequest,
) -> Result<(LiveCall, Option<CallHandle>), PeerError> {
    let mut live = LiveCall::new(there.peer().begin(begin).await?, there);
    let happened = tokio::select! {
        happened = live.call.next() => happened?,
        // The turn that follows cancels it.
        () = step.canceled() => return Ok((live, None)),
    };
    match happened {
        CallEvent::HandleUpdated(handle) => Ok((live, Some(handle))),
        other => {
            live.ahead.push_back(Ok(other));
            Ok((live, None))
        }
    }
}

/// Whether a call ends within [`SOON`]. Its events until then are read ahead.
async fn is_soon_over(step: &StepContext, live: &mut LiveCall) -> bool {
    let mut moment = std::pin::pin!(tokio::time::sleep(SOON));
    loop {
        match live.ahead.back() {
            Some(Ok(CallEvent::Ended(_))) => return true,
            Some(Ok(CallEvent::Question(_)) | Err(_)) => return false,
            _ if live.ahead.len() >= MOST_AHEAD => return false,
            _ => {}
        }
        tokio::select! {
            biased;
            happened = live.call.next() => live.ahead.push_back(happened),
            () = step.canceled() => return false,
            () = &mut moment => return false,
        }
    }
}

/// Follows a call until it ends or asks. `live` is the call, if this process has it; a call that asks stays
/// in it.
pub(super) async fn follow(
    there: &RemoteSide,
    step: &StepContext,
    job: &RemoteCallRequest,
    from: TurnStart,
    live: &mut Option<LiveCall>,
    cx: Option<&TaskContext>,
) -> Result<RemoteTurn, AgentError> {
    // MCP tools accept no messages while they work.
    let cx = cx.filter(|_| !there.has_tools());
    if let Some(cx) = cx {
        cx.receive_messages();
    }
    // While the call is open the peer itself retries, and reports an outage that lasted too long as such: it is not
    // waited for twice.
    let mut follower = CallFollower::new(from.handle, follow_options(there));
    if let Some((question, answer)) = from.answer {
        follower.record_answer(question, answer);
    }
    let mut turn = TurnFollower {
        cx,
        passed: cx.map_or(0, TaskContext::messages_before),
        step,
        job,
        follower,
        artifacts: RemoteArtifacts::after(from.open),
        text_count: from.text_count,
        has_figures: from.has_figures,
        last_text: from.last_text,
        answered: None,
        cancel_sent: false,
    };
    loop {
        if live.is_none() {
            let began = Instant::now();
            *live = match turn.follower.resume(&**there.peer()).await {
                Ok(call) => Some(LiveCall::new(call, there)),
                // Resuming has no side effect, so it may be retried.
                Err(error) => match turn.follower.record_failure(began, &error) {
                    Some(pause) => {
                        step.sleep(pause).await?;
                        continue;
                    }
                    None => return Ok(turn.turn_for_error(&error)),
                },
            };
        }
        let Some(call) = live.as_mut() else { continue };
        match turn.follow_call(call).await? {
            Ok(ended) => return Ok(ended),
            Err(error) => {
                // The call may go on at the peer although the connection broke.
                *live = None;
                if !there.has_tools()
                    && let Some((question, answer)) = turn.answered.take()
                    && turn.follower.first_answer().is_none()
                {
                    // A peer that repeats a question has not received the answer.
                    turn.follower.record_answer(question, answer);
                }
                let pause = turn.follower.record_cut(&error);
                match pause.filter(|_| turn.follower.handle().is_some()) {
                    Some(pause) => step.sleep(pause).await?,
                    None => return Ok(turn.turn_for_error(&error)),
                }
            }
        }
    }
}

/// A running turn.
struct TurnFollower<'a> {
    /// The task whose new messages are forwarded, and how many were.
    cx: Option<&'a TaskContext>,
    passed: u64,
    step: &'a StepContext,
    job: &'a RemoteCallRequest,
    /// The handle, the retries, and an answer that the peer may not have received.
    follower: CallFollower,
    artifacts: RemoteArtifacts,
    text_count: u32,
    has_figures: bool,
    last_text: Option<String>,
    /// The question that was answered in this turn, with the answer. The peer may repeat it.
    answered: Option<(Question, Answer)>,
    /// Whether the cancellation was sent.
    cancel_sent: bool,
}

impl TurnFollower<'_> {
    /// How the turn ends if the call cannot be followed.
    fn turn_for_error(&self, error: &PeerError) -> RemoteTurn {
        match error {
            PeerError::Gone(_) | PeerError::Cut(_) => RemoteTurn::Lost(error.to_string()),
            other => RemoteTurn::Failed(other.to_string()),
        }
    }

    /// Follows the call as long as its connection lasts.
    async fn follow_call(
        &mut self,
        live: &mut LiveCall,
    ) -> Result<Result<RemoteTurn, PeerError>, AgentError> {
        if let Some((question, answer)) = self.follower.first_answer().cloned() {
            match live.call.answer(&question.id, answer.clone()).await {
                Ok(()) => {
                    self.follower.forget_answer(&question.id);
                    self.answered = Some((question, answer));
                }
                Err(PeerError::Refused(why)) => return Ok(Ok(self.ask_again(question, &why))),
                // The question is not open yet, or no longer: the following events show which.
                Err(PeerError::Gone(_)) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        loop {
            let happened = match live.ahead.pop_front() {
                Some(Ok(happened)) => happened,
                Some(Err(error)) => return Ok(Err(error)),
                None => tokio::select! {
                    happened = live.call.next() => match happened {
                        Ok(happened) => happened,
                        Err(error) => return Ok(Err(error)),
                    },
                    () = message_due(self.cx, self.passed), if !self.cancel_sent => {
                        self.pass_message(live).await?;
                        continue;
                    }
                    () = self.step.canceled(), if !self.cancel_sent => {
                        self.cancel_sent = true;
                        if let Err(error) = live.call.cancel().await {
                            tracing::debug!(%error, "the peer could not be asked to cancel");
                            return Err(AgentError::Canceled);
                        }
                        continue;
                    }
                },
            };
            if let Some(turn) = self.apply_event(live, happened).await? {
                return Ok(turn);
            }
        }
    }

    /// Forwards a message that arrived meanwhile. A repeated turn sends it again, under the same id.
    async fn pass_message(&mut self, live: &LiveCall) -> Result<(), AgentError> {
        let Some(cx) = self.cx else { return Ok(()) };
        let Some(mut message) = cx.next_message(self.passed)? else { return Ok(()) };
        self.passed += 1;
        message.id = format!("nuncio-{}-{}", cx.task_id(), self.passed);
        // They name tasks of this server.
        message.reference_task_ids = vec![];
        match live.call.control().send_message(message).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let line = format!("a message could not be passed on to the other side: {error}");
                self.step.report(Level::Warning, line).await
            }
        }
    }

    /// Reports an event of the call to the task. `Some`: it ends the turn.
    async fn apply_event(
        &mut self,
        live: &LiveCall,
        happened: CallEvent,
    ) -> Result<Option<Result<RemoteTurn, PeerError>>, AgentError> {
        if let CallEvent::Question(question) = &happened
            && self.answered.as_ref().is_some_and(|(answered, _)| answered.id == question.id)
        {
            return Ok(None);
        }
        let happened = match self.follower.receive(happened) {
            FollowedEvent::Event(happened) => happened,
            FollowedEvent::AskedAgain(question, answer) => {
                match live.call.answer(&question.id, answer.clone()).await {
                    Ok(()) => self.answered = Some((question, answer)),
                    Err(PeerError::Refused(why)) => return Ok(Some(Ok(self.ask_again(question, &why)))),
                    Err(PeerError::Gone(_)) => {}
                    Err(error) => {
                        self.follower.record_answer(question, answer);
                        return Ok(Some(Err(error)));
                    }
                }
                return Ok(None);
            }
        };
        match happened {
            CallEvent::HandleUpdated(_) | CallEvent::QuestionClosed(_) => {}
            CallEvent::Progress(progress) => {
                self.has_figures = true;
                self.step.progress(progress.done, progress.total, progress.text.unwrap_or_default()).await?;
            }
            CallEvent::Log(line) => self.step.log(line.level, line.text).await?,
            CallEvent::Artifact(chunk) => self.step.artifact(self.artifacts.take(chunk)).await?,
            CallEvent::Context(context) => {
                if let Some(conversation) = &self.job.conversation {
                    conversation.remember(&context).await;
                }
            }
            CallEvent::Message(message) => self.report_message(&message).await?,
            CallEvent::Question(question) => return Ok(Some(Ok(self.asks(question)))),
            CallEvent::Ended(PeerCallEnd { state, message }) => {
                let state = if state.is_terminal() { state } else { State::Failed };
                return Ok(Some(Ok(RemoteTurn::Ended { state, message })));
            }
        }
        Ok(None)
    }

    fn asks(&mut self, question: Question) -> RemoteTurn {
        let open = std::mem::take(&mut self.artifacts).open();
        RemoteTurn::Asks { question, handle: self.follower.handle().cloned(), open, said: self.text_count }
    }

    /// The peer rejected the answer: asks the caller again, with the reason.
    fn ask_again(&mut self, question: Question, why: &str) -> RemoteTurn {
        let why = match self.step.failure_report().is_open() {
            true => why,
            false => "it does not fit",
        };
        let text = match question.text.split_once(REFUSED) {
            Some((text, _)) => format!("{text}{REFUSED}{why})"),
            None => format!("{}{REFUSED}{why})", question.text),
        };
        self.asks(Question { text, ..question })
    }

    /// Reports a message as progress, or as a log line if there are figures.
    async fn report_message(&mut self, message: &Message) -> Result<(), AgentError> {
        let text = message.joined_text();
        if text.is_empty() || self.last_text.take().is_some_and(|words| words == text) {
            return Ok(());
        }
        if self.has_figures {
            return self.step.log(Level::Info, text).await;
        }
        self.text_count += 1;
        self.step.progress(f64::from(self.text_count), None, text).await
    }
}

/// Waits for a message to forward; for ever if none can be.
async fn message_due(cx: Option<&TaskContext>, passed: u64) {
    match cx {
        Some(cx) => cx.wait_for_message(passed).await,
        None => std::future::pending().await,
    }
}

/// The text before the reason for which an answer was rejected.
const REFUSED: &str = " (the last answer was not taken: ";

/// How a call is followed across its connections.
fn follow_options(there: &RemoteSide) -> FollowOptions {
    FollowOptions {
        first_pause: there.remote.patience.first_pause,
        longest_pause: LONGEST_WAIT,
        longest_named_pause: Duration::MAX,
        limit: there.remote.patience.resume,
        outlasts_outage: false,
        begins_again: false,
        stable_after: None,
        // MCP servers repeat a question under another id; A2A agents do not, and may ask the next one with the same
        // text.
        is_repeat: match there.has_tools() {
            true => |one, other| one.id == other.id || (one.text == other.text && one.ask == other.ask),
            false => |one, other| one.id == other.id,
        },
    }
}

/// The backoff of requests that open a call, which a peer does not retry by itself.
pub(super) fn opening_backoff(there: &RemoteSide, limit: Duration) -> Backoff {
    Backoff::new(there.remote.patience.first_pause, LONGEST_WAIT, limit)
}

/// Waits before a retry. False: the deadline has passed, or a retry would not help.
async fn wait_before_retry(
    backoff: &mut Backoff,
    step: &StepContext,
    began: Instant,
    error: &PeerError,
) -> Result<bool, AgentError> {
    let wanted = match error {
        PeerError::Unreachable { .. } | PeerError::NoCard { .. } | PeerError::Cut(_) => None,
        PeerError::Busy { retry_after, .. } => *retry_after,
        _ => return Ok(false),
    };
    let Some(pause) = backoff.fail(began, wanted) else { return Ok(false) };
    step.sleep(pause).await?;
    Ok(true)
}
