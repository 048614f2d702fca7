//! The lease of a task: the exclusive right to write for it, and all writes that a run makes under it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::time::Instant;

use super::{STORE_RETRY, Suspicion};
use crate::{
    clock::Timestamp,
    commands::unanswered::unanswered_end,
    commit::{Decision, Effect, Writer},
    engine::{EngineCore, ends},
    error::Error,
    event::{self, Event},
    journal::ReplayJournal,
    run::{PendingCommit, TaskRun},
    store::{
        Change, ClaimedTask, CommitError, CommitReceipt, Precondition, RunChange, StoreError, TaskKey, TaskNo,
    },
    task::{self, State},
    task_header::{self, TaskHeader},
};

/// Below this log size a snapshot does not pay.
const SNAPSHOT_BYTES: u64 = 64 * 1024;

/// Why a run ended without ending its task.
pub(super) enum RunStop {
    /// Another runner holds the task, or it ended some other way.
    Lost,
    /// The engine is stopping.
    HandBack,
}

pub(super) enum ParkResult {
    Yes,
    /// Another writer came in between; read its events first.
    News,
}

/// The right to write for a task, and how much of its log the run has seen.
pub(crate) struct Lease {
    engine: Arc<EngineCore>,
    task: TaskNo,
    epoch: u64,
    /// The run has seen everything up to this version.
    version: u64,
    /// Another writer has committed since; its events are read before the task can be parked.
    pub(super) behind: bool,
    since: Instant,
    /// The size of the log since the last snapshot at which the next one is due, at least `SNAPSHOT_BYTES`.
    /// `u64::MAX` while one is being taken.
    snapshot: Arc<AtomicU64>,
}

