//! A task that a peer does, from its first call to its end, across restarts of both sides.
//!
//! `begin` journals the handle of the call, or that the call is already over; each `follow` journals how one
//! turn of it ended. No step waits for its own commit, because the next one does. So a call that ends at
//! once costs two commits: that of the task before the peer is called, and that of its end. A question of
//! the peer is asked here. A call that cannot be resumed is made again if the table allows it, and recorded
//! answers are replayed from the journal.

use std::{collections::VecDeque, time::Duration};

use nuncio_client::peer::{CallEvent, CallHandle, PeerCallEnd, PeerCapability, PeerError};
use nuncio_engine::{
    AgentError, Answer, Message, Outcome, Part, QuestionOutcome, Role, TaskContext, question::Question,
    task::State,
};

use super::{
    RemoteSide,
    conversation::RemoteConversation,
    form, parked_calls,
    parked_calls::LiveCall,
    select_tool::{self, SelectedTool},
    turn::{self, RemoteCallRequest, RemoteCallStart, RemoteTurn, TurnStart},
    withdraw::{LocalQuestionId, RemoteQuestion},
};
use crate::configured::spec::LostCallPolicy;

/// How many calls are made for one task when they are lost at the peer or on the way.
const MOST_CALLS: u32 = 5;
/// How many calls are made because this server stopped, which does not count against the call.
const MOST_STOPS: u32 = 50;

/// Runs one task to its end.
pub(super) async fn run(there: &RemoteSide, cx: &TaskContext) -> Result<Outcome, AgentError> {
    let _hold = there.hold();
    let outcome = work(there, cx).await;
    // The task has ended: a call that is still parked is no longer needed.
    drop(parked_calls::take_parked_call(cx.task_id(), None).await);
    outcome
}

async fn work(there: &RemoteSide, cx: &TaskContext) -> Result<Outcome, AgentError> {
    let job = match there.has_tools() {
        false => message_request(there, cx),
        true => match select_tool::select_tool(there, cx).await? {
            Ok(chosen) => tool_request(cx, chosen),
            Err(outcome) => return Ok(outcome),
        },
    };
    let mut given = RecordedAnswers::default();
    let (mut losses, mut stops) = (0, 0);
    loop {
        let nth = losses + stops + 1;
        let why = match (RemoteAttempt { side: there, cx, job: &job, nth, losses })
            .run_attempt(&mut given)
            .await?
        {
            RemoteAttemptEnd::Outcome(outcome) => return Ok(outcome),
            RemoteAttemptEnd::Lost { why, again: false, .. } => {
                return Err(AgentError::failed(format!("the call was lost and is not made again: {why}")));
            }
            RemoteAttemptEnd::Lost { why, stopped, .. } => {
                *(if stopped { &mut stops } else { &mut losses }) += 1;
                why
            }
        };
        if losses == MOST_CALLS || stops == MOST_STOPS {
            return Err(AgentError::failed(format!("the call was lost {nth} times: {why}")));
        }
        given.rewind();
    }
}

/// The caller's message, with an id that is the same whenever this call is begun.
fn message_request(there: &RemoteSide, cx: &TaskContext) -> RemoteCallRequest {
    let mut input = cx.input().clone();
    input.id = name(cx);
    // They name tasks of this server.
    input.reference_task_ids = vec![];
    let conversation = Some(RemoteConversation::of(cx, there));
    RemoteCallRequest { offer: None, input, conversation, trace: Some(cx.trace().header()) }
}

fn tool_request(cx: &TaskContext, chosen: SelectedTool) -> RemoteCallRequest {
    let input = Message::of(name(cx), Role::User, vec![Part::data(chosen.arguments.into())]);
    RemoteCallRequest {
        offer: Some(chosen.tool),
        input,
        conversation: None,
        trace: Some(cx.trace().header()),
    }
}

fn name(cx: &TaskContext) -> String {
    format!("nuncio-{}", cx.task_id())
}

