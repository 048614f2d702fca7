//! The storage interface: one atomic commit, and the reads around it.
//!
//! A store keeps, per task: a row (identity, state, the node that runs it, when it is due), the log (opaque
//! batches), the journal (opaque records), a snapshot, its webhooks, and idempotency keys. Beside the tasks
//! it keeps clients' sessions. It knows no protocol and interprets no event. It assigns sequence numbers,
//! checks preconditions, and retains what it acknowledged. A method that writes returns when the
//! write is durable, unless it says otherwise.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{
    access::tenant_of,
    clock::Timestamp,
    event::EncodedBatch,
    knowledge::Knowledge,
    task::{State, TaskId},
    tenant_store::TenantStore,
};

/// A storage backend. All of them pass the same conformance suite (`conformance` in `nuncio-testkit`).
#[async_trait]
pub trait Store: TaskStore + WebhookStore + SessionStore {
    /// The part of the store that holds data which outlives tasks.
    fn knowledge(&self) -> &dyn Knowledge;

    /// The operator's part of the store: operations across owners.
    fn tenants(&self) -> &dyn TenantStore;

    /// Whether the store can take new work now. `Full` while the disk is full.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Figures of the whole store for its gauges. Their cost must not depend on how much is stored, only on how much waits.
    async fn figures(&self, now: Timestamp) -> Result<StoreFigures, StoreError>;

    /// Whether other processes write to the same store, so that notifications may come from them.
    fn is_shared(&self) -> bool {
        false
    }

    /// A secret that all nodes share: the stored one of this name, else `candidate`, which is then stored. `None`
    /// if the store is not shared.
    async fn shared_secret(&self, name: &str, candidate: &str) -> Result<Option<String>, StoreError> {
        let _ = (name, candidate);
        Ok(None)
    }

    /// Notifications of what other processes do to the same store, from now on. Only the first caller gets
    /// the receiver. They only save time: every change, notified or not, is also found by polling.
    fn notifications(&self) -> Option<mpsc::UnboundedReceiver<StoreNotification>> {
        None
    }

    /// Finishes pending writes and closes the store.
    async fn close(&self) -> Result<(), StoreError>;
}

/// What waits in a store, and how large it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Tasks that wait for an answer or an authorization, without called ones.
    pub waiting_for_answer: u64,
    /// How long the oldest of them has waited.
    pub oldest_question: Option<Duration>,
    /// Webhooks with a due event that no node delivers, and whose last attempt did not fail.
    pub webhooks_due: u64,
    /// Webhooks whose last attempt failed.
    pub webhooks_failing: u64,
    /// How long the oldest of them has failed.
    pub oldest_failure: Option<Duration>,
    /// Deliveries that were given up.
    pub dead_letters: u64,
    /// The size of the store.
    pub bytes: u64,
    /// What the disk has left, if the store is on a disk of this machine.
    pub free_bytes: Option<u64>,
}

