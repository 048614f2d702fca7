//! The seam to storage: one atomic commit, and the reads around it.
//!
//! A store keeps, per task: a row (identity, state, who runs it, when it runs next), the log (opaque
//! batches), the journal (opaque records), a snapshot, its webhooks, and idempotency keys; and beside the
//! tasks the sessions of clients. It knows no protocol and interprets no event; it assigns sequence numbers,
//! checks guards, and keeps what it acknowledged. Every method says what a crash means.

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

/// A backend. All of them pass the same conformance suite (`nuncio_store::conformance`).
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes one change of one task: all of it or nothing.
    ///
    /// Returns after the change is durable: a crash at any later instant keeps it. A crash before the
    /// return may have kept it or not; whoever repeats the change is told by the guard.
    async fn commit(&self, change: Change) -> Result<CommitReceipt, CommitError>;

    /// The row, and whatever is needed to fold the task: its newest snapshot and the log after that.
    /// One consistent reading. Sees every commit that returned before the call.
    async fn open(&self, key: &TaskKey) -> Result<Option<OpenedTask>, StoreError>;

    /// The row alone.
    async fn row(&self, key: &TaskKey) -> Result<Option<TaskRow>, StoreError>;

    /// Stored batches that hold entries after `after`, oldest first, at most about `max_bytes` of them but
    /// always at least one if there is one. The first may begin before `after`.
    async fn log(&self, task: TaskNo, after: u64, max_bytes: usize) -> Result<Vec<StoredBatch>, StoreError>;

    /// All journal records of a task in the order of their commits.
    async fn journal(&self, task: TaskNo) -> Result<Vec<JournalRecord>, StoreError>;

    /// A page of an owner's tasks, by status time, newest first (ties: newest task first).
    async fn list(&self, query: &ListQuery) -> Result<ListPage, StoreError>;

    /// Keeps the fold of a task as of `seq`. It only saves time: a lost one costs a longer read.
    async fn put_snapshot(&self, task: TaskNo, seq: u64, fold: Bytes) -> Result<(), StoreError>;

    /// The first bytes of a task's newest snapshot, at most so many: no more of it is read. `None` where there is
    /// none, or where the store can only read all of it.
    async fn snapshot_beginning(&self, _task: TaskNo, _bytes: usize) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    /// The task that an idempotency key made, with the digest of the request.
    async fn idempotent(&self, owner: &str, key: &str) -> Result<Option<(TaskId, Digest)>, StoreError>;

    /// Tasks that have not ended and whose parent is `parent`.
    async fn live_children(&self, parent: TaskId) -> Result<Vec<TaskId>, StoreError>;

    /// Says that `node` is alive until `until`. Tasks of a node whose time has run out are claimable.
    /// A crash lets it run out.
    async fn heartbeat(&self, node: NodeId, until: Timestamp) -> Result<(), StoreError>;

    /// Leases up to `limit` tasks that are due and that no living node holds, oldest due first, each
    /// with a new epoch. A task taken from a dead node counts one more attempt; one that was handed back
    /// or that waited does not. A crash after the return leaves them to the next claim, after the lease.
    async fn claim(&self, node: NodeId, now: Timestamp, limit: usize)
    -> Result<Vec<ClaimedTask>, StoreError>;

    /// The same for some owners, so many of each; within one owner oldest due first.
    async fn claim_of(
        &self,
        node: NodeId,
        now: Timestamp,
        of: &[OwnerClaim],
    ) -> Result<Vec<ClaimedTask>, StoreError>;

    /// How many tasks `node` could claim now, by owner. Only those are named that have some.
    async fn due_tasks(&self, node: NodeId, now: Timestamp) -> Result<Vec<DueTasks>, StoreError>;

    /// How many tasks were made below a task, by calls within calls, ended ones included; counted up to `at_most`.
    async fn descendants(&self, root: TaskId, at_most: u64) -> Result<u64, StoreError>;

    /// Tasks that `node` holds.
    async fn held_tasks(&self, node: NodeId) -> Result<Vec<TaskId>, StoreError>;

    /// Tasks of `node` to which others wrote since their runner last did. What [`StoreNotification`] tells at once is found
    /// here, too, in case it was lost.
    async fn externally_written_tasks(&self, _node: NodeId) -> Result<Vec<TaskId>, StoreError> {
        Ok(vec![])
    }

    /// The last sequence numbers of tasks, as far as they exist. Only asked of a store that is shared: see
    /// [`StoreNotification::Task`].
    async fn seqs(&self, _tasks: &[TaskNo]) -> Result<Vec<(TaskNo, u64)>, StoreError> {
        Ok(vec![])
    }

    /// When the next task becomes due that nobody holds, if any.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// How many tasks wait to be claimed, and how many have not ended.
    async fn load(&self) -> Result<Load, StoreError>;

    /// Adds a webhook to a task, or replaces the one with the same id. `cap` bounds them per task.
    async fn put_webhook(&self, task: TaskNo, hook: Webhook, cap: usize) -> Result<(), WebhookError>;

    /// The webhooks of a task, in the order of their ids.
    async fn webhooks(&self, task: TaskNo) -> Result<Vec<Webhook>, StoreError>;

    /// Removes a webhook with what it still had to deliver. False when there is none of that id.
    async fn delete_webhook(&self, task: TaskNo, id: &str) -> Result<bool, StoreError>;

    /// Takes up to `limit` webhooks that have something to deliver, for `lease`: until then nobody else
    /// gets them. A crash gives them back when the lease is over (embedded stores: at the next open).
    async fn claim_deliveries(
        &self,
        node: NodeId,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueWebhook>, StoreError>;

    /// When the next delivery becomes due, if any.
    async fn next_delivery_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Records how a delivery went and gives the webhook back. A crash before it repeats the delivery
    /// with the same id.
    async fn record_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        settled: DeliveryOutcome,
    ) -> Result<(), StoreError>;

    /// Deliveries that were given up, newest first.
    async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError>;

    /// Makes dead letters due again (all, or one by its delivery id); how many.
    async fn replay_dead_letters(&self, delivery: Option<&str>, now: Timestamp) -> Result<u64, StoreError>;

    /// Deletes up to `limit` tasks that ended before `before`, with all that belongs to them; how many.
    async fn expire(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Keeps a new session; false, and nothing is kept, when its owner has `limit` of them already. An id that
    /// is taken is an error.
    ///
    /// Returns after it is durable. A crash before the return may have kept it or not; one that nobody was
    /// told of expires.
    async fn create_session(&self, session: Session, limit: usize) -> Result<bool, StoreError>;

    /// The session of that id. Sees every change that returned before the call, on whichever node.
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError>;

    /// Changes what a session holds, if it is still at that version; returns whether it was. The next version
    /// is one more.
    ///
    /// Returns after it is durable. A crash before the return may have kept the change or not; whoever
    /// repeats it under the same version does not make it twice, and reads again to learn which it was.
    async fn update_session(&self, id: &str, version: u64, body: Bytes) -> Result<bool, StoreError>;

    /// Notes that sessions were used at `now`. Never moves the time back, and passes over what is gone. A crash
    /// before the return may lose the note: then they expire as if they had not been used.
    async fn touch_sessions(&self, ids: &[String], now: Timestamp) -> Result<(), StoreError>;

    /// Forgets a session; returns whether there was one. Returns after it is durable: no crash brings it
    /// back. A crash before the return may have left it; repeating it does no harm.
    async fn delete_session(&self, id: &str) -> Result<bool, StoreError>;

    /// Forgets up to `limit` sessions that were last used before `before`, those of one owner or of everybody;
    /// returns how many. A crash on the way leaves the rest to the next call.
    async fn expire_sessions(
        &self,
        owner: Option<&str>,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError>;

    /// What outlives tasks.
    fn knowledge(&self) -> &dyn Knowledge;

    /// What is done across owners, for the operator.
    fn tenants(&self) -> &dyn TenantStore;

    /// Whether the store can take new work now. `Full` while the disk is.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Whether other processes write to the same store, so that news may come from elsewhere.
    fn is_shared(&self) -> bool {
        false
    }

    /// What other processes do to the same store, from now on; for the first who asks. Nothing depends on it
    /// but time: whatever it says, or fails to say, is found by looking.
    fn notifications(&self) -> Option<mpsc::UnboundedReceiver<StoreNotification>> {
        None
    }

    /// Finishes what was begun and lets go of the store.
    async fn close(&self) -> Result<(), StoreError>;
}

/// A client's session with this server. It outlives the process that made it, and every node knows it. What it
/// holds is its binding's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// How the client names it.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// The binding's record of it. Opaque here.
    pub body: Bytes,
    /// Counts the changes of the body, from 1.
    pub version: u64,
    /// When it was last used, about.
    pub used_at: Timestamp,
}

