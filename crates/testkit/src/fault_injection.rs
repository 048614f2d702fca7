//! A store with fault injection on its commits, for the tests of other crates: a commit can be delayed, fail,
//! or be the last action of its process. It also counts what is asked of it.

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
        AgedTask, AgedTaskQuery, Change, ClaimedTask, CommitError, CommitReceipt, DeadLetter,
        DeliveryOutcome, Digest, DueTasks, DueWebhook, FailedDelivery, FailedDeliveryQuery, JournalRecord,
        ListPage, ListQuery, Load, NodeId, OpenedTask, OwnerClaim, Session, SessionStore, Store, StoreError,
        StoreFigures, StoreNotification, StoredBatch, TaskKey, TaskNo, TaskRow, TaskStore, TaskTally,
        Webhook, WebhookError, WebhookProgress, WebhookStore,
    },
    tenant_store::TenantStore,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

/// On which side of a commit a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitMoment {
    /// Nothing is written yet.
    Before,
    /// The change is durable, and its caller has no result yet.
    After,
}

/// The effect of a hook on a commit: to let it proceed, at once or later, or to fail it.
pub type HookFuture = BoxFuture<'static, Result<(), CommitError>>;

type CommitHook = dyn Fn(CommitMoment, &Change) -> HookFuture + Send + Sync;

/// Lets a commit proceed.
pub fn proceed() -> HookFuture {
    std::future::ready(Ok(())).boxed()
}

/// A real store with a hook on its commits.
pub struct HookedStore {
    store: Arc<dyn Store>,
    hook: Box<CommitHook>,
    /// The sizes of the stored snapshots, in bytes.
    pub snapshots: Mutex<Vec<usize>>,
    /// The number of lists that were read.
    pub lists: AtomicU64,
    /// The number of rows of these lists.
    pub listed_rows: AtomicU64,
    commits: AtomicU64,
    rows: AtomicU64,
    logs: AtomicU64,
    opens: AtomicU64,
    journals: AtomicU64,
    keys: AtomicU64,
    children: AtomicU64,
    notifications: Mutex<Option<mpsc::UnboundedReceiver<StoreNotification>>>,
}

/// How often a store was asked for what concerns single tasks. What an engine does in the background is not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// Changes that were committed, or refused.
    pub commits: u64,
    /// Rows that were read by themselves.
    pub rows: u64,
    /// Parts of logs.
    pub logs: u64,
    /// Whole tasks: a row with its snapshot and log.
    pub opens: u64,
    /// Journals.
    pub journals: u64,
    /// Idempotency keys that were looked up.
    pub keys: u64,
    /// Reads of the tasks that a task called.
    pub children: u64,
    /// Pages of lists.
    pub lists: u64,
}

impl std::ops::Sub for StoreUse {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            commits: self.commits - before.commits,
            rows: self.rows - before.rows,
            logs: self.logs - before.logs,
            opens: self.opens - before.opens,
            journals: self.journals - before.journals,
            keys: self.keys - before.keys,
            children: self.children - before.children,
            lists: self.lists - before.lists,
        }
    }
}

impl HookedStore {
    /// Wraps a store; the hook is called before and after every commit.
    pub fn new(
        store: Arc<dyn Store>,
        hook: impl Fn(CommitMoment, &Change) -> HookFuture + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            hook: Box::new(hook),
            snapshots: Mutex::default(),
            lists: AtomicU64::new(0),
            listed_rows: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            logs: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            journals: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            children: AtomicU64::new(0),
            notifications: Mutex::default(),
        })
    }

    /// Wraps a store only to count.
    pub fn counting(store: Arc<dyn Store>) -> Arc<Self> {
        Self::new(store, |_, _| proceed())
    }

    /// What was asked of it so far.
    pub fn used(&self) -> StoreUse {
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        StoreUse {
            commits: of(&self.commits),
            rows: of(&self.rows),
            logs: of(&self.logs),
            opens: of(&self.opens),
            journals: of(&self.journals),
            keys: of(&self.keys),
            children: of(&self.children),
            lists: of(&self.lists),
        }
    }

    /// Replaces the notifications of the store, before an engine starts on it: the sender stands for other nodes.
    pub fn notify_by_hand(&self) -> mpsc::UnboundedSender<StoreNotification> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.notifications.lock() = Some(receiver);
        sender
    }
}

