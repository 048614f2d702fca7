//! The state that an agent's context and the driver of its run share: the buffer of emitted events, the
//! replay journal, and the waits of each scope.
//!
//! The agent's side only puts things in and waits. The driver's side (`runner/driver.rs`) takes them out,
//! commits them, and reports how far it got. Neither holds the lock across an await.

mod artifact_index;
mod messages;
mod scopes;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::{
    access::Caller,
    agent::{AgentError, Profile},
    clock::Timestamp,
    content::Message,
    engine::{EngineCore, TreeUse},
    event::{Entry, Event, Status},
    journal::{JournalEntry, ReplayJournal},
    question::QuestionOutcome,
    redact::KnownSecrets,
    runner::Suspicion,
    sent_by::SentBy,
    store::JournalRecord,
    surface::Abilities,
    task::{self, Origin, State, Task, TaskId, state_while_asking},
    task_header::{EmitCursor, TaskHeader},
};

pub use self::scopes::ParkableGuard;
pub(crate) use self::{artifact_index::ArtifactIndex, messages::Position, scopes::ScopeWait};
use self::{artifact_index::SHARED, scopes::ScopeState};

/// How many entries may wait for a commit before an emitting agent has to wait (backpressure).
const BUFFER_ENTRIES: usize = 256;
const BUFFER_BYTES: usize = 256 * 1024;

/// One attempt at one task.
pub(crate) struct TaskRun {
    pub(crate) engine: Arc<EngineCore>,
    pub(crate) origin: Origin,
    pub(crate) profile: Arc<Profile>,
    /// The caller's messages up to the start of this run, oldest first.
    pub(crate) messages: Vec<Message>,
    /// How many of them existed when the last question was answered; 1 if none was.
    pub(crate) messages_answered: usize,
    /// Media types that the caller accepts; empty: all.
    pub(crate) accepted_output_modes: Vec<String>,
    /// URIs of the protocol extensions that the request activated.
    pub(crate) extensions: Vec<String>,
    pub(crate) depth: u32,
    /// The task at the top of the call chain; this task, if it was not called.
    pub(crate) root: TaskId,
    /// The agents of the calling tasks, from the top.
    pub(crate) called_by: Vec<String>,
    /// Keeps the count of tasks created below the root, from the first call on.
    tree: OnceLock<TreeUse>,
    /// Wakes the driver: there is something to commit, to park, or to stop.
    pub(crate) driver: Notify,
    /// Wakes the agent: there is room, something is durable, or an answer came.
    pub(crate) agent: Notify,
    /// Whether the task has webhooks, which must be notified of commits.
    pub(crate) hooked: AtomicBool,
    /// The agent's secrets, which are removed from what followers see.
    pub(crate) hidden: OnceLock<KnownSecrets>,
    /// Why the run failed, where that is not the agent's own answer. For the log.
    pub(crate) failure: OnceLock<String>,
    canceled: AtomicBool,
    /// Whether there may be tasks that this one called.
    may_have_called: AtomicBool,
    /// Whether another process wrote to the task.
    external_write: AtomicBool,
    /// Whether the agent receives messages while it works; `messages_read`: whether earlier ones have been
    /// read.
    receives: AtomicBool,
    messages_read: AtomicBool,
    shared: Mutex<RunState>,
}

struct RunState {
    head: TaskHeader,
    replay: ReplayJournal,
    entries: Vec<Entry>,
    entry_bytes: usize,
    /// The state that the buffered entries lead to, if any, and the question that would lead to the next one.
    state: Option<(State, Timestamp)>,
    next_status: Option<NextStatus>,
    /// The latest progress that was reported while a question was open, as far as the run knew.
    progress_at: Option<Timestamp>,
    journal: Vec<JournalRecord>,
    /// The record of this run's claim, until it is committed.
    claim: Option<JournalRecord>,
    /// Whether the header alone waits for a commit.
    header_waits: bool,
    /// Whether a process died under the task, and no step has ended since.
    was_cut: bool,
    /// Tickets issued since the start of the run, and how many of them are durable.
    queued: u64,
    durable: u64,
    /// Whether the task itself is durable: side effects may begin only then.
    is_created: bool,
    /// The log's length including what is buffered; the event limit applies to it.
    events: u64,
    /// Artifacts by position, each with the scope that writes it in this run.
    artifacts: Vec<(String, Option<String>)>,
    /// Whether the agent may still answer with a message instead of a task.
    may_reply: bool,
    /// Open questions, as far as the run knows, oldest first.
    open: Vec<String>,
    /// The live scopes, and all scopes that ever existed in this run.
    lines: HashMap<String, ScopeState>,
    scopes: HashSet<String>,
    /// Steps and calls in progress, and how many of them are calls.
    busy: usize,
    calls: usize,
    /// A scope that ended before it had emitted everything that an earlier run emitted.
    incomplete_scope: Option<String>,
    /// The caller's messages without answers, beginning with the one that created the task.
    received: Vec<Message>,
}

