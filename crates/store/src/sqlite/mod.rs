//! The embedded store: one SQLite database in one folder, locked by one process.
//!
//! `writer` owns the only connection that writes, and commits in groups; `readers` are the read connections
//! beside it; `checkpoint` keeps the write-ahead log short. Everything else here is SQL on one of those
//! connections.

mod aged;
mod archive;
mod checkpoint;
mod commit;
mod error;
mod expire;
mod failed_deliveries;
mod figures;
mod job_queues;
mod knowledge;
mod lease;
mod list;
mod lock;
pub(crate) mod maintenance;
mod names;
mod outbox;
mod read;
mod readers;
mod schema;
mod session;
mod snapshot;
#[cfg(feature = "testing")]
mod statement_log;
mod tenant_tasks;
mod tenants;
mod write_session;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use nuncio_engine::{
    access::tenant_of,
    clock::Timestamp,
    knowledge::Knowledge,
    store::{
        AgedTask, AgedTaskQuery, Change, ClaimedTask, CommitError, CommitReceipt, DeadLetter,
        DeliveryOutcome, Digest, DueTasks, DueWebhook, FailedDelivery, FailedDeliveryQuery, JournalRecord,
        ListPage, ListQuery, Load, NodeId, OpenedTask, OwnerClaim, Session as ClientSession, SessionStore,
        Store, StoreError, StoreFigures, StoredBatch, TaskKey, TaskNo, TaskRow, TaskStore, TaskTally,
        Webhook, WebhookError, WebhookProgress, WebhookStore,
    },
    task::TaskId,
    tenant_store::TenantStore,
};
use parking_lot::Mutex;
use rusqlite::Connection;

pub use error::SqliteOpenError;
use error::store_error;
use lock::FolderLock;
use names::SqliteNameCache;
use readers::{ReadConnections, SlowReaders};
#[cfg(feature = "testing")]
pub use statement_log::{StatementUse, record_statements, take_statements};
use write_session::{LastKnownTime, WriteSession};
use writer::{ROOM, SqliteWriter, closed};

/// Options for opening the store. The defaults were chosen by measurement.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Connections for point reads. About one per core that serves requests.
    pub readers: usize,
    /// Pages (4 KiB each) of write-ahead log after which it is copied into the database and restarted. A larger
    /// log makes writes cheaper and reads more expensive.
    pub wal_pages: u32,
    /// For tests: the number of pages beyond which SQLite reports a full disk. It can be changed while the
    /// store is open.
    pub max_pages: Option<Arc<AtomicU32>>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { readers: 4, wal_pages: 16_384, max_pages: None }
    }
}

/// Maximum concurrent scans, and maximum concurrent searches. There are more for scans than the lists of one tenant take.
const SCAN_READERS: usize = 4;
const SEARCH_READERS: usize = 2;

/// The embedded backend of `Store`.
pub struct SqliteStore {
    dir: PathBuf,
    writer: SqliteWriter,
    points: ReadConnections,
    scans: SlowReaders,
    /// Read connections for searches, which callers can make slow: a list or a count never waits for a search.
    searches: SlowReaders,
    now: Arc<LastKnownTime>,
    /// Declared last, so that the folder is unlocked after everything that uses it is dropped.
    lock: Mutex<Option<FolderLock>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store in `dir`, and creates the folder if it is missing. Refuses to share the folder, to run
    /// without durability, and to touch a database of a newer version.
    pub fn open(dir: &Path, options: SqliteOptions) -> Result<Self, SqliteOpenError> {
        let lock = FolderLock::take(dir)?;
        let path = dir.join("nuncio.db");
        let mut conn = schema::open_read_write(&path)?;
        schema::migrate(&mut conn)?;
        lease::expire_all_nodes(&conn)?;
        let checkpoints = checkpoint::Checkpoints::start(&path, &mut conn, options.wal_pages)?;
        let points = ReadConnections::open(&path, options.readers)?;
        let scans = SlowReaders::open(&path, SCAN_READERS)?;
        let searches = SlowReaders::open(&path, SEARCH_READERS)?;
        let now = Arc::new(LastKnownTime::default());
        let session = WriteSession::new(conn, Arc::clone(&now))?;
        let writer = SqliteWriter::start(dir.to_owned(), session, checkpoints, options.max_pages)?;
        Ok(Self { dir: dir.to_owned(), writer, points, scans, searches, now, lock: Mutex::new(Some(lock)) })
    }