/// Something that another process did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreNotification {
    /// It wrote to a task, whose log goes up to `seq` now.
    Task {
        /// The store's number.
        no: TaskNo,
        /// The identity.
        id: TaskId,
        /// The last sequence number.
        seq: u64,
    },
    /// A task became due that nobody holds.
    Due,
    /// A webhook has something to deliver.
    Deliveries,
    /// Something that is shared has changed: see [`Knowledge::ring`].
    Knowledge(String),
    /// Some news may have been missed: all of them may have come.
    Gap,
}

/// A number that the store gives to a task: short, for joins and log keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskNo(pub i64);

/// One run of one server process. A restarted process is another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeId(pub Uuid);

/// SHA-256 of what a request asked for.
pub type Digest = [u8; 32];

/// How a task is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskKey {
    /// By identity.
    Id(TaskId),
    /// By the id that its owner chose.
    Client {
        /// Whose name space.
        owner: String,
        /// The chosen id.
        id: String,
    },
}

/// One atomic change of one task.
#[derive(Debug, Clone)]
pub struct Change {
    /// What must hold, else nothing is written.
    pub guard: Precondition,
    /// In whose turn it is written where many wait; `None`: the server's own.
    pub tenant: Option<Arc<str>>,
    /// Events to append to the log.
    pub events: Option<EncodedBatch>,
    /// The state after it, with the time at which it was entered. `None` leaves both.
    pub state: Option<(State, Timestamp)>,
    /// The new head. `None` leaves it.
    pub head: Option<Bytes>,
    /// Records to append to the journal.
    pub journal: Vec<JournalRecord>,
    /// Who may run the task after it.
    pub run: RunChange,
    /// Whether cancelling was asked for. `None` leaves it.
    pub cancel: Option<bool>,
}

