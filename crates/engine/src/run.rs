//! What an agent's context and the driver of its run share: the buffer of what was emitted, what earlier
//! runs did, and who waits for what.
//!
//! The agent's side only puts things in and waits; the driver's side (`runner.rs`) takes them out, commits
//! them, and says how far it got. Neither holds the lock across an await.

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
    engine::{EngineCore as Engine, TreeUse},
    event::{Entry, Event, Status},
    journal::{JournalEntry, MessageReceipt, ReplayJournal, ordinal_in},
    question::{Answer, QuestionOutcome},
    redact::KnownSecrets,
    runner::Suspicion,
    store::JournalRecord,
    surface::Abilities,
    task::{self, Origin, State, Task, TaskId, state_while_asking},
    task_header::{EmitCursor, TaskHeader},
};

/// How much may wait for a commit before an emitting agent has to.
const BUFFER_ENTRIES: usize = 256;
const BUFFER_BYTES: usize = 256 * 1024;

/// One attempt at one task.
pub(crate) struct TaskRun {
    pub(crate) engine: Arc<Engine>,
    pub(crate) origin: Origin,
    pub(crate) profile: Arc<Profile>,
    /// What the caller has said up to the start of this run, oldest first.
    pub(crate) messages: Vec<Message>,
    /// How many of them were said when the last question was answered; one, where none was.
    pub(crate) messages_answered: usize,
    pub(crate) depth: u32,
    /// The task at the top of the calls that led here; this one, where none did.
    pub(crate) root: TaskId,
    /// The agents of the tasks that called down to here.
    pub(crate) called_by: Vec<String>,
    /// Keeps the count of what was made below the root, from the first call on.
    tree: OnceLock<TreeUse>,
    /// Wakes the driver: there is something to commit, to park, or to stop.
    pub(crate) driver: Notify,
    /// Wakes the agent: there is room, something is durable, or an answer came.
    pub(crate) agent: Notify,
    /// Whether webhooks want to hear of commits.
    pub(crate) hooked: AtomicBool,
    /// Secrets that the agent works with, which followers do not see.
    pub(crate) hidden: OnceLock<KnownSecrets>,
    canceled: AtomicBool,
    /// Whether somebody else wrote to the task.
    external_write: AtomicBool,
    /// Whether the agent receives messages while it works, and whether those have been read that came before it did.
    receives: AtomicBool,
    messages_read: AtomicBool,
    shared: Mutex<RunState>,
}

struct RunState {
    head: TaskHeader,
    replay: ReplayJournal,
    entries: Vec<Entry>,
    entry_bytes: usize,
    /// The state that the entries lead to, where they do, and the question that would lead to another.
    state: Option<(State, Timestamp)>,
    next_status: Option<NextStatus>,
    journal: Vec<JournalRecord>,
    /// Things put in since the start of the run, and how many of them are durable.
    queued: u64,
    durable: u64,
    /// Whether the task itself is durable: only then may effects begin.
    is_created: bool,
    /// The log's length with what is buffered; what the cap counts.
    events: u64,
    /// Artifacts by position, each with the scope that writes it in this run.
    artifacts: Vec<(String, Option<String>)>,
    /// Questions without an answer, as far as the run knows, oldest first.
    open: Vec<String>,
    /// The lines of work that exist, by scope, and all scopes that ever did in this run.
    lines: HashMap<String, ScopeState>,
    scopes: HashSet<String>,
    /// Steps and calls under way, and how many of them are calls.
    busy: usize,
    calls: usize,
    /// A scope that did not emit all that it had emitted before.
    incomplete_scope: Option<String>,
    /// What the caller has said beside answers, the message that made the task first.
    received: Vec<Message>,
}

/// A place in a line of work, and how far the line has come there.
#[derive(Clone)]
pub(crate) struct Position {
    pub(crate) scope: String,
    pub(crate) ordinal: u32,
    pub(crate) emitted: u64,
    /// The barrier of this ordinal goes on, or has not been answered to the agent yet.
    pub(crate) within: bool,
    /// An earlier run came further.
    pub(crate) replays: bool,
}

