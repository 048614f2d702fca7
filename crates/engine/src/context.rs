//! What an agent holds while it works: its input, and every effect that is durable.
//!
//! `run` starts again from the top after a crash or an answered question, so each effect is keyed by its
//! scope and its ordinal there: what the log or the journal holds is not done again. `progress`, `log` and
//! `artifact` return when they are buffered; `step`, `ask`, `sample`, `call` and `sleep` are barriers that
//! wait for their commit.

mod calls;
mod digest;
mod messages;
mod report;

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    access::Caller,
    agent::AgentError,
    clock::Timestamp,
    commands::withdraw::QuestionWithdrawer,
    content::{Message, Metadata, Part, Role},
    engine::Engine,
    event::{ArtifactChunk, Event, Level, LogLine, Progress},
    follow::Nudge,
    journal::JournalEntry,
    question::{Answer, Ask, Question, QuestionOutcome},
    redact::KnownSecrets,
    run::{ArtifactIndex, ScopeWait, TaskRun},
    surface::CompiledSchema,
    task::{self, Task, TaskId},
    task_header::EmitCursor,
    trace::Trace,
};

pub use self::calls::Call;
pub(crate) use self::calls::CancelTrigger;
pub use self::report::FailureReport;
pub use crate::run::ParkableGuard;

/// A sleep that is longer than this gives the task back to the store, to be run again when it is over.
const LONGEST_HELD_SLEEP: Duration = Duration::from_secs(10);

/// What an agent holds while it works on one task.
///
/// One context is one line of work. Work that runs in parallel takes a [`TaskContext::branch`] each, so
/// that every branch finds its own past again.
pub struct TaskContext {
    run: Arc<TaskRun>,
    scope: String,
    line: Mutex<ScopeProgress>,
}

/// How far one line of work has come in this run.
#[derive(Default)]
struct ScopeProgress {
    ordinal: u32,
    emitted: EmitCursor,
    /// What an earlier run had emitted here.
    before: EmitCursor,
    /// The last place at which an earlier run did something, once that was looked for.
    last_before: Option<u32>,
    /// Artifacts that have their first chunk.
    begun: HashSet<String>,
    /// What was put and not waited for: durable with this ticket.
    noted: u64,
    /// A barrier is under way.
    occupied: bool,
    /// Why nothing can be done here.
    misused: Option<String>,
}

impl TaskContext {
    pub(crate) fn root(run: Arc<TaskRun>) -> Self {
        Self::line(run, String::new())
    }

    fn line(run: Arc<TaskRun>, scope: String) -> Self {
        let before = run.mark(&scope);
        Self { run, scope, line: Mutex::new(ScopeProgress { before, ..ScopeProgress::default() }) }
    }

    /// The task's identity.
    pub fn task_id(&self) -> TaskId {
        self.run.origin.id
    }

    /// The conversation that the task belongs to, by the name that its caller chose. What leaves the server names it by
    /// [`TaskContext::context_digest`].
    pub fn context_id(&self) -> &str {
        &self.run.origin.context
    }

    /// The trace that the task belongs to: what the agent asks of others belongs to it, too, with
    /// [`Trace::header`] as its `traceparent`.
    pub fn trace(&self) -> Trace {
        Trace::of(&self.run.origin)
    }

    /// In whose name the agent acts: the caller that made the task, with what it might do then.
    pub fn caller(&self) -> Caller {
        self.run.caller()
    }

    /// The agents of the tasks that called each other down to this one, from the top; empty where a caller sent it.
    pub fn called_by(&self) -> &[String] {
        &self.run.called_by
    }

    /// The engine, for what is shared beyond the task. What it says may be another thing after a restart, so ask it
    /// inside a [`TaskContext::step`].
    pub fn engine(&self) -> Engine {
        Engine(Arc::clone(&self.run.engine))
    }

