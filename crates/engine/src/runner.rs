//! The one loop that runs agents.
//!
//! A `Driver` holds one agent's future and its lease. It polls the agent, commits what the agent emits while
//! the agent goes on, and ends in one of four ways: the task ends, the task is parked, the task is handed
//! back at shutdown, or the lease is lost and everything is dropped. The claim loop below it finds tasks
//! that nobody runs.

use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{sync::watch, time::Instant};

use crate::{
    agent::{AgentError, Outcome},
    catalog::Registered,
    clock::Timestamp,
    content::{Message, Part, Role},
    context::TaskContext,
    engine::{Entered, Inner as Engine, Permit},
    error::Error,
    event::{self, Event, Status},
    head::{self, Head},
    journal::Replay,
    run::{Run, Work},
    store::{Change, Claimed, CommitError, Committed, Guard, RunChange, StoreError, TaskKey, TaskNo},
    task::State,
};

/// Attempts in a row that commit nothing new before a task is given up.
pub const MAX_IDLE_ATTEMPTS: u32 = 5;
/// A snapshot is not worth it below this.
const SNAPSHOT_BYTES: u64 = 64 * 1024;
/// Waits between tries at a store that is full or away.
const STORE_RETRY: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];
/// How long a task that could not be read is left alone.
const RESUME_AGAIN: Duration = Duration::from_secs(10);

type AgentResult = Result<Result<Outcome, AgentError>, Box<dyn Any + Send>>;
type AgentFuture = Pin<Box<dyn Future<Output = AgentResult> + Send>>;

/// One agent at work on one task.
pub(crate) struct Driver {
    run: Arc<Run>,
    agent: AgentFuture,
    /// Counts against the cap on running tasks.
    _permit: Permit,
}

/// Why a run ended without ending its task.
enum Stop {
    /// Another runner has the task, or it ended otherwise.
    Lost,
    /// The server stops.
    HandBack,
}

impl Driver {
    pub(crate) fn new(run: Arc<Run>, registered: &Registered, permit: Permit) -> Self {
        let agent = Arc::clone(&registered.agent);
        let cx = TaskContext::root(Arc::clone(&run));
        let agent = AssertUnwindSafe(async move { agent.run(cx).await }).catch_unwind();
        Self { run, agent: Box::pin(agent), _permit: permit }
    }

    /// Polls the agent once. An agent that only computes is done with that, and its whole task is one commit.
    pub(crate) fn try_finish(&mut self) -> Option<Event> {
        let result = (&mut self.agent).now_or_never()?;
        Some(self.end_of(result))
    }

    /// The event that ends the task.
    fn end_of(&self, result: AgentResult) -> Event {
        let result = result.unwrap_or_else(|panic| Err(AgentError::Failed(describe_panic(&*panic))));
        let result = result.and_then(|outcome| self.run.check_replayed().map(|()| outcome));
        let (state, text) = match result {
            // Told to end at another point than before its restart, it had every reason to do other things.
            Err(AgentError::Nondeterministic(_)) if self.run.is_canceled() => (State::Canceled, None),
            Ok(Outcome::Completed(message)) => {
                let message = message.map(|m| self.named(m));
                return Event::Status(Status { state: State::Completed, message });
            }
            Ok(Outcome::Failed(why)) => (State::Failed, Some(why)),
            Ok(Outcome::Rejected(why)) => (State::Rejected, Some(why)),
            Ok(Outcome::Canceled(why)) => (State::Canceled, why),
            Err(AgentError::Canceled) => (State::Canceled, None),
            Err(error) => (State::Failed, Some(error.to_string())),
        };
        self.end_with(state, text)
    }

    fn end_with(&self, state: State, text: Option<String>) -> Event {
        let message = text.map(|text| self.named(Message::of("", Role::Agent, vec![Part::text(text)])));
        Event::Status(Status { state, message })
    }

    fn named(&self, mut message: Message) -> Message {
        if message.id.is_empty() {
            message.id = self.run.engine.clock.new_id().to_string();
        }
        message
    }