impl Position {
    fn has_reached(&self, received: &MessageReceipt) -> bool {
        // A place of another scope is none that could be waited for.
        let Some(ordinal) = ordinal_in(&self.scope, &received.at) else { return true };
        match self.ordinal.cmp(&ordinal) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => {
                received.within || (!self.within && self.emitted >= received.emitted)
            }
        }
    }
}

/// A message that the agent is to be given.
pub(crate) struct DueMessage {
    pub(crate) message: Message,
    /// Whether an earlier run was given it.
    pub(crate) is_recorded: bool,
}

/// One line of work: the root, or a branch.
#[derive(Default)]
struct ScopeState {
    /// Branches that came out of it. While there are any, it waits for them and they are what counts.
    branches: usize,
    /// What it waits for, while it does.
    waits: Option<ScopeWait>,
}

/// What a line of work waits for outside of the run.
pub(crate) enum ScopeWait {
    /// The answer to this question.
    Answer(String),
    /// This time.
    Until(Timestamp),
    /// The answer to this question, or this time.
    AnswerBy(String, Timestamp),
}

/// What the driver takes out to commit.
pub(crate) struct PendingCommit {
    pub(crate) entries: Arc<[Entry]>,
    pub(crate) journal: Vec<JournalRecord>,
    pub(crate) head: TaskHeader,
    /// The state that the entries lead to, where they do.
    pub(crate) state: Option<(State, Timestamp)>,
    /// A question that is put while another one is open: it is the status once that one is answered.
    pub(crate) next_status: Option<NextStatus>,
    ticket: u64,
}

/// A question, the state that it puts its task into, and since when.
pub(crate) type NextStatus = (String, State, Timestamp);