    /// The message that made the task.
    pub fn input(&self) -> &Message {
        static NOTHING: std::sync::OnceLock<Message> = std::sync::OnceLock::new();
        let nothing = || Message::of("", Role::User, vec![]);
        self.run.messages.first().unwrap_or_else(|| NOTHING.get_or_init(nothing))
    }

    /// Whether the caller can be asked; else [`TaskContext::ask`] answers Unavailable at once.
    pub fn can_ask(&self) -> bool {
        self.run.abilities().ask
    }

    /// Whether another task made this one, by [`TaskContext::call`].
    pub fn is_called(&self) -> bool {
        self.run.depth > 0
    }

    /// Everything the caller has said when this run began, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.run.messages
    }

    /// The same up to the last answer: what is there when a run begins again after a restart, whatever was said since.
    pub fn messages_until_answer(&self) -> &[Message] {
        &self.run.messages[..self.run.messages_answered.min(self.run.messages.len())]
    }

    /// Everything the caller has said by now, oldest first, without what answers a question. It may be more after a
    /// restart, so ask inside a [`TaskContext::step`].
    pub async fn read_messages(&self) -> Result<Vec<Message>, AgentError> {
        let engine = &self.run.engine;
        let opened = engine.find(&self.run.caller(), &self.run.origin.id.to_string()).await;
        let task = engine.fold(&opened.map_err(AgentError::failed)?).await.map_err(AgentError::failed)?;
        Ok(task::messages_beside_answers(task.history))
    }

    /// Keeps these out of what is logged and of what is said about progress from here on, in this run.
    pub fn hide(&self, secrets: &KnownSecrets) {
        // Set once, by whoever made the agent.
        let _ = self.run.hidden.set(secrets.clone());
    }

    /// The text of the message that made the task.
    pub fn text(&self) -> String {
        self.input().joined_text()
    }

    /// A named argument, from the first data part of the input.
    pub fn argument(&self, name: &str) -> Option<&Value> {
        self.input().data().and_then(|data| data.get(name))
    }

    /// Says how far the work is.
    pub async fn progress(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
    ) -> Result<(), AgentError> {
        let text = text.into();
        self.emit("progress", text.len() + 32, Event::Progress(progress(done, total, text))).await
    }

    /// Says how far the work is, with what happened for programs: an object with a `type`.
    pub async fn progress_with(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
        data: Value,
    ) -> Result<(), AgentError> {
        let said = Progress { data: Some(data), ..progress(done, total, text.into()) };
        let size = Event::Progress(said.clone()).size() + 32;
        self.emit("progress", size, Event::Progress(said)).await
    }

    /// Adds a line to the task's log. Said here it is said once; said inside a step it is said again when
    /// the step is redone.
    pub async fn log(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        let line = LogLine { level, text: text.into() };
        self.emit("log", line.text.len() + 32, Event::Log(line)).await
    }

    /// Writes to an artifact: the first chunk begins it, later ones follow.
    pub async fn artifact(&self, chunk: Chunk) -> Result<(), AgentError> {
        let append = !self.lock().begun.insert(chunk.id.clone()) && !chunk.anew;
        let (id, scope) = (chunk.id.clone(), self.scope.as_str());
        let (size, anew) = (chunk.size(), chunk.anew);
        let write = |artifacts: &mut ArtifactIndex<'_>| {
            Ok(chunk.event(artifacts.index_for_writer(&id, scope, anew)?, append))
        };
        if self.emit_or_skip(&id, size, write).await? {
            return Ok(());
        }
        self.run.skip_chunk(&id, scope, anew)
    }

    /// Adds to an artifact that several lines of work write, in the order in which it happens. Each line's own words
    /// are in it once; a step cannot write it, because a step that is redone begins its artifacts anew.
    pub async fn add(&self, chunk: Chunk) -> Result<(), AgentError> {
        let id = chunk.id.clone();
        let size = chunk.size();
        let write = |artifacts: &mut ArtifactIndex<'_>| {
            let (index, known) = artifacts.shared_index(&id)?;
            Ok(chunk.event(index, known))
        };
        if self.emit_or_skip(&id, size, write).await? {
            return Ok(());
        }
        self.run.skip_shared(&id)
    }

    async fn emit(&self, kind: &str, size: usize, event: Event) -> Result<(), AgentError> {
        self.emit_or_skip(kind, size, |_| Ok(event)).await.map(|_| ())
    }

    /// Emits, unless an earlier run did; false when it was skipped.
    async fn emit_or_skip(
        &self,
        kind: &str,
        size: usize,
        event: impl FnOnce(&mut ArtifactIndex<'_>) -> Result<Event, AgentError>,
    ) -> Result<bool, AgentError> {
        let mark = {
            let mut line = self.vacant()?;
            line.emitted = EmitCursor { n: line.emitted.n + 1, trail: extend(line.emitted.trail, kind) };
            if line.emitted.n <= line.before.n {
                if line.emitted.n == line.before.n && line.emitted.trail != line.before.trail {
                    return Err(AgentError::Nondeterministic(format!(
                        "in scope {:?} it emitted other things than before the restart",
                        self.scope
                    )));
                }
                return Ok(false);
            }
            line.emitted
        };
        self.run.emit(Some((&self.scope, mark)), size, event).await.map(|()| true)
    }

    /// Does a named piece of work once: its result is kept, and after a restart it is returned, not redone.
    ///
    /// Everything that touches the world belongs in a step. A step may be cut by a crash and then it is
    /// begun again, so it is done at least once and finished once. Inside, use the context it is given.
    pub async fn step<T, F>(&self, name: &str, body: F) -> Result<T, AgentError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(StepContext) -> Result<T, AgentError>,
    {
        let (at, _occupied) = self.next_barrier()?;
        let result = self.work(at, name, body).await;
        self.wait_until_recorded().await;
        result
    }

    /// The same, but its result is not waited for: it is kept with what is written next. The next step or call of this
    /// line of work begins when it is durable, and so is the end of a task that ends with it: a step before the end
    /// costs no commit of its own.
    pub async fn step_unwaited<T, F>(&self, name: &str, body: F) -> Result<T, AgentError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(StepContext) -> Result<T, AgentError>,
    {
        let (at, _occupied) = self.next_barrier()?;
        self.work(at, name, body).await
    }

    /// Whether an earlier run did the step of that name next: for an agent that goes another way by now, and goes on
    /// with older tasks as they began.
    pub fn did_next(&self, name: &str) -> bool {
        let at = format!("{}#{}", self.scope, self.lock().ordinal + 1);
        matches!(self.run.replayed(|replay| replay.step(&at, name)), Ok(Some(_)))
    }

    /// Decides something at once, without touching the world: a step that is not waited for and does not wait, not even
    /// until the task is durable.
    pub fn decide<T>(&self, name: &str, find: impl FnOnce() -> T) -> Result<T, AgentError>
    where
        T: Serialize + DeserializeOwned,
    {
        let (at, _occupied) = self.next_barrier()?;
        match self.done_before(&at, name)? {
            Some(result) => result,
            None => self.record_step_result(at, name, Ok(find())),
        }
    }

    async fn work<T, F>(&self, at: String, name: &str, body: F) -> Result<T, AgentError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(StepContext) -> Result<T, AgentError>,
    {
        if let Some(result) = self.done_before(&at, name)? {
            return result;
        }
        self.wait_until_effects_allowed().await;
        let busy = self.run.busy();
        let began = self.run.engine.clock.now();
        let result = body(StepContext {
            run: Arc::clone(&self.run),
            scope: format!("{at}:{name}"),
            begun: Mutex::default(),
        })
        .await;
        self.trace_step(&at, name, began, result.as_ref().err());
        let result = self.record_step_result(at, name, result);
        drop(busy);
        result
    }

    /// What a step returned before a restart.
    fn done_before<T>(&self, at: &str, name: &str) -> Result<Option<Result<T, AgentError>>, AgentError>
    where
        T: DeserializeOwned,
    {
        let Some(result) = self.run.replayed(|replay| replay.step(at, name))? else { return Ok(None) };
        let read = |value| {
            serde_json::from_value(value).map_err(|e| {
                AgentError::Nondeterministic(format!(
                    "what step {name:?} returned before the restart is not what it returns now: {e}"
                ))
            })
        };
        Ok(Some(result.map_err(AgentError::Failed).and_then(read)))
    }

    /// Puts what a step returned. What is returned now is what a restart would return: read back from what is kept.
    fn record_step_result<T>(
        &self,
        at: String,
        name: &str,
        result: Result<T, AgentError>,
    ) -> Result<T, AgentError>
    where
        T: Serialize + DeserializeOwned,
    {
        let unkept = |e| AgentError::Misuse(format!("the result of step {name:?} cannot be kept: {e}"));
        let (kept, result) = match result {
            Ok(value) => {
                let value = serde_json::to_value(value).map_err(unkept)?;
                (Ok(value.clone()), Ok(serde_json::from_value(value).map_err(unkept)?))
            }
            Err(AgentError::Failed(why)) => (Err(why.clone()), Err(AgentError::Failed(why))),
            Err(error) => return Err(error),
        };
        self.note(JournalEntry::Step { at, name: name.into(), result: kept })?;
        result
    }

    /// Puts a record that is not waited for.
    fn note(&self, record: JournalEntry) -> Result<(), AgentError> {
        let ticket = self.run.note(record, None)?;
        self.lock().noted = ticket;
        Ok(())
    }

    /// Waits until what this line of work has put is durable.
    async fn wait_until_recorded(&self) {
        let noted = self.lock().noted;
        self.run.wait_until_durable(noted).await;
    }

    /// Waits until the world may be touched: the task is durable, and what this line of work has put.
    async fn wait_until_effects_allowed(&self) {
        self.run.wait_until_created().await;
        self.wait_until_recorded().await;
    }

    fn trace_step(&self, at: &str, name: &str, began: Timestamp, error: Option<&AgentError>) {
        let (engine, trace) = (&self.run.engine, self.trace());
        if engine.tracer.is_none() || !trace.sampled {
            return;
        }
        let mut span = trace.span(self.task_id(), format!("step {name}"), began, engine.clock.now());
        span.id = trace.part(&format!("step {at} {}", began.0));
        span.error = error.map(ToString::to_string);
        span.attributes.push(("nuncio.step", at.to_owned()));
        engine.trace(span);
    }

    /// Asks the caller, or whoever answers for them, to fill in a form: a JSON Schema of a flat object of
    /// primitives. The task waits, for a minute or a week, and holds nothing meanwhile.
    pub async fn ask(&self, text: impl Into<String>, schema: Value) -> Result<Answer, AgentError> {
        self.put_question(text, Ask::Form { schema }).await.and_then(answered)
    }

    /// Puts a question that may be taken back while it waits, by a [`TaskContext::withdrawer`]. As with
    /// [`TaskContext::ask`], [`TaskContext::sample`] and [`TaskContext::authorize`] it is answered with Unavailable at
    /// once where nobody can be asked.
    pub async fn put_question(
        &self,
        text: impl Into<String>,
        ask: Ask,
    ) -> Result<QuestionOutcome, AgentError> {
        if let Ask::Form { schema } = &ask {
            check_form(schema)?;
        }
        let abilities = self.run.abilities();
        let can = match &ask {
            Ask::Form { .. } => abilities.ask,
            Ask::Sample { .. } => abilities.sample,
            Ask::Authorization { .. } => abilities.authorize,
        };
        match ask {
            ask if can => self.question(text.into(), ask).await,
            Ask::Sample { system, max_tokens } if self.run.has_own_model() => {
                let sampled = self.sample_here(text.into(), system, max_tokens).await;
                sampled.map(QuestionOutcome::Answered)
            }
            _ => Ok(QuestionOutcome::Answered(Answer::Unavailable)),
        }
    }

    /// The id that the next question of this line of work will have.
    pub fn next_question_id(&self) -> String {
        question_id(&format!("{}#{}", self.scope, self.lock().ordinal + 1))
    }

    /// What takes questions of this task back, also while the task waits and holds nothing.
    pub fn withdrawer(&self) -> QuestionWithdrawer {
        QuestionWithdrawer {
            engine: Arc::clone(&self.run.engine),
            caller: self.run.caller(),
            task: self.run.origin.id,
        }
    }

    /// Asks the caller's model for a text of at most `max_tokens`; the server's own, where the caller has none.
    /// `Unavailable` where neither has one.
    pub async fn sample(
        &self,
        prompt: impl Into<String>,
        system: Option<String>,
        max_tokens: u32,
    ) -> Result<Answer, AgentError> {
        self.put_question(prompt, Ask::Sample { system, max_tokens }).await.and_then(answered)
    }

    /// Whether [`TaskContext::sample`] asks the server's own model, because the caller has none.
    pub fn samples_own_model(&self) -> bool {
        !self.run.abilities().sample && self.run.has_own_model()
    }

    /// Asks the server's own model, as a step. One that fails is as good as none, and the log says why.
    async fn sample_here(
        &self,
        prompt: String,
        system: Option<String>,
        max_tokens: u32,
    ) -> Result<Answer, AgentError> {
        let sampler = self.run.engine.sampler.clone();
        let text: Option<String> = self
            .step("sample", async |step| {
                let Some(sampler) = sampler else { return Ok(None) };
                let sampled = tokio::select! {
                    biased;
                    () = step.canceled() => return Err(AgentError::Canceled),
                    sampled = sampler.sample(&prompt, system.as_deref(), max_tokens) => sampled,
                };
                match sampled {
                    Ok(text) => Ok(Some(text)),
                    Err(why) => {
                        step.report(Level::Warning, format!("the server's model gave no text: {why}"))
                            .await?;
                        Ok(None)
                    }
                }
            })
            .await?;
        Ok(text.map_or(Answer::Unavailable, |text| Answer::Accept(Value::String(text))))
    }

    /// Asks for an authorization that a person gives at a link.
    pub async fn authorize(
        &self,
        text: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<Answer, AgentError> {
        self.put_question(text, Ask::Authorization { url: url.into() }).await.and_then(answered)
    }

    async fn question(&self, text: String, ask: Ask) -> Result<QuestionOutcome, AgentError> {
        let (at, _occupied) = self.next_barrier()?;
        let id = question_id(&at);
        if !self.run.replayed(|replay| replay.asked(&at, &text))? {
            let question = Question { id: id.clone(), text: text.clone(), ask };
            self.run.record(JournalEntry::Asked { at, text }, Some(Event::Question(question))).await?;
        }
        // Not parked yet, or another branch is at work: a cancel must not wait for the grace period.
        tokio::select! {
            biased;
            outcome = self.run.wait_for_outcome(&id, &self.scope) => Ok(outcome),
            () = self.run.canceled() => Err(AgentError::Canceled),
        }
    }

    /// Waits. A long sleep holds nothing and survives restarts.
    pub async fn sleep(&self, length: Duration) -> Result<(), AgentError> {
        let (at, _occupied) = self.next_barrier()?;
        let clock = &self.run.engine.clock;
        let until = match self.run.replayed(|replay| replay.slept(&at))? {
            Some(until) => until,
            None => {
                let until = clock.now().after(length);
                self.run.record(JournalEntry::Slept { at, until }, None).await?;
                until
            }
        };
        let left = until.since(clock.now());
        let _waiting =
            (left > LONGEST_HELD_SLEEP).then(|| self.run.wait_in(&self.scope, ScopeWait::Until(until)));
        tokio::select! {
            () = self.run.canceled() => Err(AgentError::Canceled),
            () = tokio::time::sleep(left) => Ok(()),
        }
    }

    /// A line of work that may run beside others. The name is its identity across restarts: there is one
    /// branch of a name, and it has no `/` or `#` in it.
    ///
    /// A branch is at work until it is dropped, and a task is only parked when all of its lines wait. So move
    /// it into the future that uses it.
    pub fn branch(&self, name: &str) -> Branch {
        let scope = match self.scope.as_str() {
            "" => name.to_owned(),
            outer => format!("{outer}/{name}"),
        };
        let misused = if name.is_empty() || name.contains(['/', '#']) {
            Some(format!("a branch's name is not empty and has no '/' or '#', unlike {name:?}"))
        } else if !self.run.enter_branch(&scope) {
            Some(format!(
                "there was a branch {scope:?} before: its name is its identity, so there is only one"
            ))
        } else {
            None
        };
        let entered = misused.is_none();
        let line = Self::line(Arc::clone(&self.run), scope);
        line.lock().misused = misused;
        Branch { line, entered }
    }

    /// Adds a line to the task's log that belongs to this run alone: after a restart it is not looked for. For the
    /// words of somebody whose order cannot be repeated, such as what a program prints beside its work.
    pub async fn remark(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        let line = LogLine { level, text: text.into() };
        self.run.emit(None, line.text.len() + 32, |_| Ok(Event::Log(line))).await
    }

    /// Waits until the task itself is durable. What touches the world outside of a step begins after this.
    pub async fn wait_until_durable(&self) {
        self.run.wait_until_created().await;
    }

    /// Begins again from the top within this run, as after a restart: for an agent whose work is done by somebody
    /// who crashed. What was done so far is replayed. There must be no branches.
    #[must_use]
    pub fn restart(self) -> Self {
        let again = Self::root(Arc::clone(&self.run));
        // Whoever crashed has not ended, so that it need not have said everything again.
        self.lock().before = EmitCursor::default();
        again
    }

    /// Asks those who follow the task on this node to go away and come again for more, where their protocol
    /// knows how: work that is quiet for long need not hold their connections.
    pub async fn release_followers(&self) -> Result<(), AgentError> {
        let (engine, origin) = (&self.run.engine, &self.run.origin);
        let caller = self.run.caller();
        let row = engine.find_row(&caller, &origin.id.to_string()).await.map_err(AgentError::failed)?;
        engine.hub.nudge(row.no, Nudge::ReleaseFollowers);
        Ok(())
    }

    /// Whether the task is to end.
    pub fn is_canceled(&self) -> bool {
        self.run.is_canceled()
    }

    /// Waits until the task is to end. An agent that tidies up selects on it; one that does not is dropped
    /// after the grace period.
    pub async fn canceled(&self) {
        self.run.canceled().await;
    }

    /// The place of the next barrier, which is the only one of this line until the guard is dropped.
    fn next_barrier(&self) -> Result<(String, BarrierGuard<'_>), AgentError> {
        let mut line = self.vacant()?;
        line.occupied = true;
        line.ordinal += 1;
        Ok((format!("{}#{}", self.scope, line.ordinal), BarrierGuard(self)))
    }

    /// The line, if something can be done in it now.
    fn vacant(&self) -> Result<parking_lot::MutexGuard<'_, ScopeProgress>, AgentError> {
        let line = self.lock();
        match &line.misused {
            Some(why) => Err(AgentError::Misuse(why.clone())),
            None if line.occupied => Err(AgentError::Misuse(
                "a step, a question or a sleep is under way in this context: inside a step use the context it is given, and beside it a branch"
                    .into(),
            )),
            None => Ok(line),
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, ScopeProgress> {
        self.line.lock()
    }
}

impl Drop for TaskContext {
    fn drop(&mut self) {
        let line = self.lock();
        if line.emitted.n < line.before.n && line.misused.is_none() {
            self.run.note_incomplete_scope(&self.scope);
        }
    }
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// How it ended.
    pub end: CallEnd,
    /// Whether it had ended before this run began.
    pub replayed: bool,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// The called task ended by itself, in whatever way.
    Ended(Task),
    /// Its time was up, and it was canceled.
    Late(Task),
    /// There is no such task: it was not taken.
    Refused(String),
}

struct BarrierGuard<'a>(&'a TaskContext);

impl Drop for BarrierGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().occupied = false;
    }
}