/// Tasks: their rows, logs, journals and snapshots, and the leases under which nodes run them.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Writes one change of one task: all of it or nothing.
    ///
    /// Returns after the change is durable: a crash at any later instant keeps it. After a crash before the
    /// return, the change may or may not have been written; a caller that repeats it learns which from the
    /// precondition.
    async fn commit(&self, change: Change) -> Result<CommitReceipt, CommitError>;

    /// The row, and what is needed to fold the task: its newest snapshot and the log after that. One
    /// consistent read. Sees every commit that returned before the call.
    async fn open(&self, key: &TaskKey) -> Result<Option<OpenedTask>, StoreError>;

    /// Reads only the row.
    async fn row(&self, key: &TaskKey) -> Result<Option<TaskRow>, StoreError>;

    /// Stored batches that hold entries after `after`, oldest first. Returns at most about `max_bytes`, but
    /// always at least one batch if there is one. The first may begin before `after`.
    async fn log(&self, task: TaskNo, after: u64, max_bytes: usize) -> Result<Vec<StoredBatch>, StoreError>;

    /// All journal records of a task in the order of their commits.
    async fn journal(&self, task: TaskNo) -> Result<Vec<JournalRecord>, StoreError>;

    /// A page of an owner's tasks, by status time, newest first (ties: newest task first).
    async fn list(&self, query: &ListQuery) -> Result<ListPage, StoreError>;

    /// How many tasks an owner has, by agent and state. Read from counters: the cost does not depend on their number.
    async fn tally(&self, owner: &str) -> Result<Vec<TaskTally>, StoreError>;

    /// Stores the fold of a task as of `seq`. It only saves time: without it, a read takes longer.
    async fn put_snapshot(&self, task: TaskNo, seq: u64, fold: Bytes) -> Result<(), StoreError>;

    /// At most the first `bytes` bytes of a task's newest snapshot; the rest is not read. `None` if there is
    /// no snapshot, or if the store can only read a whole one.
    async fn snapshot_beginning(&self, _task: TaskNo, _bytes: usize) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    /// The task that was created with an idempotency key, with the digest of its request.
    async fn idempotent(&self, owner: &str, key: &str) -> Result<Option<(TaskId, Digest)>, StoreError>;

    /// Tasks that have not ended and whose parent is `parent`.
    async fn live_children(&self, parent: TaskId) -> Result<Vec<TaskId>, StoreError>;

    /// The tasks whose parent is `parent`, also those that have ended, in the order in which they were created.
    async fn children(&self, parent: TaskId, limit: usize) -> Result<Vec<TaskRow>, StoreError>;

    /// Extends the lease of `node` until `until`. Tasks of a node whose lease has expired are claimable.
    /// After a crash the lease simply expires.
    async fn heartbeat(&self, node: NodeId, until: Timestamp) -> Result<(), StoreError>;

    /// Leases up to `limit` tasks that are due and that no living node holds, oldest due first, each with a
    /// new epoch. A task taken from a dead node counts one more attempt; a task that was handed back or that
    /// waited does not. After a crash the tasks are claimable again when the lease expires.
    async fn claim(&self, node: NodeId, now: Timestamp, limit: usize)
    -> Result<Vec<ClaimedTask>, StoreError>;

    /// Like [`TaskStore::claim`], for some owners, with a limit for each; within one owner oldest due first.
    async fn claim_of(
        &self,
        node: NodeId,
        now: Timestamp,
        of: &[OwnerClaim],
    ) -> Result<Vec<ClaimedTask>, StoreError>;

    /// How many tasks `node` could claim now, by owner. Owners without any are left out.
    async fn due_tasks(&self, node: NodeId, now: Timestamp) -> Result<Vec<DueTasks>, StoreError>;

    /// How many tasks were created below a task, by nested calls, including ended ones. Counts up to
    /// `at_most`.
    async fn descendants(&self, root: TaskId, at_most: u64) -> Result<u64, StoreError>;

    /// The tasks that `node` holds.
    async fn held_tasks(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError>;

    /// Tasks of `node` to which other processes wrote since their runner last did. [`StoreNotification`]
    /// reports the same at once; this poll covers a notification that was lost.
    async fn externally_written_tasks(&self, _node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        Ok(vec![])
    }

    /// The last sequence numbers of those tasks that exist. Only called on a shared store: see
    /// [`StoreNotification::Task`].
    async fn seqs(&self, _tasks: &[TaskNo]) -> Result<Vec<(TaskNo, u64)>, StoreError> {
        Ok(vec![])
    }

    /// When the next task that no node holds becomes due, if there is one.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// How many tasks wait to be claimed, and how many have not ended.
    async fn load(&self) -> Result<Load, StoreError>;

    /// Deletes up to `limit` tasks that ended before `before`, with all their data. Returns how many.
    async fn expire(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// A page of the tasks of all owners whose status is older than an age, in the store's own order. Reads an index, and
    /// of it only what is older. A shared store counts the age by its own clock, so that a node whose clock is wrong
    /// finds no task that is young.
    async fn aged_tasks(&self, query: &AgedTaskQuery) -> Result<Vec<AgedTask>, StoreError>;

    /// Deletes those of the tasks that ended at the time given with them, with all their data. Returns how many. A crash
    /// on the way leaves the rest; repeating the call does no harm.
    async fn delete_ended(&self, tasks: &[(TaskNo, Timestamp)]) -> Result<u64, StoreError>;
}

/// Which tasks to search by the age of their status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgedTaskQuery {
    /// Ended tasks, or those in one state.
    pub phase: AgedPhase,
    /// The time now.
    pub now: Timestamp,
    /// Only tasks whose status is older than this.
    pub older_than: Duration,
    /// Continue after this task.
    pub after: Option<AgedTaskCursor>,
    /// The maximum number of tasks on the page.
    pub limit: usize,
}

