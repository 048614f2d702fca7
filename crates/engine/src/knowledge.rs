//! The storage interface for data that outlives tasks: memory, records, the audit, and usage counters.
//!
//! A store keeps all of it per tenant. As in `store.rs`, every method states what a crash means where it is
//! not obvious: what returned is durable. The caller passes the time. An expired entry is absent from every
//! result, whether it has been swept or not.

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    access::{AccessKind, Action},
    clock::Timestamp,
    store::StoreError,
};

/// The storage of shared data. Every store has one: [`crate::store::Store::knowledge`].
#[async_trait]
pub trait Knowledge: Send + Sync {
    /// Writes one entry of the memory bank; returns after it is durable.
    ///
    /// After a crash before the return, the entry may or may not have been written. A caller that repeats the
    /// write under [`ExpectedVersion::Version`] or [`ExpectedVersion::Absent`] does not write twice.
    async fn put_memory(&self, put: MemoryPut) -> Result<MemoryWriteResult, MemoryError>;

    /// The entry of that key, with its value. Sees every write that returned before the call, on any node.
    async fn memory(&self, key: &MemoryKey, now: Timestamp) -> Result<Option<MemoryEntry>, StoreError>;

    /// Deletes one entry; returns the version it had, if it existed. With `expected`, only at that version: a
    /// missing entry is then [`MemoryError::Moved`].
    async fn delete_memory(
        &self,
        key: &MemoryKey,
        expected: Option<u64>,
        now: Timestamp,
    ) -> Result<Option<u64>, MemoryError>;

    /// Deletes up to `limit` entries of a namespace, including expired ones; returns how many. Called until
    /// it returns 0.
    async fn clear_memory(&self, tenant: &str, namespace: &str, limit: usize) -> Result<u64, StoreError>;