/// One attempt at the call.
struct RemoteAttempt<'a> {
    side: &'a RemoteSide,
    cx: &'a TaskContext,
    job: &'a RemoteCallRequest,
    nth: u32,
    /// How many attempts before it were lost, not counting those that ended with this server.
    losses: u32,
}

/// The end of an attempt.
enum RemoteAttemptEnd {
    Outcome(Outcome),
    /// The call cannot be resumed; whether it may be made again.
    Lost {
        why: String,
        again: bool,
        /// Whether this server stopped.
        stopped: bool,
    },
}

impl RemoteAttempt<'_> {
    async fn run_attempt(&self, given: &mut RecordedAnswers) -> Result<RemoteAttemptEnd, AgentError> {
        let mut live = None;
        let (mut handle, idempotent, mut over) = match self.begin(&mut live).await? {
            RemoteCallStart::Live { handle, idempotent } => (handle, idempotent, None),
            RemoteCallStart::Over { turn, idempotent } => (None, idempotent, Some(turn)),
            RemoteCallStart::Lost { why, idempotent, stopped } => {
                return Ok(self.end_of_lost_call(why, idempotent, stopped));
            }
            RemoteCallStart::Refused(why) => {
                let why = self.cx.failure_report().refusal(why);
                return Ok(RemoteAttemptEnd::Outcome(Outcome::rejected(why)));
            }
            RemoteCallStart::Away(why) => return Err(AgentError::Unreachable(why)),
        };
        let (mut open, mut said, mut answer) = (vec![], 0, None);
        loop {
            let from = TurnStart {
                open,
                text_count: said,
                answer: answer.take(),
                ..TurnStart::start(handle.clone())
            };
            let turn = match over.take() {
                Some(turn) => turn,
                None => self.follow(from, &mut live).await?,
            };
            match turn {
                RemoteTurn::Ended { state, message } => {
                    return Ok(RemoteAttemptEnd::Outcome(outcome(state, message)));
                }
                RemoteTurn::Lost(why) => return Ok(self.end_of_lost_call(why, idempotent, false)),
                RemoteTurn::Failed(why) => return Err(AgentError::Failed(why)),
                RemoteTurn::Asks { question, handle: kept, open: left, said: words } => {
                    (handle, open, said) = (kept, left, words);
                    let outcome = match given.take_recorded_answer(&question) {
                        Some(reply) => QuestionOutcome::Answered(reply),
                        None => match self.ask(&question, &mut live).await {
                            Err(AgentError::Canceled) => return self.stop(live, handle.as_ref()).await,
                            answered => answered?,
                        },
                    };
                    // A withdrawn question has no answer to forward: the following events show what became
                    // of it.
                    let QuestionOutcome::Answered(reply) = outcome else { continue };
                    // A dismissal decides nothing: if another call repeats the question, it is asked again.
                    if reply != Answer::Cancel {
                        given.now.push_back((question.clone(), reply.clone()));
                    }
                    answer = Some((question, reply));
                }
            }
        }
    }

    async fn begin(&self, live: &mut Option<LiveCall>) -> Result<RemoteCallStart, AgentError> {
        let (mut first, mut idempotent, mut unreachable) = (true, None, None);
        // A task that was begun under another setting continues as it began.
        if self.side.remote.lost != LostCallPolicy::Again && !self.cx.did_next(&self.named("begin")) {
            // Journaled before the peer is called. A run that finds this entry after a restart cannot know
            // what became of the call, nor reach the peer to find out whether it matters.
            first = false;
            let name = self.named("intend");
            idempotent = match self.side.cached_capabilities() {
                // Committed with the task itself if that is new: it costs no commit of its own.
                Some(offers) => self.cx.decide(&name, || {
                    first = true;
                    Some(self.is_idempotent_in(&offers))
                })?,
                None => {
                    let look = async |step: nuncio_engine::StepContext| {
                        first = true;
                        let known = self.is_idempotent(&step, self.side.remote.patience.begin).await?;
                        Ok(known.map_err(|why| unreachable = Some(why)).ok())
                    };
                    self.cx.step(&name, look).await?
                }
            };
        }
        let begin = async |step: nuncio_engine::StepContext| {
            if let Some(why) = unreachable.take() {
                // The time to begin has passed already.
                return Ok(RemoteCallStart::Away(why));
            }
            if !first {
                let why = "this server stopped while it began the call".to_owned();
                let idempotent = match idempotent {
                    Some(known) => Some(known),
                    None => self.is_idempotent(&step, self.side.remote.patience.resume).await?.ok(),
                };
                return Ok(RemoteCallStart::Lost {
                    why,
                    idempotent: idempotent.unwrap_or(false),
                    stopped: true,
                });
            }
            if self.losses > 0 {
                // The peer that lost the call may need a moment.
                step.sleep(self.side.remote.patience.first_pause * (1 << (self.losses + 1).min(MOST_CALLS)))
                    .await?;
            }
            let (begun, call) = turn::begin(self.side, &step, self.job, self.nth == 1).await?;
            *live = call;
            Ok(begun)
        };
        self.cx.step_unwaited(&self.named("begin"), begin).await
    }

    /// Whether the capability is declared idempotent. `Err`: the peer cannot be reached.
    async fn is_idempotent(
        &self,
        step: &nuncio_engine::StepContext,
        limit: Duration,
    ) -> Result<Result<bool, String>, AgentError> {
        let mut backoff = turn::opening_backoff(self.side, limit);
        let offers = turn::find_capabilities(self.side, step, &mut backoff).await?;
        Ok(offers.map(|offers| self.is_idempotent_in(&offers)))
    }

    fn is_idempotent_in(&self, offers: &[PeerCapability]) -> bool {
        match &self.job.offer {
            Some(name) => offers.iter().any(|offer| offer.name == *name && offer.idempotent),
            None => offers.first().is_some_and(|offer| offer.idempotent),
        }
    }

    async fn follow(
        &self,
        mut from: TurnStart,
        live: &mut Option<LiveCall>,
    ) -> Result<RemoteTurn, AgentError> {
        let mut first = true;
        let calls = from.answer.is_some()
            && from.handle.as_ref().is_some_and(|handle| self.side.peer().answer_repeats_call(handle));
        if calls && self.side.remote.lost != LostCallPolicy::Again && !self.cx.did_next(&self.named("follow"))
        {
            // As before the call itself: a run that finds this entry after a restart cannot know what became
            // of the answer.
            first = false;
            self.cx
                .step(&self.named("answer"), async |_| {
                    first = true;
                    Ok(())
                })
                .await?;
        }
        let follow = async |step| {
            if !first && live.is_none() {
                return Ok(RemoteTurn::Lost(
                    "this server stopped while it sent the call again with an answer".into(),
                ));
            }
            if live.is_none() || self.nth > 1 {
                self.count_on(&mut from).await;
            }
            turn::follow(self.side, &step, self.job, from, live, Some(self.cx)).await
        };
        self.cx.step_unwaited(&self.named("follow"), follow).await
    }

    /// Continues the count of messages from an earlier process or call, because progress may only grow.
    async fn count_on(&self, from: &mut TurnStart) {
        let task = self.cx.engine().get(&self.cx.caller(), &self.cx.task_id().to_string()).await;
        let Some((_, said)) = task.ok().and_then(|task| task.progress.clone()) else { return };
        from.has_figures = said.total.is_some();
        from.last_text = said.text;
        // Counts are small; any other figure is not a count of messages.
        if said.total.is_none() && (0.0..1e9).contains(&said.done) {
            from.text_count = from.text_count.max(said.done as u32);
        }
    }

    /// Asks a question. The call is parked meanwhile, so that the task can be suspended.
    async fn ask(
        &self,
        question: &Question,
        live: &mut Option<LiveCall>,
    ) -> Result<QuestionOutcome, AgentError> {
        let (task, here) = (self.cx.task_id(), LocalQuestionId::default());
        // An earlier run may have parked it, for the same question under another id.
        let call = match live.take() {
            Some(call) => Some(call),
            None => parked_calls::take_parked_call(task, Some(self.nth)).await,
        };
        if let Some(call) = call {
            parked_calls::park_call(
                task,
                self.nth,
                call,
                RemoteQuestion::new(self.cx, question, here.clone()),
            );
        }
        let outcome = form::ask_remote_question(self.cx, question, &here).await;
        *live = parked_calls::take_parked_call(task, Some(self.nth)).await;
        outcome
    }

    /// The task was canceled while it waited: cancels the call, and ends the task as the call ends.
    async fn stop(
        &self,
        live: Option<LiveCall>,
        handle: Option<&CallHandle>,
    ) -> Result<RemoteAttemptEnd, AgentError> {
        let waited = match live {
            Some(live) => cancel_and_wait(live).await,
            None => Err(PeerError::Gone("the call is not here".into())),
        };
        let ended = match (waited, handle) {
            (Err(_), Some(handle)) => match self.side.peer().resume(handle).await {
                Ok(call) => cancel_and_wait(LiveCall::new(call, self.side)).await,
                Err(error) => Err(error),
            },
            (waited, _) => waited,
        };
        match ended {
            Ok(ended) => Ok(RemoteAttemptEnd::Outcome(outcome(ended.state, ended.message))),
            Err(error) => {
                tracing::warn!(task = %self.cx.task_id(), %error, "the peer could not be asked to cancel");
                Err(AgentError::Canceled)
            }
        }
    }

    fn end_of_lost_call(&self, why: String, idempotent: bool, stopped: bool) -> RemoteAttemptEnd {
        let again = match self.side.remote.lost {
            LostCallPolicy::Again => true,
            LostCallPolicy::Safe => idempotent,
            LostCallPolicy::Fail => false,
        };
        RemoteAttemptEnd::Lost { why, again, stopped }
    }

    fn named(&self, step: &str) -> String {
        if self.nth == 1 { step.to_owned() } else { format!("{step}:{}", self.nth) }
    }
}