/// The part of the tasks that a search by age reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgedPhase {
    /// Tasks that have ended, in any state.
    Ended,
    /// Tasks that have not ended, in this state.
    Live(State),
}

/// A task that a search by age found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgedTask {
    /// Its id.
    pub id: TaskId,
    /// Its agent.
    pub agent: String,
    /// Its state.
    pub state: State,
    /// The age of its status, by the clock of a store that is shared.
    pub age: Duration,
    /// Its position among the results.
    pub cursor: AgedTaskCursor,
}

/// The position of a task in a search by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgedTaskCursor {
    /// The store's number of the owner.
    pub owner: i64,
    /// The time of the status.
    pub status_at: Timestamp,
    /// The task's number.
    pub no: TaskNo,
}

/// Webhooks of tasks, their due deliveries, and the dead letters that were given up.
#[async_trait]
pub trait WebhookStore: Send + Sync + 'static {
    /// Adds a webhook to a task, or replaces the one with the same id. `cap` is the limit per task.
    async fn put_webhook(&self, task: TaskNo, hook: Webhook, cap: usize) -> Result<(), WebhookError>;

    /// The webhooks of a task, in the order of their ids.
    async fn webhooks(&self, task: TaskNo) -> Result<Vec<Webhook>, StoreError>;

    /// Removes a webhook and its pending deliveries. False if the task has none of that id.
    async fn delete_webhook(&self, task: TaskNo, id: &str) -> Result<bool, StoreError>;

    /// Leases up to `limit` webhooks that have something to deliver, for the time `lease`. Until then no
    /// other caller gets them. After a crash they are available when the lease expires (embedded stores: at
    /// the next open).
    async fn claim_deliveries(
        &self,
        node: NodeId,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueWebhook>, StoreError>;

    /// When the next delivery becomes due, if any.
    async fn next_delivery_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Records the outcome of a delivery and releases the webhook's lease. After a crash before it, the
    /// delivery is repeated with the same id.
    async fn record_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        settled: DeliveryOutcome,
    ) -> Result<(), StoreError>;

    /// Deliveries that were given up, newest first.
    async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError>;

    /// Makes dead letters due again (all, or one by its delivery id). Returns how many.
    async fn replay_dead_letters(&self, delivery: Option<&str>, now: Timestamp) -> Result<u64, StoreError>;

    /// Deliveries that failed and wait for a retry, or were given up, the newest first.
    async fn failed_deliveries(&self, query: &FailedDeliveryQuery)
    -> Result<Vec<FailedDelivery>, StoreError>;

    /// The webhooks of a task with the progress of their deliveries, in the order of their ids.
    async fn webhook_progress(&self, task: TaskNo) -> Result<Vec<WebhookProgress>, StoreError>;

    /// Makes one failed delivery due at once: a retry before its time, or a dead letter. False if there is none
    /// such, or if it is in progress.
    async fn replay_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Gives one failed delivery up without a trace: it is never sent. If it waits for a retry, the events after
    /// it are due. False if there is none such, or if it is in progress.
    async fn discard_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        seq: u64,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
}

