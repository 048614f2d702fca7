//! The group commit: while one batch is in progress, new changes queue up and go together into the next.
//!
//! A batch has a name. When its connection is lost, it is unknown whether the batch was committed. It is sent
//! again under the same name, for as long as that takes; the database then commits it, or returns the outcome
//! of the first time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nuncio_engine::store::{Change, CommitError, CommitReceipt, StoreError};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinHandle,
};
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{
    batch::{self, BatchName, ChangeColumns, ChangeOutcome},
    clock::DatabaseClock,
    error::{self, PostgresErrorKind},
    names::PostgresNameCache,
    notifier::Notifier,
    pool::ConnectOptions,
};
use crate::commit_metrics::CommitMetrics;

/// Approximate maximum changes and bytes in one batch.
const BATCH_CHANGES: usize = 256;
const BATCH_BYTES: usize = 4 << 20;
/// Maximum queued changes; beyond it callers wait (backpressure).
const QUEUE: usize = 1_024;
/// Number of slots that totals are spread over. See the table `tally`.
const SLOTS: i16 = 32;
/// Backoff between attempts to reach the database.
const RETRY: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
];
/// Deadline of a batch: after it the connection is dropped, and the outcome is queried on another.
const GIVE_UP: Duration = Duration::from_secs(30);

type CommitSender = oneshot::Sender<Result<CommitReceipt, CommitError>>;

/// A change that waits for a batch.
struct CommitJob {
    change: Change,
    reply: CommitSender,
    since: Instant,
}

/// The resources that writer tasks share.
pub(super) struct WriterResources {
    pub(super) connect: ConnectOptions,
    pub(super) names: Arc<PostgresNameCache>,
    pub(super) clock: Arc<DatabaseClock>,
    pub(super) notifier: Notifier,
    pub(super) patience: Duration,
    pub(super) metrics: CommitMetrics,
}

/// The writer tasks of this process.
pub(super) struct PostgresWriter {
    queue: Mutex<Option<mpsc::Sender<CommitJob>>>,
    give: mpsc::WeakSender<CommitJob>,
    at_work: Mutex<Vec<JoinHandle<()>>>,
}

impl PostgresWriter {
    pub(super) fn start(resources: WriterResources, count: usize) -> Self {
        let (give, take) = mpsc::channel(QUEUE);
        let (resources, take) = (Arc::new(resources), Arc::new(Mutex::new(take)));
        let at_work = (0..count.max(1))
            .map(|_| {
                let scribe = WriterTask { resources: Arc::clone(&resources), id: Uuid::now_v7(), line: None };
                tokio::spawn(scribe.serve(Arc::clone(&take)))
            })
            .collect();
        Self { give: give.downgrade(), queue: Mutex::new(Some(give)), at_work: Mutex::new(at_work) }
    }

    /// Commits a change; returns once it is durable.
    pub(super) async fn write(&self, change: Change) -> Result<CommitReceipt, CommitError> {
        let closed = || StoreError::Unavailable("the store is closed".into());
        let (reply, answer) = oneshot::channel();
        let give = self.give.upgrade().ok_or_else(closed)?;
        give.send(CommitJob { change, reply, since: Instant::now() }).await.map_err(|_| closed())?;
        drop(give);
        answer.await.map_err(|_| closed())?
    }

    /// Commits the queued changes, and closes the connections.
    pub(super) async fn close(&self) {
        self.queue.lock().await.take();
        for scribe in self.at_work.lock().await.drain(..) {
            let _ = scribe.await;
        }
    }
}

/// One writer: one connection, one batch at a time.
struct WriterTask {
    resources: Arc<WriterResources>,
    /// The id under which the database remembers this writer's last batch.
    id: Uuid,
    line: Option<WriterConnection>,
}

/// A connection that is ready to commit.
struct WriterConnection {
    client: Client,
    commit: Statement,
    add_webhooks: Statement,
    slot: i16,
}

impl WriterTask {
    async fn serve(mut self, jobs: Arc<Mutex<mpsc::Receiver<CommitJob>>>) {
        loop {
            let mut batch = vec![];
            {
                let mut jobs = jobs.lock().await;
                match jobs.recv().await {
                    Some(job) => batch.push(job),
                    None => return,
                }
                let mut bytes = batch::weight(&batch[0].change);
                while batch.len() < BATCH_CHANGES && bytes < BATCH_BYTES {
                    let Ok(job) = jobs.try_recv() else { break };
                    bytes += batch::weight(&job.change);
                    batch.push(job);
                }
            }
            // A change that adds webhooks is a transaction of its own: `commit_batch` adds them to new tasks only.
            let adding: Vec<CommitJob> = batch.extract_if(.., |job| job.change.webhooks.is_some()).collect();
            // Ordered by task, so that two batches do not deadlock on each other's rows.
            batch.sort_by_key(|job| match &job.change.guard {
                nuncio_engine::store::Precondition::Create(_) => i64::MAX,
                nuncio_engine::store::Precondition::Version { task, .. }
                | nuncio_engine::store::Precondition::Runner { task, .. } => task.0,
            });
            if !batch.is_empty()
                && let Some(refused) = self.write(batch).await
            {
                // One of the changes may be at fault. Commit each alone, so that only that one fails.
                for job in refused {
                    self.write(vec![job]).await;
                }
            }
            for job in adding {
                self.write(vec![job]).await;
            }
        }
    }

