//! The context of an agent's run: the task's input, and every durable effect that the agent may have.
//!
//! `run` starts again from the top after a crash or an answered question. Each effect is therefore keyed by
//! its scope and its ordinal there: an effect that the log or the journal holds is not repeated. `progress`,
//! `log` and `artifact` return when they are buffered. `step`, `ask`, `sample`, `call` and `sleep` are
//! barriers that wait for their commit.

mod calls;
mod digest;
mod messages;
mod report;

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

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

/// A sleep longer than this releases the task to the store; it is run again when the sleep is over.
const LONGEST_HELD_SLEEP: Duration = Duration::from_secs(10);

/// The context in which an agent works on one task.
///
/// One context is one sequential scope. Parallel work takes a [`TaskContext::branch`] each, so that every
/// branch replays its own history.
pub struct TaskContext {
    run: Arc<TaskRun>,
    scope: String,
    line: Mutex<ScopeProgress>,
}

/// How far one scope has come in this run.
#[derive(Default)]
struct ScopeProgress {
    ordinal: u32,
    emitted: EmitCursor,
    /// What an earlier run had emitted in this scope.
    before: EmitCursor,
    /// The last ordinal at which an earlier run did something; looked up once.
    last_before: Option<u32>,
    /// Artifacts whose first chunk was written.
    begun: HashSet<String>,
    /// The ticket of the last record that was put without waiting for its commit.
    noted: u64,
    /// Whether a barrier is in progress.
    occupied: bool,
    /// Why this scope can no longer be used.
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

    /// The conversation that the task belongs to, by the name that its caller chose. Outgoing requests name
    /// it by [`TaskContext::context_digest`] instead.
    pub fn context_id(&self) -> &str {
        &self.run.origin.context
    }

    /// The trace that the task belongs to. Requests that the agent sends to others join it, with
    /// [`Trace::header`] as their `traceparent`.
    pub fn trace(&self) -> Trace {
        Trace::of(&self.run.origin)
    }

    /// The caller in whose name the agent acts: the creator of the task, with the grants it had then.
    pub fn caller(&self) -> Caller {
        self.run.caller()
    }

    /// The agents of the calling tasks, from the top of the call chain; empty if a client sent the task.
    pub fn called_by(&self) -> &[String] {
        &self.run.called_by
    }

    /// The engine, for data that is shared beyond the task. Its results may differ after a restart, so read
    /// them inside a [`TaskContext::step`].
    pub fn engine(&self) -> Engine {
        Engine(Arc::clone(&self.run.engine))
    }

    /// The message that created the task.
    pub fn input(&self) -> &Message {
        static NOTHING: std::sync::OnceLock<Message> = std::sync::OnceLock::new();
        let nothing = || Message::of("", Role::User, vec![]);
        self.run.messages.first().unwrap_or_else(|| NOTHING.get_or_init(nothing))
    }

    /// Whether the caller can answer questions; otherwise [`TaskContext::ask`] returns Unavailable at once.
    pub fn can_ask(&self) -> bool {
        self.run.abilities().ask
    }

    /// Whether another task created this one, by [`TaskContext::call`].
    pub fn is_called(&self) -> bool {
        self.run.depth > 0
    }