/// Sessions of clients, which outlive a connection and a node.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Stores a new session. Returns false, and stores nothing, if its owner already has `limit` sessions. An
    /// id that is taken is an error.
    ///
    /// Returns after it is durable. After a crash before the return, the session may or may not exist; one
    /// whose id never reached a client expires.
    async fn create_session(&self, session: Session, limit: usize) -> Result<bool, StoreError>;

    /// The session of that id. Sees every change that returned before the call, on any node.
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError>;

    /// Replaces a session's body if the session is still at `version`; returns whether it was. The next
    /// version is one more.
    ///
    /// Returns after it is durable. After a crash before the return, the change may or may not have been
    /// written. Repeating it with the same version never applies it twice; the caller reads the session again
    /// to learn which it was.
    async fn update_session(&self, id: &str, version: u64, body: Bytes) -> Result<bool, StoreError>;

    /// Records that sessions were used at `now`. Never moves the time back, and ignores unknown ids. A crash
    /// before the return may lose the update: the sessions then expire as if they had not been used.
    async fn touch_sessions(&self, ids: &[String], now: Timestamp) -> Result<(), StoreError>;

    /// Deletes a session; returns whether it existed. Returns after it is durable: no crash brings it back. A
    /// crash before the return may have left it; repeating the call does no harm.
    async fn delete_session(&self, id: &str) -> Result<bool, StoreError>;

    /// Deletes up to `limit` sessions that were last used before `before`, of one owner or of all. Returns
    /// how many. After a crash on the way, the next call deletes the rest.
    async fn expire_sessions(
        &self,
        owner: Option<&str>,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError>;
}

/// A client's session with this server. It outlives the process that created it, and every node can read it.
/// Its body belongs to the protocol binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The id that the client sends with its requests.
    pub id: String,
    /// The owner: the caller that opened it.
    pub owner: String,
    /// The binding's data. Opaque to the store.
    pub body: Bytes,
    /// Counts the changes of the body, from 1.
    pub version: u64,
    /// When it was last used. Approximate, because uses are recorded in batches.
    pub used_at: Timestamp,
}

/// A change that another process made to the same store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreNotification {
    /// Events were appended to a task; its log now ends at `seq`.
    Task {
        /// The store's number of the task.
        no: TaskNo,
        /// The task's id.
        id: TaskId,
        /// The last sequence number of its log.
        seq: u64,
    },
    /// A task that no node holds became due.
    Due,
    /// A webhook has something to deliver.
    Deliveries,
    /// Shared data has changed: see [`Knowledge::notify_nodes`].
    Knowledge(String),
    /// Notifications may have been lost: the receiver must assume that every kind has occurred.
    Gap,
}

/// A number that the store assigns to a task: short, for joins and log keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskNo(pub i64);

/// One run of one server process. A restarted process is another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeId(pub Uuid);

/// SHA-256 of a request's content.
pub type Digest = [u8; 32];

/// How a task is addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskKey {
    /// By its id.
    Id(TaskId),
    /// By the id that its owner chose.
    Client {
        /// The owner in whose namespace the id is unique.
        owner: String,
        /// The id that the client chose.
        id: String,
    },
}

/// One atomic change of one task.
#[derive(Debug, Clone)]
pub struct Change {
    /// The precondition; if it does not hold, nothing is written.
    pub guard: Precondition,
    /// The tenant whose share of the write queue it uses; `None`: the server's own.
    pub tenant: Option<Arc<str>>,
    /// Events to append to the log.
    pub events: Option<EncodedBatch>,
    /// The state after the change, with the time at which it was entered. `None` leaves both.
    pub state: Option<(State, Timestamp)>,
    /// The new header. `None` leaves it.
    pub head: Option<Bytes>,
    /// Records to append to the journal.
    pub journal: Vec<JournalRecord>,
    /// The change of the lease.
    pub run: RunChange,
    /// Sets or clears the cancel request. `None` leaves it.
    pub cancel: Option<bool>,
    /// Webhooks to add to an existing task. Those of a new task are in [`NewTask`].
    pub webhooks: Option<AddedWebhooks>,
}

/// Webhooks that a change adds to an existing task.
#[derive(Debug, Clone)]
pub struct AddedWebhooks {
    /// Each replaces the webhook with the same id, if the task has one.
    pub hooks: Vec<Webhook>,
    /// The limit per task. A change that would exceed it is refused as a whole.
    pub cap: usize,
}

impl Change {
    /// A change under that precondition that changes nothing yet.
    pub fn new(guard: Precondition) -> Self {
        Self {
            guard,
            tenant: None,
            events: None,
            state: None,
            head: None,
            journal: vec![],
            run: RunChange::Keep,
            cancel: None,
            webhooks: None,
        }
    }

    /// Assigns the change to the write queue of an owner's tenant.
    pub fn of_owner(mut self, owner: &str) -> Self {
        self.tenant = Some(tenant_of(owner).into());
        self
    }
}

