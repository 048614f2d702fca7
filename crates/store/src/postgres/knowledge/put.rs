//! The group commit of memory writes: while some are in progress, new ones queue up and go together into the
//! next transaction. Writes of one tenant are serialized by a lock, so without it each would wait for its own
//! fsync.

use std::sync::Arc;

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{MemoryError, MemoryPut, MemoryWriteResult},
    store::StoreError,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::{
    super::{pool::PostgresPool, read::number},
    expected,
    search::vector,
    whole,
};

/// Approximate maximum writes and bytes in one transaction.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 4 << 20;
/// Maximum queued and running writes; beyond it callers wait (backpressure).
const QUEUE: usize = 1_024;
/// Maximum concurrent transactions: different tenants do not wait for each other.
const AT_ONCE: usize = 2;

struct PutJob {
    put: MemoryPut,
    reply: oneshot::Sender<Result<MemoryWriteResult, MemoryError>>,
}

/// The queue of this process's memory writes.
pub(crate) struct MemoryWriteQueue {
    resources: Arc<MemoryWriter>,
    room: Semaphore,
}

struct MemoryWriter {
    pool: Arc<PostgresPool>,
    waiting: Mutex<Vec<PutJob>>,
    turns: Semaphore,
}

impl MemoryWriteQueue {
    pub(in crate::postgres) fn new(pool: Arc<PostgresPool>) -> Self {
        let resources = MemoryWriter { pool, waiting: Mutex::default(), turns: Semaphore::new(AT_ONCE) };
        Self { resources: Arc::new(resources), room: Semaphore::new(QUEUE) }
    }

    /// Writes an entry, usually together with others; returns once it is durable.
    pub(super) async fn put(&self, put: MemoryPut) -> Result<MemoryWriteResult, MemoryError> {
        let gone = || StoreError::Unavailable("the store is closed".into());
        let _room = self.room.acquire().await.map_err(|_| gone())?;
        let (reply, answer) = oneshot::channel();
        self.resources.waiting.lock().push(PutJob { put, reply });
        let resources = Arc::clone(&self.resources);
        // Spawned, because the batch may carry writes of other callers, which must continue if this caller
        // disconnects.
        tokio::spawn(async move {
            let Ok(_turn) = resources.turns.acquire().await else { return };
            let jobs = resources.next_batch();
            if !jobs.is_empty() {
                resources.write(jobs).await;
            }
        });
        answer.await.map_err(|_| gone())?
    }
}

impl MemoryWriter {
    /// The next batch, oldest write first.
    fn next_batch(&self) -> Vec<PutJob> {
        let mut waiting = self.waiting.lock();
        let mut bytes = 0;
        let fits = |job: &&PutJob| {
            bytes += job.put.value.len() + 2 * job.put.text.len();
            bytes < BATCH_BYTES
        };
        let count = waiting.iter().take(BATCH).take_while(fits).count().max(1).min(waiting.len());
        waiting.drain(..count).collect()
    }

    async fn write(&self, jobs: Vec<PutJob>) {
        match self.try_write(&jobs).await {
            // One of the writes may be at fault. Run each alone, so that only that one fails.
            Err(StoreError::Broken(_)) if jobs.len() > 1 => {
                for job in jobs {
                    let one = std::slice::from_ref(&job);
                    let done = self.try_write(one).await.map(|mut done| done.pop());
                    send_result(job, done.map(Option::unwrap_or_default));
                }
            }
            Err(error) => jobs.into_iter().for_each(|job| send_result(job, Err(error.clone()))),
            Ok(outcomes) => {
                for (job, outcome) in jobs.into_iter().zip(outcomes) {
                    send_result(job, Ok(outcome));
                }
            }
        }
    }

    /// The outcome of each write, in order.
    async fn try_write(&self, jobs: &[PutJob]) -> Result<Vec<PutOutcome>, StoreError> {
        let puts = || jobs.iter().map(|job| &job.put);
        let texts = |of: fn(&MemoryPut) -> &String| puts().map(|put| of(put).as_str()).collect::<Vec<_>>();
        let numbers = |of: fn(&MemoryPut) -> i64| puts().map(of).collect::<Vec<_>>();
        let times = |of: fn(&MemoryPut) -> Option<i64>| puts().map(of).collect::<Vec<_>>();
        // PostgreSQL text cannot hold NULs.
        let plain: Vec<String> = puts().map(|put| put.text.replace('\0', " ")).collect();
        let words: Vec<String> =
            puts().map(|put| vector(&put.key.tenant, &put.key.namespace, &put.text)).collect();
        let mut rows = self
            .pool
            .run(
                "SELECT * FROM put_memory($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
                &[
                    &texts(|put| &put.key.tenant),
                    &texts(|put| &put.key.namespace),
                    &texts(|put| &put.key.key),
                    &texts(|put| &put.value),
                    &plain,
                    &words,
                    &numbers(|put| whole(put.value.len() as u64)),
                    &times(|put| put.ttl_ms.map(whole)),
                    &times(|put| put.ttl_ms.map(|ttl| put.now.0.saturating_add(whole(ttl)))),
                    &numbers(|put| expected(put.expected)),
                    &numbers(|put| put.now.0),
                    &numbers(|put| whole(put.max_entries)),
                    &numbers(|put| whole(put.max_bytes)),
                    &numbers(|put| whole(put.max_namespaces)),
                ],
            )
            .await?;
        rows.sort_by_key(|row| row.get::<_, i32>(0));
        let outcome = |row: &tokio_postgres::Row| PutOutcome {
            code: row.get(1),
            figure: row.get::<_, Option<i64>>(2).map(i64::cast_unsigned),
            created_at: Timestamp(number(row, 3).cast_signed()),
        };
        Ok(rows.iter().map(outcome).collect())
    }
}

/// The database's outcome of a write.
#[derive(Clone, Copy)]
struct PutOutcome {
    code: i16,
    figure: Option<u64>,
    created_at: Timestamp,
}

impl Default for PutOutcome {
    fn default() -> Self {
        Self { code: -1, figure: None, created_at: Timestamp(0) }
    }
}

fn send_result(job: PutJob, outcome: Result<PutOutcome, StoreError>) {
    let result = outcome.map_err(MemoryError::from).and_then(|PutOutcome { code, figure, created_at }| {
        let figure_or_none = figure.unwrap_or(0);
        match code {
            0 => Ok(MemoryWriteResult { version: figure_or_none, created_at }),
            1 => Err(MemoryError::Moved { found: figure }),
            2 => Err(MemoryError::TooManyEntries(figure_or_none)),
            3 => Err(MemoryError::TooManyBytes(figure_or_none)),
            4 => Err(MemoryError::TooManyNamespaces(figure_or_none)),
            other => Err(StoreError::Broken(format!("{other} is no outcome of a write")).into()),
        }
    });
    // The caller may have stopped waiting; the work is done all the same.
    let _ = job.reply.send(result);
}
