//! The real store with a hand on its commits, for the tests of other crates: a commit can be held up, fail, or be the
//! last thing that its process does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use nuncio_engine::{
    TaskId,
    clock::Timestamp,
    knowledge::Knowledge,
    store::{
        Change, ClaimOf, Claimed, CommitError, Committed, DeadLetter, Delivery, Digest, DueTasks,
        JournalRecord, ListPage, ListQuery, Load, News, NodeId, Opened, Session, Settled, Store, StoreError,
        StoredBatch, TaskKey, TaskNo, TaskRow, Webhook, WebhookError,
    },
    tenant_store::TenantStore,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

/// On which side of a commit a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Nothing is written yet.
    Before,
    /// It is durable, and whoever committed does not know yet.
    After,
}

/// What a hook does to a commit: it lets it go on, after a while, or makes it fail.
pub type Hold = BoxFuture<'static, Result<(), CommitError>>;

type Hook = dyn Fn(Moment, &Change) -> Hold + Send + Sync;

/// Lets a commit go on.
pub fn go_on() -> Hold {
    std::future::ready(Ok(())).boxed()
}

/// The real store with a hand on its commits.
pub struct Hooked {
    store: Arc<dyn Store>,
    hook: Box<Hook>,
    /// How many snapshots were kept, and how many bytes of them.
    pub snapshots: Mutex<Vec<usize>>,
}

impl Hooked {
    /// On this store; the hook is called before and after every commit.
    pub fn new(
        store: Arc<dyn Store>,
        hook: impl Fn(Moment, &Change) -> Hold + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { store, hook: Box::new(hook), snapshots: Mutex::default() })
    }
}

/// The death of a process right after one of its commits: that one is durable, whoever made it never hears of it, and
/// nothing is begun any more.
pub struct Cut {
    last: u64,
    commits: AtomicU64,
    dead: Notify,
}

impl Cut {
    /// After so many commits.
    pub fn after(commits: u64) -> Arc<Self> {
        Arc::new(Self { last: commits, commits: AtomicU64::new(0), dead: Notify::new() })
    }

    /// A store whose process dies so.
    pub fn on(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let cut = Arc::clone(self);
        Hooked::new(store, move |moment, _| cut.commit(moment))
    }

    fn commit(&self, moment: Moment) -> Hold {
        let commits = match moment {
            Moment::Before if self.commits() < self.last => return go_on(),
            Moment::Before => self.last + 1,
            Moment::After => self.commits.fetch_add(1, Ordering::SeqCst) + 1,
        };
        match commits.cmp(&self.last) {
            std::cmp::Ordering::Less => return go_on(),
            std::cmp::Ordering::Equal => self.dead.notify_one(),
            std::cmp::Ordering::Greater => {}
        }
        std::future::pending().boxed()
    }

    /// How many commits there were.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Waits for the death.
    pub async fn dead(&self) {
        self.dead.notified().await;
    }
}

#[async_trait]
impl Store for Hooked {
    fn knowledge(&self) -> &dyn Knowledge {
        self.store.knowledge()
    }

    fn tenants(&self) -> &dyn TenantStore {
        self.store.tenants()
    }

    async fn commit(&self, change: Change) -> Result<Committed, CommitError> {
        (self.hook)(Moment::Before, &change).await?;
        let committed = self.store.commit(change.clone()).await;
        (self.hook)(Moment::After, &change).await?;
        committed
    }

    async fn put_snapshot(&self, task: TaskNo, seq: u64, fold: Bytes) -> Result<(), StoreError> {
        self.snapshots.lock().push(fold.len());
        self.store.put_snapshot(task, seq, fold).await
    }

    async fn snapshot_beginning(&self, task: TaskNo, bytes: usize) -> Result<Option<Bytes>, StoreError> {
        self.store.snapshot_beginning(task, bytes).await
    }

