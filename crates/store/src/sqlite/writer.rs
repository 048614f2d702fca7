//! The one thread that writes, and its group commit.
//!
//! It takes everything that waits, runs it in one transaction with one fsync, and only then answers. A job
//! that refuses (a guard) has written nothing and fails alone; a job that fails (the disk) takes its batch
//! with it, and every waiter learns why. The thread goes on: the next batch may find room again.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use nuncio_engine::{clock::Timestamp, store::StoreError, task::State};
use rusqlite::{Connection, Result, params};
use tokio::sync::{mpsc, oneshot};

use super::{OpenError, checkpoint::Checkpoints, error::store_error, names::Names};

/// Jobs in one transaction at most: beyond it the fsync is spread thin enough and the first ones wait long.
const BATCH: usize = 512;
/// Bytes in one transaction, about: beyond it SQLite's cache would spill.
const BATCH_BYTES: usize = 8 << 20;
/// Jobs that may wait; more wait in their callers.
const QUEUE: usize = 4_096;
/// A commit that took longer than this is worth a line in the log.
const SLOW: Duration = Duration::from_secs(1);

/// The writer's connection, with what the writer knows without asking it.
pub(super) struct Session {
    pub(super) conn: Connection,
    pub(super) names: Names,
    /// The number of the next task.
    pub(super) next_no: i64,
    /// The last time that somebody told. The store has no clock of its own; this is "now" where a method
    /// that makes something due is not given one.
    pub(super) now: Timestamp,
    /// Changes of `tally` in this batch.
    tally: HashMap<(i64, i64, u8), i64>,
}

impl Session {
    pub(super) fn new(conn: Connection) -> Result<Self> {
        let next_no = conn.query_row("SELECT ifnull(max(no), 0) + 1 FROM task", [], |row| row.get(0))?;
        Ok(Self { conn, names: Names::default(), next_no, now: Timestamp::default(), tally: HashMap::new() })
    }