    /// Commits a batch and replies to its callers. Returns the batch if it was rolled back and parts of it may
    /// succeed.
    async fn write(&mut self, batch: Vec<CommitJob>) -> Option<Vec<CommitJob>> {
        let name = Uuid::now_v7();
        // Whether it may have been committed.
        let mut sent = false;
        for tries in 0_usize.. {
            let error = match self.try_write(&batch, name, &mut sent).await {
                Ok(outcomes) => {
                    self.report_outcomes(batch, outcomes);
                    return None;
                }
                Err(error) => error,
            };
            let waited = batch.iter().map(|job| job.since.elapsed()).max().unwrap_or_default();
            let error = match error {
                BatchFailure::Again => None,
                BatchFailure::Store(StoreError::Unavailable(_))
                    if sent || waited < self.resources.patience =>
                {
                    None
                }
                BatchFailure::Store(StoreError::Full(_)) if sent => None,
                BatchFailure::Store(StoreError::Broken(_)) if batch.len() > 1 && !sent => return Some(batch),
                BatchFailure::Store(error) => Some(error),
            };
            if let Some(error) = error {
                for job in batch {
                    let _ = job.reply.send(Err(error.clone().into()));
                }
                return None;
            }
            tokio::time::sleep(RETRY[tries.min(RETRY.len() - 1)]).await;
        }
        None
    }

    async fn try_write(
        &mut self,
        batch: &[CommitJob],
        name: Uuid,
        sent: &mut bool,
    ) -> Result<Vec<ChangeOutcome>, BatchFailure> {
        let (writer, resources) = (self.id, Arc::clone(&self.resources));
        let line = match &mut self.line {
            Some(line) if !line.client.is_closed() => line,
            _ => self
                .line
                .insert(WriterConnection::open(&resources.connect).await.map_err(BatchFailure::Store)?),
        };
        let changes = batch.iter().map(|job| &job.change);
        let columns = ChangeColumns::of(changes, &line.client, &resources.names, &resources.clock)
            .await
            .map_err(BatchFailure::Store)?;
        let WriterConnection { client, commit, add_webhooks, slot } = line;
        let name = BatchName { writer, batch: name, slot: *slot };
        let committing = async {
            match batch {
                [CommitJob { change: Change { webhooks: Some(added), .. }, .. }] => {
                    columns.commit_with_webhooks(client, commit, add_webhooks, &name, added).await
                }
                _ => columns.commit(client, commit, &name).await,
            }
        };
        let began = Instant::now();
        let committed = tokio::time::timeout(GIVE_UP, committing).await;
        resources.metrics.record(began.elapsed(), batch.len(), matches!(committed, Ok(Ok(_))));
        let error = match committed {
            Ok(Ok(outcomes)) => return Ok(outcomes),
            Ok(Err(error)) => error,
            Err(_) => {
                (*sent, self.line) = (true, None);
                return Err(BatchFailure::Again);
            }
        };
        match error::error_kind(&error) {
            PostgresErrorKind::Lost => {
                (*sent, self.line) = (true, None);
                Err(BatchFailure::Again)
            }
            PostgresErrorKind::Again => Err(BatchFailure::Again),
            PostgresErrorKind::Away | PostgresErrorKind::Full => {
                Err(BatchFailure::Store(error::store_error(&error)))
            }
            PostgresErrorKind::Broken => {
                // If an earlier attempt had been committed, the database would have returned its outcome.
                *sent = false;
                Err(BatchFailure::Store(error::store_error(&error)))
            }
        }
    }

    fn report_outcomes(&self, batch: Vec<CommitJob>, mut outcomes: Vec<ChangeOutcome>) {
        outcomes.sort_by_key(|outcome| outcome.place);
        for (job, outcome) in batch.into_iter().zip(outcomes) {
            for news in outcome.news(&job.change) {
                self.resources.notifier.notify(news);
            }
            let _ = job.reply.send(outcome.result);
        }
    }
}

/// Why a batch was not committed, as far as is known.
enum BatchFailure {
    /// It must be sent again, under its name.
    Again,
    /// It was rolled back, or never sent.
    Store(StoreError),
}

impl WriterConnection {
    async fn open(connect: &ConnectOptions) -> Result<Self, StoreError> {
        let client = connect.connect().await?;
        let prepare = async {
            let commit = client.prepare(batch::COMMIT).await?;
            let add_webhooks = client.prepare(batch::ADD_WEBHOOKS).await?;
            let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
            Ok((commit, add_webhooks, (pid % i32::from(SLOTS)) as i16))
        };
        let (commit, add_webhooks, slot) = prepare.await.map_err(|error| error::store_error(&error))?;
        Ok(Self { client, commit, add_webhooks, slot })
    }
}
