//! The only thread that writes, with its group commit.
//!
//! It takes the queued jobs, tenants in turn, runs them in one transaction with one fsync, and only then
//! replies. While several tenants write, a transaction is short, so that no tenant waits long for the writes of
//! others. A job that is refused (by a guard) has written nothing and fails alone. When the disk fails, the
//! whole batch fails and every caller receives the error; the thread continues, since the next batch may find
//! space again.

use std::{
    path::PathBuf,
    result::Result as StdResult,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use nuncio_engine::store::StoreError;
use rusqlite::Result;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    SqliteOpenError,
    checkpoint::Checkpoints,
    error::store_error,
    job_queues::{JobTenant, TenantJobQueues},
    write_session::WriteSession,
};
use crate::commit_metrics::CommitMetrics;

/// Maximum jobs in one transaction: beyond it the fsync is amortized well enough, and the first jobs wait long.
const BATCH: usize = 512;
/// Approximate maximum bytes in one transaction: beyond it SQLite's cache would spill.
const BATCH_BYTES: usize = 8 << 20;
/// Capacity of the channel to the writer; beyond it callers wait (backpressure).
const QUEUE: usize = 4_096;
/// Time limit for running jobs in one transaction while several tenants write; longer where the disk is slow.
/// The commit takes a few times as long, because it writes every page that the jobs changed.
const SHORT_BATCH: Duration = Duration::from_millis(1);
/// Bytes that must be written before a disk that was full counts as having space again.
pub(super) const ROOM: usize = 65_536;
/// A commit that takes longer than this is logged.
const SLOW: Duration = Duration::from_secs(1);

/// The handle of the writer thread. Dropping it stops the thread after the jobs already sent.
pub(super) struct SqliteWriter {
    orders: mpsc::Sender<WriterMessage>,
    thread: Mutex<Option<JoinHandle<()>>>,
    full: Arc<AtomicBool>,
}

impl SqliteWriter {
    pub(super) fn start(
        dir: PathBuf,
        session: WriteSession,
        checkpoints: Checkpoints,
        page_cap: Option<Arc<AtomicU32>>,
    ) -> StdResult<Self, SqliteOpenError> {
        let (orders, queue) = mpsc::channel(QUEUE);
        let full = Arc::new(AtomicBool::new(false));
        let desk = WriterThread {
            dir,
            session,
            checkpoints,
            full: Arc::clone(&full),
            page_cap,
            queues: TenantJobQueues::default(),
            last: LastBatch::default(),
            metrics: CommitMetrics::new(),
        };
        let thread = Builder::new()
            .name("nuncio-writer".into())
            .spawn(move || desk.serve(queue))
            .map_err(SqliteOpenError::Thread)?;
        Ok(Self { orders, thread: Mutex::new(Some(thread)), full })
    }

    /// Runs `work` in the next batch; returns once that is durable. `weight` is about how many bytes it writes.
    /// It may run twice, if the batch of its first run was rolled back.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut WriteSession) -> Result<T> + Send + 'static,
    ) -> StdResult<T, StoreError> {
        self.write_for(None, weight, work).await
    }

    /// Like `write`, in the queue of a tenant.
    pub(super) async fn write_for<T: Send + 'static>(
        &self,
        tenant: JobTenant,
        weight: usize,
        work: impl FnMut(&mut WriteSession) -> Result<T> + Send + 'static,
    ) -> StdResult<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = ClosureJob { weight, work, result: None, reply };
        self.orders.send(WriterMessage::Work(tenant, Box::new(job))).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Whether a write failed because the disk is full, and no write of at least `ROOM` bytes has succeeded
    /// since.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether the writer no longer accepts jobs.
    pub(super) fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }

    /// Finishes the jobs already sent, and stops the thread.
    pub(super) async fn close(&self) {
        // An error means that it has stopped already.
        let _ = self.orders.send(WriterMessage::Close).await;
        // Locked while waiting, so that no concurrent `close` returns earlier.
        let mut thread = self.thread.lock().await;
        if let Some(thread) = thread.take() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        // The thread ends when the last sender is dropped, so drop this one before waiting for the thread.
        self.orders = mpsc::channel(1).0;
        if let Some(thread) = self.thread.get_mut().take() {
            let _ = thread.join();
        }
    }
}

/// The error of a store that is closed.
pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

enum WriterMessage {
    Work(JobTenant, Box<dyn WriteJob>),
    Close,
}

/// A unit of work in a batch.
trait WriteJob: Send {
    fn weight(&self) -> usize;
    fn run(&mut self, session: &mut WriteSession) -> Result<()>;
    /// Replies to the caller, once the batch is durable or has failed.
    fn send_result(self: Box<Self>, batch: StdResult<(), StoreError>);
}

struct ClosureJob<F, T> {
    weight: usize,
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<StdResult<T, StoreError>>,
}

impl<F, T> WriteJob for ClosureJob<F, T>
where
    F: FnMut(&mut WriteSession) -> Result<T> + Send,
    T: Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn run(&mut self, session: &mut WriteSession) -> Result<()> {
        self.result = Some((self.work)(session)?);
        Ok(())
    }

    fn send_result(self: Box<Self>, batch: StdResult<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        // The caller may have stopped waiting; the work is done all the same.
        let _ = reply.send(batch.and_then(|()| result.ok_or_else(closed)));
    }
}

/// The state of the writer thread.
struct WriterThread {
    dir: PathBuf,
    session: WriteSession,
    checkpoints: Checkpoints,
    full: Arc<AtomicBool>,
    page_cap: Option<Arc<AtomicU32>>,
    queues: TenantJobQueues<Box<dyn WriteJob>>,
    last: LastBatch,
    metrics: CommitMetrics,
}