/// A simulated crash of the process right after one of its commits: the commit is durable, its caller never
/// gets the result, and no further commit starts.
pub struct CrashAfterCommits {
    last: u64,
    commits: AtomicU64,
    dead: Notify,
}

impl CrashAfterCommits {
    /// Crashes after that many commits.
    pub fn after(commits: u64) -> Arc<Self> {
        Arc::new(Self { last: commits, commits: AtomicU64::new(0), dead: Notify::new() })
    }

    /// Wraps a store whose process crashes like this.
    pub fn on(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let cut = Arc::clone(self);
        HookedStore::new(store, move |moment, _| cut.commit(moment))
    }

    fn commit(&self, moment: CommitMoment) -> HookFuture {
        let commits = match moment {
            CommitMoment::Before if self.commits() < self.last => return proceed(),
            CommitMoment::Before => self.last + 1,
            CommitMoment::After => self.commits.fetch_add(1, Ordering::SeqCst) + 1,
        };
        match commits.cmp(&self.last) {
            std::cmp::Ordering::Less => return proceed(),
            std::cmp::Ordering::Equal => self.dead.notify_one(),
            std::cmp::Ordering::Greater => {}
        }
        std::future::pending().boxed()
    }

    /// The number of commits so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Waits for the crash.
    pub async fn wait_for_crash(&self) {
        self.dead.notified().await;
    }
}

#[async_trait]
impl TaskStore for HookedStore {
    async fn commit(&self, change: Change) -> Result<CommitReceipt, CommitError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        (self.hook)(CommitMoment::Before, &change).await?;
        let committed = self.store.commit(change.clone()).await;
        (self.hook)(CommitMoment::After, &change).await?;
        committed
    }

    async fn put_snapshot(&self, task: TaskNo, seq: u64, fold: Bytes) -> Result<(), StoreError> {
        self.snapshots.lock().push(fold.len());
        self.store.put_snapshot(task, seq, fold).await
    }

    async fn snapshot_beginning(&self, task: TaskNo, bytes: usize) -> Result<Option<Bytes>, StoreError> {
        self.store.snapshot_beginning(task, bytes).await
    }

    async fn open(&self, key: &TaskKey) -> Result<Option<OpenedTask>, StoreError> {
        self.opens.fetch_add(1, Ordering::SeqCst);
        self.store.open(key).await
    }

    async fn row(&self, key: &TaskKey) -> Result<Option<TaskRow>, StoreError> {
        self.rows.fetch_add(1, Ordering::SeqCst);
        self.store.row(key).await
    }

    async fn log(&self, task: TaskNo, after: u64, max: usize) -> Result<Vec<StoredBatch>, StoreError> {
        self.logs.fetch_add(1, Ordering::SeqCst);
        self.store.log(task, after, max).await
    }

    async fn journal(&self, task: TaskNo) -> Result<Vec<JournalRecord>, StoreError> {
        self.journals.fetch_add(1, Ordering::SeqCst);
        self.store.journal(task).await
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage, StoreError> {
        let page = self.store.list(query).await?;
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.listed_rows.fetch_add(page.tasks.len() as u64, Ordering::SeqCst);
        Ok(page)
    }

    async fn tally(&self, owner: &str) -> Result<Vec<TaskTally>, StoreError> {
        self.store.tally(owner).await
    }

    async fn idempotent(&self, owner: &str, key: &str) -> Result<Option<(TaskId, Digest)>, StoreError> {
        self.keys.fetch_add(1, Ordering::SeqCst);
        self.store.idempotent(owner, key).await
    }

    async fn live_children(&self, parent: TaskId) -> Result<Vec<TaskId>, StoreError> {
        self.children.fetch_add(1, Ordering::SeqCst);
        self.store.live_children(parent).await
    }

    async fn children(&self, parent: TaskId, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        self.children.fetch_add(1, Ordering::SeqCst);
        self.store.children(parent, limit).await
    }

    async fn heartbeat(&self, node: NodeId, until: Timestamp) -> Result<(), StoreError> {
        self.store.heartbeat(node, until).await
    }

    async fn claim(
        &self,
        node: NodeId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        self.store.claim(node, now, limit).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_due().await
    }

    async fn claim_of(
        &self,
        node: NodeId,
        now: Timestamp,
        of: &[OwnerClaim],
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        self.store.claim_of(node, now, of).await
    }

    async fn due_tasks(&self, node: NodeId, now: Timestamp) -> Result<Vec<DueTasks>, StoreError> {
        self.store.due_tasks(node, now).await
    }

    async fn descendants(&self, root: TaskId, at_most: u64) -> Result<u64, StoreError> {
        self.store.descendants(root, at_most).await
    }

    async fn held_tasks(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        self.store.held_tasks(node).await
    }

    async fn seqs(&self, tasks: &[TaskNo]) -> Result<Vec<(TaskNo, u64)>, StoreError> {
        self.store.seqs(tasks).await
    }

    async fn externally_written_tasks(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        self.store.externally_written_tasks(node).await
    }

    async fn load(&self) -> Result<Load, StoreError> {
        self.store.load().await
    }

    async fn expire(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.store.expire(before, limit).await
    }

    async fn aged_tasks(&self, query: &AgedTaskQuery) -> Result<Vec<AgedTask>, StoreError> {
        self.store.aged_tasks(query).await
    }

    async fn delete_ended(&self, tasks: &[(TaskNo, Timestamp)]) -> Result<u64, StoreError> {
        self.store.delete_ended(tasks).await
    }
}