    /// The caller's messages up to the start of this run, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.run.messages
    }

    /// The caller's messages up to the last answer. Unlike [`TaskContext::messages`], the same in every run
    /// that starts after that answer.
    pub fn messages_until_answer(&self) -> &[Message] {
        &self.run.messages[..self.run.messages_answered.min(self.run.messages.len())]
    }

    /// The caller's messages up to now, oldest first, without answers to questions. There may be more after a
    /// restart, so read them inside a [`TaskContext::step`].
    pub async fn read_messages(&self) -> Result<Vec<Message>, AgentError> {
        let engine = &self.run.engine;
        let opened = engine.find(&self.run.caller(), &self.run.origin.id.to_string()).await;
        let task = engine.fold(&opened.map_err(AgentError::failed)?).await.map_err(AgentError::failed)?;
        Ok(task::messages_beside_answers(task.history))
    }

    /// Removes these secrets from log lines and progress from here on, in this run.
    pub fn hide(&self, secrets: &KnownSecrets) {
        // Set once, by the code that built the agent.
        let _ = self.run.hidden.set(secrets.clone());
    }

    /// The text of the message that created the task.
    pub fn text(&self) -> String {
        self.input().joined_text()
    }

    /// A named argument, from the first data part of the input.
    pub fn argument(&self, name: &str) -> Option<&Value> {
        self.input().data().and_then(|data| data.get(name))
    }

    /// Reports how far the work has come.
    pub async fn progress(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
    ) -> Result<(), AgentError> {
        let text = text.into();
        self.emit("progress", text.len() + 32, Event::Progress(progress(done, total, text))).await
    }

    /// Reports how far the work has come, with data for programs: an object with a `type`.
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

    /// Adds a line to the task's log. Written here it appears once; written inside a step it appears again
    /// when the step is repeated.
    pub async fn log(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        let line = LogLine { level, text: text.into() };
        self.emit("log", line.text.len() + 32, Event::Log(line)).await
    }

    /// Writes to an artifact: the first chunk begins it, later ones are appended.
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

    /// Appends to an artifact that several scopes write, in the order of the calls. Each chunk appears once.
    /// A step cannot use it, because a repeated step begins its artifacts anew.
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

    /// Emits, unless an earlier run already did; returns false if it was skipped.
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

    /// Runs a named piece of work once: its result is recorded, and after a restart it is returned without
    /// running the work again.
    ///
    /// All side effects belong in a step. A crash may interrupt a step, which then starts over: it runs at
    /// least once and finishes once. Inside the step, use the context that it is given.
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

    /// Like [`TaskContext::step`], but does not wait for the commit of its result, which is written with the
    /// next commit. The next step or call of this scope begins after that commit, and a task that ends here
    /// ends in it: a step right before the end costs no commit of its own.
    pub async fn step_unwaited<T, F>(&self, name: &str, body: F) -> Result<T, AgentError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(StepContext) -> Result<T, AgentError>,
    {
        let (at, _occupied) = self.next_barrier()?;
        self.work(at, name, body).await
    }

    /// Whether an earlier run ran the step of that name next. For an agent whose code has changed and that
    /// still finishes older tasks in the old way.
    pub fn did_next(&self, name: &str) -> bool {
        let at = format!("{}#{}", self.scope, self.lock().ordinal + 1);
        matches!(self.run.replayed(|replay| replay.step(&at, name)), Ok(Some(_)))
    }

    /// Records a decision without side effects: a step that does not wait for any commit, not even for the
    /// task to be durable.
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
                    "the recorded result of step {name:?} does not have the type that it returns now: {e}"
                ))
            })
        };
        Ok(Some(result.map_err(AgentError::Failed).and_then(read)))
    }

    /// Records a step's result. Returns the value as read back from the record, which is what a restart would
    /// return.
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

    /// Puts a record without waiting for its commit.
    fn note(&self, record: JournalEntry) -> Result<(), AgentError> {
        let ticket = self.run.note(record, None)?;
        self.lock().noted = ticket;
        Ok(())
    }

    /// Waits until everything that this scope has put is durable.
    async fn wait_until_recorded(&self) {
        let noted = self.lock().noted;
        self.run.wait_until_durable(noted).await;
    }

    /// Waits until side effects are allowed: the task, and everything that this scope has put, is durable.
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

    /// Asks the caller, or its representative, to fill in a form: a JSON Schema of a flat object of
    /// primitives. The task waits, for a minute or a week, and holds no resources meanwhile.
    pub async fn ask(&self, text: impl Into<String>, schema: Value) -> Result<Answer, AgentError> {
        self.put_question(text, Ask::Form { schema }).await.and_then(answered)
    }

    /// Asks for one text. `None`: it was declined or dismissed, or the caller cannot answer questions.
    ///
    /// For the reason, and for anything but one text, see [`TaskContext::ask`].
    pub async fn ask_text(&self, text: impl Into<String>) -> Result<Option<String>, AgentError> {
        #[derive(serde::Deserialize)]
        struct TextForm {
            text: String,
        }
        let schema = json!({
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"],
        });
        Ok(self.ask(text, schema).await?.accepted::<TextForm>().map(|form| form.text))
    }

    /// Asks a question that may be withdrawn while it waits, by a [`TaskContext::withdrawer`]. Like
    /// [`TaskContext::ask`], [`TaskContext::sample`] and [`TaskContext::authorize`], it returns Unavailable
    /// at once if the caller cannot answer questions.
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

    /// The id that the next question of this scope will have.
    pub fn next_question_id(&self) -> String {
        question_id(&format!("{}#{}", self.scope, self.lock().ordinal + 1))
    }

    /// A handle that withdraws questions of this task, also while the task is parked.
    pub fn withdrawer(&self) -> QuestionWithdrawer {
        QuestionWithdrawer {
            engine: Arc::clone(&self.run.engine),
            caller: self.run.caller(),
            task: self.run.origin.id,
        }
    }

    /// Asks the caller's model for a text of at most `max_tokens`, or the server's own model if the caller
    /// has none. `Unavailable` if neither exists.
    pub async fn sample(
        &self,
        prompt: impl Into<String>,
        system: Option<String>,
        max_tokens: u32,
    ) -> Result<Answer, AgentError> {
        self.put_question(prompt, Ask::Sample { system, max_tokens }).await.and_then(answered)
    }

    /// Whether [`TaskContext::sample`] uses the server's own model, because the caller has none.
    pub fn samples_own_model(&self) -> bool {
        !self.run.abilities().sample && self.run.has_own_model()
    }

    /// Asks the server's own model, as a step. A failure counts as having no model; the task's log gets the
    /// reason.
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

    /// Asks for an authorization that a person grants at a link.
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
        // Not parked yet, or another branch is working: a cancel must not wait for the grace period.
        tokio::select! {
            biased;
            outcome = self.run.wait_for_outcome(&id, &self.scope) => Ok(outcome),
            () = self.run.canceled() => Err(AgentError::Canceled),
        }
    }

    /// Waits. A long sleep holds no resources and survives restarts.
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

    /// A scope that may run in parallel to others. The name is its identity across restarts: it is unique,
    /// and contains no `/` or `#`.
    ///
    /// A branch counts as working until it is dropped, and a task is parked only when all of its scopes wait.
    /// So move the branch into the future that uses it.
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

    /// Adds a line to the task's log that belongs to this run alone: it is not matched on replay. For output
    /// whose order cannot be reproduced, such as what a child process prints.
    pub async fn remark(&self, level: Level, text: impl Into<String>) -> Result<(), AgentError> {
        let line = LogLine { level, text: text.into() };
        self.run.emit(None, line.text.len() + 32, |_| Ok(Event::Log(line))).await
    }

    /// Waits until the task itself is durable. Side effects outside of a step may begin only after this.
    pub async fn wait_until_durable(&self) {
        self.run.wait_until_created().await;
    }

    /// Starts from the top within this run, as after a restart: for an agent whose work is done by a process
    /// that crashed. What was done so far is replayed. There must be no branches.
    #[must_use]
    pub fn restart(self) -> Self {
        let again = Self::root(Arc::clone(&self.run));
        // The crashed attempt did not finish, so it need not have re-emitted everything.
        self.lock().before = EmitCursor::default();
        again
    }

    /// Asks the task's followers on this node to disconnect and reconnect later, if their protocol supports
    /// it. Work that is silent for long need not hold their connections.
    pub async fn release_followers(&self) -> Result<(), AgentError> {
        let (engine, origin) = (&self.run.engine, &self.run.origin);
        let caller = self.run.caller();
        let row = engine.find_row(&caller, &origin.id.to_string()).await.map_err(AgentError::failed)?;
        engine.hub.nudge(row.no, Nudge::ReleaseFollowers);
        Ok(())
    }

    /// Whether cancelling was requested.
    pub fn is_canceled(&self) -> bool {
        self.run.is_canceled()
    }

    /// Waits until cancelling is requested. An agent that cleans up selects on it; one that does not is
    /// dropped after the grace period.
    pub async fn canceled(&self) {
        self.run.canceled().await;
    }

    /// The id of the next barrier, which is the only one of this scope until the guard is dropped.
    fn next_barrier(&self) -> Result<(String, BarrierGuard<'_>), AgentError> {
        let mut line = self.vacant()?;
        line.occupied = true;
        line.ordinal += 1;
        Ok((format!("{}#{}", self.scope, line.ordinal), BarrierGuard(self)))
    }

    /// The scope's progress, if no barrier is in progress and it can still be used.
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

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// How the call ended, with the called task.
    pub end: CallEnd,
    /// Whether it had ended before this run began.
    pub replayed: bool,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// The called task ended by itself, in any terminal state.
    Ended(Task),
    /// The call's deadline passed, and the called task was canceled.
    Late(Task),
    /// The task was not created, for this reason.
    Refused(String),
}