impl TaskRun {
    /// A run of a task that stands as `task` says. `born`: it is in the store already.
    pub(crate) fn new(
        engine: Arc<Engine>,
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
            depth: head.depth,
            root: head.root.unwrap_or(task.origin.id),
            called_by: head.called_by.clone(),
            tree: OnceLock::new(),
            driver: Notify::new(),
            agent: Notify::new(),
            hooked: AtomicBool::new(false),
            hidden: OnceLock::new(),
            canceled: AtomicBool::new(false),
            external_write: AtomicBool::new(false),
            receives: AtomicBool::new(false),
            // Where the caller has said nothing but what made the task, there is nothing to read.
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
                journal: vec![],
                queued: 0,
                durable: 0,
                is_created: born,
                events: task.seq,
                artifacts: task.artifacts.iter().map(|artifact| (artifact.id.clone(), None)).collect(),
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
            let working = Status { state: State::Working, message: None };
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

    /// Buffers an event, when there is room. `mark`: the emitting scope and where it stands with this.
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
                "events_per_task: a task has at most {} events, and as many steps",
                limits.events_per_task
            )));
        }
        if shared.head.bytes + size as u64 > limits.bytes_per_task {
            return Err(AgentError::Misuse(format!(
                "bytes_per_task: a task holds at most {} bytes",
                limits.bytes_per_task
            )));
        }
        Ok(())
    }

    /// Where a scope stood at the last commit of an earlier run.
    pub(crate) fn mark(&self, scope: &str) -> EmitCursor {
        let shared = self.lock();
        shared.head.marks.get(scope).copied().or_else(|| shared.replay.left(scope)).unwrap_or_default()
    }

    /// Notes that a chunk which is in the log already was written by this scope.
    pub(crate) fn skip_chunk(&self, id: &str, scope: &str, anew: bool) -> Result<(), AgentError> {
        ArtifactIndex(&mut self.lock().artifacts).index_for_writer(id, scope, anew).map(|_| ())
    }

    /// The same for an artifact that all lines of work add to.
    pub(crate) fn skip_shared(&self, id: &str) -> Result<(), AgentError> {
        ArtifactIndex(&mut self.lock().artifacts).index_for_writer(id, SHARED, false).map(|_| ())
    }

    /// Runs a question against what earlier runs did.
    pub(crate) fn replayed<T>(&self, look: impl FnOnce(&ReplayJournal) -> T) -> T {
        look(&self.lock().replay)
    }

    /// Waits until the task is durable.
    pub(crate) async fn wait_until_created(&self) {
        self.until(|shared| shared.is_created.then_some(())).await;
    }

    /// Puts a record, and an event with it, and waits until both are durable.
    pub(crate) async fn record(&self, record: JournalEntry, event: Option<Event>) -> Result<(), AgentError> {
        let ticket = self.note(record, event)?;
        self.wait_until_durable(ticket).await;
        Ok(())
    }

    /// Puts a record, and an event with it, and does not wait. The ticket says when both are durable.
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

    /// Waits until everything up to this ticket is durable.
    pub(crate) async fn wait_until_durable(&self, ticket: u64) {
        self.until(|shared| (shared.durable >= ticket).then_some(())).await;
    }

    /// Waits for the end of a question. The run may be dropped meanwhile; then it never returns.
    pub(crate) async fn wait_for_outcome(&self, question: &str, scope: &str) -> QuestionOutcome {
        let _waiting = self.wait_in(scope, ScopeWait::Answer(question.to_owned()));
        self.until(|shared| shared.replay.outcome(question).cloned()).await
    }

    /// The same, for so long; `None` when the time is up.
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

    /// Has messages read from now on that come while the agent works, and those that came before.
    pub(crate) fn receive_messages(&self) {
        self.receives.store(true, Ordering::Release);
        if !self.messages_read.load(Ordering::Acquire) {
            self.notify_external_write();
        }
    }

    /// Waits until messages were read since they are received.
    pub(crate) async fn wait_for_messages(&self) {
        self.until(|_| self.messages_read.load(Ordering::Acquire).then_some(())).await;
    }

    /// The message of that number, if it is due at this position: where an earlier run was given it, or, beyond all
    /// that earlier runs did, anywhere.
    pub(crate) fn due_message(&self, number: u64, here: &Position) -> Option<DueMessage> {
        self.lock().due_message(number, here)
    }

    /// Waits until the message of that number is due at this position.
    pub(crate) async fn wait_for_message(&self, number: u64, here: &Position) {
        self.until(|shared| shared.due_message(number, here).map(|_| ())).await;
    }

    /// Says that a line of work waits for somebody, or for a time, until the guard is dropped.
    pub(crate) fn wait_in<'a>(&'a self, scope: &'a str, wait: ScopeWait) -> ScopeWaitGuard<'a> {
        if let Some(line) = self.lock().lines.get_mut(scope) {
            line.waits = Some(wait);
        }
        self.driver.notify_one();
        ScopeWaitGuard { run: self, scope }
    }

    /// Says that work is under way that the driver must not park, until the guard is dropped.
    pub(crate) fn busy(&self) -> BusyGuard<'_> {
        self.lock().busy += 1;
        BusyGuard(self)
    }

    /// Says that work which was under way waits for somebody, until the guard is dropped.
    pub(crate) fn allow_parking(&self) -> ParkableGuard<'_> {
        self.lock().busy -= 1;
        self.driver.notify_one();
        ParkableGuard(self)
    }

    /// Says that another task is waited for, until the guard is dropped.
    pub(crate) fn calling(&self) -> CallGuard<'_> {
        let mut shared = self.lock();
        shared.calls += 1;
        if shared.calls == 1 {
            self.engine.begin_calling(&self.origin.owner, self.depth);
        }
        drop(shared);
        CallGuard { _busy: self.busy(), run: self }
    }

    /// Has the count of what was made below the root kept as long as this run goes on.
    pub(crate) fn enter_tree(&self) {
        self.tree.get_or_init(|| self.engine.enter_tree(self.root));
    }

    /// Begins a line of work; false when there was one of that scope in this run.
    pub(crate) fn enter_branch(&self, scope: &str) -> bool {
        let mut shared = self.lock();
        if !shared.scopes.insert(scope.to_owned()) {
            return false;
        }
        shared.lines.insert(scope.to_owned(), ScopeState::default());
        if let Some(outer) = shared.lines.get_mut(outer_scope(scope)) {
            outer.branches += 1;
        }
        true
    }

    /// Ends a line of work. What it emitted is known from the journal from now on: a branch is not entered twice.
    pub(crate) fn leave_branch(&self, scope: &str) {
        let mut shared = self.lock();
        if let Some(mark) = shared.head.marks.remove(scope) {
            let left = JournalEntry::Left { scope: scope.to_owned(), mark };
            let encoded = left.encode();
            shared.put(left, encoded);
        }
        if shared.lines.remove(scope).is_some()
            && let Some(outer) = shared.lines.get_mut(outer_scope(scope))
        {
            outer.branches -= 1;
        }
        drop(shared);
        self.driver.notify_one();
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

    /// Waits until somebody wants the task to end.
    pub(crate) async fn canceled(&self) {
        self.until(|_| self.is_canceled().then_some(())).await;
    }

    // The driver's side, and that of the commands.

    /// Tells the run that its task is to be canceled.
    pub(crate) fn cancel(&self) {
        self.canceled.store(true, Ordering::Release);
        self.agent.notify_waiters();
        self.driver.notify_one();
    }

    /// Tells the run that another node wrote to its task: an answer, or the wish to cancel it.
    pub(crate) fn notify_external_write(&self) {
        self.external_write.store(true, Ordering::Release);
        self.driver.notify_one();
    }

    /// Whether that was told since the last time.
    pub(crate) fn take_external_write(&self) -> bool {
        self.external_write.swap(false, Ordering::AcqRel)
    }

    /// Tells the run an answer that is durable already.
    pub(crate) fn answered(&self, question: String, answer: Answer) {
        self.question_ended(JournalEntry::Answered { question, answer });
    }

    /// Tells the run that a question was taken back, which is durable already.
    pub(crate) fn withdrawn(&self, question: String) {
        self.question_ended(JournalEntry::Withdrawn { question });
    }

    fn question_ended(&self, record: JournalEntry) {
        {
            let mut shared = self.lock();
            shared.replay.add(record);
            shared.close_answered();
        }
        self.agent.notify_waiters();
        self.driver.notify_one();
    }

    /// Adds what the journal holds by now; an answer may have been told that is not in that reading.
    pub(crate) fn merge_replay(&self, replay: ReplayJournal) {
        {
            let mut shared = self.lock();
            shared.replay.merge(replay);
            shared.close_answered();
        }
        self.agent.notify_waiters();
    }

    /// Whether messages are to be read now. `has_news`: others have written to the task.
    pub(crate) fn wants_messages(&self, has_news: bool) -> bool {
        if has_news {
            // An agent that begins to receive later has them read then.
            self.messages_read.store(false, Ordering::Release);
        }
        self.receives.load(Ordering::Acquire) && !self.messages_read.load(Ordering::Acquire)
    }

    /// Tells the run everything that the caller has said so far beside answers.
    pub(crate) fn learn_messages(&self, messages: Vec<Message>) {
        {
            let mut shared = self.lock();
            if messages.len() > shared.received.len() {
                shared.received = messages;
            }
        }
        self.messages_read.store(true, Ordering::Release);
        self.agent.notify_waiters();
    }

    /// Whether all questions that were put before this one are answered, as far as the run knows.
    pub(crate) fn is_oldest(&self, question: &str) -> bool {
        self.lock().open.first().is_some_and(|oldest| oldest == question)
    }

    /// Takes everything that waits for a commit.
    pub(crate) fn take(&self) -> Option<PendingCommit> {
        let mut shared = self.lock();
        if shared.entries.is_empty() && shared.journal.is_empty() {
            return None;
        }
        // A run that gets on is not to blame for what becomes of its process.
        shared.head.suspicion = None;
        let work = shared.take();
        drop(shared);
        self.agent.notify_waiters();
        Some(work)
    }

    /// What is held against the run.
    pub(crate) fn suspicion(&self) -> Option<Suspicion> {
        self.lock().head.suspicion.clone()
    }

    /// Holds something else against the run, from the next commit on.
    pub(crate) fn suspect(&self, suspicion: Option<Suspicion>) {
        self.lock().head.suspicion = suspicion;
    }

    /// Takes what is left together with the event that ends or parks the run, if there is one.
    pub(crate) fn take_last(&self, last: Option<Event>) -> PendingCommit {
        let mut shared = self.lock();
        if let Some(event) = last {
            shared.push(self.engine.clock.now(), event, 0);
        }
        shared.take()
    }

    /// Takes the first work of a task that is not in the store yet, behind the message that makes it.
    pub(crate) fn take_first(&self, made_by: Entry, last: Option<Event>) -> PendingCommit {
        let mut shared = self.lock();
        if let Some(event) = last {
            shared.push(self.engine.clock.now(), event, 0);
        }
        shared.entries.insert(0, made_by);
        shared.take()
    }

    /// Says that taken work is durable.
    pub(crate) fn done(&self, work: &PendingCommit) {
        {
            let mut shared = self.lock();
            shared.durable = shared.durable.max(work.ticket);
            shared.is_created = true;
        }
        self.agent.notify_waiters();
    }

    /// Whether nothing goes on in the agent but waiting, so that the run can be let go; with the time at
    /// which it wants to be run again by itself.
    pub(crate) fn parkable(&self) -> Option<Option<Timestamp>> {
        let shared = self.lock();
        let idle = shared.busy == 0 && shared.entries.is_empty() && shared.journal.is_empty();
        if !idle || !shared.is_created {
            return None;
        }
        let mut wake_at: Option<Timestamp> = None;
        for line in shared.lines.values().filter(|line| line.branches == 0) {
            match line.waits.as_ref()? {
                // The agent has it before it can take it: not parked in between.
                ScopeWait::Answer(question) | ScopeWait::AnswerBy(question, _)
                    if shared.replay.outcome(question).is_some() =>
                {
                    return None;
                }
                ScopeWait::Answer(_) => {}
                ScopeWait::Until(at) | ScopeWait::AnswerBy(_, at) => {
                    wake_at = Some(wake_at.map_or(*at, |earlier| earlier.min(*at)));
                }
            }
        }
        Some(wake_at)
    }

    /// Adds to the time that the agent has run.
    pub(crate) fn ran(&self, ms: u64) {
        self.lock().head.ran_ms += ms;
    }

    pub(crate) fn ran_ms(&self) -> u64 {
        self.lock().head.ran_ms
    }

    /// Notes that a line of work was let go before it had emitted what an earlier run had.
    pub(crate) fn note_incomplete_scope(&self, scope: &str) {
        self.lock().incomplete_scope = Some(scope.to_owned());
    }

    /// An agent that returns and has emitted less than before its restart did something else. One that was
    /// told to end did so for a reason.
    pub(crate) fn check_replayed(&self) -> Result<(), AgentError> {
        match &self.lock().incomplete_scope {
            _ if self.is_canceled() => Ok(()),
            None => Ok(()),
            Some(scope) => Err(AgentError::Nondeterministic(format!(
                "in scope {scope:?} it ended before it had emitted what it emitted before the restart"
            ))),
        }
    }

    /// In whose name the agent acts.
    pub(crate) fn caller(&self) -> Caller {
        self.lock().head.caller(&self.origin.owner).through(&self.origin.agent, &self.origin.context)
    }

    /// How long its caller waits for an answer of its own, if it waits at a connection.
    pub(crate) fn waiting(&self) -> Option<Duration> {
        self.lock().head.waiting_ms.map(Duration::from_millis)
    }

    /// Whether the server's own model is asked where the caller has none.
    pub(crate) fn has_own_model(&self) -> bool {
        self.lock().head.own_model
    }

    /// What the caller's side can be asked.
    pub(crate) fn abilities(&self) -> Abilities {
        let shared = self.lock();
        let TaskHeader { can_ask, can_authorize, can_sample, .. } = shared.head;
        Abilities { ask: can_ask, authorize: can_authorize, sample: can_sample, roots: false }
    }
}