/// The precondition of a commit.
#[derive(Debug, Clone)]
pub enum Precondition {
    /// The task does not exist yet: neither its id, nor its client id, nor its idempotency key.
    Create(Box<NewTask>),
    /// The task is unchanged since this version was read. For decisions made outside the runner.
    Version {
        /// The task to change.
        task: TaskNo,
        /// The version that was read.
        version: u64,
    },
    /// The runner of this epoch still holds the task, and the task has not ended.
    Runner {
        /// The task to change.
        task: TaskNo,
        /// The epoch of the runner's lease.
        epoch: u64,
    },
}

/// A task to be created. Its events, state, header and schedule come with the `Change`.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its id, the same in every protocol.
    pub id: TaskId,
    /// The id that the client chose; unique per owner.
    pub client_id: Option<String>,
    /// The owner: the caller that created it.
    pub owner: String,
    /// The conversation it joins; `None` opens a new one (`TaskId::own_context`).
    pub context: Option<String>,
    /// The agent that works on it.
    pub agent: String,
    /// The task that called it, if any.
    pub parent: Option<TaskId>,
    /// The idempotency key and the digest of the request. A repeat under the same key creates no second task.
    pub idempotency: Option<(String, Digest)>,
    /// Webhooks that receive the log from the first event on.
    pub webhooks: Vec<Webhook>,
    /// The time of creation.
    pub created_at: Timestamp,
}

/// What a commit does to the task's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunChange {
    /// The lease stays as it is.
    Keep,
    /// Leased to this node. With `Create` the epoch is 1; otherwise it is one more than before.
    Lease(NodeId),
    /// Released; due at this time.
    Due(Timestamp),
    /// Released, and not due: the task waits for an answer, or has ended.
    Rest,
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitReceipt {
    /// The store's number of the task.
    pub task: TaskNo,
    /// The sequence number of the first event written; `seq + 1` when none was.
    pub first_seq: u64,
    /// The last sequence number of the log.
    pub seq: u64,
    /// The task's version after the commit.
    pub version: u64,
    /// The lease's epoch after the commit.
    pub epoch: u64,
    /// Whether cancelling has been requested.
    pub cancel: bool,
    /// Bytes of log since the last snapshot, this commit included.
    pub unfolded: u64,
}

/// Why a commit wrote nothing.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// `Create`: the id, the client id or the idempotency key is taken by this task.
    #[error("the task exists already")]
    Exists {
        /// The existing task.
        task: TaskId,
        /// The digest of the request that created it, if the idempotency key collided.
        digest: Option<Digest>,
    },
    /// `Version`: another writer was faster; read the task and decide again.
    #[error("the task has changed since it was read")]
    Moved,
    /// `Runner`: another runner holds the lease now.
    #[error("the lease was lost to another runner")]
    Fenced,
    /// `Runner`: the task has ended meanwhile.
    #[error("the task has ended")]
    Ended,
    /// The task does not exist, or was deleted.
    #[error("there is no such task")]
    Gone,
    /// The limit on the events of one task.
    #[error("the task's log is full: at most {0} events")]
    LogFull(u64),
    /// The task would have more webhooks than this.
    #[error("{}", WebhookError::TooMany(*.0))]
    TooManyWebhooks(usize),
    /// The storage operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a storage operation failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The disk is full. Stored data stays readable; writes succeed again when there is space.
    #[error("the disk that holds the store is full: {0}")]
    Full(String),
    /// The store is too slow or unreachable. A retry may succeed.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// A failure that a retry does not fix.
    #[error("the store failed: {0}")]
    Broken(String),
}