struct BarrierGuard<'a>(&'a TaskContext);

impl Drop for BarrierGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().occupied = false;
    }
}

/// The context of a parallel scope.
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

/// The context inside a step. It can report, but offers no effect that would have to be recorded on its own.
///
/// When the step is repeated after a crash, it emits everything again, and its artifacts begin anew.
pub struct StepContext {
    run: Arc<TaskRun>,
    scope: String,
    begun: Mutex<HashSet<String>>,
}

impl StepContext {
    /// Reports how far the work has come.
    pub async fn progress(
        &self,
        done: f64,
        total: Option<f64>,
        text: impl Into<String>,
    ) -> Result<(), AgentError> {
        let text = text.into();
        self.run.emit(None, text.len() + 32, |_| Ok(Event::Progress(progress(done, total, text)))).await
    }

    /// Reports how far the work has come, with data for programs: an object with a `type`.
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

    /// Whether cancelling was requested.
    pub fn is_canceled(&self) -> bool {
        self.run.is_canceled()
    }

    /// Waits until cancelling is requested.
    pub async fn canceled(&self) {
        self.run.canceled().await;
    }

    /// Waits; returns early with an error if cancelling is requested.
    pub async fn sleep(&self, length: Duration) -> Result<(), AgentError> {
        tokio::select! {
            () = tokio::time::sleep(length) => Ok(()),
            () = self.run.canceled() => Err(AgentError::Canceled),
        }
    }