impl Change {
    /// A change under that guard that changes nothing yet.
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
        }
    }

    /// The same in the turn of an owner's tenant.
    pub fn of_owner(mut self, owner: &str) -> Self {
        self.tenant = Some(tenant_of(owner).into());
        self
    }
}

/// What a commit takes for granted.
#[derive(Debug, Clone)]
pub enum Precondition {
    /// The task does not exist yet: not its id, not its client id, not its idempotency key.
    Create(Box<NewTask>),
    /// Nothing has changed since this version was read. For decisions made outside the runner.
    Version {
        /// The task.
        task: TaskNo,
        /// The version that was read.
        version: u64,
    },
    /// The runner of this epoch still holds the task, and it has not ended.
    Runner {
        /// The task.
        task: TaskNo,
        /// The epoch of the lease.
        epoch: u64,
    },
}

/// A task that is about to exist. Its events, state, head and schedule come with the `Change`.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its identity.
    pub id: TaskId,
    /// The id that the client chose; unique per owner.
    pub client_id: Option<String>,
    /// Whose it is.
    pub owner: String,
    /// The conversation it joins; `None` opens its own (`TaskId::own_context`).
    pub context: Option<String>,
    /// The agent that works on it.
    pub agent: String,
    /// The task that asked for it.
    pub parent: Option<TaskId>,
    /// A repeat under the same key is not another task.
    pub idempotency: Option<(String, Digest)>,
    /// Webhooks that are there from the first event on.
    pub webhooks: Vec<Webhook>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What becomes of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunChange {
    /// As it was.
    Keep,
    /// Leased to this node. With `Create` the epoch is 1; otherwise it is one more than before.
    Lease(NodeId),
    /// Nobody holds it; due at this time.
    Due(Timestamp),
    /// Nobody holds it, and nothing is to be run: it waits for an answer, or has ended.
    Rest,
}

/// What a commit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitReceipt {
    /// The task's number.
    pub task: TaskNo,
    /// The sequence number of the first event written; `seq + 1` when none was.
    pub first_seq: u64,
    /// The last sequence number of the log.
    pub seq: u64,
    /// The version after it.
    pub version: u64,
    /// The epoch after it.
    pub epoch: u64,
    /// Whether cancelling has been asked for.
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
        /// The task that is there.
        task: TaskId,
        /// The digest of the request that made it, where the idempotency key collided.
        digest: Option<Digest>,
    },
    /// `Version`: somebody was faster; read again and decide again.
    #[error("the task has changed since it was read")]
    Moved,
    /// `Runner`: the lease went to somebody else.
    #[error("the lease was lost to another runner")]
    Fenced,
    /// `Runner`: the task has ended meanwhile.
    #[error("the task has ended")]
    Ended,
    /// There is no such task (any more).
    #[error("there is no such task")]
    Gone,
    /// A cap on what one task may hold.
    #[error("the task's log is full: at most {0} events")]
    LogFull(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why the store could not do it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No room. What is stored stays readable; it recovers when there is room.
    #[error("the disk that holds the store is full: {0}")]
    Full(String),
    /// Too slow, or away. It may work later.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Something that retrying does not mend.
    #[error("the store failed: {0}")]
    Broken(String),
}

