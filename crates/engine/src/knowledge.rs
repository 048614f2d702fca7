//! The seam to storage for what outlives tasks: memory, records, the audit, and how much was used.
//!
//! A store keeps all of it per tenant. As in `store.rs`, every method says what a crash means where it is
//! not obvious: what returned is durable. Times are given by whoever calls; an entry whose time has come is
//! gone from every answer, whether it has been swept or not.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    access::{AccessKind, Action},
    clock::Timestamp,
    store::StoreError,
};

/// Where knowledge is kept. Every store has one: [`crate::store::Store::knowledge`].
#[async_trait]
pub trait Knowledge: Send + Sync {
    /// Writes one entry of the memory bank; returns after it is durable.
    ///
    /// A crash before the return may have kept it or not; whoever repeats it under [`ExpectedVersion::Version`] or
    /// [`ExpectedVersion::Absent`] does not write twice.
    async fn put_memory(&self, put: MemoryPut) -> Result<MemoryWriteResult, MemoryError>;

    /// The entry of that key, with its value. Sees every write that returned before the call, on whichever node.
    async fn memory(&self, key: &MemoryKey, now: Timestamp) -> Result<Option<MemoryEntry>, StoreError>;

    /// Forgets one entry; the version it had, if there was one. Under `expected` only if it is at that version:
    /// where there is none, that is [`MemoryError::Moved`].
    async fn delete_memory(
        &self,
        key: &MemoryKey,
        expected: Option<u64>,
        now: Timestamp,
    ) -> Result<Option<u64>, MemoryError>;

    /// Forgets up to `limit` entries of a namespace, expired ones too; how many. Called until it returns none.
    async fn clear_memory(&self, tenant: &str, namespace: &str, limit: usize) -> Result<u64, StoreError>;

