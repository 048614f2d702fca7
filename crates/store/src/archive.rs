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

/// Tasks or sessions that are copied concurrently.
const AT_ONCE: usize = 32;
/// Ids per page.
const PAGE: usize = 512;
/// Memory entries, records and audit lines per page; each comes with its content.
const KNOWLEDGE_PAGE: usize = 64;
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WebhookState {
    /// Failed attempts at the next delivery.
    pub attempts: u32,
    /// When the next delivery is due. One that was in progress is due since the beginning of time.
    pub due_at: Option<Timestamp>,
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

/// A store whose tasks, sessions and knowledge can be exported and imported whole.
#[async_trait]
pub trait Archive: Store {
    /// A page of task ids after this one, in ascending order.
    async fn ids(&self, after: Option<TaskId>, limit: usize) -> Result<Vec<TaskId>, StoreError>;

    /// The data of a task that `Store` does not expose.
    async fn details(&self, task: TaskNo) -> Result<TaskDetails, StoreError>;

    /// Inserts a task; false if it exists already. Atomic, also in a crash.
    async fn restore(&self, dump: TaskDump) -> Result<bool, StoreError>;

    /// A page of session ids after this one, in ascending order.
    async fn session_ids(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError>;

    /// A session as it is stored: its time is by the store's own clock, not adjusted to any node's clock.
    async fn dump_session(&self, id: &str) -> Result<Option<Session>, StoreError>;

    /// Inserts a session, whatever the limit of its owner; false if it exists already. Atomic, also in a crash.
    async fn restore_session(&self, session: Session) -> Result<bool, StoreError>;

    /// A page of memory entries after this one, by tenant, namespace and key.
    async fn dump_memory(
        &self,
        after: Option<&MemoryKey>,
        limit: usize,
    ) -> Result<Vec<MemoryDump>, StoreError>;

    /// Inserts a memory entry, whatever the limits; false if its key exists already.
    async fn restore_memory(&self, dump: MemoryDump) -> Result<bool, StoreError>;

    /// A page of records after this one, by tenant, kind and id.
    async fn dump_records(
        &self,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<RecordDump>, StoreError>;

    /// Inserts a record; false if its id exists already.
    async fn restore_record(&self, dump: RecordDump) -> Result<bool, StoreError>;

    /// A page of audit lines after the one with this number, oldest first.
    async fn dump_audit(&self, after: u64, limit: usize) -> Result<Vec<(u64, AuditEntry)>, StoreError>;

    /// Inserts audit lines under their numbers. Skips numbers that exist already.
    async fn restore_audit(&self, lines: Vec<(u64, AuditEntry)>) -> Result<(), StoreError>;

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
    let mut after = None;
    loop {
        let ids = from.ids(after, PAGE).await?;
        let Some(last) = ids.last() else { break };
        after = Some(*last);
        let puts = stream::iter(ids).map(async |id| -> Result<Option<bool>, CopyError> {
            // Checked before the read: on a second attempt most tasks exist already.
            if to.row(&TaskKey::Id(id)).await?.is_some() {
                return Ok(Some(false));
            }
            match dump(from, id).await? {
                Some(dump) => Ok(Some(to.restore(dump).await?)),
                None => Ok(None),
            }
        });
        let mut puts = puts.buffer_unordered(AT_ONCE);
        while let Some(put) = puts.try_next().await? {
            match put {
                Some(true) => copied.copied += 1,
                Some(false) => copied.there += 1,
                None => {}
            }
        }
        tell(copied);
    }
    let mut after = None;
    loop {
        let ids = from.ids(after, PAGE).await?;
        let Some(last) = ids.last() else { break };
        after = Some(*last);
        let looks = stream::iter(ids).map(async |id| -> Result<(), CopyError> {
            let (here, there) = (dump(from, id).await?, dump(to, id).await?);
            if here == there { Ok(()) } else { Err(CopyError::Differs(id)) }
        });
        let mut looks = looks.buffer_unordered(AT_ONCE);
        while looks.try_next().await?.is_some() {
            copied.verified += 1;
        }
        tell(copied);
    }
    let mut after: Option<String> = None;
    loop {
        let ids = from.session_ids(after.as_deref(), PAGE).await?;
        let Some(last) = ids.last() else { break };
        after = Some(last.clone());
        let mut moves =
            stream::iter(ids).map(async |id| copy_session(from, to, &id).await).buffer_unordered(AT_ONCE);
        while let Some(there) = moves.try_next().await? {
            copied.sessions += u64::from(there);
        }
        tell(copied);
    }
    copy_knowledge(from, to, &mut copied, &tell).await?;
    Ok(copied)
}

/// Copies memory, records and the audit, page by page, and compares each page with the target's.
async fn copy_knowledge(
    from: &dyn Archive,
    to: &dyn Archive,
    copied: &mut CopyReport,
    tell: &(impl Fn(CopyReport) + Send + Sync),
) -> Result<(), CopyError> {
    let mut after: Option<MemoryKey> = None;
    loop {
        let page = from.dump_memory(after.as_ref(), KNOWLEDGE_PAGE).await?;
        let Some(last) = page.last().map(|dump| dump.key.clone()) else { break };
        for dump in &page {
            to.restore_memory(dump.clone()).await?;
        }
        // The target may hold others in between, from before the copy.
        let mut there = to.dump_memory(after.as_ref(), KNOWLEDGE_PAGE).await?;
        while there.last().is_some_and(|arrived| arrived.key < last) {
            let more = to.dump_memory(there.last().map(|arrived| &arrived.key), KNOWLEDGE_PAGE).await?;
            if more.is_empty() {
                break;
            }
            there.extend(more);
        }
        if let Some(lost) = page.iter().find(|dump| !there.contains(dump)) {
            return Err(CopyError::KnowledgeDiffers(format!("{:?}", lost.key)));
        }
        copied.memory += page.len() as u64;
        after = Some(last);
        tell(*copied);
    }
    let mut after: Option<RecordKey> = None;
    loop {
        let page = from.dump_records(after.as_ref(), KNOWLEDGE_PAGE).await?;
        let Some(last) = page.last().map(|dump| dump.key.clone()) else { break };
        let place = |key: &RecordKey| (key.tenant.clone(), key.kind.clone(), key.id.clone());
        for dump in &page {
            to.restore_record(dump.clone()).await?;
        }
        let mut there = to.dump_records(after.as_ref(), KNOWLEDGE_PAGE).await?;
        while there.last().is_some_and(|arrived| place(&arrived.key) < place(&last)) {
            let more = to.dump_records(there.last().map(|arrived| &arrived.key), KNOWLEDGE_PAGE).await?;
            if more.is_empty() {
                break;
            }
            there.extend(more);
        }
        if let Some(lost) = page.iter().find(|dump| !there.contains(dump)) {
            return Err(CopyError::KnowledgeDiffers(format!("{:?}", lost.key)));
        }
        copied.records += page.len() as u64;
        after = Some(last);
        tell(*copied);
    }
    let mut after = 0;
    loop {
        let page = from.dump_audit(after, KNOWLEDGE_PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        let last = *last;
        to.restore_audit(page.clone()).await?;
        let mut there = to.dump_audit(after, KNOWLEDGE_PAGE).await?;
        while let Some((reached, _)) = there.last().filter(|(no, _)| *no < last) {
            let more = to.dump_audit(*reached, KNOWLEDGE_PAGE).await?;
            if more.is_empty() {
                break;
            }
            there.extend(more);
        }
        if let Some((no, _)) = page.iter().find(|line| !there.contains(line)) {
            return Err(CopyError::KnowledgeDiffers(format!("line {no} of the audit")));
        }
        copied.audit += page.len() as u64;
        after = last;
        tell(*copied);
    }
    Ok(())
}

/// Copies a session and compares both sides; false if it no longer exists in the source.
async fn copy_session(from: &dyn Archive, to: &dyn Archive, id: &str) -> Result<bool, CopyError> {
    let Some(session) = from.dump_session(id).await? else { return Ok(false) };
    to.restore_session(session.clone()).await?;
    match to.dump_session(id).await? {
        Some(arrived) if arrived == session => Ok(true),
        _ => Err(CopyError::SessionDiffers(session.owner)),
    }
}

/// Exports a task with all its data.
pub async fn dump(store: &dyn Archive, id: TaskId) -> Result<Option<TaskDump>, StoreError> {
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
    let details = store.details(no).await?;
    let hooks = details.hooks.clone().into_iter().chain(std::iter::repeat(WebhookState::default()));
    let webhooks = store.webhooks(no).await?.into_iter().zip(hooks).collect();
    (row.no, row.node) = (TaskNo(0), None);
    Ok(Some(TaskDump { row, log, journal, webhooks, details }))
}