impl Lease {
    pub(crate) fn new(engine: Arc<EngineCore>, committed: &CommitReceipt) -> Self {
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

    pub(super) fn claimed(engine: Arc<EngineCore>, claimed: &ClaimedTask, snapshot: u64) -> Self {
        let row = &claimed.row;
        Self {
            engine,
            task: row.no,
            epoch: row.epoch,
            version: row.version,
            // An answer or a cancel may have been written before the run was registered.
            behind: true,
            since: Instant::now(),
            snapshot: Arc::new(AtomicU64::new(snapshot.max(SNAPSHOT_BYTES))),
        }
    }

    /// Commits pending work and retries for as long as the store needs; the agent pauses when its buffer is full.
    pub(super) async fn write(
        &mut self,
        run: &TaskRun,
        work: &PendingCommit,
        run_change: RunChange,
    ) -> Result<(), RunStop> {
        let runner = Precondition::Runner { task: self.task, epoch: self.epoch };
        let mut change = Change::new(runner.clone()).of_owner(&run.origin.owner);
        change.events = (!work.entries.is_empty()).then(|| event::encode(&work.entries));
        change.head = Some(work.head.encode());
        change.journal.clone_from(&work.journal);
        change.run = run_change;
        let mut tries = 0;
        let committed = loop {
            (change.guard, change.state) = match &work.next_status {
                None => match work.progress_at.filter(|_| work.state.is_none()) {
                    None => (runner.clone(), work.state),
                    Some(at) if run.open_questions().is_empty() => {
                        (runner.clone(), Some((State::Working, at)))
                    }
                    // The row shows a question, unless its answer is committed at the same time.
                    Some(_) => (Precondition::Version { task: self.task, version: self.version }, None),
                },
                Some((question, state, since)) if run.is_oldest(question) => {
                    (runner.clone(), Some((*state, *since)))
                }
                // The row shows the oldest open question. An answer to the previous one may be committed at the
                // same time, so this commit requires the version that the run has seen.
                Some(_) => (Precondition::Version { task: self.task, version: self.version }, work.state),
            };
            let decision =
                Decision { change: change.clone(), entries: Arc::clone(&work.entries), effects: vec![] };
            let error = match self.engine.commit_and_apply(Writer::Run(run, Some(work)), decision).await {
                Ok(committed) => break committed,
                Err(CommitError::Moved) => {
                    self.catch_up(run).await?;
                    continue;
                }
                Err(error) => error,
            };
            let patience = match &error {
                // What a stopping server cannot write is redone after its next start. A broken batch may be
                // the fault of another commit in it.
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
                return Err(RunStop::Lost);
            }
            let wait = STORE_RETRY[tries.min(STORE_RETRY.len() - 1)];
            tracing::warn!(task = %run.origin.id, %error, ?wait, "the store cannot take a commit; retrying");
            tokio::time::sleep(wait).await;
            tries += 1;
        };
        match committed.version == self.version + 1 {
            true => self.version = committed.version,
            false => self.behind = true,
        }
        self.snapshot_if_due(
            run,
            committed.unfolded,
            work.entries.last().is_some_and(|last| ends(last.event())),
        );
        Ok(())
    }

    /// Makes the evidence against the run durable.
    pub(super) async fn suspect(
        &mut self,
        run: &TaskRun,
        suspicion: Option<Suspicion>,
    ) -> Result<(), RunStop> {
        run.suspect(suspicion);
        let work = run.take_last(None);
        self.write(run, &work, RunChange::Keep).await
    }

    /// Takes a snapshot when the log since the last one has outgrown it, so that all snapshots of a task together
    /// are about as long as its log. At its end a task gets one more if more than `SNAPSHOT_BYTES` of log follow the
    /// last: lists and readers then need no log.
    fn snapshot_if_due(&self, run: &TaskRun, unfolded: u64, has_ended: bool) {
        let size = self.snapshot.load(Ordering::Acquire);
        if unfolded <= if has_ended { SNAPSHOT_BYTES } else { size } {
            return;
        }
        self.snapshot.store(u64::MAX, Ordering::Release);
        let (engine, snapshot, key) =
            (Arc::clone(&self.engine), Arc::clone(&self.snapshot), TaskKey::Id(run.origin.id));
        tokio::spawn(async move {
            let taken = take_snapshot(&engine, &key).await.unwrap_or_else(|error| {
                tracing::warn!(?key, %error, "could not take a snapshot; the task opens more slowly");
                unfolded
            });
            snapshot.store(taken.max(size), Ordering::Release);
        });
    }

    /// Whether another writer knows the task: one that sent it a message or a webhook meanwhile.
    async fn is_shown(&self, run: &TaskRun) -> bool {
        let store = &self.engine.store;
        let Ok(Some(row)) = store.row(&TaskKey::Id(run.origin.id)).await else { return true };
        let webhooks = store.webhooks(self.task).await;
        run.has_foreign_events(row.seq) || !webhooks.is_ok_and(|webhooks| webhooks.is_empty())
    }

    /// Commits the event that ends the task.
    pub(super) async fn finish(&mut self, run: &TaskRun, mut end: Event) {
        self.count_time(run);
        if let Event::Status(status) = &mut end
            && status.state == State::Replied
            && self.is_shown(run).await
        {
            status.state = State::Completed;
        }
        let unanswered = run.unanswered();
        if let Some(reason) = &unanswered {
            end = unanswered_end(self.engine.clock.new_id().to_string(), reason.clone());
        }
        let by = run.take_canceled_by();
        if let Event::Status(status) = &mut end
            && status.state == State::Canceled
        {
            status.by = by;
        }
        if run.is_canceled() {
            self.engine.cancel_children_of(run).await;
        }
        let questions = run.open_questions();
        let work = run.take_last(Some(end));
        // Both results are final: this end is durable, or another writer's is.
        let written = self.write(run, &work, RunChange::Rest).await;
        // The calling task relays them, and would wait for answers that this task no longer takes. After a cancel the
        // command decides: the calling task may be canceled as well, and must not continue before that.
        let relayed = !run.called_by.is_empty() && !questions.is_empty();
        if written.is_ok() && relayed && (unanswered.is_some() || !run.is_canceled()) {
            self.engine.withdraw_from_caller_of(run.origin.id, questions);
        }
        self.engine.cancel_children_of(run).await;
    }

    /// Gives the task back, unfinished: it is due at once, and no attempt is counted.
    pub(super) async fn hand_back(&mut self, run: &TaskRun) {
        self.count_time(run);
        // The trial was inconclusive; the evidence from before it remains.
        run.suspect(run.suspicion().and_then(Suspicion::without_trial));
        let work = run.take_last(None);
        let _ = self.write(run, &work, RunChange::Due(self.engine.clock.now())).await;
    }

    /// Releases a task that only waits. Decided on a version: an answer may arrive at any moment, and would
    /// otherwise wait for a runner that has just left.
    pub(super) async fn park(
        &mut self,
        run: &TaskRun,
        wake_at: Option<Timestamp>,
    ) -> Result<ParkResult, RunStop> {
        self.count_time(run);
        run.suspect(None);
        // A caller that waits on a connection gets a deadline.
        let wake_at = wake_at.or_else(|| Some(self.engine.clock.now().after(run.waiting()?)));
        let mut change = Change::new(Precondition::Version { task: self.task, version: self.version })
            .of_owner(&run.origin.owner);
        change.head = Some(run.take_last(None).head.encode());
        change.journal = run.parked_records(self.epoch);
        change.run = wake_at.map_or(RunChange::Rest, RunChange::Due);
        let effects = wake_at.map(Effect::Due).into_iter().collect();
        let decision = Decision { effects, ..Decision::silent(change) };
        match self.engine.commit_and_apply(Writer::Run(run, None), decision).await {
            Ok(_) => Ok(ParkResult::Yes),
            Err(CommitError::Moved) => {
                self.behind = true;
                Ok(ParkResult::News)
            }
            Err(CommitError::Store(error)) => {
                tracing::warn!(task = %run.origin.id, %error, "a task could not be parked; retrying");
                tokio::time::sleep(STORE_RETRY[1]).await;
                Ok(ParkResult::News)
            }
            Err(_) => Err(RunStop::Lost),
        }
    }

    /// Reads what other writers added to the task: answers and cancel requests.
    pub(super) async fn catch_up(&mut self, run: &TaskRun) -> Result<(), RunStop> {
        let read = async {
            let row = self.engine.store.row(&TaskKey::Id(run.origin.id)).await?;
            let row = row.filter(|row| row.epoch == self.epoch && !row.state.is_terminal());
            let Some(row) = row else { return Ok(None) };
            // Read after the row, so that it includes everything up to the row's version.
            let has_news = row.version != self.version;
            let replay = match has_news {
                false => None,
                true => Some(ReplayJournal::new(&self.engine.store.journal(self.task).await?)?),
            };
            let messages = match run.wants_messages(has_news) {
                false => None,
                true => match self.engine.store.open(&TaskKey::Id(run.origin.id)).await? {
                    None => return Ok(None),
                    Some(opened) => {
                        Some(task::messages_beside_answers(self.engine.fold(&opened).await?.history))
                    }
                },
            };
            Ok(Some((row, replay, messages)))
        };
        self.behind = true;
        let read: Result<_, Error> = read.await;
        let (row, replay, messages) = match read {
            Ok(Some(read)) => read,
            Ok(None) => return Err(RunStop::Lost),
            Err(error) => {
                tracing::warn!(task = %run.origin.id, %error, "a task could not be read; retrying");
                tokio::time::sleep(STORE_RETRY[1]).await;
                run.driver.notify_one();
                return Ok(());
            }
        };
        if let Some(replay) = replay {
            run.merge_replay(replay);
        }
        if let Some(messages) = messages {
            run.learn_messages(messages);
        }
        if row.cancel && !run.is_canceled() {
            let head = TaskHeader::decode(&row.head).ok();
            let (by, unanswered) = head.map(|head| (head.canceled_by, head.unanswered)).unzip();
            match unanswered.flatten() {
                Some(reason) => run.stop_unanswered(reason),
                None => run.cancel_by(by.flatten()),
            }
        }
        self.version = row.version;
        self.behind = false;
        Ok(())
    }

    fn count_time(&mut self, run: &TaskRun) {
        run.ran(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.since = Instant::now();
    }
}

/// Stores the current fold of a task as its snapshot. Returns its size.
async fn take_snapshot(engine: &EngineCore, key: &TaskKey) -> Result<u64, Error> {
    let Some(opened) = engine.store.open(key).await? else { return Ok(0) };
    let task = engine.fold(&opened).await?;
    let bytes = task_header::encode_snapshot(&task);
    let size = bytes.len() as u64;
    engine.store.put_snapshot(opened.row.no, task.seq, bytes).await?;
    Ok(size)
}