    /// How much a namespace holds; `None` where it holds nothing.
    async fn memory_stats(
        &self,
        tenant: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Option<MemoryStats>, StoreError>;

    /// Names of a tenant's namespaces that hold something and begin with `prefix`, in the order of their bytes, from
    /// the one after `after` on (empty: from the first).
    async fn namespaces(
        &self,
        tenant: &str,
        prefix: &str,
        after: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError>;

    /// Entries of a namespace in the order of their keys (by bytes). However many keys there are, a page costs
    /// what a page holds.
    async fn memory_page(&self, query: &MemoryPageQuery) -> Result<Vec<MemoryEntry>, StoreError>;

    /// Searches a namespace; see [`MemorySearch`].
    async fn search_memory(&self, query: &MemorySearch) -> Result<MemorySearchPage, StoreError>;

    /// Adds to the counts of reads. Passes over what is gone. A crash may lose what was not added yet.
    async fn count_reads(&self, reads: &[MemoryReads]) -> Result<(), StoreError>;

    /// Deletes up to `limit` entries whose time has come; which.
    async fn expire_memory(&self, now: Timestamp, limit: usize) -> Result<Vec<MemoryKey>, StoreError>;

    /// Writes records, all of them or none, each under what it expects; their new versions in the same order, 0 for
    /// one that was deleted. What is expected is what was there before the first of them was written.
    ///
    /// Returns after they are durable. A crash before the return may have kept all or none.
    async fn write_records(&self, writes: Vec<RecordWrite>) -> Result<Vec<u64>, RecordError>;

    /// The record of that id.
    async fn record(&self, key: &RecordKey, now: Timestamp) -> Result<Option<Record>, StoreError>;

    /// Records of a kind whose ids begin with `prefix` and come after `after`, in the order of their ids (by bytes).
    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError>;

    /// Deletes up to `limit` records whose time has come; how many.
    async fn expire_records(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Appends to the audit. Nothing but `expire_audit` ever removes a line.
    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError>;

    /// A page of the audit, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<(u64, AuditEntry)>, StoreError>;

    /// Deletes up to `limit` lines older than that; how many.
    async fn expire_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Adds to counters that all nodes share; their totals afterwards, in the same order. Only asked of a store
    /// that is shared. A counter that nobody added to for a day begins at none again.
    async fn add_usage(&self, uses: &[(String, u64)], now: Timestamp) -> Result<Vec<u64>, StoreError>;

    /// Tells other nodes that what is shared has changed: a short text that only the engine reads, told there as
    /// [`crate::store::News::Knowledge`]. Nothing depends on it but time.
    fn notify_nodes(&self, _topic: String) {}
}

/// How an entry of the memory bank is named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryKey {
    /// Whose it is.
    pub tenant: String,
    /// The namespace.
    pub namespace: String,
    /// The key.
    pub key: String,
}

/// Bytes that an entry counts for beside its value and its names: what a store keeps around them, at least.
pub const ENTRY_OVERHEAD: u64 = 200;

/// An entry that is about to be written.
#[derive(Debug, Clone)]
pub struct MemoryPut {
    /// Its name.
    pub key: MemoryKey,
    /// The value, as JSON.
    pub value: String,
    /// What is found by full text: the runs of letters and digits in it, whatever their case. Bounded by whoever
    /// calls.
    pub text: String,
    /// For how long it is kept, from `now` on; `None`: until it is deleted.
    pub ttl_ms: Option<u64>,
    /// What must hold.
    pub expected: ExpectedVersion,
    /// The time.
    pub now: Timestamp,
    /// Entries that its namespace may have with it.
    pub max_entries: u64,
    /// Bytes that its tenant may have with it: for each entry those of the value, of the key and of the namespace's
    /// name, and [`ENTRY_OVERHEAD`].
    pub max_bytes: u64,
    /// Namespaces that its tenant may have with it; those count of which all has expired and is not swept yet.
    pub max_namespaces: u64,
}

impl MemoryPut {
    /// The bytes that it counts for.
    pub fn weight(&self) -> u64 {
        self.value.len() as u64 + self.key.weight()
    }
}

impl MemoryKey {
    /// The bytes that an entry of that name counts for beside its value.
    pub fn weight(&self) -> u64 {
        (self.namespace.len() + self.key.len()) as u64 + ENTRY_OVERHEAD
    }
}

/// What a write takes for granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Nothing.
    Any,
    /// There is none (or its time has come).
    Absent,
    /// There is one at this version.
    Version(u64),
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryWriteResult {
    /// The version, from 1; one more with every write of the key. An entry that was deleted or has expired begins
    /// at 1 again.
    pub version: u64,
    /// When the key was first written.
    pub created_at: Timestamp,
}

/// Why the memory bank was not changed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It is not as expected.
    #[error("the entry has changed: it is at version {}", found.map_or("none".into(), |v| v.to_string()))]
    Moved {
        /// The version that is there.
        found: Option<u64>,
    },
    /// The namespace has as many entries as it may.
    #[error("the namespace has {0} entries")]
    TooManyEntries(u64),
    /// The tenant has as many bytes as it may.
    #[error("the tenant has {0} bytes")]
    TooManyBytes(u64),
    /// The tenant has as many namespaces as it may.
    #[error("the tenant has {0} namespaces")]
    TooManyNamespaces(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An entry of the memory bank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The key.
    pub key: String,
    /// The value, as JSON; empty where only the rest was asked for.
    pub value: String,
    /// The version, from 1.
    pub version: u64,
    /// When it was first written.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// When it was last read or written, as far as reads are counted.
    pub accessed_at: Timestamp,
    /// How often it was read, as far as that is counted.
    pub reads: u64,
    /// Bytes of the value.
    pub size: u64,
    /// For how long it is kept from `updated_at` on.
    pub ttl_ms: Option<u64>,
}

/// How much a namespace holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// Entries.
    pub entries: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// When the oldest was first written.
    pub oldest: Timestamp,
    /// When the newest was last written.
    pub newest: Timestamp,
}

/// Which entries to list.
#[derive(Debug, Clone)]
pub struct MemoryPageQuery {
    /// Whose.
    pub tenant: String,
    /// Where.
    pub namespace: String,
    /// Only keys that begin so.
    pub prefix: String,
    /// Only keys after this one; empty: from the first.
    pub after: String,
    /// How many.
    pub limit: usize,
    /// Whether with their values.
    pub values: bool,
    /// The time.
    pub now: Timestamp,
}

/// What to search for in a namespace: keys of a shape, or values with all of some words in them.
#[derive(Debug, Clone)]
pub struct MemorySearch {
    /// Whose.
    pub tenant: String,
    /// Where.
    pub namespace: String,
    /// What.
    pub what: MemoryQuery,
    /// Entries to pass over.
    pub offset: u64,
    /// Entries to return, with their values up to [`SEARCHED_BYTES`].
    pub limit: usize,
    /// Keys to look at, or values with the words, before the search is cut.
    pub max_keys: u64,
    /// How long it may take before it is cut.
    pub within: Duration,
    /// The time.
    pub now: Timestamp,
}

/// What is searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryQuery {
    /// Keys that fit a pattern: `*` any characters, `?` one, `[abc]` and `[a-z]` one of these, `[!a]` or `[^a]`
    /// one of the others; all else stands for itself. Those with the fewest characters come first (the score is
    /// the share of a key's characters that the pattern says literally), then by key.
    Keys(String),
    /// Values that have all of these words in them; each a run of letters and digits, whatever its case. The best
    /// come first, by the store's own measure.
    Words(Vec<String>),
}