impl RunState {
    fn due_message(&self, number: u64, here: &Position) -> Option<DueMessage> {
        let message = self.received.get(usize::try_from(number).ok()?)?;
        let (is_due, is_recorded) = match self.replay.received(number) {
            Some(received) => (here.has_reached(received), true),
            None => (!here.replays, false),
        };
        is_due.then(|| DueMessage { message: message.clone(), is_recorded })
    }

    fn has_room(&self) -> bool {
        self.entries.len() < BUFFER_ENTRIES && self.entry_bytes < BUFFER_BYTES
    }

    fn push(&mut self, at: Timestamp, event: Event, size: usize) {
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
        self.journal.push(encoded);
        self.replay.add(record);
        self.queued += 1;
    }

    fn take(&mut self) -> PendingCommit {
        self.entry_bytes = 0;
        let entries: Arc<[Entry]> = std::mem::take(&mut self.entries).into();
        PendingCommit {
            state: self.state.take(),
            next_status: self.next_status.take(),
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

/// The scope of the line of work out of which a branch came.
fn outer_scope(scope: &str) -> &str {
    scope.rsplit_once('/').map_or("", |(outer, _)| outer)
}

/// The line of work that a step belongs to; a line that is no step is its own.
fn line_of(scope: &str) -> &str {
    scope.split_once('#').map_or(scope, |(line, _)| line)
}

/// The task's artifacts by position, while the lock is held.
pub(crate) struct ArtifactIndex<'a>(&'a mut Vec<(String, Option<String>)>);

impl ArtifactIndex<'_> {
    /// The position of an artifact that this scope writes. `anew`: it replaces what is there; then it may have
    /// been written by an earlier step of the same line, which has ended and is not redone.
    pub(crate) fn index_for_writer(&mut self, id: &str, scope: &str, anew: bool) -> Result<u32, AgentError> {
        let index = match self.0.iter().position(|(known, _)| known == id) {
            Some(index) => index,
            None => {
                self.0.push((id.to_owned(), None));
                self.0.len() - 1
            }
        };
        let writer = &mut self.0[index].1;
        match writer {
            Some(writer) if writer == scope => {}
            Some(writer) if anew && line_of(writer) == line_of(scope) => scope.clone_into(writer),
            // A step that is redone replaces what it wrote, so nobody else may have written there.
            Some(writer) => {
                return Err(AgentError::Misuse(format!(
                    "artifact {id:?} is written by {writer:?} and by {scope:?}: a step or a branch writes its own artifacts"
                )));
            }
            None => *writer = Some(scope.to_owned()),
        }
        Ok(index as u32)
    }
}

impl ArtifactIndex<'_> {
    /// The position of an artifact that all lines of work add to, and whether it was there.
    pub(crate) fn shared_index(&mut self, id: &str) -> Result<(u32, bool), AgentError> {
        let known = self.0.iter().any(|(known, _)| known == id);
        Ok((self.index_for_writer(id, SHARED, false)?, known))
    }
}

/// Who writes an artifact that all lines of work add to. No scope is called so.
const SHARED: &str = "#";

/// A line of work that waits.
pub(crate) struct ScopeWaitGuard<'a> {
    run: &'a TaskRun,
    scope: &'a str,
}

impl Drop for ScopeWaitGuard<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.run.lock().lines.get_mut(self.scope) {
            line.waits = None;
        }
    }
}

/// A call under way.
pub(crate) struct CallGuard<'a> {
    _busy: BusyGuard<'a>,
    run: &'a TaskRun,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut shared = self.run.lock();
        shared.calls -= 1;
        if shared.calls == 0 {
            self.run.engine.end_calling(&self.run.origin.owner, self.run.depth);
        }
    }
}

/// A step that waits for what a branch asks, see [`crate::StepContext::rest`].
pub struct ParkableGuard<'a>(&'a TaskRun);

impl Drop for ParkableGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().busy += 1;
    }
}

/// Work that must not be parked.
pub(crate) struct BusyGuard<'a>(&'a TaskRun);

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.driver.notify_one();
    }
}

/// Cleans what an agent says beside its results.
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