#[async_trait]
impl WebhookStore for HookedStore {
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
    ) -> Result<Vec<DueWebhook>, StoreError> {
        self.store.claim_deliveries(node, now, lease, limit).await
    }

    async fn next_delivery_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_delivery_due().await
    }

    async fn record_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        settled: DeliveryOutcome,
    ) -> Result<(), StoreError> {
        self.store.record_delivery(task, hook, settled).await
    }

    async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.dead_letters(limit).await
    }

    async fn replay_dead_letters(&self, delivery: Option<&str>, now: Timestamp) -> Result<u64, StoreError> {
        self.store.replay_dead_letters(delivery, now).await
    }

    async fn failed_deliveries(
        &self,
        query: &FailedDeliveryQuery,
    ) -> Result<Vec<FailedDelivery>, StoreError> {
        self.store.failed_deliveries(query).await
    }

    async fn webhook_progress(&self, task: TaskNo) -> Result<Vec<WebhookProgress>, StoreError> {
        self.store.webhook_progress(task).await
    }

    async fn replay_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.replay_delivery(task, hook, seq, now).await
    }

    async fn discard_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.discard_delivery(task, hook, seq, now).await
    }
}

#[async_trait]
impl SessionStore for HookedStore {
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
}

#[async_trait]
impl Store for HookedStore {
    fn knowledge(&self) -> &dyn Knowledge {
        self.store.knowledge()
    }

    fn tenants(&self) -> &dyn TenantStore {
        self.store.tenants()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    async fn shared_secret(&self, name: &str, candidate: &str) -> Result<Option<String>, StoreError> {
        self.store.shared_secret(name, candidate).await
    }

    fn notifications(&self) -> Option<mpsc::UnboundedReceiver<StoreNotification>> {
        self.notifications.lock().take().or_else(|| self.store.notifications())
    }

    async fn figures(&self, now: Timestamp) -> Result<StoreFigures, StoreError> {
        self.store.figures(now).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.store.ready().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