/// Cancels a call and waits for its end. It may have ended by itself.
async fn cancel_and_wait(mut live: LiveCall) -> Result<PeerCallEnd, PeerError> {
    let told = live.call.cancel().await;
    for happened in live.ahead {
        if let CallEvent::Ended(ended) = happened? {
            return Ok(ended);
        }
    }
    told?;
    loop {
        if let CallEvent::Ended(ended) = live.call.next().await? {
            return Ok(ended);
        }
    }
}

/// Questions and answers: of the calls before this one, as far as it repeats the questions, and of this one.
#[derive(Default)]
struct RecordedAnswers {
    before: VecDeque<(Question, Answer)>,
    now: VecDeque<(Question, Answer)>,
}

impl RecordedAnswers {
    /// The recorded answer to the same question at the same position.
    fn take_recorded_answer(&mut self, question: &Question) -> Option<Answer> {
        let (asked, answer) = self.before.pop_front()?;
        if asked.text == question.text && asked.ask == question.ask {
            return Some(answer);
        }
        // This call takes another path: the later recorded answers do not apply.
        self.before.clear();
        None
    }

    fn rewind(&mut self) {
        // Answers that the lost call had not asked for yet also apply to the next one.
        self.now.append(&mut self.before);
        self.before = std::mem::take(&mut self.now);
    }
}

/// The end of a call as the outcome of a task.
fn outcome(state: State, message: Option<Message>) -> Outcome {
    let words = message.as_ref().map(Message::joined_text).filter(|words| !words.is_empty());
    match state {
        State::Completed => Outcome::Completed(message),
        State::Rejected => {
            Outcome::Rejected(words.unwrap_or_else(|| "the other side did not take it".into()))
        }
        State::Canceled => Outcome::Canceled(words),
        _ => Outcome::Failed(words.unwrap_or_else(|| "it failed on the other side, without a word".into())),
    }
}