/// A context of a line of work that runs beside others.
pub struct Branch {
    line: TaskContext,
    entered: bool,
}

impl std::ops::Deref for Branch {
    type Target = TaskContext;

    fn deref(&self) -> &TaskContext {
        &self.line
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if self.entered {
            self.line.run.leave_branch(&self.line.scope);
        }
    }
}

/// What a step holds: it can say what it does, and nothing that would have to be remembered on its own.
///
/// When the step is redone after a crash it says everything again, and its artifacts begin anew.
pub struct StepContext {
    run: Arc<TaskRun>,
    scope: String,
    begun: Mutex<HashSet<String>>,
}

impl StepContext {
    /// Says how far the work is.
    pub async fn progress(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
    ) -> Result<(), AgentError> {
        let text = text.into();
        self.run.emit(None, text.len() + 32, |_| Ok(Event::Progress(progress(done, total, text)))).await
    }

    /// Says how far the work is, with what happened for programs: an object with a `type`.
    pub async fn progress_with(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
        data: Value,
    ) -> Result<(), AgentError> {
        let said = Progress { data: Some(data), ..progress(done, total, text.into()) };
        let size = Event::Progress(said.clone()).size() + 32;
        self.run.emit(None, size, |_| Ok(Event::Progress(said))).await
    }