    /// Copies the database of a folder to a file. Works while a server writes to it: the copy is a consistent
    /// snapshot.
    pub fn back_up(dir: &Path, to: &Path) -> Result<(), SqliteOpenError> {
        archive::back_up(dir, to)
    }

    /// A short read, on the calling thread.
    fn read<T>(
        &self,
        run: impl FnOnce(&Connection, &mut SqliteNameCache) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.points
            .read(|conn, names| run(conn, names))
            .ok_or_else(closed)?
            .map_err(|error| store_error(&error, &self.dir))
    }

    /// A read that may be slow, on a blocking thread.
    async fn scan<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Connection, &mut SqliteNameCache) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_on(&self.scans, move |conn, names| run(conn, names)).await
    }

    /// A search, on its own read connections.
    async fn search<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Connection, &mut SqliteNameCache) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_on(&self.searches, run).await
    }

    async fn read_on<T: Send + 'static>(
        &self,
        readers: &SlowReaders,
        run: impl FnOnce(&mut Connection, &mut SqliteNameCache) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let result = match readers.read(run).await {
            // The runtime is shutting down: the caller must not record that as a failure.
            Err(error) if error.is_cancelled() => std::future::pending().await,
            result => result,
        };
        result
            .map_err(|error| StoreError::Broken(error.to_string()))?
            .ok_or_else(closed)?
            .map_err(|error| store_error(&error, &self.dir))
    }
}

#[async_trait]
impl TaskStore for SqliteStore {
    async fn commit(&self, change: Change) -> Result<CommitReceipt, CommitError> {
        let weight = change.events.as_ref().map_or(0, |events| events.bytes.len())
            + change.journal.iter().map(|record| record.0.len()).sum::<usize>()
            + change
                .webhooks
                .iter()
                .flat_map(|added| &added.hooks)
                .map(|hook| hook.config.len())
                .sum::<usize>();
        let tenant = change.tenant.clone();
        self.writer.write_for(tenant, weight, move |session| commit::commit(session, &change)).await?
    }

    async fn open(&self, key: &TaskKey) -> Result<Option<OpenedTask>, StoreError> {
        self.read(|conn, names| read::open(conn, names, key))
    }

    async fn row(&self, key: &TaskKey) -> Result<Option<TaskRow>, StoreError> {
        self.read(|conn, names| read::row(conn, names, key))
    }

    async fn log(&self, task: TaskNo, after: u64, max_bytes: usize) -> Result<Vec<StoredBatch>, StoreError> {
        self.read(|conn, _| read::log(conn, task, after, max_bytes))
    }