    /// Drives the agent to one of its ends.
    pub(crate) async fn drive(mut self, mut lease: Lease, _entered: Entered) {
        let run = Arc::clone(&self.run);
        let ended = self.work(&mut lease).await;
        // The agent is dropped before its task is given away.
        drop(self);
        match ended {
            Ok(Some(end)) => lease.finish(&run, end).await,
            Ok(None) | Err(Stop::Lost) => {}
            Err(Stop::HandBack) => lease.hand_back(&run).await,
        }
    }

    /// `Ok(Some)`: the task ends with this. `Ok(None)`: it was parked.
    async fn work(&mut self, lease: &mut Lease) -> Result<Option<Event>, Stop> {
        let run = Arc::clone(&self.run);
        let engine = Arc::clone(&run.engine);
        let mut closing = engine.closing();
        let limit = run.profile.time_limit.unwrap_or(engine.options.time_limit);
        let left = limit.saturating_sub(Duration::from_millis(run.ran_ms()));
        let mut time_over = std::pin::pin!(tokio::time::sleep(left));
        let mut grace_over = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let mut told = false;
        loop {
            if engine.is_closing() {
                return Err(Stop::HandBack);
            }
            if lease.behind {
                lease.catch_up(&run).await?;
            }
            if run.is_canceled() && !told {
                told = true;
                grace_over.as_mut().reset(Instant::now() + engine.options.cancel_grace);
                // Beside the agent, which has its own tidying up to do.
                let (engine, id) = (Arc::clone(&engine), run.origin.id);
                tokio::spawn(async move { engine.cancel_children(id).await });
            }
            if !told
                && !lease.behind
                && let Some(wake_at) = run.parkable()
            {
                match lease.park(&run, wake_at).await? {
                    Parked::Yes => return Ok(None),
                    Parked::News => continue,
                }
            }
            let work = run.take();
            let mut commit = std::pin::pin!(async {
                match &work {
                    Some(work) => lease.write(&run, work, RunChange::Keep).await.map(|()| true),
                    None => std::future::pending().await,
                }
            });
            // The agent goes on while its words are being written; the loop turns when they are.
            let mut ended = None;
            loop {
                tokio::select! {
                    biased;
                    written = &mut commit => {
                        written?;
                        break;
                    }
                    result = &mut self.agent, if ended.is_none() => {
                        ended = Some(result);
                    }
                    () = run.driver.notified(), if work.is_none() => break,
                    () = closed(&mut closing), if ended.is_none() => {
                        if work.is_some() {
                            commit.await?;
                        }
                        return Err(Stop::HandBack);
                    }
                    () = &mut time_over, if !told && ended.is_none() => {
                        if work.is_some() {
                            commit.await?;
                        }
                        let why = format!("the agent ran longer than its time limit of {limit:?}");
                        return Ok(Some(self.end_with(State::Failed, Some(why))));
                    }
                    () = &mut grace_over, if told && ended.is_none() => {
                        if work.is_some() {
                            commit.await?;
                        }
                        return Ok(Some(self.end_with(State::Canceled, None)));
                    }
                }
                if ended.is_some() && work.is_none() {
                    break;
                }
            }
            if let Some(result) = ended {
                return Ok(Some(self.end_of(result)));
            }
        }
    }
}

/// Waits until the engine stops.
pub(crate) async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error says that the engine is gone, which is the same thing.
    let _ = closing.wait_for(|closing| *closing).await;
}

fn describe_panic(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the agent panicked: {}", text.unwrap_or("without words"))
}

enum Parked {
    Yes,
    /// Something came in between; look again.
    News,
}

/// The right to write for a task, and how far its log is known.
pub(crate) struct Lease {
    engine: Arc<Engine>,
    task: TaskNo,
    epoch: u64,
    /// Everything up to this version is known to the run.
    version: u64,
    /// Others have written since: it is looked up before the task can be parked.
    behind: bool,
    since: Instant,
    /// The log outgrows the newest snapshot at this size, at least `SNAPSHOT_BYTES`. `u64::MAX` while the next
    /// one is being taken.
    snapshot: Arc<AtomicU64>,
}

