//! A task that is done elsewhere, from its first call to its end, through restarts of both sides.
//!
//! `begin` journals what leads back to the call, or that it is over already; each `follow` how one turn of it ended.
//! No step waits for its own commit, because the next one does: so a call that ends at once costs two commits, that of
//! the task before anybody is called and that of its end. What is asked there is asked here. A call to which there is
//! no way back is made again, if the table says so, and what was answered before is answered from the journal.

use std::{collections::VecDeque, time::Duration};

use nuncio_client::peer::{Ended, Handle, Happened, Offer, PeerError};
use nuncio_engine::{
    AgentError, Answer, Message, Outcome, Part, QuestionOutcome, Role, TaskContext, question::Question,
    task::State,
};

use super::{
    There,
    choose::{self, Chosen},
    conversation::Conversation,
    form, pool,
    pool::Live,
    turn::{self, Begun, From, Job, Turn},
    withdraw::{LocalId, RemoteQuestion},
};
use crate::configured::spec::Lost;

/// How often a call is made for one task that is lost on the way or over there.
const MOST_CALLS: u32 = 5;
/// How often because this server stopped, which says nothing about the call.
const MOST_STOPS: u32 = 50;

/// Works on one task to its end.
pub(super) async fn run(there: &There, cx: &TaskContext) -> Result<Outcome, AgentError> {
    let _hold = there.hold();
    let outcome = work(there, cx).await;
    // It has ended: nobody comes back for what still waits.
    drop(pool::take(cx.task_id(), None).await);
    outcome
}

async fn work(there: &There, cx: &TaskContext) -> Result<Outcome, AgentError> {
    let job = match there.has_tools() {
        false => whole(there, cx),
        true => match choose::decide(there, cx).await? {
            Ok(chosen) => tool(cx, chosen),
            Err(outcome) => return Ok(outcome),
        },
    };
    let mut given = Given::default();
    let (mut losses, mut stops) = (0, 0);
    loop {
        let nth = losses + stops + 1;
        let why = match (Attempt { there, cx, job: &job, nth, losses }).make(&mut given).await? {
            End::Outcome(outcome) => return Ok(outcome),
            End::Lost { why, again: false, .. } => {
                return Err(AgentError::failed(format!("the call was lost and is not made again: {why}")));
            }
            End::Lost { why, stopped, .. } => {
                *(if stopped { &mut stops } else { &mut losses }) += 1;
                why
            }
        };
        if losses == MOST_CALLS || stops == MOST_STOPS {
            return Err(AgentError::failed(format!("the call was lost {nth} times: {why}")));
        }
        given.begin_again();
    }
}

/// The message as it came, under a name that is the same whenever this call is begun.
fn whole(there: &There, cx: &TaskContext) -> Job {
    let mut input = cx.input().clone();
    input.id = name(cx);
    // They name tasks of this server.
    input.reference_task_ids = vec![];
    let conversation = Some(Conversation::of(cx, there));
    Job { offer: None, input, conversation, trace: Some(cx.trace().header()) }
}

fn tool(cx: &TaskContext, chosen: Chosen) -> Job {
    let input = Message::of(name(cx), Role::User, vec![Part::data(chosen.arguments.into())]);
    Job { offer: Some(chosen.tool), input, conversation: None, trace: Some(cx.trace().header()) }
}

fn name(cx: &TaskContext) -> String {
    format!("nuncio-{}", cx.task_id())
}

/// One try at the call.
struct Attempt<'a> {
    there: &'a There,
    cx: &'a TaskContext,
    job: &'a Job,
    nth: u32,
    /// How many before it were lost, but for those that ended with this server.
    losses: u32,
}

/// What came of it.
enum End {
    Outcome(Outcome),
    /// There is no way back to it; whether it may be made again.
    Lost {
        why: String,
        again: bool,
        /// Whether this server stopped.
        stopped: bool,
    },
}