/// Why a webhook was not added.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The task has the maximum number of webhooks.
    #[error("limits.webhooks-per-task: a task has at most {0} webhooks")]
    TooMany(usize),
    /// The task does not exist, or was deleted.
    #[error("there is no such task")]
    Gone,
    /// The storage operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a store knows of a task without reading its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// The store's number of the task.
    pub no: TaskNo,
    /// Its id, the same in every protocol.
    pub id: TaskId,
    /// The id that the client chose.
    pub client_id: Option<String>,
    /// The owner: the caller that created it.
    pub owner: String,
    /// The conversation it belongs to; never absent here.
    pub context: String,
    /// The name of the agent that works on it.
    pub agent: String,
    /// The task that called it, if any.
    pub parent: Option<TaskId>,
    /// The current state.
    pub state: State,
    /// When the current state was entered.
    pub status_at: Timestamp,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The last sequence number of its log.
    pub seq: u64,
    /// The number of commits, for optimistic concurrency.
    pub version: u64,
    /// The number of leases so far; it fences off runners of earlier leases.
    pub epoch: u64,
    /// The node that holds the lease, if one does.
    pub node: Option<NodeId>,
    /// Consecutive attempts that committed nothing new.
    pub attempts: u32,
    /// Whether cancelling was requested.
    pub cancel: bool,
    /// The engine's header of the task (`task_header.rs`). Opaque to the store.
    pub head: Bytes,
}

/// A row with what is needed to fold the task.
#[derive(Debug, Clone)]
pub struct OpenedTask {
    /// The task's row.
    pub row: TaskRow,
    /// The newest snapshot of the fold, and the sequence number up to which it goes.
    pub snapshot: Option<(u64, Bytes)>,
    /// Everything after the snapshot. The first batch may begin before the snapshot's end.
    pub log: Vec<StoredBatch>,
}

/// A log batch as one commit wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBatch {
    /// The sequence number of its first entry.
    pub first_seq: u64,
    /// The encoded entries; see `event::decode`.
    pub bytes: Bytes,
}

/// A private record of a runner. Only the engine interprets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord(pub Bytes);

/// A leased task.
#[derive(Debug, Clone)]
pub struct ClaimedTask {
    /// The row, with the new epoch and the attempts counted.
    pub row: TaskRow,
}

/// How many tasks to claim of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerClaim {
    /// The owner of the tasks.
    pub owner: String,
    /// True: only tasks that another task called; false: only the others.
    pub called: bool,
    /// The maximum number of tasks.
    pub limit: usize,
}

/// Tasks of one owner that may be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTasks {
    /// The owner of the tasks.
    pub owner: String,
    /// Whether another task called them.
    pub called: bool,
    /// How many of them no node holds.
    pub waiting: u64,
    /// How many of them a dead node holds.
    pub orphaned: u64,
}

/// The amount of work in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Tasks that are due and that no node holds.
    pub queued: u64,
    /// Tasks that have not ended.
    pub live: u64,
}

/// A filter and a page position for listing tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// Only tasks of this owner.
    pub owner: String,
    /// Only tasks of this conversation.
    pub context: Option<String>,
    /// Only tasks in this state.
    pub state: Option<State>,
    /// Only tasks of this agent.
    pub agent: Option<String>,
    /// Only tasks whose status changed at or after this time.
    pub since: Option<Timestamp>,
    /// Continue after this position.
    pub after: Option<ListCursor>,
    /// The maximum number of tasks on the page.
    pub limit: usize,
    /// Return only rows, without snapshots and logs.
    pub only_rows: bool,
}

/// A position in a list of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    /// The status time of the last task of the previous page.
    pub status_at: Timestamp,
    /// The number of that task.
    pub no: TaskNo,
}

/// A page of tasks.
#[derive(Debug, Clone)]
pub struct ListPage {
    /// The tasks, each with what is needed to fold it.
    pub tasks: Vec<OpenedTask>,
    /// Where the next page begins; `None` after the last page.
    pub next: Option<ListCursor>,
    /// How many tasks match, on all pages.
    pub total: u64,
}

/// The number of an owner's tasks of one agent in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTally {
    /// The agent's name.
    pub agent: String,
    /// The state of the tasks. Never [`State::Replied`], which is no task to clients.
    pub state: State,
    /// How many there are; at least one.
    pub count: u64,
}

/// An endpoint to which a task's events are sent. It is a durable follower with a cursor into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Unique within the task.
    pub id: String,
    /// The last delivered sequence number; later events are pending.
    pub cursor: u64,
    /// The engine's record of it: address, credentials, dialect. Opaque to the store.
    pub config: Bytes,
}

