//! The driver of one run: polls an agent's future until the task ends, is parked, or is handed back.
//!
//! Everything that is written on the way goes through the run's [`Lease`].

use std::{any::Any, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::OptionFuture};
use tokio::time::Instant;

use super::{
    lease::{Lease, ParkResult, RunStop},
    probation::TrialPermit,
};
use crate::{
    agent::{AgentError, Outcome},
    catalog::RegisteredAgent,
    clock::Timestamp,
    content::{Message, Part, Role},
    context::TaskContext,
    cpu_share,
    engine::{RunRegistration, Slot, wait_until_closing},
    event::{Event, Status},
    run::{PendingCommit, TaskRun},
    store::RunChange,
    task::{self, State},
    trace::Trace,
};

type AgentResult = Result<Result<Outcome, AgentError>, Box<dyn Any + Send>>;
type AgentFuture = Pin<Box<dyn Future<Output = AgentResult> + Send>>;

/// One agent that works on one task.
pub(crate) struct Driver {
    run: Arc<TaskRun>,
    agent: AgentFuture,
    trial: Option<TrialPermit>,
    /// Counts against the cap on running tasks.
    _slot: Slot,
}

impl Driver {
    pub(crate) fn new(run: Arc<TaskRun>, registered: &RegisteredAgent, slot: Slot) -> Self {
        let agent = Arc::clone(&registered.agent);
        let cx = TaskContext::root(Arc::clone(&run));
        let agent = AssertUnwindSafe(async move { agent.run(cx).await }).catch_unwind();
        Self { run, agent: Box::pin(agent), trial: None, _slot: slot }
    }

    /// Puts the run on trial: it is a suspect. The caller has already made that durable.
    pub(super) fn on_trial(mut self, trial: Option<TrialPermit>) -> Self {
        self.trial = trial;
        self
    }

    /// Polls the agent once. An agent that only computes finishes in this poll, and its whole task is one commit.
    pub(crate) fn try_finish(&mut self) -> Option<Event> {
        let result = (&mut self.agent).now_or_never()?;
        Some(self.end_of(result))
    }

    /// The event that ends the task, from what the agent's future returned.
    fn end_of(&self, result: AgentResult) -> Event {
        let result = match result {
            Ok(result) => result,
            Err(panic) => return self.fault(describe_panic(&*panic)),
        };
        let result = result.and_then(|outcome| self.run.check_replayed().map(|()| outcome));
        let (state, text) = match result {
            // Canceled at another point than before its restart, an agent has good reason to act differently.
            Err(AgentError::Nondeterministic(_)) if self.run.is_canceled() => (State::Canceled, None),
            Ok(Outcome::Completed(message)) => {
                let message = message.map(|m| self.named(m));
                return Event::Status(Status { state: State::Completed, message, by: None });
            }
            Ok(Outcome::Replied(message)) => {
                let state = if self.run.may_reply() { State::Replied } else { State::Completed };
                return Event::Status(Status { state, message: Some(self.named(message)), by: None });
            }
            Ok(Outcome::Failed(why)) => (State::Failed, Some(why)),
            Ok(Outcome::Rejected(why)) => (State::Rejected, Some(why)),
            Ok(Outcome::Canceled(why)) => (State::Canceled, why),
            Err(AgentError::Canceled) => (State::Canceled, None),
            Err(AgentError::Failed(why)) => {
                self.note_failure(&why);
                (State::Failed, Some(why))
            }
            Err(AgentError::Unreachable(why)) => {
                self.note_failure(&why);
                let message = self.named(Message::of("", Role::Agent, vec![Part::text(why)]));
                let message = Some(task::as_unreachable(message));
                return Event::Status(Status { state: State::Failed, message, by: None });
            }
            Err(error) => return self.fault(error.to_string()),
        };
        self.end_with(state, text)
    }

    fn end_with(&self, state: State, text: Option<String>) -> Event {
        let message = text.map(|text| self.named(Message::of("", Role::Agent, vec![Part::text(text)])));
        Event::Status(Status { state, message, by: None })
    }

    fn overdue(&self, limit: Duration) -> Event {
        let why = format!("the agent ran longer than its time limit of {limit:?}");
        self.note_failure(&why);
        self.end_with(State::Failed, Some(why))
    }

    /// Ends the task with a fault of the program; the agent did not choose this outcome.
    fn fault(&self, why: String) -> Event {
        self.note_failure(&why);
        let message = self.named(Message::of("", Role::Agent, vec![Part::text(why)]));
        Event::Status(Status { state: State::Failed, message: Some(task::as_fault(message)), by: None })
    }

    /// Notes why the run fails, for the log. An agent's own answer is not noted: it is content.
    fn note_failure(&self, why: &str) {
        let _ = self.run.failure.set(why.to_owned());
    }

    fn named(&self, mut message: Message) -> Message {
        if message.id.is_empty() {
            message.id = self.run.engine.clock.new_id().to_string();
        }
        // Some clients read only here which extensions are active.
        if message.extensions.is_empty() {
            message.extensions.clone_from(&self.run.extensions);
        }
        message
    }