impl Attempt<'_> {
    async fn make(&self, given: &mut Given) -> Result<End, AgentError> {
        let mut live = None;
        let (mut handle, idempotent, mut over) = match self.begin(&mut live).await? {
            Begun::Live { handle, idempotent } => (handle, idempotent, None),
            Begun::Over { turn, idempotent } => (None, idempotent, Some(turn)),
            Begun::Lost { why, idempotent, stopped } => return Ok(self.lost(why, idempotent, stopped)),
            Begun::Refused(why) => {
                let why = self.cx.failure_report().refusal(why);
                return Ok(End::Outcome(Outcome::rejected(why)));
            }
            Begun::Away(why) => return Err(AgentError::Unreachable(why)),
        };
        let (mut open, mut said, mut answer) = (vec![], 0, None);
        loop {
            let from = From { open, said, answer: answer.take(), ..From::start(handle.clone()) };
            let turn = match over.take() {
                Some(turn) => turn,
                None => self.follow(from, &mut live).await?,
            };
            match turn {
                Turn::Ended { state, message } => return Ok(End::Outcome(outcome(state, message))),
                Turn::Lost(why) => return Ok(self.lost(why, idempotent, false)),
                Turn::Failed(why) => return Err(AgentError::Failed(why)),
                Turn::Asks { question, handle: kept, open: left, said: words } => {
                    (handle, open, said) = (kept, left, words);
                    let outcome = match given.before(&question) {
                        Some(reply) => QuestionOutcome::Answered(reply),
                        None => match self.ask(&question, &mut live).await {
                            Err(AgentError::Canceled) => return self.stop(live, handle.as_ref()).await,
                            answered => answered?,
                        },
                    };
                    // Taken back, there is nothing to pass on: what follows says what came of it.
                    let QuestionOutcome::Answered(reply) = outcome else { continue };
                    // A dismissal decides nothing: who asks again in another call is answered anew.
                    if reply != Answer::Cancel {
                        given.now.push_back((question.clone(), reply.clone()));
                    }
                    answer = Some((question, reply));
                }
            }
        }
    }

    async fn begin(&self, live: &mut Option<Live>) -> Result<Begun, AgentError> {
        let (mut first, mut idempotent) = (true, None);
        // A task that was begun under another setting goes on as it began.
        if self.there.remote.lost != Lost::Again && !self.cx.did_next(&self.named("begin")) {
            // Written before anybody is called: whoever finds it after a restart does not know what came of it, nor
            // whether the other side is there to say if it matters.
            first = false;
            let name = self.named("intend");
            idempotent = match self.there.known() {
                // Kept with the task itself, where it has just been made: it costs no commit of its own.
                Some(offers) => self.cx.decide(&name, || {
                    first = true;
                    Some(self.is_idempotent_in(&offers))
                })?,
                None => {
                    let look = async |step: nuncio_engine::StepContext| {
                        first = true;
                        self.is_idempotent(&step, self.there.remote.patience.begin).await
                    };
                    self.cx.step(&name, look).await?
                }
            };
        }
        let begin = async |step: nuncio_engine::StepContext| {
            if !first {
                let why = "this server stopped while it began the call".to_owned();
                let idempotent = match idempotent {
                    Some(known) => Some(known),
                    None => self.is_idempotent(&step, self.there.remote.patience.resume).await?,
                };
                return Ok(Begun::Lost { why, idempotent: idempotent.unwrap_or(false), stopped: true });
            }
            if self.losses > 0 {
                // Whoever lost the call before may need a moment.
                step.sleep(self.there.remote.patience.again * (1 << (self.losses + 1).min(MOST_CALLS)))
                    .await?;
            }
            let (begun, call) = turn::begin(self.there, &step, self.job, self.nth == 1).await?;
            *live = call;
            Ok(begun)
        };
        self.cx.step_unwaited(&self.named("begin"), begin).await
    }

    /// Whether what is called says that twice is no more than once. `None`: it cannot be seen.
    async fn is_idempotent(
        &self,
        step: &nuncio_engine::StepContext,
        patience: Duration,
    ) -> Result<Option<bool>, AgentError> {
        let offers = turn::offers(self.there, step, patience).await?;
        Ok(offers.ok().map(|offers| self.is_idempotent_in(&offers)))
    }

    fn is_idempotent_in(&self, offers: &[Offer]) -> bool {
        match &self.job.offer {
            Some(name) => offers.iter().any(|offer| offer.name == *name && offer.idempotent),
            None => offers.first().is_some_and(|offer| offer.idempotent),
        }
    }

    async fn follow(&self, mut from: From, live: &mut Option<Live>) -> Result<Turn, AgentError> {
        let mut first = true;
        let calls = from.answer.is_some()
            && from.handle.as_ref().is_some_and(|handle| self.there.peer().answers_by_calling(handle));
        if calls && self.there.remote.lost != Lost::Again && !self.cx.did_next(&self.named("follow")) {
            // As before the call itself: whoever finds it after a restart does not know what came of the answer.
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
                return Ok(Turn::Lost(
                    "this server stopped while it made the call again with an answer".into(),
                ));
            }
            if live.is_none() || self.nth > 1 {
                self.count_on(&mut from).await;
            }
            turn::follow(self.there, &step, self.job, from, live, Some(self.cx)).await
        };
        self.cx.step_unwaited(&self.named("follow"), follow).await
    }

    /// Words on the way are counted on from what was said before, by another process or in another call: progress
    /// only grows.
    async fn count_on(&self, from: &mut From) {
        let task = self.cx.engine().get(&self.cx.caller(), &self.cx.task_id().to_string()).await;
        let Some((_, said)) = task.ok().and_then(|task| task.progress.clone()) else { return };
        from.has_figures = said.total.is_some();
        from.words = said.text;
        // Counts are small, and what is none is no count of words.
        if said.total.is_none() && (0.0..1e9).contains(&said.done) {
            from.said = from.said.max(said.done as u32);
        }
    }

    /// Puts a question; the call waits beside the task meanwhile, which may be let go.
    async fn ask(&self, question: &Question, live: &mut Option<Live>) -> Result<QuestionOutcome, AgentError> {
        let (task, here) = (self.cx.task_id(), LocalId::default());
        // A run before this one may have left it there, for the same question under another id.
        let call = match live.take() {
            Some(call) => Some(call),
            None => pool::take(task, Some(self.nth)).await,
        };
        if let Some(call) = call {
            pool::keep(task, self.nth, call, RemoteQuestion::new(self.cx, question, here.clone()));
        }
        let outcome = form::put(self.cx, question, &here).await;
        *live = pool::take(task, Some(self.nth)).await;
        outcome
    }

    /// The task was canceled while it waited: so is the call. How that ends there is how it ends here.
    async fn stop(&self, live: Option<Live>, handle: Option<&Handle>) -> Result<End, AgentError> {
        let waited = match live {
            Some(live) => stopped(live).await,
            None => Err(PeerError::Gone("the call is not here".into())),
        };
        let ended = match (waited, handle) {
            (Err(_), Some(handle)) => match self.there.peer().resume(handle).await {
                Ok(call) => stopped(Live::new(call, self.there)).await,
                Err(error) => Err(error),
            },
            (waited, _) => waited,
        };
        match ended {
            Ok(ended) => Ok(End::Outcome(outcome(ended.state, ended.message))),
            Err(error) => {
                tracing::warn!(task = %self.cx.task_id(), %error, "the other side could not be told to stop");
                Err(AgentError::Canceled)
            }
        }
    }

    fn lost(&self, why: String, idempotent: bool, stopped: bool) -> End {
        let again = match self.there.remote.lost {
            Lost::Again => true,
            Lost::Safe => idempotent,
            Lost::Fail => false,
        };
        End::Lost { why, again, stopped }
    }

    fn named(&self, step: &str) -> String {
        if self.nth == 1 { step.to_owned() } else { format!("{step}:{}", self.nth) }
    }
}

/// Stops a call and waits for its end. It may have ended by itself.
async fn stopped(mut live: Live) -> Result<Ended, PeerError> {
    let told = live.call.cancel().await;
    for happened in live.ahead {
        if let Happened::Ended(ended) = happened? {
            return Ok(ended);
        }
    }
    told?;
    loop {
        if let Happened::Ended(ended) = live.call.next().await? {
            return Ok(ended);
        }
    }
}

/// What was asked and answered: in the calls before this one, as far as it asks the same again, and in this one.
#[derive(Default)]
struct Given {
    before: VecDeque<(Question, Answer)>,
    now: VecDeque<(Question, Answer)>,
}

impl Given {
    /// The answer that was given before to the same question at the same place.
    fn before(&mut self, question: &Question) -> Option<Answer> {
        let (asked, answer) = self.before.pop_front()?;
        if asked.text == question.text && asked.ask == question.ask {
            return Some(answer);
        }
        // It went another way: what followed there does not count here.
        self.before.clear();
        None
    }

    fn begin_again(&mut self) {
        // What the call was not asked yet that broke off counts for the next one, too.
        self.now.append(&mut self.before);
        self.before = std::mem::take(&mut self.now);
    }
}

/// The end of a call as the end of a task.
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