    async fn journal(&self, task: TaskNo) -> Result<Vec<JournalRecord>, StoreError> {
        self.read(|conn, _| read::journal(conn, task))
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage, StoreError> {
        let query = query.clone();
        self.scan(move |conn, names| list::list(conn, names, &query)).await
    }

    async fn tally(&self, owner: &str) -> Result<Vec<TaskTally>, StoreError> {
        self.read(|conn, names| list::tally(conn, names, owner))
    }

    async fn put_snapshot(&self, task: TaskNo, seq: u64, fold: Bytes) -> Result<(), StoreError> {
        self.writer.write(fold.len(), move |session| snapshot::put(session, task, seq, &fold)).await
    }

    async fn snapshot_beginning(&self, task: TaskNo, bytes: usize) -> Result<Option<Bytes>, StoreError> {
        self.read(|conn, _| snapshot::beginning(conn, task, bytes))
    }

    async fn idempotent(&self, owner: &str, key: &str) -> Result<Option<(TaskId, Digest)>, StoreError> {
        self.read(|conn, _| read::idempotent(conn, owner, key))
    }

    async fn live_children(&self, parent: TaskId) -> Result<Vec<TaskId>, StoreError> {
        self.read(|conn, _| read::live_children(conn, parent))
    }

    async fn children(&self, parent: TaskId, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        self.read(|conn, names| read::children(conn, names, parent, limit))
    }

    async fn heartbeat(&self, node: NodeId, until: Timestamp) -> Result<(), StoreError> {
        self.writer.write(0, move |session| lease::heartbeat(session, node, until)).await
    }

    async fn claim(
        &self,
        node: NodeId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        self.writer.write(0, move |session| lease::claim(session, node, now, limit)).await
    }

    async fn claim_of(
        &self,
        node: NodeId,
        now: Timestamp,
        of: &[OwnerClaim],
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let of = of.to_vec();
        self.writer.write(0, move |session| lease::claim_of(session, node, now, &of)).await
    }

    async fn due_tasks(&self, node: NodeId, now: Timestamp) -> Result<Vec<DueTasks>, StoreError> {
        self.scan(move |conn, names| lease::due(conn, names, node, now)).await
    }

    async fn descendants(&self, root: TaskId, at_most: u64) -> Result<u64, StoreError> {
        self.scan(move |conn, _| lease::descendants(conn, root, at_most)).await
    }

    async fn held_tasks(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        self.scan(move |conn, _| lease::held_tasks(conn, node)).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(|conn, _| lease::next_due(conn))
    }

    async fn load(&self) -> Result<Load, StoreError> {
        let now = self.now.get();
        self.scan(move |conn, _| lease::load(conn, now)).await
    }

    async fn expire(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let tasks = self.scan(move |conn, _| expire::find(conn, before, limit)).await?;
        let mut deleted = 0;
        for chunk in tasks.chunks(expire::CHUNK) {
            let chunk = chunk.to_vec();
            deleted += self.writer.write(0, move |session| expire::delete(session, before, &chunk)).await?;
        }
        Ok(deleted)
    }

    async fn aged_tasks(&self, query: &AgedTaskQuery) -> Result<Vec<AgedTask>, StoreError> {
        let query = *query;
        self.scan(move |conn, names| aged::tasks(conn, names, &query)).await
    }

    async fn delete_ended(&self, tasks: &[(TaskNo, Timestamp)]) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for chunk in tasks.chunks(expire::CHUNK) {
            let chunk = chunk.to_vec();
            deleted += self.writer.write(0, move |session| expire::delete_ended(session, &chunk)).await?;
        }
        Ok(deleted)
    }
}

#[async_trait]
impl WebhookStore for SqliteStore {
    async fn put_webhook(&self, task: TaskNo, hook: Webhook, cap: usize) -> Result<(), WebhookError> {
        self.writer.write(hook.config.len(), move |session| outbox::put(session, task, &hook, cap)).await?
    }

    async fn webhooks(&self, task: TaskNo) -> Result<Vec<Webhook>, StoreError> {
        self.read(|conn, _| outbox::webhooks(conn, task))
    }

    async fn delete_webhook(&self, task: TaskNo, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.writer.write(0, move |session| outbox::delete(session, task, &id)).await
    }

    async fn claim_deliveries(
        &self,
        node: NodeId,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueWebhook>, StoreError> {
        self.writer.write(0, move |session| outbox::claim(session, node, now, lease, limit)).await
    }

    async fn next_delivery_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(|conn, _| outbox::next_due(conn))
    }