    /// Declares that the step only waits for a question of a branch, until the guard is dropped. The task may
    /// be parked meanwhile; the step then starts over when the question is answered.
    pub fn allow_parking(&self) -> ParkableGuard<'_> {
        self.run.allow_parking()
    }

    /// A key that is the same whenever this step is repeated: for services that accept an idempotency key.
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.run.origin.id, self.scope)
    }
}

/// A chunk of an artifact, as an agent writes it.
#[derive(Debug, Clone)]
pub struct Chunk {
    id: String,
    name: Option<String>,
    description: Option<String>,
    parts: Vec<Part>,
    last: bool,
    metadata: Option<Metadata>,
    extensions: Vec<String>,
    /// Whether it replaces the existing content.
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

    /// A chunk of a remote agent's artifact, as received. Unless it appends, it replaces the existing
    /// content, including what an earlier step of the same scope has written.
    pub fn from_elsewhere(chunk: ArtifactChunk) -> Self {
        let ArtifactChunk { id, parts, append, last, name, description, metadata, extensions, index: _ } =
            chunk;
        Self { id, name, description, parts, last, metadata, extensions, anew: !append }
    }

    /// Sets the artifact's display name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the artifact's description.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Marks the artifact as complete with this chunk.
    #[must_use]
    pub fn complete(mut self) -> Self {
        self.last = true;
        self
    }

    /// Begins the artifact anew: this chunk replaces all existing content, including that of other steps.
    #[must_use]
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// Sets the artifact's attributes, replacing those that it has.
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

/// Replaces NaN (0/0) and infinities: JSON, and therefore the log, cannot represent them.
fn progress(done: f64, total: Option<f64>, text: String) -> Progress {
    Progress {
        done: if done.is_finite() { done } else { 0.0 },
        total: total.filter(|total| total.is_finite()),
        text: (!text.is_empty()).then_some(text),
        data: None,
    }
}

/// A short hash over all emissions so far (FNV-1a over their kinds, each followed by a terminator that no
/// text contains).
fn extend(trail: u32, kind: &str) -> u32 {
    let seed = if trail == 0 { 0x811c_9dc5 } else { trail };
    kind.bytes().chain([0xff]).fold(seed, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The id of the question at a barrier.
fn question_id(at: &str) -> String {
    at.replace('#', "q")
}

/// The answer to a question that only its own agent could have withdrawn.
fn answered(outcome: QuestionOutcome) -> Result<Answer, AgentError> {
    match outcome {
        QuestionOutcome::Answered(answer) => Ok(answer),
        QuestionOutcome::Withdrawn => Err(AgentError::Misuse(
            "the question was withdrawn, but the agent waits for an answer: use put_question".into(),
        )),
    }
}

/// Forms on the wire are flat objects of primitives; some protocol would refuse anything else.
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