    /// How much a namespace holds; `None` if it is empty.
    async fn memory_stats(
        &self,
        tenant: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Option<MemoryStats>, StoreError>;

    /// Names of a tenant's non-empty namespaces that begin with `prefix`, in byte order, after `after`
    /// (empty: from the first).
    async fn namespaces(
        &self,
        tenant: &str,
        prefix: &str,
        after: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError>;

    /// Entries of a namespace in the byte order of their keys. The cost depends on the page, not on the
    /// number of keys.
    async fn memory_page(&self, query: &MemoryPageQuery) -> Result<Vec<MemoryEntry>, StoreError>;

    /// [`Knowledge::memory_stats`] and [`Knowledge::memory_page`] of the same moment, in one read; `None` if the
    /// namespace is empty.
    async fn memory_stats_and_page(
        &self,
        query: &MemoryPageQuery,
    ) -> Result<Option<(MemoryStats, Vec<MemoryEntry>)>, StoreError>;

    /// Searches a namespace; see [`MemorySearch`].
    async fn search_memory(&self, query: &MemorySearch) -> Result<MemorySearchPage, StoreError>;

    /// Adds to the read counters. Ignores missing entries. A crash may lose counts that were not added yet.
    async fn count_reads(&self, reads: &[MemoryReads]) -> Result<(), StoreError>;

    /// Deletes up to `limit` expired entries; returns their keys.
    async fn expire_memory(&self, now: Timestamp, limit: usize) -> Result<Vec<MemoryKey>, StoreError>;

    /// Writes records, all of them or none, each under its precondition. Returns their new versions in the
    /// same order, 0 for a deleted one. Preconditions are checked against the state before the first write.
    ///
    /// Returns after they are durable. After a crash before the return, either all or none are written.
    async fn write_records(&self, writes: Vec<RecordWrite>) -> Result<Vec<u64>, RecordError>;

    /// The record of that key, if it exists and has not expired.
    async fn record(&self, key: &RecordKey, now: Timestamp) -> Result<Option<Record>, StoreError>;

    /// Records of a kind whose ids begin with `prefix` and come after `after`, in the byte order of their
    /// ids.
    async fn records(&self, query: &RecordQuery) -> Result<Vec<Record>, StoreError>;

    /// Deletes up to `limit` expired records; returns how many.
    async fn expire_records(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Appends to the audit. Only `expire_audit` ever removes an entry, and no number is used again after that.
    async fn append_audit(&self, entries: Arc<[AuditEntry]>) -> Result<(), StoreError>;

    /// A page of the audit, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError>;

    /// Deletes up to `limit` audit entries older than `before`; returns how many.
    async fn expire_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Adds to counters that all nodes share; returns the totals in the same order. Only called on a shared
    /// store. A counter without additions for a day restarts at 0.
    async fn add_usage(&self, uses: &[(String, u64)], now: Timestamp) -> Result<Vec<u64>, StoreError>;

    /// Notifies other nodes that shared data has changed. The topic is a short text that only the engine
    /// interprets; it arrives as [`crate::store::StoreNotification::Knowledge`]. A lost notification only
    /// costs time.
    fn notify_nodes(&self, _topic: String) {}
}

/// The address of an entry of the memory bank.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryKey {
    /// The tenant that owns it.
    pub tenant: String,
    /// The namespace within the tenant.
    pub namespace: String,
    /// The key within the namespace.
    pub key: String,
}

/// Bytes that an entry counts in addition to its value and its names: a lower bound of the store's overhead.
pub const ENTRY_OVERHEAD: u64 = 200;

/// An entry to be written.
#[derive(Debug, Clone)]
pub struct MemoryPut {
    /// Where it is written.
    pub key: MemoryKey,
    /// The value, as JSON.
    pub value: String,
    /// The text for full-text search: its runs of letters and digits, case-insensitive. The caller bounds its
    /// length.
    pub text: String,
    /// The time to live, from `now` on; `None`: until it is deleted.
    pub ttl_ms: Option<u64>,
    /// The precondition.
    pub expected: ExpectedVersion,
    /// The current time.
    pub now: Timestamp,
    /// The limit on the namespace's entries, including this one.
    pub max_entries: u64,
    /// The limit on the tenant's bytes, including this entry. Each entry counts its value, its key, its
    /// namespace's name, and [`ENTRY_OVERHEAD`].
    pub max_bytes: u64,
    /// The limit on the tenant's namespaces, including this one's. Namespaces whose entries have all expired
    /// count until they are swept.
    pub max_namespaces: u64,
}

impl MemoryPut {
    /// The bytes that the entry counts for.
    pub fn weight(&self) -> u64 {
        self.value.len() as u64 + self.key.weight()
    }
}

impl MemoryKey {
    /// The bytes that an entry of that name counts for, without its value.
    pub fn weight(&self) -> u64 {
        (self.namespace.len() + self.key.len()) as u64 + ENTRY_OVERHEAD
    }
}

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// No precondition.
    Any,
    /// The entry does not exist, or has expired.
    Absent,
    /// The entry exists at this version.
    Version(u64),
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryWriteResult {
    /// The new version: 1 for a new entry, one more with every write. An entry that was deleted or has
    /// expired restarts at 1.
    pub version: u64,
    /// When the key was first written.
    pub created_at: Timestamp,
}

/// Why a write to the memory bank was refused.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The precondition does not hold.
    #[error("the entry has changed: it is at version {}", found.map_or("none".into(), |v| v.to_string()))]
    Moved {
        /// The current version; `None` if the entry does not exist.
        found: Option<u64>,
    },
    /// The namespace has the maximum number of entries.
    #[error("the namespace has {0} entries")]
    TooManyEntries(u64),
    /// The tenant has the maximum number of bytes.
    #[error("the tenant has {0} bytes")]
    TooManyBytes(u64),
    /// The tenant has the maximum number of namespaces.
    #[error("the tenant has {0} namespaces")]
    TooManyNamespaces(u64),
    /// The storage operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An entry of the memory bank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The key within the namespace.
    pub key: String,
    /// The value, as JSON; empty if the query excluded values.
    pub value: String,
    /// The version; 1 for a new entry.
    pub version: u64,
    /// When it was first written.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// When it was last read or written, as far as reads are counted.
    pub accessed_at: Timestamp,
    /// How often it was read, as far as reads are counted.
    pub reads: u64,
    /// The size of the value in bytes.
    pub size: u64,
    /// The time to live in milliseconds, from `updated_at` on.
    pub ttl_ms: Option<u64>,
}

/// How much a namespace holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// The number of entries.
    pub entries: u64,
    /// The total size of their values.
    pub bytes: u64,
    /// When the oldest entry was first written.
    pub oldest: Timestamp,
    /// When the newest entry was last written.
    pub newest: Timestamp,
}

/// A filter and a page position for listing entries.
#[derive(Debug, Clone)]
pub struct MemoryPageQuery {
    /// The tenant to read.
    pub tenant: String,
    /// The namespace to read.
    pub namespace: String,
    /// Only keys with this prefix.
    pub prefix: String,
    /// Only keys after this one; empty: from the first.
    pub after: String,
    /// The maximum number of entries.
    pub limit: usize,
    /// Whether to return values.
    pub values: bool,
    /// The current time.
    pub now: Timestamp,
}

/// A search in a namespace: by a key pattern, or by words in values.
#[derive(Debug, Clone)]
pub struct MemorySearch {
    /// The tenant to search.
    pub tenant: String,
    /// The namespace to search.
    pub namespace: String,
    /// The key pattern or the words.
    pub what: MemoryQuery,
    /// The number of results to skip.
    pub offset: u64,
    /// The maximum number of results; their values are included up to [`SEARCHED_BYTES`].
    pub limit: usize,
    /// How many keys, or values with the words, may be examined before the search is aborted.
    pub max_keys: u64,
    /// The time after which the search is aborted.
    pub within: Duration,
    /// The current time.
    pub now: Timestamp,
}

/// The criterion of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryQuery {
    /// Keys that match a pattern: `*` any characters, `?` one, `[abc]` and `[a-z]` one of these, `[!a]` or
    /// `[^a]` one of the others; every other character matches itself. Keys with the fewest characters come
    /// first (the score is the share of a key's characters that the pattern contains literally), then by key.
    Keys(String),
    /// Values that contain all of these words. A word is a run of letters and digits, case-insensitive. The
    /// best matches come first, by the store's own ranking.
    Words(Vec<String>),
}

