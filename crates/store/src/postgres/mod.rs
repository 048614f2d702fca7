//! The store for many nodes: one PostgreSQL database that all of them share.
//!
//! `writer` groups commits into batches, one transaction and one round trip each; `pool` holds the connections
//! for reads; `notifier` tells other nodes what was committed, and receives the same from them. Decisions that
//! need a lock are made by functions in the database (`migrations/postgres`), and so is everything that depends
//! on time: a node whose clock is wrong steals nothing.

mod aged;
mod archive;
mod batch;
mod clock;
mod error;
mod failed_deliveries;
mod figures;
mod knowledge;
mod lease;
mod list;
pub(crate) mod maintenance;
mod names;
mod notifier;
mod outbox;
mod pool;
mod read;
mod schema;
mod session;
mod tenants;
mod writer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use nuncio_engine::{
    clock::Timestamp,
    knowledge::Knowledge,
    store::{
        AgedTask, AgedTaskQuery, Change, ClaimedTask, CommitError, CommitReceipt, DeadLetter,
        DeliveryOutcome, Digest, DueTasks, DueWebhook, FailedDelivery, FailedDeliveryQuery, JournalRecord,
        ListPage, ListQuery, Load, NodeId, OpenedTask, OwnerClaim, Precondition, Session, SessionStore,
        Store, StoreError, StoreFigures, StoreNotification, StoredBatch, TaskKey, TaskNo, TaskRow, TaskStore,
        TaskTally, Webhook, WebhookError, WebhookProgress, WebhookStore,
    },
    task::TaskId,
    tenant_store::TenantStore,
};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use self::{
    clock::DatabaseClock, knowledge::MemoryWriteQueue, names::PostgresNameCache, notifier::Notifier,
    pool::PostgresPool, writer::PostgresWriter,
};
pub use self::{clock::TimeSource, error::PostgresOpenError};
use crate::commit_metrics::CommitMetrics;

/// Options for opening the store. The defaults were chosen by measurement.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The PostgreSQL schema that holds the tables; created if it is missing. Several deployments can share a
    /// database under different schemas.
    pub schema: String,
    /// Connections for everything but commits.
    pub readers: usize,
    /// Connections for commits. Each has one batch in progress at a time.
    pub writers: usize,
    /// How long a request waits for a slow or unreachable database before it fails with a retryable error.
    pub patience: Duration,
    /// Server settings that are accepted although unsafe, by name (`fsync`, `full_page_writes`,
    /// `synchronous_commit`). Acknowledged writes can then be lost.
    pub allow_unsafe: Vec<String>,
    /// The clock that decides what is due or expired.
    pub time: TimeSource,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "nuncio".into(),
            readers: 8,
            writers: 2,
            patience: Duration::from_secs(5),
            allow_unsafe: vec![],
            time: TimeSource::Database,
        }
    }
}

/// The shared backend of `Store`.
pub struct PostgresStore {
    pool: Arc<PostgresPool>,
    searches: PostgresPool,
    names: Arc<PostgresNameCache>,
    clock: Arc<DatabaseClock>,
    writer: PostgresWriter,
    puts: MemoryWriteQueue,
    notifier: Notifier,
    news: Mutex<Option<mpsc::UnboundedReceiver<StoreNotification>>>,
    patience: Duration,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store at a `postgres://` URL and migrates its schema. Refuses a server that would lose
    /// acknowledged writes, and a schema of a newer version.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let config = pool::config(url, &options.schema)?;
        let tls = pool::tls();
        schema::prepare(&config, &tls, &options).await?;
        let clock = Arc::new(DatabaseClock::new(options.time));
        let pool = Arc::new(PostgresPool::new(&config, &tls, options.readers, options.patience)?);
        // A separate pool, so that nothing waits for a slow search.
        let searches = PostgresPool::new(&config, &tls, SEARCH_READERS, options.patience)?;
        let names = Arc::new(PostgresNameCache::default());
        let (notifier, news) = Notifier::start(config.clone(), tls.clone(), &options.schema);
        let connect = pool::ConnectOptions { config, tls };
        let resources = writer::WriterResources {
            connect,
            names: Arc::clone(&names),
            clock: Arc::clone(&clock),
            notifier: notifier.clone(),
            patience: options.patience,
            metrics: CommitMetrics::new(),
        };
        let writer = PostgresWriter::start(resources, options.writers);
        let news = Mutex::new(Some(news));
        let puts = MemoryWriteQueue::new(Arc::clone(&pool));
        Ok(Self { pool, searches, names, clock, writer, puts, notifier, news, patience: options.patience })
    }
}

/// Connections for searches.
const SEARCH_READERS: usize = 2;