    /// Adds a line to the task's log.
    pub async fn log(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        let line = LogLine { level, text: text.into() };
        self.run.emit(None, line.text.len() + 32, |_| Ok(Event::Log(line))).await
    }

    /// Writes to an artifact that belongs to this step.
    pub async fn artifact(&self, chunk: Chunk) -> Result<(), AgentError> {
        let append = !self.begun.lock().insert(chunk.id.clone());
        let append = append && !chunk.anew;
        let (id, size, anew) = (chunk.id.clone(), chunk.size(), chunk.anew);
        self.run
            .emit(None, size, |artifacts| {
                Ok(chunk.event(artifacts.index_for_writer(&id, &self.scope, anew)?, append))
            })
            .await
    }

    /// Whether the task is to end.
    pub fn is_canceled(&self) -> bool {
        self.run.is_canceled()
    }

    /// Waits until the task is to end.
    pub async fn canceled(&self) {
        self.run.canceled().await;
    }

    /// Waits, unless the task is to end.
    pub async fn sleep(&self, length: Duration) -> Result<(), AgentError> {
        tokio::select! {
            () = tokio::time::sleep(length) => Ok(()),
            () = self.run.canceled() => Err(AgentError::Canceled),
        }
    }

    /// Says that the step only waits for what a branch asks, until the guard is dropped. The task may be parked
    /// meanwhile: then the step is begun again when it is answered.
    pub fn allow_parking(&self) -> ParkableGuard<'_> {
        self.run.allow_parking()
    }

    /// A key that is the same whenever this step is redone: for services that take one.
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.run.origin.id, self.scope)
    }
}