/// A webhook with something to deliver.
#[derive(Debug, Clone)]
pub struct DueWebhook {
    /// The task's row.
    pub row: TaskRow,
    /// The webhook; deliver what follows its cursor.
    pub hook: Webhook,
    /// Failed attempts at the next delivery so far.
    pub attempts: u32,
    /// Set for a dead letter that is retried out of order: deliver only this sequence number.
    pub replay: Option<u64>,
}

/// The outcome of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Everything up to this sequence number was delivered, or needs no delivery. Due at once if the log
    /// continues.
    Delivered {
        /// The new cursor.
        up_to: u64,
    },
    /// Everything up to `up_to` was delivered; the next event failed and is retried.
    Retry {
        /// The new cursor.
        up_to: u64,
        /// The time of the retry.
        at: Timestamp,
        /// The error, for people.
        reason: String,
    },
    /// Everything before `seq` was delivered; `seq` is given up and no longer blocks later events.
    Dead {
        /// The sequence number that could not be delivered.
        seq: u64,
        /// The id under which it was sent.
        delivery: String,
        /// The last error, for the operator.
        reason: String,
        /// When it was given up.
        at: Timestamp,
    },
    /// A dead letter was delivered by a retry.
    Replayed {
        /// The sequence number that was delivered.
        seq: u64,
    },
}

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// The id under which it was sent.
    pub delivery: String,
    /// The task whose event it is.
    pub task: TaskId,
    /// The webhook's id.
    pub webhook: String,
    /// The sequence number of the event.
    pub seq: u64,
    /// Why it was given up.
    pub reason: String,
    /// When it was given up.
    pub at: Timestamp,
    /// How often it was attempted; 0 if the store of that time did not count it.
    pub attempts: u32,
}

/// Which failed deliveries to read.
#[derive(Debug, Clone)]
pub struct FailedDeliveryQuery {
    /// Whether those that were given up, or those that wait for a retry.
    pub dead: bool,
    /// Only those of this tenant's tasks.
    pub tenant: Option<String>,
    /// Only those of this owner's tasks.
    pub owner: Option<String>,
    /// Continue after this position.
    pub after: Option<FailedDeliveryCursor>,
    /// The maximum number of deliveries.
    pub limit: usize,
}

/// The position of a failed delivery in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedDeliveryCursor {
    /// Its [`FailedDelivery::at`].
    pub at: Timestamp,
    /// The store's number of its task.
    pub task: TaskNo,
    /// The webhook's id.
    pub hook: String,
    /// The sequence number of its event.
    pub seq: u64,
}

/// A delivery that failed.
#[derive(Debug, Clone)]
pub struct FailedDelivery {
    /// The task's row.
    pub row: TaskRow,
    /// The webhook.
    pub hook: Webhook,
    /// The sequence number of the event.
    pub seq: u64,
    /// Failed attempts so far; 0 for a dead letter of a store that did not count them.
    pub attempts: u32,
    /// When it is tried next; of one in progress the end of its lease. `None`: never, unless it is replayed.
    pub due_at: Option<Timestamp>,
    /// Whether a node is delivering it.
    pub in_progress: bool,
    /// The last error; `None` if the store of that time did not record it.
    pub reason: Option<String>,
    /// Of a retry the time of its first failure (0: not recorded), of a dead letter the time it was given up.
    pub at: Timestamp,
}

impl FailedDelivery {
    /// Its position in the list.
    pub fn cursor(&self) -> FailedDeliveryCursor {
        let Self { at, row, hook, seq, .. } = self;
        FailedDeliveryCursor { at: *at, task: row.no, hook: hook.id.clone(), seq: *seq }
    }
}

/// A webhook and how far its deliveries are.
#[derive(Debug, Clone)]
pub struct WebhookProgress {
    /// The webhook.
    pub hook: Webhook,
    /// Failed attempts at the event after the cursor.
    pub attempts: u32,
    /// When the next delivery is due; of one in progress the end of its lease. `None`: nothing to deliver.
    pub due_at: Option<Timestamp>,
    /// Whether a node is delivering.
    pub in_progress: bool,
    /// The last error, while attempts fail.
    pub reason: Option<String>,
    /// When the event after the cursor failed first; 0: not recorded.
    pub failing_since: Option<Timestamp>,
    /// How many of its deliveries were given up.
    pub dead: u64,
}