impl Lease {
    pub(crate) fn new(engine: Arc<Engine>, committed: &Committed) -> Self {
        Self {
            engine,
            task: committed.task,
            epoch: committed.epoch,
            version: committed.version,
            behind: false,
            since: Instant::now(),
            snapshot: Arc::new(AtomicU64::new(SNAPSHOT_BYTES)),
        }
    }

    fn claimed(engine: Arc<Engine>, claimed: &Claimed, snapshot: u64) -> Self {
        let row = &claimed.row;
        Self {
            engine,
            task: row.no,
            epoch: row.epoch,
            version: row.version,
            // An answer or a cancel may have come before the run could be found.
            behind: true,
            since: Instant::now(),
            snapshot: Arc::new(AtomicU64::new(snapshot.max(SNAPSHOT_BYTES))),
        }
    }

    /// Commits a piece of work, however long the store takes; the agent pauses when its buffer is full.
    async fn write(&mut self, run: &Run, work: &Work, run_change: RunChange) -> Result<(), Stop> {
        let runner = Guard::Runner { task: self.task, epoch: self.epoch };
        let mut change = Change::new(runner.clone());
        change.events = (!work.entries.is_empty()).then(|| event::encode(&work.entries));
        change.head = Some(work.head.encode());
        change.journal.clone_from(&work.journal);
        change.run = run_change;
        let mut tries = 0;
        let committed = loop {
            (change.guard, change.state) = match &work.next_status {
                None => (runner.clone(), work.state),
                Some((question, state, since)) if run.is_oldest(question) => {
                    (runner.clone(), Some((*state, *since)))
                }
                // Which question the row shows depends on whether the one before is still open: so this is
                // decided on a version, like everything that others may decide too.
                Some(_) => (Guard::Version { task: self.task, version: self.version }, work.state),
            };
            let error = match self.engine.store.commit(change.clone()).await {
                Ok(committed) => break committed,
                Err(CommitError::Moved) => {
                    self.catch_up(run).await?;
                    continue;
                }
                Err(error) => error,
            };
            let patience = match &error {
                // What a stopping server could not write is done again after its next start; and a broken
                // batch may be the fault of a neighbour in it.
                CommitError::Store(StoreError::Full(_) | StoreError::Unavailable(_))
                    if !self.engine.is_closing() =>
                {
                    usize::MAX
                }
                CommitError::Store(_) => STORE_RETRY.len(),
                _ => 0,
            };
            if tries >= patience {
                tracing::warn!(task = %run.origin.id, %error, "a runner lost its task");
                return Err(Stop::Lost);
            }
            let wait = STORE_RETRY[tries.min(STORE_RETRY.len() - 1)];
            tracing::warn!(task = %run.origin.id, %error, ?wait, "the store cannot take a commit; trying again");
            tokio::time::sleep(wait).await;
            tries += 1;
        };
        match committed.version == self.version + 1 {
            true => self.version = committed.version,
            false => self.behind = true,
        }
        run.done(work);
        self.engine.announce(run, &committed, &work.entries);
        if committed.cancel && !run.is_canceled() {
            run.cancel();
        }
        self.snapshot_if_due(run, committed.unfolded);
        Ok(())
    }

    /// Takes a snapshot when the log since the last one has outgrown it. So all snapshots of a task together
    /// are about as long as its log.
    fn snapshot_if_due(&self, run: &Run, unfolded: u64) {
        let size = self.snapshot.load(Ordering::Acquire);
        if unfolded <= size {
            return;
        }
        self.snapshot.store(u64::MAX, Ordering::Release);
        let (engine, snapshot, key) =
            (Arc::clone(&self.engine), Arc::clone(&self.snapshot), TaskKey::Id(run.origin.id));
        tokio::spawn(async move {
            let taken = take_snapshot(&engine, &key).await.unwrap_or_else(|error| {
                tracing::warn!(?key, %error, "no snapshot: the task opens a little slower");
                unfolded
            });
            snapshot.store(taken.max(size), Ordering::Release);
        });
    }

    /// Writes the end of the task.
    async fn finish(&mut self, run: &Run, end: Event) {
        self.count_time(run);
        if run.is_canceled() {
            self.engine.cancel_children(run.origin.id).await;
        }
        let work = run.take_last(Some(end));
        // Both ways out are final: the end is durable, or somebody else's end is.
        let _ = self.write(run, &work, RunChange::Rest).await;
        self.engine.cancel_children(run.origin.id).await;
    }

