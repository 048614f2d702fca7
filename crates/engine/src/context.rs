//! The context of an agent's run: the task's input, and every durable effect that the agent may have.
//!
//! `run` starts again from the top after a crash or an answered question. Each effect is therefore keyed by
//! its scope and its ordinal there: an effect that the log or the journal holds is not repeated. `progress`,
//! `log` and `artifact` return when they are buffered. `step`, `ask`, `sample`, `call` and `sleep` are
//! barriers that wait for their commit.

mod calls;
mod chunk;
mod digest;
mod messages;
mod questions;
mod report;
mod step;

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    access::Caller,
    agent::AgentError,
    clock::Timestamp,
    content::{Message, Metadata, Role},
    engine::Engine,
    event::{Event, Level, LogLine, Progress},
    follow::Nudge,
    journal::JournalEntry,
    redact::KnownSecrets,
    run::{ArtifactIndex, ScopeWait, TaskRun},
    task::{self, TaskId},
    task_header::EmitCursor,
    trace::Trace,
};

pub(crate) use self::calls::CancelTrigger;
pub use self::calls::{Call, CallEnd, CallResult};
pub use self::chunk::Chunk;
pub use self::report::FailureReport;
pub use self::step::StepContext;
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

    /// Attributes of the request that created the task. Those of its message and parts are in
    /// [`TaskContext::input`].
    pub fn metadata(&self) -> Option<&Metadata> {
        self.run.origin.metadata.as_ref()
    }

    /// Media types that the caller accepts; empty: all.
    pub fn accepted_output_modes(&self) -> &[String] {
        &self.run.accepted_output_modes
    }

    /// URIs of the protocol extensions that the request activated, of those that the agent declares.
    pub fn extensions(&self) -> &[String] {
        &self.run.extensions
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
        let chunk = chunk.with_active_extensions(&self.run.extensions);
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
        let chunk = chunk.with_active_extensions(&self.run.extensions);
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
            None => {
                let began = self.run.engine.clock.now();
                self.record_step_result(at, name, began, Ok(find()))
            }
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
        let result = self.record_step_result(at, name, began, result);
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
        began: Timestamp,
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
        let (began, ended) = (Some(began), Some(self.run.engine.clock.now()));
        self.note(JournalEntry::Step { at, name: name.into(), result: kept, began, ended })?;
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

    /// Waits. A long sleep holds no resources and survives restarts.
    pub async fn sleep(&self, length: Duration) -> Result<(), AgentError> {
        let (at, _occupied) = self.next_barrier()?;
        let clock = &self.run.engine.clock;
        let until = match self.run.replayed(|replay| replay.slept(&at))? {
            Some(until) => until,
            None => {
                let began = clock.now();
                let until = began.after(length);
                self.run.record(JournalEntry::Slept { at, until, began: Some(began) }, None).await?;
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
        engine.hub.nudge(row.id, Nudge::ReleaseFollowers);
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