/// The largest value that a search returns, in bytes. Entries with larger values are found, but returned
/// without them.
pub const SEARCHED_BYTES: u64 = 16 * 1024;

/// A page of search results.
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySearchPage {
    /// The entries, each with its rank from 0 to 1 if the search was for words.
    pub entries: Vec<(MemoryEntry, Option<f64>)>,
    /// The number of results on all pages.
    pub total: u64,
    /// Whether the search hit its limit or its deadline; the page is then empty.
    pub is_cut: bool,
}

/// Reads that are not in the counters yet.
#[derive(Debug, Clone)]
pub struct MemoryReads {
    /// The entry that was read.
    pub key: MemoryKey,
    /// The number of reads to add.
    pub reads: u64,
    /// The time of the last of them.
    pub at: Timestamp,
}

/// The address of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// The tenant that owns it.
    pub tenant: String,
    /// Its type, such as `sparc.workflow`. Each kind belongs to one module.
    pub kind: String,
    /// Its id, unique for its kind and tenant.
    pub id: String,
}

impl RecordKey {
    /// The record of that kind and id.
    pub fn new(tenant: impl Into<String>, kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), kind: kind.into(), id: id.into() }
    }
}

/// A small versioned document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its id, unique for its kind and tenant.
    pub id: String,
    /// The content. Opaque to the store.
    pub body: Bytes,
    /// The number of writes, from 1. A record that was deleted or has expired restarts at 1.
    pub version: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// One change of one record.
#[derive(Debug, Clone)]
pub struct RecordWrite {
    /// The record to write.
    pub key: RecordKey,
    /// The new content; `None` deletes the record.
    pub body: Option<Bytes>,
    /// The precondition.
    pub expected: ExpectedVersion,
    /// When it expires; `None`: never.
    pub expires_at: Option<Timestamp>,
    /// The current time.
    pub now: Timestamp,
}

/// Why records were not written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The precondition of one of the writes does not hold; nothing was written.
    #[error("record {at} has changed: it is at version {}", found.map_or("none".into(), |v| v.to_string()))]
    Moved {
        /// The index of that write.
        at: usize,
        /// The current version; `None` if the record does not exist.
        found: Option<u64>,
    },
    /// The storage operation failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A filter and a page position for listing records.
#[derive(Debug, Clone)]
pub struct RecordQuery {
    /// The tenant; `None`: all tenants. Each id is then preceded by its tenant and a line feed, and `prefix`,
    /// `after` and the order refer to such ids.
    pub tenant: Option<String>,
    /// The type of the records.
    pub kind: String,
    /// Only ids with this prefix.
    pub prefix: String,
    /// Only ids after this one; empty: from the first.
    pub after: String,
    /// The maximum number of records.
    pub limit: usize,
    /// The current time.
    pub now: Timestamp,
}

/// One entry of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The time of the request.
    pub at: Timestamp,
    /// The caller's tenant.
    pub tenant: Cow<'static, str>,
    /// The name of the caller.
    pub caller: Arc<str>,
    /// The network address of the caller, if known.
    pub from: Option<Arc<str>>,
    /// The operation, such as `memory.store`.
    pub operation: Cow<'static, str>,
    /// Whether it read, wrote or executed.
    pub action: Action,
    /// The type of the resource.
    pub kind: AccessKind,
    /// The URI of the resource.
    pub resource: String,
    /// Why it was refused; `None` if it was allowed.
    pub refused: Option<String>,
    /// The id of the token that the caller presented, if this server issued it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Arc<str>>,
}

/// A filter and a page position for reading the audit.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only entries of this tenant.
    pub tenant: Option<String>,
    /// Only entries of this caller.
    pub caller: Option<String>,
    /// Only entries about resources of this type.
    pub kind: Option<AccessKind>,
    /// Only refusals.
    pub refused: bool,
    /// Only entries at or after this time.
    pub since: Option<Timestamp>,
    /// Only entries before this time.
    pub until: Option<Timestamp>,
    /// Only entries whose resource has this text in it, such as a task's id.
    pub resource: Option<String>,
    /// Only entries before the one of this number.
    pub before: Option<u64>,
    /// The maximum number of entries.
    pub limit: usize,
    /// The maximum number of entries that are read for the page, whatever the other filters: of the tenant, if one is given. Those
    /// of the home tenant may be read together with those of others, which then count.
    /// `None`: no maximum.
    pub max_read: Option<usize>,
}

impl AuditQuery {
    /// Whether entries have to be read to decide whether they are on the page.
    pub fn is_filtered(&self) -> bool {
        let Self { caller, kind, refused, since, until, resource, .. } = self;
        *refused
            || caller.is_some()
            || kind.is_some()
            || since.is_some()
            || until.is_some()
            || resource.is_some()
    }
}

/// A page of the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries with their numbers, newest first.
    pub entries: Vec<(u64, AuditEntry)>,
    /// [`AuditQuery::before`] of the next page; `None` if no entries are left. A page that ended because it has read as many
    /// entries as it may is shorter than its limit, or empty.
    pub next: Option<u64>,
}