    /// Gives the task back, unfinished: it is due at once, and no attempt is counted.
    async fn hand_back(&mut self, run: &Run) {
        self.count_time(run);
        let work = run.take_last(None);
        let _ = self.write(run, &work, RunChange::Due(self.engine.clock.now())).await;
    }

    /// Lets go of a task that only waits. Decided on a version, because an answer may come at any moment and
    /// would otherwise wait for a runner that has just left.
    async fn park(&mut self, run: &Run, wake_at: Option<Timestamp>) -> Result<Parked, Stop> {
        self.count_time(run);
        let mut change = Change::new(Guard::Version { task: self.task, version: self.version });
        change.head = Some(run.take_last(None).head.encode());
        change.run = wake_at.map_or(RunChange::Rest, RunChange::Due);
        match self.engine.store.commit(change).await {
            Ok(_) => {
                if let Some(at) = wake_at {
                    self.engine.due(at);
                }
                Ok(Parked::Yes)
            }
            Err(CommitError::Moved) => {
                self.behind = true;
                Ok(Parked::News)
            }
            Err(CommitError::Store(error)) => {
                tracing::warn!(task = %run.origin.id, %error, "a task could not be parked; trying again");
                tokio::time::sleep(STORE_RETRY[1]).await;
                Ok(Parked::News)
            }
            Err(_) => Err(Stop::Lost),
        }
    }

    /// Learns what others wrote to the task: answers, and the wish to cancel it.
    async fn catch_up(&mut self, run: &Run) -> Result<(), Stop> {
        let read = async {
            let row = self.engine.store.row(&TaskKey::Id(run.origin.id)).await?;
            let row = row.filter(|row| row.epoch == self.epoch && !row.state.is_terminal());
            let Some(row) = row else { return Ok(None) };
            // Read after the row, so that it holds all that the row's version stands for.
            let replay = match row.version == self.version {
                true => None,
                false => Some(Replay::new(&self.engine.store.journal(self.task).await?)?),
            };
            Ok(Some((row, replay)))
        };
        self.behind = true;
        let read: Result<_, Error> = read.await;
        let (row, replay) = match read {
            Ok(Some(read)) => read,
            Ok(None) => return Err(Stop::Lost),
            Err(error) => {
                tracing::warn!(task = %run.origin.id, %error, "a task could not be read; trying again");
                tokio::time::sleep(STORE_RETRY[1]).await;
                run.driver.notify_one();
                return Ok(());
            }
        };
        if let Some(replay) = replay {
            run.learn(replay);
        }
        if row.cancel && !run.is_canceled() {
            run.cancel();
        }
        self.version = row.version;
        self.behind = false;
        Ok(())
    }

    fn count_time(&mut self, run: &Run) {
        run.ran(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.since = Instant::now();
    }
}

/// Keeps the fold of a task as it stands; how large it is.
async fn take_snapshot(engine: &Engine, key: &TaskKey) -> Result<u64, Error> {
    let Some(opened) = engine.store.open(key).await? else { return Ok(0) };
    let task = engine.fold(&opened).await?;
    let bytes = head::encode_snapshot(&task);
    let size = bytes.len() as u64;
    engine.store.put_snapshot(opened.row.no, task.seq, bytes).await?;
    Ok(size)
}

/// Finds tasks that nobody runs, for as long as the server does.
pub(crate) async fn claim_loop(engine: Arc<Engine>) {
    let mut closing = engine.closing();
    loop {
        let wait = match claim_some(&engine).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "tasks could not be claimed; trying again");
                STORE_RETRY[2]
            }
        };
        tokio::select! {
            () = engine.claims.notified() => {}
            // Counted again also while all places are taken and nothing is claimed.
            () = tokio::time::sleep(wait) => engine.recount().await,
            () = closed(&mut closing) => return,
        }
    }
}