/// Why a webhook was not added.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The task has as many as it may.
    #[error("webhooks_per_task: a task has at most {0} webhooks")]
    TooMany(usize),
    /// There is no such task (any more).
    #[error("there is no such task")]
    Gone,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a store knows of a task without reading its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// The store's number.
    pub no: TaskNo,
    /// The identity.
    pub id: TaskId,
    /// The id that the client chose.
    pub client_id: Option<String>,
    /// Whose it is.
    pub owner: String,
    /// The conversation; never absent here.
    pub context: String,
    /// The agent.
    pub agent: String,
    /// The task that asked for it.
    pub parent: Option<TaskId>,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub status_at: Timestamp,
    /// When it was made.
    pub created_at: Timestamp,
    /// The last sequence number.
    pub seq: u64,
    /// Counts commits.
    pub version: u64,
    /// Counts leases.
    pub epoch: u64,
    /// Who holds it.
    pub node: Option<NodeId>,
    /// Attempts in a row that committed nothing new.
    pub attempts: u32,
    /// Whether cancelling was asked for.
    pub cancel: bool,
    /// The engine's own small record.
    pub head: Bytes,
}

/// A row with what is needed to fold the task.
#[derive(Debug, Clone)]
pub struct OpenedTask {
    /// The row.
    pub row: TaskRow,
    /// A fold, and the sequence number it stands for.
    pub snapshot: Option<(u64, Bytes)>,
    /// Everything after the snapshot. The first batch may begin before it ends.
    pub log: Vec<StoredBatch>,
}

/// A batch as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBatch {
    /// The sequence number of its first entry.
    pub first_seq: u64,
    /// See `event::decode`.
    pub bytes: Bytes,
}

/// A private record of a runner. The engine gives it its meaning.
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
    /// Whose tasks.
    pub owner: String,
    /// Those that another task called, or those that none did.
    pub called: bool,
    /// How many at most.
    pub limit: usize,
}

/// Tasks of one owner that may be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTasks {
    /// Whose they are.
    pub owner: String,
    /// Whether another task called them.
    pub called: bool,
    /// How many of them no node holds.
    pub waiting: u64,
    /// How many of them a dead node holds.
    pub orphaned: u64,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Due, and held by nobody.
    pub queued: u64,
    /// Not ended.
    pub live: u64,
}

/// Which tasks to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// Whose tasks.
    pub owner: String,
    /// Only of this conversation.
    pub context: Option<String>,
    /// Only in this state.
    pub state: Option<State>,
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only those whose status changed at or after this.
    pub since: Option<Timestamp>,
    /// Continue after this place.
    pub after: Option<ListCursor>,
    /// How many, at most.
    pub limit: usize,
    /// Only the rows, without snapshots and logs.
    pub only_rows: bool,
}

/// A place in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    /// The status time of the last task of the page before.
    pub status_at: Timestamp,
    /// Its number.
    pub no: TaskNo,
}

/// A page of tasks.
#[derive(Debug, Clone)]
pub struct ListPage {
    /// The tasks, each with what is needed to fold it.
    pub tasks: Vec<OpenedTask>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<ListCursor>,
    /// How many tasks match, on all pages.
    pub total: u64,
}

/// Where a task's events are sent. A durable follower: it keeps a cursor into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Unique within the task.
    pub id: String,
    /// Its last delivered sequence number; what comes after it is to be delivered.
    pub cursor: u64,
    /// The engine's record of it: address, credentials, dialect. Opaque here.
    pub config: Bytes,
}

/// A webhook with something to deliver.
#[derive(Debug, Clone)]
pub struct DueWebhook {
    /// The task's row.
    pub row: TaskRow,
    /// The webhook; deliver from its cursor on.
    pub hook: Webhook,
    /// Failed attempts at the next delivery so far.
    pub attempts: u32,
    /// A dead letter that is tried once more, out of order: only this sequence number.
    pub replay: Option<u64>,
}

/// How a delivery went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Everything up to this sequence number was delivered, or needs no delivery. Due at once if the log
    /// goes further.
    Delivered {
        /// The new cursor.
        up_to: u64,
    },
    /// Everything up to `up_to` was; what follows failed and is tried again.
    Retry {
        /// The new cursor.
        up_to: u64,
        /// When.
        at: Timestamp,
    },
    /// Everything before `seq` was; `seq` is given up and no longer blocks what follows.
    Dead {
        /// The sequence number that could not be delivered.
        seq: u64,
        /// The id under which it was sent.
        delivery: String,
        /// Why.
        reason: String,
        /// When it was given up.
        at: Timestamp,
    },
    /// A dead letter was delivered after all.
    Replayed {
        /// The sequence number.
        seq: u64,
    },
}

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// The id under which it was sent.
    pub delivery: String,
    /// The task.
    pub task: TaskId,
    /// The webhook's id.
    pub webhook: String,
    /// The event.
    pub seq: u64,
    /// Why it was given up.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}