    async fn open(&self, key: &TaskKey) -> Result<Option<Opened>, StoreError> {
        self.store.open(key).await
    }
    async fn row(&self, key: &TaskKey) -> Result<Option<TaskRow>, StoreError> {
        self.store.row(key).await
    }
    async fn log(&self, task: TaskNo, after: u64, max: usize) -> Result<Vec<StoredBatch>, StoreError> {
        self.store.log(task, after, max).await
    }
    async fn journal(&self, task: TaskNo) -> Result<Vec<JournalRecord>, StoreError> {
        self.store.journal(task).await
    }
    async fn list(&self, query: &ListQuery) -> Result<ListPage, StoreError> {
        self.store.list(query).await
    }
    async fn idempotent(&self, owner: &str, key: &str) -> Result<Option<(TaskId, Digest)>, StoreError> {
        self.store.idempotent(owner, key).await
    }
    async fn live_children(&self, parent: TaskId) -> Result<Vec<TaskId>, StoreError> {
        self.store.live_children(parent).await
    }
    async fn heartbeat(&self, node: NodeId, until: Timestamp) -> Result<(), StoreError> {
        self.store.heartbeat(node, until).await
    }
    async fn claim(&self, node: NodeId, now: Timestamp, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        self.store.claim(node, now, limit).await
    }
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_due().await
    }
    async fn claim_of(
        &self,
        node: NodeId,
        now: Timestamp,
        of: &[ClaimOf],
    ) -> Result<Vec<Claimed>, StoreError> {
        self.store.claim_of(node, now, of).await
    }

    async fn due(&self, node: NodeId, now: Timestamp) -> Result<Vec<DueTasks>, StoreError> {
        self.store.due(node, now).await
    }

    async fn descendants(&self, root: TaskId, at_most: u64) -> Result<u64, StoreError> {
        self.store.descendants(root, at_most).await
    }

    async fn held(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        self.store.held(node).await
    }
    async fn seqs(&self, tasks: &[TaskNo]) -> Result<Vec<(TaskNo, u64)>, StoreError> {
        self.store.seqs(tasks).await
    }
    async fn stirred(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        self.store.stirred(node).await
    }
    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }
    fn news(&self) -> Option<mpsc::UnboundedReceiver<News>> {
        self.store.news()
    }
    async fn load(&self) -> Result<Load, StoreError> {
        self.store.load().await
    }
    async fn put_webhook(&self, task: TaskNo, hook: Webhook, cap: usize) -> Result<(), WebhookError> {
        self.store.put_webhook(task, hook, cap).await
    }
    async fn webhooks(&self, task: TaskNo) -> Result<Vec<Webhook>, StoreError> {
        self.store.webhooks(task).await
    }
    async fn delete_webhook(&self, task: TaskNo, id: &str) -> Result<bool, StoreError> {
        self.store.delete_webhook(task, id).await
    }
    async fn claim_deliveries(
        &self,
        node: NodeId,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.claim_deliveries(node, now, lease, limit).await
    }
    async fn next_delivery_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_delivery_due().await
    }
    async fn settle_delivery(&self, task: TaskNo, hook: &str, settled: Settled) -> Result<(), StoreError> {
        self.store.settle_delivery(task, hook, settled).await
    }
    async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.dead_letters(limit).await
    }
    async fn replay_dead_letters(&self, delivery: Option<&str>, now: Timestamp) -> Result<u64, StoreError> {
        self.store.replay_dead_letters(delivery, now).await
    }
    async fn expire(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.store.expire(before, limit).await
    }
    async fn create_session(&self, session: Session, limit: usize) -> Result<bool, StoreError> {
        self.store.create_session(session, limit).await
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.store.session(id).await
    }
    async fn update_session(&self, id: &str, version: u64, body: Bytes) -> Result<bool, StoreError> {
        self.store.update_session(id, version, body).await
    }
    async fn touch_sessions(&self, ids: &[String], now: Timestamp) -> Result<(), StoreError> {
        self.store.touch_sessions(ids, now).await
    }
    async fn delete_session(&self, id: &str) -> Result<bool, StoreError> {
        self.store.delete_session(id).await
    }
    async fn expire_sessions(
        &self,
        owner: Option<&str>,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.store.expire_sessions(owner, before, limit).await
    }
    async fn ready(&self) -> Result<(), StoreError> {
        self.store.ready().await
    }
    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
