//! Whole tasks, sessions and knowledge, out of one store and into another: what `nuncio store copy` is made of.
//!
//! A task is taken out as everything that anybody could miss of it. Who held it when is not part of that:
//! whatever was being run or delivered is due again where it arrives. Snapshots are left behind; they only save
//! time. Sessions go along, so that no client notices that the store is another; so do memory, records and the audit,
//! with their versions, times and numbers. Counters of use stay behind: they begin anew.

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

/// Tasks or sessions that are under way at once.
const AT_ONCE: usize = 32;
/// Ids that are looked up at once.
const PAGE: usize = 512;
/// Entries of memory, records and lines of the audit that are read at once: they come with what they hold.
const KNOWLEDGE_PAGE: usize = 64;
/// Bytes of a log that are read at once, about.
const READ_BYTES: usize = 4 << 20;

/// A task with all that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskDump {
    /// The row, held by nobody and without a number.
    pub row: TaskRow,
    /// The whole log.
    pub log: Vec<StoredBatch>,
    /// The whole journal.
    pub journal: Vec<JournalRecord>,
    /// The webhooks, in the order of their ids.
    pub webhooks: Vec<(Webhook, WebhookState)>,
    /// What is kept beside that.
    pub details: TaskDetails,
}

/// What a store keeps of a task and tells nobody else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskDetails {
    /// When it may be claimed. What was held is due since the beginning of time.
    pub due_at: Option<Timestamp>,
    /// The key that made it.
    pub idempotency: Option<(String, Digest)>,
    /// Deliveries that were given up, in the order of their events and webhooks.
    pub dead_letters: Vec<DeadLetter>,
    /// How its webhooks stand, in the order of their ids.
    pub hooks: Vec<WebhookState>,
}

/// How a webhook stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WebhookState {
    /// Failed attempts at the next delivery.
    pub attempts: u32,
    /// When it is due. What was being delivered is due since the beginning of time.
    pub due_at: Option<Timestamp>,
}

/// An entry of the memory bank with all that belongs to it, whether its time has come or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryDump {
    /// Its name.
    pub key: MemoryKey,
    /// What is known of it.
    pub entry: MemoryEntry,
    /// What it is found by.
    pub text: String,
    /// When it is gone.
    pub expires_at: Option<Timestamp>,
}

/// A record with all that belongs to it, whether its time has come or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDump {
    /// Its name.
    pub key: RecordKey,
    /// What it is.
    pub record: Record,
    /// When it is gone.
    pub expires_at: Option<Timestamp>,
}

/// A store that whole tasks, sessions and knowledge can be taken out of and put into.
#[async_trait]
pub trait Archive: Store {
    /// The ids of tasks after this one, in their order.
    async fn ids(&self, after: Option<TaskId>, limit: usize) -> Result<Vec<TaskId>, StoreError>;

    /// What is kept of a task that `Store` does not tell.
    async fn details(&self, task: TaskNo) -> Result<TaskDetails, StoreError>;

    /// Puts a task there; false if it is there already. All of it or nothing, also in a crash.
    async fn restore(&self, dump: TaskDump) -> Result<bool, StoreError>;

    /// The ids of sessions after this one, in their order.
    async fn session_ids(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError>;

    /// A session as it is kept: with its time by the store's own clock, which no node's clock blurs.
    async fn dump_session(&self, id: &str) -> Result<Option<Session>, StoreError>;

    /// Puts a session there, however many its owner has; false if it is there already. All of it or nothing,
    /// also in a crash.
    async fn restore_session(&self, session: Session) -> Result<bool, StoreError>;

    /// Entries of memory after this one, by tenant, namespace and key.
    async fn dump_memory(
        &self,
        after: Option<&MemoryKey>,
        limit: usize,
    ) -> Result<Vec<MemoryDump>, StoreError>;

    /// Puts an entry there, however many there are; false if there is one of that key.
    async fn restore_memory(&self, dump: MemoryDump) -> Result<bool, StoreError>;

    /// Records after this one, by tenant, kind and id.
    async fn dump_records(
        &self,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<RecordDump>, StoreError>;

    /// Puts a record there; false if there is one of that id.
    async fn restore_record(&self, dump: RecordDump) -> Result<bool, StoreError>;

    /// Lines of the audit after the one of this number, oldest first.
    async fn dump_audit(&self, after: u64, limit: usize) -> Result<Vec<(u64, AuditEntry)>, StoreError>;

    /// Puts lines there under their numbers. Passes over numbers that are there.
    async fn restore_audit(&self, lines: Vec<(u64, AuditEntry)>) -> Result<(), StoreError>;

    /// Whether a server uses the store now.
    async fn in_use(&self) -> Result<bool, StoreError>;
}

/// What a copy did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Tasks that were put there.
    pub copied: u64,
    /// Tasks that were there already.
    pub there: u64,
    /// Tasks that were compared on both sides afterwards.
    pub verified: u64,
    /// Sessions that were put there, or were there already, and are the same on both sides.
    pub sessions: u64,
    /// Entries of memory, in the same sense.
    pub memory: u64,
    /// Records, in the same sense.
    pub records: u64,
    /// Lines of the audit, in the same sense.
    pub audit: u64,
}

/// Why a copy is not complete. It can be repeated: what is there already is not copied again.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A server would go on writing meanwhile.
    #[error("a server uses {0}: stop it first, so that nothing is left behind")]
    InUse(&'static str),
    /// A task arrived as something else.
    #[error("task {0} is not the same in both stores: it has changed in one of them since it was copied")]
    Differs(TaskId),
    /// A session arrived as something else. Named by its owner: who knows its id could use it.
    #[error(
        "a session of {0:?} is not the same in both stores: it has changed in one of them since it was copied"
    )]
    SessionDiffers(String),
    /// An entry of memory, a record or a line of the audit arrived as something else.
    #[error("{0} is not the same in both stores: it has changed in one of them since it was copied")]
    KnowledgeDiffers(String),
}

/// Copies all tasks, sessions and knowledge from one store to another, and compares them afterwards. `tell` hears how many
/// are done.
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
            // Looked for before it is read: on a second try most of them are there.
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

/// Copies memory, records and the audit, page by page, and compares each page with what arrived.
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
        // There may be others in between, which were there before.
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

/// Copies a session and compares what arrived; false if there was none any more.
async fn copy_session(from: &dyn Archive, to: &dyn Archive, id: &str) -> Result<bool, CopyError> {
    let Some(session) = from.dump_session(id).await? else { return Ok(false) };
    to.restore_session(session.clone()).await?;
    match to.dump_session(id).await? {
        Some(arrived) if arrived == session => Ok(true),
        _ => Err(CopyError::SessionDiffers(session.owner)),
    }
}

/// A task with all that belongs to it.
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