    /// Drives the agent to its end. Rare paths are boxed: most tasks wait most of the time, and their future
    /// should not reserve memory for those paths meanwhile.
    pub(crate) async fn drive(mut self, mut lease: Lease, _entered: RunRegistration) {
        let run = Arc::clone(&self.run);
        let began = run.engine.clock.now();
        let engine = Arc::clone(&run.engine);
        let ended = engine.cpu.meter(&run.origin.owner, self.work(&mut lease)).await;
        self.trace(began, &ended);
        // Drop the agent before `finish` or `hand_back` releases the task. A parked task is released already.
        drop(self);
        match ended {
            Ok(Some(end)) => Box::pin(lease.finish(&run, end)).await,
            Ok(None) | Err(RunStop::Lost) => {}
            Err(RunStop::HandBack) => Box::pin(lease.hand_back(&run)).await,
        }
    }

    /// Emits a trace span for this run. A task that was resumed has several.
    fn trace(&self, began: Timestamp, ended: &Result<Option<Event>, RunStop>) {
        let (engine, origin) = (&self.run.engine, &self.run.origin);
        if engine.tracer.is_none() {
            return;
        }
        let trace = Trace::of(origin);
        if !trace.sampled {
            return;
        }
        let how = match ended {
            Ok(Some(_)) => "ended",
            Ok(None) => "parked",
            Err(RunStop::Lost) => "lost",
            Err(RunStop::HandBack) => "handed back",
        };
        let mut span = trace.span(origin.id, format!("run {}", origin.agent), began, engine.clock.now());
        span.id = trace.part(&format!("run {} {}", began.0, engine.node.0));
        span.attributes.extend([("nuncio.node", engine.node.0.to_string()), ("nuncio.run", how.to_owned())]);
        engine.trace(span);
    }

    /// `Ok(Some)`: the event that ends the task. `Ok(None)`: the task was parked.
    async fn work(&mut self, lease: &mut Lease) -> Result<Option<Event>, RunStop> {
        let run = Arc::clone(&self.run);
        let engine = Arc::clone(&run.engine);
        let mut closing = engine.closing();
        let limit = run.profile.time_limit.unwrap_or(engine.options.time_limit);
        let left = limit.saturating_sub(Duration::from_millis(run.ran_ms()));
        let mut time_over = std::pin::pin!(tokio::time::sleep(left));
        let mut grace_over = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let trial = self.trial.as_ref().map_or(Duration::MAX, |trial| trial.length);
        let mut trial_over = std::pin::pin!(tokio::time::sleep(trial));
        let mut told = false;
        let mut overdue = false;
        let mut paced = Duration::ZERO;
        loop {
            if engine.is_closing() {
                return Err(RunStop::HandBack);
            }
            lease.behind |= run.take_external_write();
            if lease.behind {
                Box::pin(lease.catch_up(&run)).await?;
            }
            if run.is_canceled() && !told {
                told = true;
                grace_over.as_mut().reset(Instant::now() + engine.options.cancel_grace);
                // Runs concurrently with the agent, which has its own cleanup to do.
                let (engine, run) = (Arc::clone(&engine), Arc::clone(&run));
                tokio::spawn(async move { engine.cancel_children_of(&run).await });
            }
            if let Some(wait) = engine.cpu.wait(&run.origin.owner) {
                tokio::select! {
                    () = tokio::time::sleep(wait.sleep) => {}
                    () = run.canceled(), if !told => {}
                    () = wait_until_closing(&mut closing) => {}
                }
                if !engine.is_closing() && (told || !run.is_canceled()) && paced < cpu_share::MAX_WAIT {
                    paced += wait.sleep;
                    continue;
                }
            }
            paced = Duration::ZERO;
            if !told
                && !lease.behind
                && let Some(wake_at) = run.parkable()
            {
                match Box::pin(lease.park(&run, wake_at)).await? {
                    ParkResult::Yes => return Ok(None),
                    ParkResult::News => continue,
                }
            }
            let work = run.take();
            let mut commit: OptionFuture<_> =
                work.as_ref().map(|work| Box::pin(lease.write(&run, work, RunChange::Keep))).into();
            // The agent continues while its output is being committed; the outer loop turns after the commit.
            let mut ended = None;
            loop {
                tokio::select! {
                    biased;
                    Some(written) = &mut commit, if work.is_some() => {
                        written?;
                        if work.as_ref().is_some_and(PendingCommit::makes_progress) {
                            self.trial = None;
                        }
                        break;
                    }
                    result = &mut self.agent, if ended.is_none() => {
                        ended = Some(result);
                    }
                    () = run.driver.notified(), if work.is_none() => break,
                    () = wait_until_closing(&mut closing), if ended.is_none() => {
                        commit.await.transpose()?;
                        return Err(RunStop::HandBack);
                    }
                    () = &mut trial_over, if self.trial.is_some() && ended.is_none() => {
                        commit.await.transpose()?;
                        Box::pin(lease.suspect(&run, None)).await?;
                        self.trial = None;
                        break;
                    }
                    () = &mut time_over, if !told && ended.is_none() => {
                        commit.await.transpose()?;
                        // As with a cancel: stop the work that the agent started elsewhere, and the tasks it
                        // called.
                        overdue = true;
                        run.cancel();
                        break;
                    }
                    () = &mut grace_over, if told && ended.is_none() => {
                        commit.await.transpose()?;
                        return Ok(Some(match overdue {
                            true => self.overdue(limit),
                            false => self.end_with(State::Canceled, None),
                        }));
                    }
                }
                if ended.is_some() && work.is_none() {
                    break;
                }
            }
            if let Some(result) = ended {
                return Ok(Some(match overdue {
                    true => self.overdue(limit),
                    false => self.end_of(result),
                }));
            }
        }
    }
}

fn describe_panic(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the agent panicked: {}", text.unwrap_or("without a message"))
}
