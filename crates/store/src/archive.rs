//! Export and import of whole tasks, sessions and knowledge between stores: the basis of `nuncio store copy`.
//!
//! A task is exported with everything a client or agent could miss. Leases are not part of that: a task that
//! was running, or a webhook that was being delivered, is due again in the target store. Snapshots are not
//! copied; they only save time. Sessions are copied, so that clients do not notice the change of store; so are
//! memory, records and the audit, with their versions, times and numbers. Usage counters are not copied; they
//! start at zero.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nuncio_engine::{
    clock::Timestamp,
    event,
    knowledge::{AuditEntry, MemoryEntry, MemoryKey, Record, RecordKey},
    store::{
        DeadLetter, Digest, JournalRecord, Session, Store, StoreError, StoredBatch, TaskKey, TaskNo, TaskRow,
        Webhook,
    },
    task::TaskId,
};

/// Items per page; they are in memory at the same time.
const PAGE: usize = 64;
/// Items that are read, or tasks that are written, concurrently.
pub(crate) const AT_ONCE: usize = 16;
/// Approximate bytes of a log per read.
const READ_BYTES: usize = 4 << 20;

/// A task with all its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDump {
    /// The task's row, without a lease and without the store's internal number.
    pub row: TaskRow,
    /// The whole event log, from the first event.
    pub log: Vec<StoredBatch>,
    /// The whole journal, in order.
    pub journal: Vec<JournalRecord>,
    /// The webhooks with their delivery state, in the order of their ids.
    pub webhooks: Vec<(Webhook, WebhookState)>,
    /// What the store keeps besides the row, the log and the webhooks.
    pub details: TaskDetails,
}

/// The data of a task that is internal to a store and not part of the `Store` contract.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskDetails {
    /// When it may be claimed. A task that was held is due since the beginning of time.
    pub due_at: Option<Timestamp>,
    /// The idempotency key under which it was created, with the digest of the request.
    pub idempotency: Option<(String, Digest)>,
    /// Deliveries that were given up, in the order of their events and webhooks.
    pub dead_letters: Vec<DeadLetter>,
    /// The delivery state of its webhooks, in the order of their ids.
    pub hooks: Vec<WebhookState>,
}

/// The delivery state of a webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookState {
    /// Failed attempts at the next delivery.
    pub attempts: u32,
    /// When the next delivery is due. One that was in progress is due since the beginning of time.
    pub due_at: Option<Timestamp>,
    /// The last error, while attempts fail.
    pub reason: Option<String>,
    /// When the next delivery failed first.
    pub failing_since: Option<Timestamp>,
}

/// An entry of the memory bank with all its data, expired or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryDump {
    /// Tenant, namespace and key of the entry.
    pub key: MemoryKey,
    /// Value and metadata of the entry.
    pub entry: MemoryEntry,
    /// The text that a search matches.
    pub text: String,
    /// When it expires; `None` means never.
    pub expires_at: Option<Timestamp>,
}

/// A record with all its data, expired or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDump {
    /// Tenant, kind and id of the record.
    pub key: RecordKey,
    /// Value and version of the record.
    pub record: Record,
    /// When it expires; `None` means never.
    pub expires_at: Option<Timestamp>,
}

/// What a store holds, in the order in which it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveKind {
    /// Tasks with their logs, journals, webhooks and dead letters.
    Tasks,
    /// Sessions of clients.
    Sessions,
    /// Entries of the memory bank.
    Memory,
    /// Records of flows and of the operator.
    Records,
    /// Lines of the audit.
    Audit,
}

impl ArchiveKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Tasks, Self::Sessions, Self::Memory, Self::Records, Self::Audit];
}

/// What an item is found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveKey {
    /// A task.
    Task(TaskId),
    /// A session, by its id.
    Session(String),
    /// An entry of the memory bank.
    Memory(MemoryKey),
    /// A record.
    Record(RecordKey),
    /// A line of the audit, by its number.
    Audit(u64),
}

/// One item with all its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveItem {
    /// A task.
    Task(Box<TaskDump>),
    /// A session as it is stored: its time is by the store's own clock, not adjusted to any node's clock.
    Session(Session),
    /// An entry of the memory bank.
    Memory(Box<MemoryDump>),
    /// A record.
    Record(Box<RecordDump>),
    /// A line of the audit, with its number.
    Audit(u64, Box<AuditEntry>),
}

impl ArchiveItem {
    /// About how many bytes it has.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Task(dump) => dump.log.iter().map(|batch| batch.bytes.len()).sum(),
            Self::Session(session) => session.body.len(),
            Self::Memory(dump) => dump.entry.value.len() + 2 * dump.text.len(),
            Self::Record(dump) => dump.record.body.len(),
            Self::Audit(..) => 256,
        }
    }

    /// The error for an item that is another one in the other store.
    fn differs(&self) -> CopyError {
        match self {
            Self::Task(dump) => CopyError::Differs(dump.row.id),
            Self::Session(session) => CopyError::SessionDiffers(session.owner.clone()),
            Self::Memory(dump) => CopyError::KnowledgeDiffers(format!("{:?}", dump.key)),
            Self::Record(dump) => CopyError::KnowledgeDiffers(format!("{:?}", dump.key)),
            Self::Audit(no, _) => CopyError::KnowledgeDiffers(format!("line {no} of the audit")),
        }
    }
}

/// A store whose content can be exported and imported whole.
#[async_trait]
pub trait Archive: Store {
    /// A page of keys of a kind after this one, in an order of the store's own that does not change.
    async fn keys(
        &self,
        kind: ArchiveKind,
        after: Option<&ArchiveKey>,
        limit: usize,
    ) -> Result<Vec<ArchiveKey>, StoreError>;