/// A piece of an artifact, as an agent writes it.
#[derive(Debug, Clone)]
pub struct Chunk {
    id: String,
    name: Option<String>,
    description: Option<String>,
    parts: Vec<Part>,
    last: bool,
    metadata: Option<Metadata>,
    extensions: Vec<String>,
    /// Whether it replaces what is there.
    anew: bool,
}

impl Chunk {
    /// Text for the artifact of that id.
    pub fn text(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::parts(id, vec![Part::text(text)])
    }

    /// A structured value for the artifact of that id.
    pub fn data(id: impl Into<String>, value: Value) -> Self {
        Self::parts(id, vec![Part::data(value)])
    }

    /// Parts for the artifact of that id.
    pub fn parts(id: impl Into<String>, parts: Vec<Part>) -> Self {
        Self {
            id: id.into(),
            name: None,
            description: None,
            parts,
            last: false,
            metadata: None,
            extensions: vec![],
            anew: false,
        }
    }

    /// A piece of somebody else's artifact, as it came. Unless it appends it replaces what is there, also what an
    /// earlier step of the same line of work has written.
    pub fn from_elsewhere(chunk: ArtifactChunk) -> Self {
        let ArtifactChunk { id, parts, append, last, name, description, metadata, extensions, index: _ } =
            chunk;
        Self { id, name, description, parts, last, metadata, extensions, anew: !append }
    }