/// What the driver takes out to commit.
pub(crate) struct PendingCommit {
    pub(crate) entries: Arc<[Entry]>,
    pub(crate) journal: Vec<JournalRecord>,
    pub(crate) head: TaskHeader,
    /// The state that the entries lead to, if any.
    pub(crate) state: Option<(State, Timestamp)>,
    /// A question that is asked while another one is open: it becomes the status once that one is answered.
    pub(crate) next_status: Option<NextStatus>,
    /// Progress that was reported while a question was open, as far as the run knew: it is the status if that question is
    /// answered before the commit.
    pub(crate) progress_at: Option<Timestamp>,
    ticket: u64,
}

impl PendingCommit {
    /// Whether it has more than the header.
    pub(crate) fn makes_progress(&self) -> bool {
        !(self.entries.is_empty() && self.journal.is_empty())
    }
}

/// A question, the state into which it puts its task, and since when.
pub(crate) type NextStatus = (String, State, Timestamp);

impl TaskRun {
    /// A run of a task in the state `task`. `born`: the store has the task already.
    pub(crate) fn new(
        engine: Arc<EngineCore>,
        profile: Arc<Profile>,
        task: &Task,
        head: TaskHeader,
        replay: ReplayJournal,
        born: bool,
    ) -> Self {
        let mut run = Self {
            origin: task.origin.clone(),
            profile,
            messages: task.history.iter().filter(|m| m.role == crate::content::Role::User).cloned().collect(),
            messages_answered: task::count_until_answer(&task.history),
            accepted_output_modes: head.accepted_output_modes.clone(),
            extensions: head.extensions.clone(),
            depth: head.depth,
            root: head.root.unwrap_or(task.origin.id),
            called_by: head.called_by.clone(),
            tree: OnceLock::new(),
            driver: Notify::new(),
            agent: Notify::new(),
            hooked: AtomicBool::new(false),
            hidden: OnceLock::new(),
            failure: OnceLock::new(),
            canceled: AtomicBool::new(false),
            may_have_called: AtomicBool::new(false),
            external_write: AtomicBool::new(false),
            receives: AtomicBool::new(false),
            // If the caller has sent only the message that created the task, there is nothing to read.
            messages_read: AtomicBool::new(
                task.history.iter().filter(|m| m.role == crate::content::Role::User).count() < 2,
            ),
            shared: Mutex::new(RunState {
                replay,
                head,
                entries: vec![],
                entry_bytes: 0,
                state: None,
                next_status: None,
                progress_at: None,
                journal: vec![],
                claim: None,
                header_waits: false,
                was_cut: false,
                queued: 0,
                durable: 0,
                is_created: born,
                events: task.seq,
                artifacts: task.artifacts.iter().map(|artifact| (artifact.id.clone(), None)).collect(),
                may_reply: task.awaits_reply(),
                open: task.questions.iter().map(|(_, question)| question.id.clone()).collect(),
                lines: HashMap::from([(String::new(), ScopeState::default())]),
                scopes: HashSet::new(),
                busy: 0,
                calls: 0,
                incomplete_scope: None,
                received: vec![],
            }),
            engine,
        };
        if task.state == State::Submitted {
            let working = Status { state: State::Working, message: None, by: None };
            let at = run.engine.clock.now();
            let shared = run.shared.get_mut();
            shared.push(at, Event::Status(working), 0);
        }
        run
    }

    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.shared.lock()
    }

    // The agent's side.

    /// Buffers an event as soon as there is room. `mark`: the emitting scope and its cursor after this event.
    pub(crate) async fn emit(
        &self,
        mark: Option<(&str, EmitCursor)>,
        size: usize,
        event: impl FnOnce(&mut ArtifactIndex<'_>) -> Result<Event, AgentError>,
    ) -> Result<(), AgentError> {
        let mut event = Some(event);
        loop {
            let mut room = std::pin::pin!(self.agent.notified());
            room.as_mut().enable();
            {
                let mut shared = self.lock();
                if shared.has_room() {
                    self.check_caps(&shared, size)?;
                    let Some(event) = event.take() else { return Ok(()) };
                    let mut event = event(&mut ArtifactIndex(&mut shared.artifacts))?;
                    if let Some(hidden) = self.hidden.get() {
                        hide(hidden, &mut event);
                    }
                    shared.push(self.engine.clock.now(), event, size);
                    if let Some((scope, mark)) = mark {
                        match shared.head.marks.get_mut(scope) {
                            Some(known) => *known = mark,
                            None => drop(shared.head.marks.insert(scope.to_owned(), mark)),
                        }
                    }
                    drop(shared);
                    self.driver.notify_one();
                    return Ok(());
                }
            }
            room.await;
        }
    }

    fn check_caps(&self, shared: &RunState, size: usize) -> Result<(), AgentError> {
        let limits = &self.engine.options.limits;
        if shared.events.max(shared.replay.records()) >= limits.events_per_task {
            return Err(AgentError::Misuse(format!(
                "limits.events-per-task: a task has at most {} events, and as many steps",
                limits.events_per_task
            )));
        }
        if shared.head.bytes + size as u64 > limits.bytes_per_task {
            return Err(AgentError::Misuse(format!(
                "limits.bytes-per-task: a task holds at most {} bytes",
                limits.bytes_per_task
            )));
        }
        Ok(())
    }

    /// A scope's cursor at the last commit of an earlier run.
    pub(crate) fn mark(&self, scope: &str) -> EmitCursor {
        let shared = self.lock();
        shared.head.marks.get(scope).copied().or_else(|| shared.replay.left(scope)).unwrap_or_default()
    }

    /// Records that this scope wrote a chunk which is in the log already.
    pub(crate) fn skip_chunk(&self, id: &str, scope: &str, anew: bool) -> Result<(), AgentError> {
        ArtifactIndex(&mut self.lock().artifacts).index_for_writer(id, scope, anew).map(|_| ())
    }

    /// Like `skip_chunk`, for an artifact to which all scopes append.
    pub(crate) fn skip_shared(&self, id: &str) -> Result<(), AgentError> {
        ArtifactIndex(&mut self.lock().artifacts).index_for_writer(id, SHARED, false).map(|_| ())
    }

    /// Runs a query against the replay journal.
    pub(crate) fn replayed<T>(&self, look: impl FnOnce(&ReplayJournal) -> T) -> T {
        look(&self.lock().replay)
    }

    /// Waits until the task is durable.
    pub(crate) async fn wait_until_created(&self) {
        self.until(|shared| shared.is_created.then_some(())).await;
    }

    /// Puts a record, with an optional event, and waits until both are durable.
    pub(crate) async fn record(&self, record: JournalEntry, event: Option<Event>) -> Result<(), AgentError> {
        let ticket = self.note(record, event)?;
        self.wait_until_durable(ticket).await;
        Ok(())
    }

    /// Puts a record, with an optional event, and does not wait. Both are durable when the returned ticket
    /// is.
    pub(crate) fn note(&self, record: JournalEntry, event: Option<Event>) -> Result<u64, AgentError> {
        let encoded = record.encode();
        let said = event.as_ref().map_or(0, Event::size);
        let ticket = {
            let mut shared = self.lock();
            self.check_caps(&shared, encoded.0.len() + said)?;
            shared.put(record, encoded);
            if let Some(event) = event {
                shared.push(self.engine.clock.now(), event, said);
            }
            shared.queued
        };
        self.driver.notify_one();
        Ok(ticket)
    }

    /// Counts an attempt at the request of a step, over all runs, and returns its number. The first one of a task that was
    /// never interrupted costs no commit; any other is durable before it begins.
    pub(crate) async fn begin_attempt(&self, key: &str) -> u32 {
        let (attempt, ticket) = {
            let mut shared = self.lock();
            // An attempt that the process died under before any commit is known by that alone.
            let before = shared.head.attempts.get(key).copied().unwrap_or(u32::from(shared.was_cut));
            let attempt = before.saturating_add(1);
            shared.head.attempts.insert(key.to_owned(), attempt);
            if attempt == 1 {
                return attempt;
            }
            shared.header_waits = true;
            shared.queued += 1;
            (attempt, shared.queued)
        };
        self.driver.notify_one();
        self.wait_until_durable(ticket).await;
        attempt
    }

    /// Waits until everything up to this ticket is durable.
    pub(crate) async fn wait_until_durable(&self, ticket: u64) {
        self.until(|shared| (shared.durable >= ticket).then_some(())).await;
    }

    /// Waits until a question is answered or withdrawn. If the run is dropped meanwhile, it never returns.
    pub(crate) async fn wait_for_outcome(&self, question: &str, scope: &str) -> QuestionOutcome {
        let _waiting = self.wait_in(scope, ScopeWait::Answer(question.to_owned()));
        self.until(|shared| shared.replay.outcome(question).cloned()).await
    }

    /// Like `wait_for_outcome`, with a deadline; `None` when it has passed.
    pub(crate) async fn wait_for_outcome_until(
        &self,
        question: &str,
        scope: &str,
        until: Option<Timestamp>,
    ) -> Option<QuestionOutcome> {
        let Some(until) = until else { return Some(self.wait_for_outcome(question, scope).await) };
        let _waiting = self.wait_in(scope, ScopeWait::AnswerBy(question.to_owned(), until));
        tokio::select! {
            biased;
            outcome = self.until(|shared| shared.replay.outcome(question).cloned()) => Some(outcome),
            () = tokio::time::sleep(until.since(self.engine.clock.now())) => None,
        }
    }

    /// Records that the agent calls another agent, before the called task is created.
    pub(crate) fn record_call(&self) {
        self.may_have_called.store(true, Ordering::Release);
    }

    /// Whether there may be tasks that this one called: by this run, or by an earlier one. The journal has only calls that have
    /// returned.
    pub(crate) fn may_have_called(&self) -> bool {
        self.may_have_called.load(Ordering::Acquire)
    }

    /// Keeps the count of tasks created below the root for as long as this run lasts.
    pub(crate) fn enter_tree(&self) {
        self.tree.get_or_init(|| self.engine.enter_tree(self.root));
    }

    async fn until<T>(&self, mut ready: impl FnMut(&RunState) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.agent.notified());
            changed.as_mut().enable();
            if let Some(value) = ready(&self.lock()) {
                return value;
            }
            changed.await;
        }
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Acquire)
    }

    /// Waits until cancelling is requested.
    pub(crate) async fn canceled(&self) {
        self.until(|_| self.is_canceled().then_some(())).await;
    }

    // The driver's side, and that of the commands.

    /// Like [`TaskRun::cancel`], with the sender of the request, whom the end of the task names.
    pub(crate) fn cancel_by(&self, by: Option<Box<SentBy>>) {
        if let Some(by) = by {
            self.lock().head.canceled_by.get_or_insert(by);
        }
        self.cancel();
    }

    /// The sender of the cancel request, for the event that ends the task.
    pub(crate) fn take_canceled_by(&self) -> Option<Box<SentBy>> {
        self.lock().head.canceled_by.take()
    }

    /// Like [`TaskRun::cancel`], because nobody answered the task's question. The end of the task has the reason.
    pub(crate) fn stop_unanswered(&self, reason: String) {
        self.lock().head.unanswered.get_or_insert(reason);
        self.cancel();
    }

    /// Why the run is stopped, if nobody answered the task's question.
    pub(crate) fn unanswered(&self) -> Option<String> {
        self.lock().head.unanswered.clone()
    }

    /// Notifies the run that its task is to be canceled.
    pub(crate) fn cancel(&self) {
        self.canceled.store(true, Ordering::Release);
        self.agent.notify_waiters();
        self.driver.notify_one();
    }

    /// Notifies the run that another node wrote to its task: an answer, or a cancel request.
    pub(crate) fn notify_external_write(&self) {
        self.external_write.store(true, Ordering::Release);
        self.driver.notify_one();
    }

    /// Takes the notification: whether another node has written since the last call.
    pub(crate) fn take_external_write(&self) -> bool {
        self.external_write.swap(false, Ordering::AcqRel)
    }

    /// Passes the outcome of a question, which is durable already, to the run.
    pub(crate) fn end_question(&self, question: String, outcome: QuestionOutcome) {
        let record = match outcome {
            QuestionOutcome::Answered(answer) => JournalEntry::Answered { question, answer },
            QuestionOutcome::Withdrawn => JournalEntry::Withdrawn { question },
        };
        {
            let mut shared = self.lock();
            shared.replay.add(record);
            shared.close_answered();
        }
        self.agent.notify_waiters();
        self.driver.notify_one();
    }

    /// Merges the journal as read now. The run may already have an answer that this read does not contain.
    pub(crate) fn merge_replay(&self, replay: ReplayJournal) {
        {
            let mut shared = self.lock();
            shared.replay.merge(replay);
            shared.close_answered();
        }
        self.agent.notify_waiters();
    }

    /// The open questions, as far as the run knows, oldest first.
    pub(crate) fn open_questions(&self) -> Vec<String> {
        self.lock().open.clone()
    }

    /// Whether all earlier questions are answered, as far as the run knows.
    pub(crate) fn is_oldest(&self, question: &str) -> bool {
        self.lock().open.first().is_some_and(|oldest| oldest == question)
    }

    /// Whether the agent may answer with a message instead of a task: the caller takes one, and nothing of the
    /// task was shown.
    pub(crate) fn may_reply(&self) -> bool {
        self.lock().may_reply && !self.hooked.load(Ordering::Relaxed) && !self.is_canceled()
    }

    /// Whether a log of this length holds more than this run has read and written: another writer's events.
    pub(crate) fn has_foreign_events(&self, seq: u64) -> bool {
        let shared = self.lock();
        seq + shared.entries.len() as u64 != shared.events
    }

    /// Takes everything that waits for a commit.
    pub(crate) fn take(&self) -> Option<PendingCommit> {
        let mut shared = self.lock();
        let makes_progress = !(shared.entries.is_empty() && shared.journal.is_empty());
        if !makes_progress && !shared.header_waits {
            return None;
        }
        // A run that makes progress is not to blame for the fate of its process.
        if makes_progress {
            shared.head.suspicion = None;
        }
        let work = shared.take();
        drop(shared);
        self.agent.notify_waiters();
        Some(work)
    }

    /// The suspicion that this run crashes its process, if there is one.
    pub(crate) fn suspicion(&self) -> Option<Suspicion> {
        self.lock().head.suspicion.clone()
    }

    /// Replaces the suspicion, from the next commit on.
    pub(crate) fn suspect(&self, suspicion: Option<Suspicion>) {
        self.lock().head.suspicion = suspicion;
    }

    /// Takes the remaining work, with the event that ends or parks the run, if there is one.
    pub(crate) fn take_last(&self, last: Option<Event>) -> PendingCommit {
        let mut shared = self.lock();
        if let Some(event) = last {
            shared.push(self.engine.clock.now(), event, 0);
        }
        shared.take()
    }

    /// Takes the first work of a task that is not in the store yet, behind the message that creates it.
    pub(crate) fn take_first(&self, made_by: Entry, last: Option<Event>) -> PendingCommit {
        let mut shared = self.lock();
        if let Some(event) = last {
            shared.push(self.engine.clock.now(), event, 0);
        }
        shared.entries.insert(0, made_by);
        shared.take()
    }

    /// Records by which node and when this run began, with its next commit.
    pub(crate) fn record_claim(&self, epoch: u64, attempts: u32) {
        let (node, when) = (self.engine.node, self.engine.clock.now());
        if epoch > 1 {
            self.record_call();
        }
        let mut shared = self.lock();
        shared.was_cut = attempts > 0;
        if shared.replay.records_runs() {
            shared.claim = Some(JournalEntry::Claimed { epoch, node, when, attempts }.encode());
        }
    }

    /// The records of a run that parks its task now, with that of its claim if it has not been committed.
    pub(crate) fn parked_records(&self, epoch: u64) -> Vec<JournalRecord> {
        let when = self.engine.clock.now();
        let shared = self.lock();
        match shared.replay.records_runs() {
            false => vec![],
            true => {
                let parked = JournalEntry::Parked { epoch, when }.encode();
                shared.claim.iter().cloned().chain([parked]).collect()
            }
        }
    }

    /// Reports that the taken work is durable.
    pub(crate) fn done(&self, work: &PendingCommit) {
        {
            let mut shared = self.lock();
            shared.durable = shared.durable.max(work.ticket);
            shared.is_created = true;
        }
        self.agent.notify_waiters();
    }

    /// Adds to the time that the agent has run.
    pub(crate) fn ran(&self, ms: u64) {
        self.lock().head.ran_ms += ms;
    }

    pub(crate) fn ran_ms(&self) -> u64 {
        self.lock().head.ran_ms
    }

    /// The caller in whose name the agent acts.
    pub(crate) fn caller(&self) -> Caller {
        self.lock().head.caller(&self.origin.owner).through(&self.origin.agent, &self.origin.context)
    }

    /// How long the caller waits for a response, if it waits on an open connection.
    pub(crate) fn waiting(&self) -> Option<Duration> {
        self.lock().head.waiting_ms.map(Duration::from_millis)
    }

    /// Whether the server's own model is used where the caller has none.
    pub(crate) fn has_own_model(&self) -> bool {
        self.lock().head.own_model
    }

    /// Which kinds of questions the caller's client can answer.
    pub(crate) fn abilities(&self) -> Abilities {
        let shared = self.lock();
        let TaskHeader { can_ask, can_authorize, can_sample, .. } = shared.head;
        Abilities { ask: can_ask, authorize: can_authorize, sample: can_sample, roots: false }
    }
}