    /// An item with all its data, expired or not; `None` if there is none.
    async fn read_item(&self, key: &ArchiveKey) -> Result<Option<ArchiveItem>, StoreError>;

    /// Inserts items, whatever the limits, and returns how many. Those whose keys exist already are left as they
    /// are. Each is inserted whole or not at all, also in a crash.
    async fn restore(&self, items: Vec<ArchiveItem>) -> Result<u64, StoreError>;

    /// Whether a server uses the store now.
    async fn in_use(&self) -> Result<bool, StoreError>;
}

/// The counts of a finished copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Tasks that were inserted into the target.
    pub copied: u64,
    /// Tasks that existed in the target already.
    pub there: u64,
    /// Tasks that were compared on both sides afterwards.
    pub verified: u64,
    /// Sessions that were inserted or existed already, and are the same on both sides.
    pub sessions: u64,
    /// Memory entries, counted like `sessions`.
    pub memory: u64,
    /// Records, counted like `sessions`.
    pub records: u64,
    /// Audit lines, counted like `sessions`.
    pub audit: u64,
}

/// Why a copy is not complete. It can be repeated: data that exists in the target is not copied again.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the stores failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A server uses the store and would continue to write to it.
    #[error("a server uses {0}: stop it first, so that nothing is left behind")]
    InUse(&'static str),
    /// A task is not the same in both stores.
    #[error("task {0} is not the same in both stores: it has changed in one of them since it was copied")]
    Differs(TaskId),
    /// A session is not the same in both stores. It is named by its owner, because its id would grant access to
    /// it.
    #[error(
        "a session of {0:?} is not the same in both stores: it has changed in one of them since it was copied"
    )]
    SessionDiffers(String),
    /// A memory entry, a record or an audit line is not the same in both stores.
    #[error("{0} is not the same in both stores: it has changed in one of them since it was copied")]
    KnowledgeDiffers(String),
}

/// Copies all tasks, sessions and knowledge from one store to another, and compares them afterwards. `tell` is
/// called with the counts so far.
pub async fn copy(
    from: &dyn Archive,
    to: &dyn Archive,
    tell: impl Fn(CopyReport) + Send + Sync,
) -> Result<CopyReport, CopyError> {
    for (store, name) in [(from, "the store that is copied"), (to, "the store that is copied to")] {
        if store.in_use().await? {
            return Err(CopyError::InUse(name));
        }
    }
    let mut copied = CopyReport::default();
    for kind in ArchiveKind::ALL {
        let mut after = None;
        loop {
            let keys = from.keys(kind, after.as_ref(), PAGE).await?;
            let Some(last) = keys.last() else { break };
            after = Some(last.clone());
            let (all, inserted) = copy_page(from, to, keys).await?;
            match kind {
                ArchiveKind::Tasks => {
                    copied.copied += inserted;
                    copied.there += all - inserted;
                    copied.verified += all;
                }
                ArchiveKind::Sessions => copied.sessions += all,
                ArchiveKind::Memory => copied.memory += all,
                ArchiveKind::Records => copied.records += all,
                ArchiveKind::Audit => copied.audit += all,
            }
            tell(copied);
        }
    }
    Ok(copied)
}

/// Copies the items of these keys and compares both sides. Returns how many there are, and how many of them were
/// inserted.
async fn copy_page(
    from: &dyn Archive,
    to: &dyn Archive,
    keys: Vec<ArchiveKey>,
) -> Result<(u64, u64), CopyError> {
    // Without those that were deleted since the keys were read.
    let read =
        async |key: ArchiveKey| Ok::<_, StoreError>(from.read_item(&key).await?.map(|item| (key, item)));
    let items: Vec<(ArchiveKey, ArchiveItem)> = stream::iter(keys)
        .map(read)
        .buffered(AT_ONCE)
        .try_filter_map(async |item| Ok(item))
        .try_collect()
        .await?;
    let inserted = to.restore(items.iter().map(|(_, item)| item.clone()).collect()).await?;
    let mut compared = stream::iter(&items)
        .map(async |(key, item)| match to.read_item(key).await? {
            Some(arrived) if arrived == *item => Ok(()),
            _ => Err(item.differs()),
        })
        .buffer_unordered(AT_ONCE);
    while compared.try_next().await?.is_some() {}
    Ok((items.len() as u64, inserted))
}

/// A task with all its data; `details` reads what `Store` does not expose.
pub(crate) async fn read_task<S: Store>(
    store: &S,
    id: TaskId,
    details: impl AsyncFnOnce(TaskNo) -> Result<TaskDetails, StoreError>,
) -> Result<Option<ArchiveItem>, StoreError> {
    let Some(mut row) = store.row(&TaskKey::Id(id)).await? else { return Ok(None) };
    let no = row.no;
    let (mut log, mut after) = (vec![], 0);
    while after < row.seq {
        let more = store.log(no, after, READ_BYTES).await?;
        let Some(last) = more.last() else { break };
        let events = event::decode(&last.bytes).map_err(|error| StoreError::Broken(error.to_string()))?;
        after = last.first_seq - 1 + events.len() as u64;
        log.extend(more);
    }
    let journal = store.journal(no).await?;
    let details = details(no).await?;
    let hooks = details.hooks.clone().into_iter().chain(std::iter::repeat(WebhookState::default()));
    let webhooks = store.webhooks(no).await?.into_iter().zip(hooks).collect();
    (row.no, row.node) = (TaskNo(0), None);
    Ok(Some(ArchiveItem::Task(Box::new(TaskDump { row, log, journal, webhooks, details }))))
}