    /// Takes note of the time.
    pub(super) fn told(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Counts tasks of a kind up or down.
    pub(super) fn count(&mut self, owner: i64, agent: i64, state: State, by: i64) {
        *self.tally.entry((owner, agent, state.code())).or_default() += by;
    }

    /// Runs jobs in one transaction: all of them, or an error.
    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<()> {
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = self.run(jobs);
        if done.is_err() {
            self.tally.clear();
            // What the batch interned is gone with it.
            self.names = Names::default();
            // On some errors SQLite has rolled back already.
            if !self.conn.is_autocommit()
                && let Err(error) = self.conn.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "could not roll back");
            }
        }
        done
    }

    fn run(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<()> {
        for job in jobs {
            job.run(self)?;
        }
        for ((owner, agent, state), by) in self.tally.drain().filter(|(_, by)| *by != 0) {
            self.conn
                .prepare_cached(
                    "INSERT INTO tally (owner, agent, state, n) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO UPDATE SET n = n + excluded.n",
                )?
                .execute(params![owner, agent, state, by])?;
        }
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

/// Something to be done in a batch.
trait Job: Send {
    /// About how many bytes it writes.
    fn weight(&self) -> usize;
    fn run(&mut self, session: &mut Session) -> Result<()>;
    /// Answers whoever waits, after the batch is durable or has failed.
    fn answer(self: Box<Self>, batch: std::result::Result<(), StoreError>);
}

struct Work<F, T> {
    weight: usize,
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<std::result::Result<T, StoreError>>,
}

impl<F, T> Job for Work<F, T>
where
    F: FnMut(&mut Session) -> Result<T> + Send,
    T: Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn run(&mut self, session: &mut Session) -> Result<()> {
        self.result = Some((self.work)(session)?);
        Ok(())
    }

    fn answer(self: Box<Self>, batch: std::result::Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        // Nobody may be waiting any more; the work is done all the same.
        let _ = reply.send(batch.and_then(|()| result.ok_or_else(closed)));
    }
}

enum Order {
    Work(Box<dyn Job>),
    Close,
}

/// The way to the writer thread. Dropping it ends the thread after what was sent is done.
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
    full: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn start(
        dir: PathBuf,
        session: Session,
        checkpoints: Checkpoints,
        page_cap: Option<Arc<AtomicU32>>,
    ) -> std::result::Result<Self, OpenError> {
        let (orders, queue) = mpsc::channel(QUEUE);
        let full = Arc::new(AtomicBool::new(false));
        let desk =
            Desk { dir, session, checkpoints, full: Arc::clone(&full), page_cap, last: (0, Duration::ZERO) };
        let thread = Builder::new()
            .name("nuncio-writer".into())
            .spawn(move || desk.serve(queue))
            .map_err(OpenError::Thread)?;
        Ok(Self { orders, thread: Mutex::new(Some(thread)), full })
    }

    /// Has `work` done in the next batch; returns after that is durable.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut Session) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Work { weight, work, result: None, reply };
        self.orders.send(Order::Work(Box::new(job))).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Whether the last write failed for lack of room.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Does what was sent before, and ends the thread.
    pub(super) async fn close(&self) {
        // An error means that it has ended already.
        let _ = self.orders.send(Order::Close).await;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread ends when the last sender is gone, so this one goes before the wait for it.
        self.orders = mpsc::channel(1).0;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

/// What the thread works with.
struct Desk {
    dir: PathBuf,
    session: Session,
    checkpoints: Checkpoints,
    full: Arc<AtomicBool>,
    page_cap: Option<Arc<AtomicU32>>,
    /// How many jobs the last batch had, and how long it took.
    last: (usize, Duration),
}

impl Desk {
    fn serve(mut self, mut queue: mpsc::Receiver<Order>) {
        let (mut orders, mut jobs) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        let mut closing = false;
        while queue.blocking_recv_many(&mut orders, BATCH) > 0 {
            self.gather(&mut queue, &mut orders);
            let mut weight = 0;
            for order in orders.drain(..) {
                match order {
                    Order::Work(job) => {
                        weight += job.weight();
                        jobs.push(job);
                    }
                    Order::Close => {
                        queue.close();
                        closing = true;
                    }
                }
                if weight > BATCH_BYTES {
                    self.batch(&mut jobs);
                    weight = 0;
                }
            }
            self.batch(&mut jobs);
            self.checkpoints.after_commit(&self.session.conn);
        }
        self.checkpoints.finish(&self.session.conn, closing);
    }

    /// Waits a little for those who were answered last and are likely on their way back. Without it the first
    /// of them would take the disk for itself while all the others wait for their turn: batches would
    /// alternate between few and many. One caller alone never waits.
    fn gather(&self, queue: &mut mpsc::Receiver<Order>, orders: &mut Vec<Order>) {
        let started = Instant::now();
        while orders.len() + queue.len() < self.last.0 && started.elapsed() < self.last.1 / 8 {
            std::thread::sleep(Duration::from_micros(50));
        }
        while orders.len() < BATCH {
            match queue.try_recv() {
                Ok(order) => orders.push(order),
                Err(_) => return,
            }
        }
    }

    fn batch(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        if jobs.is_empty() {
            return;
        }
        self.apply_page_cap();
        let started = Instant::now();
        let done = self.session.transact(jobs).map_err(|error| store_error(&error, &self.dir));
        let took = started.elapsed();
        self.last = (jobs.len(), took);
        self.full.store(matches!(done, Err(StoreError::Full(_))), Ordering::Relaxed);
        metrics::histogram!("nuncio_store_commit_seconds").record(took);
        metrics::histogram!("nuncio_store_batch_size").record(jobs.len() as f64);
        metrics::counter!("nuncio_store_commits_total").increment(1);
        if took > SLOW {
            tracing::warn!(seconds = took.as_secs_f64(), changes = jobs.len(), "slow commit");
        }
        if let Err(error) = &done {
            tracing::error!(%error, changes = jobs.len(), "a batch was not written");
        }
        for job in jobs.drain(..) {
            job.answer(done.clone());
        }
    }

    fn apply_page_cap(&self) {
        let Some(cap) = &self.page_cap else { return };
        let cap = cap.load(Ordering::Relaxed);
        if let Err(error) = self.session.conn.pragma_update(None, "max_page_count", cap) {
            tracing::error!(%error, "could not set max_page_count");
        }
    }
}