/// Claims what is due and fits; how long until it is worth looking again.
async fn claim_some(engine: &Arc<Engine>) -> Result<Duration, Error> {
    const AT_ONCE: usize = 64;
    let mut more = 0;
    loop {
        // No more places than tasks are known to wait: a new task would find all of them taken meanwhile.
        let waiting = usize::try_from(engine.queued()).unwrap_or(usize::MAX).max(more);
        let permits: Vec<Permit> = std::iter::from_fn(|| engine.admit()).take(waiting.min(AT_ONCE)).collect();
        if permits.is_empty() && !engine.has_place() {
            return Ok(engine.options.claim_poll);
        }
        let now = engine.clock.now();
        let limit = permits.len().max(1);
        let claimed = engine.store.claim(engine.node, now, limit).await?;
        let full = claimed.len() == limit;
        let mut permits = permits.into_iter();
        for claim in claimed {
            let engine = Arc::clone(engine);
            let permit = permits.next().unwrap_or_else(|| engine.admit_anyway());
            tokio::spawn(async move {
                if let Err(error) = resume(Arc::clone(&engine), &claim, permit).await {
                    tracing::error!(task = %claim.row.id, %error, "a task could not be resumed");
                    leave_alone(&engine, &claim).await;
                }
            });
        }
        drop(permits);
        engine.recount().await;
        if !full {
            let next = engine.store.next_due().await?;
            let wait =
                next.map_or(engine.options.claim_poll, |at| at.since(now).max(Duration::from_millis(5)));
            return Ok(wait.min(engine.options.claim_poll));
        }
        // Those of a dead node are not counted, and there may be many.
        more = AT_ONCE;
    }
}

/// Goes on with a task where its log and journal end.
async fn resume(engine: Arc<Engine>, claimed: &Claimed, permit: Permit) -> Result<(), Error> {
    let key = TaskKey::Id(claimed.row.id);
    let Some(opened) = engine.store.open(&key).await? else { return Ok(()) };
    let task = engine.fold(&opened).await?;
    let head = Head::decode(&opened.row.head)?;
    let replay = Replay::new(&engine.store.journal(claimed.row.no).await?)?;
    let snapshot = opened.snapshot.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
    let lease = Lease::claimed(Arc::clone(&engine), claimed, snapshot);

    let registered = engine.catalog.get(&claimed.row.agent);
    let profile = match &registered {
        Ok(registered) => Arc::clone(&registered.profile),
        Err(_) => engine.unknown_agent(),
    };
    let run = Arc::new(Run::new(Arc::clone(&engine), profile, &task, head, replay, true));
    let refusal = match (&registered, claimed.row.attempts) {
        (Err(error), _) => Some(error.to_string()),
        (_, attempts) if attempts >= MAX_IDLE_ATTEMPTS => {
            Some(format!("quarantined: {attempts} attempts in a row ended without getting any further"))
        }
        _ => None,
    };
    let entered = engine.enter(&run);
    // After that: whoever adds one from now on finds the run.
    if engine.store.webhooks(claimed.row.no).await.is_ok_and(|hooks| !hooks.is_empty()) {
        run.hooked.store(true, Ordering::Relaxed);
    }
    if claimed.row.cancel {
        run.cancel();
    }
    match (registered, refusal) {
        (Ok(registered), None) => Driver::new(run, registered, permit).drive(lease, entered).await,
        (_, refusal) => {
            let mut lease = lease;
            let text = refusal.unwrap_or_default();
            let id = engine.clock.new_id().to_string();
            let message = Message::text(id, Role::Agent, text);
            lease.finish(&run, Event::Status(Status { state: State::Failed, message: Some(message) })).await;
        }
    }
    Ok(())
}

/// Gives a task back that could not be read, for a while: it may be the disk, or a newer version's task.
async fn leave_alone(engine: &Engine, claimed: &Claimed) {
    let mut change = Change::new(Guard::Runner { task: claimed.row.no, epoch: claimed.row.epoch });
    change.run = RunChange::Due(engine.clock.now().after(RESUME_AGAIN));
    for wait in STORE_RETRY {
        match engine.store.commit(change.clone()).await {
            Err(CommitError::Store(_)) => tokio::time::sleep(wait).await,
            _ => return,
        }
    }
}