/// The tenant in a task's number.
fn tenant(task: TaskNo) -> i32 {
    (task.0 >> 40) as i32
}

#[async_trait]
impl TaskStore for PostgresStore {
    async fn commit(&self, change: Change) -> Result<CommitReceipt, CommitError> {
        // A runner can wait without limit; a caller's request gets an error and may be retried.
        let waits = matches!(change.guard, Precondition::Runner { .. });
        let committed = self.writer.write(change);
        if waits {
            return committed.await;
        }
        tokio::time::timeout(self.patience, committed).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!(
                "the database has not answered for {:?}; it may still take the change",
                self.patience
            ))
            .into())
        })
    }

    async fn open(&self, key: &TaskKey) -> Result<Option<OpenedTask>, StoreError> {
        read::open(&self.pool, key).await
    }

    async fn row(&self, key: &TaskKey) -> Result<Option<TaskRow>, StoreError> {
        read::row(&self.pool, key).await
    }

    async fn log(&self, task: TaskNo, after: u64, max_bytes: usize) -> Result<Vec<StoredBatch>, StoreError> {
        read::log(&self.pool, task, after, max_bytes).await
    }

    async fn journal(&self, task: TaskNo) -> Result<Vec<JournalRecord>, StoreError> {
        read::journal(&self.pool, task).await
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage, StoreError> {
        list::list(&self.pool, &self.names, query).await
    }

    async fn tally(&self, owner: &str) -> Result<Vec<TaskTally>, StoreError> {
        list::tally(&self.pool, &self.names, owner).await
    }

    async fn snapshot_beginning(&self, task: TaskNo, bytes: usize) -> Result<Option<Bytes>, StoreError> {
        read::snapshot_beginning(&self.pool, task, bytes).await
    }

    async fn put_snapshot(&self, task: TaskNo, seq: u64, fold: Bytes) -> Result<(), StoreError> {
        self.pool
            .run("SELECT put_snapshot($1, $2, $3, $4)", &[&tenant(task), &task.0, &(seq as i64), &&*fold])
            .await
            .map(drop)
    }

    async fn idempotent(&self, owner: &str, key: &str) -> Result<Option<(TaskId, Digest)>, StoreError> {
        read::idempotent(&self.pool, owner, key).await
    }

    async fn live_children(&self, parent: TaskId) -> Result<Vec<TaskId>, StoreError> {
        read::live_children(&self.pool, parent).await
    }

    async fn children(&self, parent: TaskId, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        read::children(&self.pool, parent, limit).await
    }

    async fn heartbeat(&self, node: NodeId, until: Timestamp) -> Result<(), StoreError> {
        let others = lease::heartbeat(&self.pool, &self.clock, node, until).await?;
        self.notifier.set_other_nodes(others);
        Ok(())
    }

    async fn claim(
        &self,
        node: NodeId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        self.clock.record_time(now);
        lease::claim(&self.pool, &self.clock, node, limit).await
    }

    async fn claim_of(
        &self,
        node: NodeId,
        now: Timestamp,
        of: &[OwnerClaim],
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        self.clock.record_time(now);
        lease::claim_of(&self.pool, &self.clock, node, of).await
    }

    async fn due_tasks(&self, node: NodeId, now: Timestamp) -> Result<Vec<DueTasks>, StoreError> {
        self.clock.record_time(now);
        lease::due(&self.pool, &self.clock, node).await
    }

    async fn descendants(&self, root: TaskId, at_most: u64) -> Result<u64, StoreError> {
        lease::descendants(&self.pool, root, at_most).await
    }

    async fn held_tasks(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        lease::held_tasks(&self.pool, node).await
    }

    async fn externally_written_tasks(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        lease::externally_written_tasks(&self.pool, node).await
    }

    async fn seqs(&self, tasks: &[TaskNo]) -> Result<Vec<(TaskNo, u64)>, StoreError> {
        lease::seqs(&self.pool, tasks).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        lease::next_due(&self.pool, &self.clock).await
    }

    async fn load(&self) -> Result<Load, StoreError> {
        lease::load(&self.pool, &self.clock).await
    }

    async fn expire(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        lease::expire(&self.pool, &self.clock, before, limit).await
    }

    async fn aged_tasks(&self, query: &AgedTaskQuery) -> Result<Vec<AgedTask>, StoreError> {
        aged::tasks(&self.pool, &self.clock, query).await
    }

    async fn delete_ended(&self, tasks: &[(TaskNo, Timestamp)]) -> Result<u64, StoreError> {
        // What has ended never changes, and a number is never used again.
        let tasks: Vec<TaskNo> = tasks.iter().map(|(no, _)| *no).collect();
        TenantStore::delete_tasks(self, &tasks).await
    }
}