impl RunState {
    fn has_room(&self) -> bool {
        self.entries.len() < BUFFER_ENTRIES && self.entry_bytes < BUFFER_BYTES
    }

    fn push(&mut self, at: Timestamp, event: Event, size: usize) {
        self.may_reply &= !event.shows_task();
        match &event {
            Event::Status(status) => self.state = Some((status.state, at)),
            Event::Question(question) => {
                let state = state_while_asking(question);
                match self.open.is_empty() {
                    true => self.state = Some((state, at)),
                    false => drop(self.next_status.get_or_insert((question.id.clone(), state, at))),
                }
                self.open.push(question.id.clone());
            }
            // As in the fold: the time of progress is the time of the status, unless a question is the status.
            Event::Progress(_) if self.open.is_empty() => self.state = Some((State::Working, at)),
            Event::Progress(_) => self.progress_at = Some(at),
            _ => {}
        }
        self.entries.push(Entry(at, event));
        self.entry_bytes += size;
        self.head.bytes += size as u64;
        self.events += 1;
        self.queued += 1;
    }

    fn put(&mut self, record: JournalEntry, encoded: JournalRecord) {
        self.head.bytes += encoded.0.len() as u64;
        if let JournalEntry::Step { at, .. } = &record {
            self.head.attempts.retain(|key, _| !is_of_step(key, at));
            self.was_cut = false;
        }
        self.journal.push(encoded);
        self.replay.add(record);
        self.queued += 1;
    }

