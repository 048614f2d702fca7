//! The one thread that writes, and its group commit.
//!
//! It takes what waits, tenants in turn, runs it in one transaction with one fsync, and only then answers. While several
//! tenants write, a transaction is short, so that nobody waits long for what others write. A job
//! that refuses (a guard) has written nothing and fails alone. When the disk fails the whole batch fails and
//! every waiter learns why; the thread goes on, since the next batch may find room again.

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

/// Jobs in one transaction at most: beyond it the fsync is spread thin enough and the first ones wait long.
const BATCH: usize = 512;
/// Bytes in one transaction, about: beyond it SQLite's cache would spill.
const BATCH_BYTES: usize = 8 << 20;
/// Jobs that may be on their way to the writer; more wait in their callers.
const QUEUE: usize = 4_096;
/// How long jobs are run in one transaction while several tenants write; longer where the disk is slow. The commit
/// takes a few times as long, because it writes every page that they changed.
const SHORT_BATCH: Duration = Duration::from_millis(1);
/// Bytes that have to be written before a disk that was full counts as one with room.
pub(super) const ROOM: usize = 65_536;
/// A commit that took longer than this is worth a line in the log.
const SLOW: Duration = Duration::from_secs(1);

/// The way to the writer thread. Dropping it ends the thread after what was sent is done.
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
        };
        let thread = Builder::new()
            .name("nuncio-writer".into())
            .spawn(move || desk.serve(queue))
            .map_err(SqliteOpenError::Thread)?;
        Ok(Self { orders, thread: Mutex::new(Some(thread)), full })
    }

    /// Has `work` done in the next batch; returns after that is durable. `weight` is about how many bytes it
    /// writes. It may be run again, after the batch of its first run was rolled back.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut WriteSession) -> Result<T> + Send + 'static,
    ) -> StdResult<T, StoreError> {
        self.write_for(None, weight, work).await
    }

    /// The same, in a tenant's turn.
    pub(super) async fn write_for<T: Send + 'static>(
        &self,
        lane: JobTenant,
        weight: usize,
        work: impl FnMut(&mut WriteSession) -> Result<T> + Send + 'static,
    ) -> StdResult<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = ClosureJob { weight, work, result: None, reply };
        self.orders.send(WriterMessage::Work(lane, Box::new(job))).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Whether a write failed for lack of room, and none of a size that matters has gone well since.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether it takes orders no longer.
    pub(super) fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }

    /// Does what was sent before, and ends the thread.
    pub(super) async fn close(&self) {
        // An error means that it has ended already.
        let _ = self.orders.send(WriterMessage::Close).await;
        // Held while waiting, so that nobody who closes at the same time returns earlier.
        let mut thread = self.thread.lock().await;
        if let Some(thread) = thread.take() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        // The thread ends when the last sender is gone, so this one goes before the wait for it.
        self.orders = mpsc::channel(1).0;
        if let Some(thread) = self.thread.get_mut().take() {
            let _ = thread.join();
        }
    }
}

/// What a store answers that has been closed.
pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

enum WriterMessage {
    Work(JobTenant, Box<dyn WriteJob>),
    Close,
}

/// Something to be done in a batch.
trait WriteJob: Send {
    fn weight(&self) -> usize;
    fn run(&mut self, session: &mut WriteSession) -> Result<()>;
    /// Answers whoever waits, after the batch is durable or has failed.
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
        // Nobody may be waiting any more; the work is done all the same.
        let _ = reply.send(batch.and_then(|()| result.ok_or_else(closed)));
    }
}

/// What the thread works with.
struct WriterThread {
    dir: PathBuf,
    session: WriteSession,
    checkpoints: Checkpoints,
    full: Arc<AtomicBool>,
    page_cap: Option<Arc<AtomicU32>>,
    queues: TenantJobQueues<Box<dyn WriteJob>>,
    last: LastBatch,
}

/// The batch before.
#[derive(Default)]
struct LastBatch {
    jobs: usize,
    took: Duration,
    /// What a commit takes at least, however little is in it: about the least of the last hundred.
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
                    WriterMessage::Work(lane, job) => self.queues.push(lane, job),
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

    /// Waits a little for those who were answered last and are likely on their way back. Without it the first
    /// of them takes the disk for itself while all others wait for the next turn: batches alternate between
    /// few and many, and the rate is half. A caller who is alone never waits.
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
            // It could not begin. Those who wait learn why, as they would have with it.
            jobs.extend(std::iter::from_fn(|| self.queues.pop(Instant::now())).take(BATCH));
        }
        match done {
            // Not the disk: something about one of them. It shall not take its neighbours along.
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

    /// Runs what is next, as much as a transaction should have.
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

    /// Does some work, of so many jobs and bytes, in one transaction.
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
        metrics::histogram!("nuncio_store_commit_seconds").record(took);
        metrics::histogram!("nuncio_store_batch_size").record(jobs as f64);
        metrics::counter!("nuncio_store_commits_total").increment(1);
        if took > SLOW {
            tracing::warn!(seconds = took.as_secs_f64(), jobs, "slow commit");
        }
        let full = matches!(done, Err(StoreError::Full(_)));
        let was_full = self.full.load(Ordering::Relaxed);
        // A few bytes may find room on a disk that is as full as before, such as a line of the audit.
        let proves_room = done.is_ok() && weight >= ROOM;
        if full || proves_room {
            self.full.store(full, Ordering::Relaxed);
        }
        if let Err(error) = &done
            // Once is enough for a disk that stays full.
            && !(full && was_full)
        {
            tracing::error!(%error, jobs, "a batch was not written");
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