    /// Names the artifact.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Says what the artifact is.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Says that the artifact is complete with this.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.last = true;
        self
    }

    /// Begins the artifact anew: this replaces what is there, whoever wrote it before.
    #[must_use]
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// Gives the artifact attributes, in the place of those that it has.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    fn size(&self) -> usize {
        self.parts.iter().map(Part::size).sum::<usize>() + 48
    }

    fn event(self, index: u32, append: bool) -> Event {
        Event::Artifact(ArtifactChunk {
            id: self.id,
            index,
            parts: self.parts,
            append,
            last: self.last,
            name: self.name,
            description: self.description,
            metadata: self.metadata,
            extensions: self.extensions,
        })
    }
}

/// What is not a number (0/0) is no progress: JSON, and with it the log, has no word for it.
fn progress(done: f64, total: Option<f64>, text: String) -> Progress {
    Progress {
        done: if done.is_finite() { done } else { 0.0 },
        total: total.filter(|total| total.is_finite()),
        text: (!text.is_empty()).then_some(text),
        data: None,
    }
}

/// A short hash that grows with every emission (FNV-1a over the kinds, each with an end that no text has).
fn extend(trail: u32, kind: &str) -> u32 {
    let seed = if trail == 0 { 0x811c_9dc5 } else { trail };
    kind.bytes().chain([0xff]).fold(seed, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The id of the question at a place.
fn question_id(at: &str) -> String {
    at.replace('#', "q")
}

/// The answer to a question that nobody but its agent could have taken back.
fn answered(outcome: QuestionOutcome) -> Result<Answer, AgentError> {
    match outcome {
        QuestionOutcome::Answered(answer) => Ok(answer),
        QuestionOutcome::Withdrawn => Err(AgentError::Misuse(
            "the question was taken back, and the agent waits for its answer: put_question says which".into(),
        )),
    }
}

/// Forms on the wire are flat objects of primitives; anything else would be refused by some protocol.
fn check_form(schema: &Value) -> Result<(), AgentError> {
    let refuse = |why: &str| Err(AgentError::Misuse(format!("a form is a flat object of primitives: {why}")));
    if schema["type"] != "object" {
        return refuse("its type is not \"object\"");
    }
    let Some(properties) = schema["properties"].as_object() else {
        return refuse("it has no properties");
    };
    for (name, property) in properties {
        if !matches!(property["type"].as_str(), Some("string" | "number" | "integer" | "boolean")) {
            return refuse(&format!("{name:?} is not a string, number, integer or boolean"));
        }
    }
    match CompiledSchema::compile(schema) {
        Ok(_) => Ok(()),
        Err(error) => refuse(&error.to_string()),
    }
}