    async fn record_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        settled: DeliveryOutcome,
    ) -> Result<(), StoreError> {
        let hook = hook.to_owned();
        self.writer.write(0, move |session| outbox::record_delivery(session, task, &hook, &settled)).await
    }

    async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.scan(move |conn, _| outbox::dead_letters(conn, limit)).await
    }

    async fn replay_dead_letters(&self, delivery: Option<&str>, now: Timestamp) -> Result<u64, StoreError> {
        let delivery = delivery.map(str::to_owned);
        self.writer.write(0, move |session| outbox::replay(session, delivery.as_deref(), now)).await
    }

    async fn failed_deliveries(
        &self,
        query: &FailedDeliveryQuery,
    ) -> Result<Vec<FailedDelivery>, StoreError> {
        let query = query.clone();
        self.scan(move |conn, names| failed_deliveries::list(conn, names, &query)).await
    }

    async fn webhook_progress(&self, task: TaskNo) -> Result<Vec<WebhookProgress>, StoreError> {
        self.read(|conn, _| failed_deliveries::progress(conn, task))
    }

    async fn replay_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let hook = hook.to_owned();
        self.writer.write(0, move |session| failed_deliveries::replay(session, task, &hook, seq, now)).await
    }

    async fn discard_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let hook = hook.to_owned();
        self.writer.write(0, move |session| failed_deliveries::discard(session, task, &hook, seq, now)).await
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn create_session(&self, new: ClientSession, limit: usize) -> Result<bool, StoreError> {
        let weight = new.body.len();
        let tenant = Some(tenant_of(&new.owner).into());
        self.writer.write_for(tenant, weight, move |session| session::create(session, &new, limit)).await?
    }

    async fn session(&self, id: &str) -> Result<Option<ClientSession>, StoreError> {
        self.read(|conn, names| session::find(conn, names, id))
    }

    async fn update_session(&self, id: &str, version: u64, body: Bytes) -> Result<bool, StoreError> {
        let id = id.to_owned();
        let weight = body.len();
        let update = move |session: &mut WriteSession| session::update(session, &id, version, &body);
        self.writer.write(weight, update).await
    }

    async fn touch_sessions(&self, ids: &[String], now: Timestamp) -> Result<(), StoreError> {
        let ids = ids.to_vec();
        self.writer.write(0, move |session| session::touch(session, &ids, now)).await
    }

    async fn delete_session(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.writer.write(0, move |session| session::delete(session, &id)).await
    }

    async fn expire_sessions(
        &self,
        owner: Option<&str>,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let mut deleted = 0;
        while deleted < limit as u64 {
            let chunk = session::CHUNK.min(limit - deleted as usize);
            let owner = owner.map(str::to_owned);
            let expire =
                move |session: &mut WriteSession| session::expire(session, owner.as_deref(), before, chunk);
            let gone = self.writer.write(0, expire).await?;
            deleted += gone;
            if gone < chunk as u64 {
                break;
            }
        }
        Ok(deleted)
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn knowledge(&self) -> &dyn Knowledge {
        self
    }

    fn tenants(&self) -> &dyn TenantStore {
        self
    }

    async fn figures(&self, now: Timestamp) -> Result<StoreFigures, StoreError> {
        let dir = self.dir.clone();
        self.scan(move |conn, _| {
            let (bytes, free_bytes) = figures::sizes(&dir);
            Ok(StoreFigures { bytes, free_bytes, ..figures::count(conn, now)? })
        })
        .await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        if self.writer.is_closed() {
            return Err(closed());
        }
        if !self.writer.is_full() {
            return Ok(());
        }
        // Committed before it is rolled back: the space that is missing may be the write-ahead log's.
        let probe = |session: &mut WriteSession| {
            session.conn.prepare_cached("INSERT INTO probe (bytes) VALUES (zeroblob(65536))")?.execute([])
        };
        self.writer.write(ROOM, probe).await?;
        let clear = |session: &mut WriteSession| {
            session.conn.prepare_cached("DELETE FROM probe")?.execute([]).map(drop)
        };
        self.writer.write(0, clear).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.writer.close().await;
        self.points.close();
        self.scans.close().await;
        self.searches.close().await;
        self.lock.lock().take();
        Ok(())
    }
}