    fn take(&mut self) -> PendingCommit {
        self.entry_bytes = 0;
        self.header_waits = false;
        // Only beside something else: to the store a record is progress, and a run that makes none is suspect.
        if !(self.entries.is_empty() && self.journal.is_empty())
            && let Some(claim) = self.claim.take()
        {
            self.journal.insert(0, claim);
        }
        let entries: Arc<[Entry]> = std::mem::take(&mut self.entries).into();
        PendingCommit {
            state: self.state.take(),
            next_status: self.next_status.take(),
            progress_at: self.progress_at.take(),
            entries,
            journal: std::mem::take(&mut self.journal),
            head: self.head.clone(),
            ticket: self.queued,
        }
    }

    fn close_answered(&mut self) {
        let Self { open, replay, .. } = self;
        open.retain(|question| replay.outcome(question).is_none());
    }
}

/// Whether the idempotency key, `TASK/AT:NAME`, is that of the step at this position.
fn is_of_step(key: &str, at: &str) -> bool {
    let of_task = key.split_once('/').map(|(_, step)| step);
    of_task.and_then(|step| step.strip_prefix(at)).is_some_and(|rest| rest.starts_with(':'))
}

/// Removes the agent's secrets from its progress and log lines.
fn hide(hidden: &KnownSecrets, event: &mut Event) {
    match event {
        Event::Log(line) => line.text = hidden.clean(&line.text).into_owned(),
        Event::Progress(progress) => {
            if let Some(text) = &mut progress.text {
                *text = hidden.clean(text).into_owned();
            }
        }
        _ => {}
    }
}