/// The largest value that a search returns, in bytes. Those that are larger are found, and come without it.
pub const SEARCHED_BYTES: u64 = 16 * 1024;

/// A page of what was found.
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySearchPage {
    /// The entries, each with its rank from 0 to 1 where words were searched for.
    pub entries: Vec<(MemoryEntry, Option<f64>)>,
    /// How many there are on all pages.
    pub total: u64,
    /// Whether the search was cut by its cap or its deadline: then there is nothing in it.
    pub is_cut: bool,
}

/// Reads that were not counted yet.
#[derive(Debug, Clone)]
pub struct MemoryReads {
    /// Of which entry.
    pub key: MemoryKey,
    /// How many.
    pub reads: u64,
    /// The last of them.
    pub at: Timestamp,
}

/// How a record is named.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// Whose it is.
    pub tenant: String,
    /// What it is, such as `sparc.workflow`. Each kind belongs to one module.
    pub kind: String,
    /// Its name, unique for its kind and tenant.
    pub id: String,
}

impl RecordKey {
    /// The record of that kind and id.
    pub fn new(tenant: impl Into<String>, kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), kind: kind.into(), id: id.into() }
    }
}

/// A small document with a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// What it holds. Opaque to the store.
    pub body: Bytes,
    /// Counts its changes, from 1. A record that was deleted or has expired begins at 1 again.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// One change of one record.
#[derive(Debug, Clone)]
pub struct RecordWrite {
    /// Which.
    pub key: RecordKey,
    /// What it holds from now on; `None` deletes it.
    pub body: Option<Bytes>,
    /// What must hold.
    pub expected: ExpectedVersion,
    /// When it is gone by itself; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// The time.
    pub now: Timestamp,
}

/// Why records were not written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// One of them is not as expected; nothing was written.
    #[error("record {at} has changed: it is at version {}", found.map_or("none".into(), |v| v.to_string()))]
    Moved {
        /// Which of the writes.
        at: usize,
        /// The version that is there.
        found: Option<u64>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which records to list.
#[derive(Debug, Clone)]
pub struct RecordQuery {
    /// Whose; `None`: everybody's, each id then preceded by its tenant and a line feed, in that order. `prefix` and
    /// `after` are of such ids then.
    pub tenant: Option<String>,
    /// Of which kind.
    pub kind: String,
    /// Only ids that begin so.
    pub prefix: String,
    /// Only ids after this one.
    pub after: String,
    /// How many.
    pub limit: usize,
    /// The time.
    pub now: Timestamp,
}

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// In which tenant.
    pub tenant: String,
    /// Who.
    pub caller: String,
    /// From where, where it is known.
    pub from: Option<String>,
    /// What: the operation, such as `memory.store`.
    pub operation: String,
    /// What kind of thing was done.
    pub action: Action,
    /// To what type of thing.
    pub kind: AccessKind,
    /// To which thing: its address.
    pub resource: String,
    /// Whether it was allowed; else why not.
    pub refused: Option<String>,
    /// The id of the token that the caller showed, where it was one of this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// Which lines of the audit to show.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only of this caller.
    pub caller: Option<String>,
    /// Only about things of this type.
    pub kind: Option<AccessKind>,
    /// Only what was refused.
    pub refused: bool,
    /// Only at or after this.
    pub since: Option<Timestamp>,
    /// Only lines before the one of this number.
    pub before: Option<u64>,
    /// How many.
    pub limit: usize,
}