#[async_trait]
impl WebhookStore for PostgresStore {
    async fn put_webhook(&self, task: TaskNo, hook: Webhook, cap: usize) -> Result<(), WebhookError> {
        outbox::put(&self.pool, &self.clock, task, &hook, cap).await?;
        self.notifier.notify(StoreNotification::Deliveries);
        Ok(())
    }

    async fn webhooks(&self, task: TaskNo) -> Result<Vec<Webhook>, StoreError> {
        outbox::webhooks(&self.pool, task).await
    }

    async fn delete_webhook(&self, task: TaskNo, id: &str) -> Result<bool, StoreError> {
        outbox::delete(&self.pool, task, id).await
    }

    async fn claim_deliveries(
        &self,
        node: NodeId,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueWebhook>, StoreError> {
        self.clock.record_time(now);
        outbox::claim(&self.pool, &self.clock, node, lease, limit).await
    }

    async fn next_delivery_due(&self) -> Result<Option<Timestamp>, StoreError> {
        outbox::next_due(&self.pool, &self.clock).await
    }

    async fn record_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        settled: DeliveryOutcome,
    ) -> Result<(), StoreError> {
        outbox::record_delivery(&self.pool, &self.clock, task, hook, &settled).await
    }

    async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        outbox::dead_letters(&self.pool, limit).await
    }

    async fn replay_dead_letters(&self, delivery: Option<&str>, now: Timestamp) -> Result<u64, StoreError> {
        self.clock.record_time(now);
        let replayed = outbox::replay(&self.pool, &self.clock, delivery).await?;
        self.notifier.notify(StoreNotification::Deliveries);
        Ok(replayed)
    }

    async fn failed_deliveries(
        &self,
        query: &FailedDeliveryQuery,
    ) -> Result<Vec<FailedDelivery>, StoreError> {
        failed_deliveries::list(&self.pool, &self.clock, query).await
    }

    async fn webhook_progress(&self, task: TaskNo) -> Result<Vec<WebhookProgress>, StoreError> {
        failed_deliveries::progress(&self.pool, &self.clock, task).await
    }

    async fn replay_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.clock.record_time(now);
        let replayed = failed_deliveries::replay(&self.pool, &self.clock, task, hook, seq).await?;
        self.notifier.notify(StoreNotification::Deliveries);
        Ok(replayed)
    }

    async fn discard_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.clock.record_time(now);
        let discarded = failed_deliveries::discard(&self.pool, &self.clock, task, hook, seq).await?;
        self.notifier.notify(StoreNotification::Deliveries);
        Ok(discarded)
    }
}

#[async_trait]
impl SessionStore for PostgresStore {
    async fn create_session(&self, new: Session, limit: usize) -> Result<bool, StoreError> {
        session::create(&self.pool, &self.clock, &new, limit).await
    }

    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        session::find(&self.pool, &self.clock, id).await
    }

    async fn update_session(&self, id: &str, version: u64, body: Bytes) -> Result<bool, StoreError> {
        session::update(&self.pool, id, version, &body).await
    }

    async fn touch_sessions(&self, ids: &[String], now: Timestamp) -> Result<(), StoreError> {
        session::touch(&self.pool, &self.clock, ids, now).await
    }

    async fn delete_session(&self, id: &str) -> Result<bool, StoreError> {
        session::delete(&self.pool, id).await
    }

    async fn expire_sessions(
        &self,
        owner: Option<&str>,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        session::expire(&self.pool, &self.clock, owner, before, limit).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn knowledge(&self) -> &dyn Knowledge {
        self
    }

    fn tenants(&self) -> &dyn TenantStore {
        self
    }

    async fn figures(&self, now: Timestamp) -> Result<StoreFigures, StoreError> {
        self.clock.record_time(now);
        figures::read(&self.pool, &self.clock, now).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.pool.run("SELECT 1", &[]).await.map(drop)
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn shared_secret(&self, name: &str, candidate: &str) -> Result<Option<String>, StoreError> {
        let sql = "INSERT INTO secret (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        self.pool.run(sql, &[&name, &candidate]).await?;
        let found = self.pool.read_one("SELECT value FROM secret WHERE name = $1", &[&name]).await?;
        found.map(|row| Some(row.get(0))).ok_or_else(|| StoreError::Broken("a secret is gone".into()))
    }

    fn notifications(&self) -> Option<mpsc::UnboundedReceiver<StoreNotification>> {
        self.news.lock().take()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.writer.close().await;
        self.notifier.close().await;
        self.pool.close();
        self.searches.close();
        Ok(())
    }
}