/// Measurements of the previous batch.
#[derive(Default)]
struct LastBatch {
    jobs: usize,
    took: Duration,
    /// The minimum duration of a commit, however small: about the lowest of the last hundred.
    sync: Duration,
}

impl WriterThread {
    fn serve(mut self, mut queue: mpsc::Receiver<WriterMessage>) {
        let (mut orders, mut jobs) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        let mut closing = false;
        while !self.queues.is_empty() || queue.blocking_recv_many(&mut orders, BATCH) > 0 {
            self.gather(&mut queue, &mut orders);
            for order in orders.drain(..) {
                match order {
                    WriterMessage::Work(tenant, job) => self.queues.push(tenant, job),
                    WriterMessage::Close => {
                        queue.close();
                        closing = true;
                    }
                }
            }
            self.write_batch(&mut jobs);
            self.checkpoints.after_commit(&self.session.conn);
        }
        self.checkpoints.finish(&self.session.conn, closing);
    }

    /// Waits briefly for the callers of the last batch, which are likely to send their next job. Without it,
    /// the first of them gets an fsync of its own while all others wait for the next batch: batches alternate
    /// between small and large, and throughput halves. A single caller never waits.
    fn gather(&self, queue: &mut mpsc::Receiver<WriterMessage>, orders: &mut Vec<WriterMessage>) {
        let patience = (self.last.took / 8).min(Duration::from_millis(1));
        let started = Instant::now();
        while self.queues.len() + orders.len() + queue.len() < self.last.jobs && started.elapsed() < patience
        {
            std::thread::sleep(Duration::from_micros(50));
        }
        while orders.len() < QUEUE
            && let Ok(order) = queue.try_recv()
        {
            orders.push(order);
        }
    }

    fn write_batch(&mut self, jobs: &mut Vec<Box<dyn WriteJob>>) {
        if self.queues.is_empty() {
            return;
        }
        self.apply_page_cap();
        let done = self.transact_next(jobs);
        if done.is_err() && jobs.is_empty() {
            // The transaction could not begin. Fail the queued jobs with its error, as if they had been part of
            // it.
            jobs.extend(std::iter::from_fn(|| self.queues.pop(Instant::now())).take(BATCH));
        }
        match done {
            // Not a disk error: one of the jobs is at fault. It must not fail its neighbours.
            Err(StoreError::Broken(_)) if jobs.len() > 1 => {
                for mut job in jobs.drain(..) {
                    let weight = job.weight();
                    let done = self.transact(|session, _| job.run(session).map(|()| (1, weight)));
                    job.send_result(done);
                }
            }
            done => {
                for job in jobs.drain(..) {
                    job.send_result(done.clone());
                }
            }
        }
    }

    /// Runs the next jobs, up to the limits of one transaction.
    fn transact_next(&mut self, jobs: &mut Vec<Box<dyn WriteJob>>) -> StdResult<(), StoreError> {
        let started = Instant::now();
        let longest = match self.queues.is_shared(started) {
            true => SHORT_BATCH.max(self.last.sync),
            false => Duration::MAX,
        };
        self.transact(|session, lanes| {
            let mut weight = 0;
            let mut now = started;
            while jobs.len() < BATCH
                && weight <= BATCH_BYTES
                && now.duration_since(started) < longest
                && let Some(mut job) = lanes.pop(now)
            {
                weight += job.weight();
                let done = job.run(session);
                jobs.push(job);
                done?;
                now = Instant::now();
            }
            Ok((jobs.len(), weight))
        })
    }

    /// Runs work of so many jobs and bytes in one transaction.
    fn transact(
        &mut self,
        work: impl FnOnce(&mut WriteSession, &mut TenantJobQueues<Box<dyn WriteJob>>) -> Result<(usize, usize)>,
    ) -> StdResult<(), StoreError> {
        let started = Instant::now();
        let (mut jobs, mut weight, mut ran) = (0, 0, Duration::ZERO);
        let lanes = &mut self.queues;
        let done = self
            .session
            .transact(|session| {
                (jobs, weight) = work(session, lanes)?;
                ran = started.elapsed();
                Ok(())
            })
            .map_err(|error| store_error(&error, &self.dir));
        let took = started.elapsed();
        let sync = match self.last.sync {
            Duration::ZERO => took.saturating_sub(ran),
            least => took.saturating_sub(ran).min(least + least / 100),
        };
        self.last = LastBatch { jobs, took, sync };
        self.metrics.record(took, jobs, done.is_ok());
        if took > SLOW {
            tracing::warn!(seconds = took.as_secs_f64(), jobs, "slow commit");
        }
        let full = matches!(done, Err(StoreError::Full(_)));
        let was_full = self.full.load(Ordering::Relaxed);
        // A few bytes, such as an audit line, may still fit on a disk that is as full as before.
        let proves_room = done.is_ok() && weight >= ROOM;
        if full || proves_room {
            self.full.store(full, Ordering::Relaxed);
        }
        if let Err(error) = &done
            // Logged once for a disk that stays full.
            && !(full && was_full)
        {
            tracing::error!(%error, jobs, "could not commit a batch of writes");
        }
        done
    }

    fn apply_page_cap(&self) {
        let Some(cap) = &self.page_cap else { return };
        let cap = cap.load(Ordering::Relaxed);
        if let Err(error) = self.session.conn.pragma_update(None, "max_page_count", cap) {
            tracing::error!(%error, "could not set max_page_count");
        }
    }
}
