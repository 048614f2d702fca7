//! The memory bank: JSON values under keys, in namespaces that a tenant shares.
//!
//! Every operation validates its names, checks access, and only then looks anything up, in the caller's
//! tenant and no other. What returned is durable and visible to later reads on every node. Subscribers of a
//! resource are notified when it is written, deleted or has expired, but not when it is read.

mod address;
mod agent;
mod error;
mod limits;
mod pattern;
pub(crate) mod privacy;
mod reads;
mod text;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

pub(crate) use self::{address::data_prefix, reads::Reads};
pub use self::{
    address::{DATA_TEMPLATE, KEYS_TEMPLATE, SEARCH_TEMPLATE, data_uri, keys_page_uri, keys_uri, search_uri},
    agent::TaskMemory,
    error::BankError,
    limits::MemoryLimits,
    pattern::{KeyPattern, fits},
    privacy::Privacy,
    text::words,
};
use crate::{
    access::{AccessKind, Action, Caller},
    access_control::AccessRequest,
    clock::Timestamp,
    engine::{Engine, EngineCore},
    error::Error,
    knowledge::{
        ExpectedVersion, Knowledge, MemoryEntry, MemoryKey, MemoryPageQuery, MemoryPut, MemoryQuery,
        MemorySearch, MemoryStats, MemoryWriteResult,
    },
    usage::MeteredResource,
};

/// The batch size when a namespace is cleared; other writers get their turn between batches.
const CLEARED_AT_ONCE: usize = 256;
/// How many namespaces are read at once; those that the caller may not read are skipped.
const NAMESPACES_AT_ONCE: usize = 1_000;

/// An entry of the memory bank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BankEntry {
    /// The key within the namespace.
    pub key: String,
    /// The value; null if the query excluded values.
    pub value: Value,
    /// The version; 1 for a new entry.
    pub version: u64,
    /// When it was first written.
    pub created: Timestamp,
    /// When it was last written.
    pub updated: Timestamp,
    /// When it was last read or written.
    pub accessed: Timestamp,
    /// How often it was read, including this read. Reads on other nodes count once those nodes have written
    /// them.
    pub reads: u64,
    /// The size of the value as JSON, in bytes.
    pub size: u64,
    /// The time to live in seconds, from `updated` on; `None`: until it is deleted.
    pub ttl: Option<u64>,
}

/// An entry of the memory bank with its value as the JSON text that is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct BankEntryText {
    /// The entry. Its value is null here: see `json`.
    pub entry: BankEntry,
    /// The value as JSON, without spaces between its parts.
    pub json: String,
}

impl BankEntryText {
    /// The value.
    pub fn value(&self) -> Result<Value, BankError> {
        self.parse()
    }

    /// The text of the value, checked to be JSON.
    pub fn raw(&self) -> Result<&RawValue, BankError> {
        self.parse()
    }

    fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, BankError> {
        parse_value(&self.json, &self.entry.key)
    }
}

/// A filter and a page position for listing entries.
#[derive(Debug, Clone, Default)]
pub struct BankPageQuery {
    /// Only keys with this prefix.
    pub prefix: String,
    /// Only keys after this one; empty: from the first.
    pub after: String,
    /// The maximum number of entries.
    pub limit: usize,
}

/// A page of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct BankPage {
    /// How much the whole namespace holds.
    pub stats: MemoryStats,
    /// The entries, without their values, in the byte order of their keys.
    pub entries: Vec<BankEntry>,
    /// Whether there are more after the last one.
    pub more: bool,
}

/// A page of the names of namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespacePage {
    /// The names, in byte order.
    pub names: Vec<String>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<String>,
}

/// A page of search results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BankSearchPage {
    /// The entries, each with its value (null if larger than 16 KiB: read it by its key) and its score from 0
    /// to 1. The score is [`KeyPattern::score`] for a key pattern, and the store's rank for words.
    pub results: Vec<(BankEntry, f64)>,
    /// The number of results on all pages.
    pub total: u64,
}

/// The memory bank of an engine. Cheap to clone.
#[derive(Clone)]
pub struct Memory {
    engine: Engine,
}

impl Engine {
    /// The memory bank of this engine.
    pub fn memory(&self) -> Memory {
        Memory { engine: self.clone() }
    }
}

impl Memory {
    /// The limits on names, values and pages.
    pub fn limits(&self) -> &MemoryLimits {
        &self.engine.0.options.memory
    }

    /// The entry of that key. Counts as a read.
    pub async fn get(
        &self,
        caller: &Caller,
        namespace: &str,
        key: &str,
    ) -> Result<Option<BankEntry>, BankError> {
        let Some(found) = self.get_text(caller, namespace, key).await? else { return Ok(None) };
        let value = found.value()?;
        Ok(Some(BankEntry { value, ..found.entry }))
    }

    /// [`Memory::get`] without parsing the value, for a caller that sends it on as JSON.
    pub async fn get_text(
        &self,
        caller: &Caller,
        namespace: &str,
        key: &str,
    ) -> Result<Option<BankEntryText>, BankError> {
        let key = self.named(caller, namespace, key)?;
        self.allow(caller, Action::Read, namespace, "memory.get", &data_uri(namespace, &key.key))?;
        let now = self.now();
        let reads = &self.engine.0.reads;
        reads.make_room(&self.engine.0).await;
        let _steady = reads.steady().await;
        let Some(mut found) = self.knowledge().memory(&key, now).await? else { return Ok(None) };
        reads.add(&key, now);
        let json = self.open_value(&mut found, &key)?;
        Ok(Some(BankEntryText { entry: self.without_value(found, &key), json }))
    }

    /// Writes an entry with a time to live of `ttl` (whole seconds), or without an end.
    pub async fn store(
        &self,
        caller: &Caller,
        namespace: &str,
        key: &str,
        value: &Value,
        ttl: Option<Duration>,
        expected: ExpectedVersion,
    ) -> Result<MemoryWriteResult, BankError> {
        let key = self.named(caller, namespace, key)?;
        self.allow(caller, Action::Write, namespace, "memory.store", &data_uri(namespace, &key.key))?;
        self.put(key, value, ttl, expected).await
    }

    /// Writes an entry that comes from an export. [`Memory::begin_import`] has checked the caller's access.
    async fn put(
        &self,
        key: MemoryKey,
        value: &Value,
        ttl: Option<Duration>,
        expected: ExpectedVersion,
    ) -> Result<MemoryWriteResult, BankError> {
        let limits = self.limits();
        let json = self.check_value(value)?;
        limits.check_ttl(ttl)?;
        let masked = self.engine.redactor().json(value);
        let json = match self.engine.0.options.privacy {
            Privacy::Off => json,
            _ if masked == *value => json,
            Privacy::Mask => self.check_value(&masked)?,
            Privacy::Encrypt => privacy::seal(self.engine.derive_key(privacy::PURPOSE), &key, &json)?,
        };
        let put = MemoryPut {
            text: text::extract(&masked),
            value: json,
            ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            expected,
            now: self.now(),
            max_entries: limits.entries_per_namespace,
            max_bytes: limits.bytes_per_tenant,
            max_namespaces: limits.namespaces_per_tenant,
            key: key.clone(),
        };
        let (usage, weight) = (self.engine.usage(), put.weight());
        usage.check_stored(&key.tenant, MeteredResource::StoredBytes, weight)?;
        let stored = self.knowledge().put_memory(put).await.map_err(|error| self.refusal(error))?;
        if stored.version == 1 {
            usage.add_stored(&key.tenant, MeteredResource::StoredBytes, weight);
            // The reads of an earlier entry of that name do not count for this one.
            self.engine.0.reads.forget(&key);
            // It may be the first of its namespace.
            self.engine.list_changed(&key.tenant);
        }
        self.engine.0.memory_changed(&key);
        Ok(stored)
    }

    /// The validation of [`Memory::store`] for a value, without writing it; returns the value as JSON.
    pub fn check_value(&self, value: &Value) -> Result<String, BankError> {
        let limits = self.limits();
        limits.check_depth(value)?;
        let json = serde_json::to_string(value)
            .map_err(|error| BankError::invalid("value", format!("cannot be written as JSON: {error}")))?;
        limits.check_size(json.len())?;
        Ok(json)
    }

    /// The validation of [`Memory::store`] for names and time to live, without writing anything.
    pub fn check_entry(&self, namespace: &str, key: &str, ttl: Option<Duration>) -> Result<(), BankError> {
        let limits = self.limits();
        limits.check_namespace(namespace)?;
        limits.check_key(key)?;
        limits.check_ttl(ttl)
    }

    /// Deletes an entry; returns the version it had, if it existed. With `expected`, only at that version.
    pub async fn delete(
        &self,
        caller: &Caller,
        namespace: &str,
        key: &str,
        expected: Option<u64>,
    ) -> Result<Option<u64>, BankError> {
        let key = self.named(caller, namespace, key)?;
        self.allow(caller, Action::Write, namespace, "memory.delete", &data_uri(namespace, &key.key))?;
        let deleted = self.knowledge().delete_memory(&key, expected, self.now()).await;
        let deleted = deleted.map_err(|error| self.refusal(error))?;
        if deleted.is_some() {
            self.engine.list_changed(&key.tenant);
            self.engine.0.reads.forget(&key);
            self.engine.0.memory_changed(&key);
        }
        Ok(deleted)
    }

    /// Deletes all entries of a namespace; returns how many. Entries written meanwhile may remain.
    pub async fn clear(&self, caller: &Caller, namespace: &str) -> Result<u64, BankError> {
        self.limits().check_namespace(namespace)?;
        self.allow(caller, Action::Write, namespace, "memory.clear", &keys_uri(namespace))?;
        let tenant = caller.tenant();
        let mut cleared = 0;
        // More than a namespace holds, but bounded, in case other callers write just as fast.
        while cleared <= 2 * self.limits().entries_per_namespace {
            let some = self.knowledge().clear_memory(tenant, namespace, CLEARED_AT_ONCE).await;
            let some = match some {
                Ok(some) => some,
                Err(error) => {
                    self.cleared(tenant, namespace, cleared);
                    return Err(error.into());
                }
            };
            cleared += some;
            if some == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.cleared(tenant, namespace, cleared);
        Ok(cleared)
    }

    fn cleared(&self, tenant: &str, namespace: &str, count: u64) {
        if count == 0 {
            return;
        }
        self.engine.0.reads.forget_all(tenant, namespace);
        self.engine.list_changed(tenant);
        self.engine.notify_changed_within(tenant, &data_prefix(namespace));
        self.engine.0.namespace_changed(tenant, namespace);
    }

    /// How much a namespace holds; `None` if it is empty.
    pub async fn stats(&self, caller: &Caller, namespace: &str) -> Result<Option<MemoryStats>, BankError> {
        self.limits().check_namespace(namespace)?;
        self.allow(caller, Action::Read, namespace, "memory.list", &keys_uri(namespace))?;
        Ok(self.knowledge().memory_stats(caller.tenant(), namespace, self.now()).await?)
    }

    /// The non-empty namespaces after `after` that begin with `prefix` and that the caller may read.
    pub async fn namespaces(
        &self,
        caller: &Caller,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<NamespacePage, BankError> {
        let limits = self.limits();
        limits.check_namespace_part("prefix", prefix)?;
        limits.check_namespace_part("after", after)?;
        limits.check_limit(limit, limits.keys_page, "keys_page")?;
        self.engine.allow_some(
            caller,
            &AccessRequest {
                action: Action::Read,
                kind: AccessKind::Memory,
                name: "*",
                operation: "memory.list",
                resource: &"memory://namespace/",
            },
        )?;
        // A caller must not learn a name that it may not read, not even as a cursor. So all names are
        // examined until the page is full; `namespaces_per_tenant` bounds them.
        let Some(prefix) = caller.narrowed(Action::Read, AccessKind::Memory, prefix) else {
            return Ok(NamespacePage::default());
        };
        let (mut names, mut after) = (vec![], after.to_owned());
        loop {
            let page = self
                .knowledge()
                .namespaces(caller.tenant(), &prefix, &after, NAMESPACES_AT_ONCE, self.now())
                .await?;
            let last = page.len() < NAMESPACES_AT_ONCE;
            for name in page {
                after.clone_from(&name);
                if caller.may(Action::Read, AccessKind::Memory, &name) {
                    if names.len() == limit {
                        let next = names.last().cloned();
                        return Ok(NamespacePage { names, next });
                    }
                    names.push(name);
                }
            }
            if last {
                return Ok(NamespacePage { names, next: None });
            }
        }
    }

    /// A page of a namespace, with the size of the whole; `None` if it is empty.
    pub async fn page(
        &self,
        caller: &Caller,
        namespace: &str,
        query: &BankPageQuery,
    ) -> Result<Option<BankPage>, BankError> {
        let uri = || keys_uri(namespace);
        self.check_page(namespace, query)?;
        self.allow(caller, Action::Read, namespace, "memory.list", &uri())?;
        let asked = page_query(caller.tenant(), namespace, query, false, self.now());
        let reads = &self.engine.0.reads;
        let _steady = reads.steady().await;
        let found = self.knowledge().memory_stats_and_page(&asked).await?;
        let Some((stats, found)) = found else { return Ok(None) };
        let (entries, more) = self.page_entries(&asked, query.limit, found)?;
        Ok(Some(BankPage { stats, entries, more }))
    }

    /// A page of a namespace with the values, limited in bytes (but at least one entry, whatever its size);
    /// and whether there are more.
    pub async fn export(
        &self,
        caller: &Caller,
        namespace: &str,
        query: &BankPageQuery,
        bytes: u64,
    ) -> Result<(Vec<BankEntry>, bool), BankError> {
        self.check_page(namespace, query)?;
        self.allow(caller, Action::Read, namespace, "memory.export", &keys_uri(namespace))?;
        let now = self.now();
        // The sizes first, so that no more values are read than fit.
        let (sizes, more) = self.entries(caller, namespace, query, false, now).await?;
        let mut sum = 0;
        let fits = |entry: &&BankEntry| {
            sum += entry.size;
            sum <= bytes
        };
        let count = sizes.iter().take_while(fits).count().max(1).min(sizes.len());
        if count == 0 {
            return Ok((vec![], false));
        }
        let query = BankPageQuery { limit: count, ..query.clone() };
        let cut = count < sizes.len();
        let (entries, _) = self.entries(caller, namespace, &query, true, now).await?;
        Ok((entries, more || cut))
    }

    /// Checks that a caller may write an export into a namespace.
    pub fn begin_import(&self, caller: &Caller, namespace: &str) -> Result<MemoryImport, BankError> {
        self.limits().check_namespace(namespace)?;
        self.allow(caller, Action::Write, namespace, "memory.import", &keys_uri(namespace))?;
        Ok(MemoryImport { memory: self.clone(), tenant: caller.tenant().into(), namespace: namespace.into() })
    }

    /// Searches a namespace. Pages have `limit` results and are counted from 1.
    pub async fn search(
        &self,
        caller: &Caller,
        namespace: &str,
        what: &MemoryQuery,
        page: u32,
        limit: usize,
    ) -> Result<BankSearchPage, BankError> {
        let limits = self.limits();
        limits.check_namespace(namespace)?;
        let (pattern, what) = match what {
            MemoryQuery::Keys(text) => {
                (Some(KeyPattern::parse(text, limits)?), MemoryQuery::Keys(text.clone()))
            }
            MemoryQuery::Words(given) => (None, MemoryQuery::Words(limits.check_words(given)?)),
        };
        limits.check_limit(limit, limits.search_page, "search_page")?;
        let Some(before) = page.checked_sub(1) else {
            return Err(BankError::invalid("page", "pages are counted from 1"));
        };
        self.allow(caller, Action::Read, namespace, "memory.search", &search_uri(namespace))?;
        let tenant = caller.tenant().to_owned();
        let offset = u64::from(before) * limit as u64;
        let query = MemorySearch {
            tenant: tenant.clone(),
            namespace: namespace.to_owned(),
            what,
            offset,
            limit,
            max_keys: limits.search_keys,
            within: limits.search_within,
            now: self.now(),
        };
        // A tenant that uses its whole share of searches waits for its own.
        let usage = &self.engine.0.usage;
        let _scan = usage.acquire(caller.owner(), MeteredResource::Scans, 1, limits.search_within).await?;
        let reads = &self.engine.0.reads;
        let _steady = reads.steady().await;
        let began = std::time::Instant::now();
        let found = self.knowledge().search_memory(&query).await?;
        // The search occupies a thread for about this long.
        self.engine.cpu().charge(caller.owner(), began.elapsed());
        if found.is_cut {
            let why = format!(
                "the search of namespace {namespace:?} was cut after {} keys or {:?} (memory.search-keys, \
                 memory.search-within): begin the pattern with literal characters, search for rarer words, or split \
                 the namespace",
                limits.search_keys, limits.search_within
            );
            return Err(Error::limit("memory.search", why).into());
        }
        let mut results = Vec::with_capacity(found.entries.len());
        for (found, rank) in found.entries {
            let score = match &pattern {
                Some(pattern) => pattern.score(&found.key),
                None => rank.unwrap_or_default().clamp(0.0, 1.0),
            };
            let key =
                MemoryKey { tenant: tenant.clone(), namespace: namespace.to_owned(), key: found.key.clone() };
            results.push((self.entry(found, &key)?, score));
        }
        Ok(BankSearchPage { results, total: found.total })
    }

    fn check_page(&self, namespace: &str, query: &BankPageQuery) -> Result<(), BankError> {
        let limits = self.limits();
        limits.check_namespace(namespace)?;
        limits.check_key_part("prefix", &query.prefix)?;
        limits.check_key_part("after", &query.after)?;
        limits.check_limit(query.limit, limits.keys_page, "keys_page")
    }

    async fn entries(
        &self,
        caller: &Caller,
        namespace: &str,
        query: &BankPageQuery,
        values: bool,
        now: Timestamp,
    ) -> Result<(Vec<BankEntry>, bool), BankError> {
        let asked = page_query(caller.tenant(), namespace, query, values, now);
        let reads = &self.engine.0.reads;
        let _steady = reads.steady().await;
        let found = self.knowledge().memory_page(&asked).await?;
        self.page_entries(&asked, query.limit, found)
    }

    /// The entries of a page as clients see them, and whether there are more.
    fn page_entries(
        &self,
        asked: &MemoryPageQuery,
        limit: usize,
        mut found: Vec<MemoryEntry>,
    ) -> Result<(Vec<BankEntry>, bool), BankError> {
        let more = found.len() > limit;
        found.truncate(limit);
        // One address for all of them: a page has a thousand keys.
        let mut key = MemoryKey {
            tenant: asked.tenant.clone(),
            namespace: asked.namespace.clone(),
            key: String::new(),
        };
        let entries = found.into_iter().map(|found| {
            key.key.clone_from(&found.key);
            self.entry(found, &key)
        });
        Ok((entries.collect::<Result<_, _>>()?, more))
    }

    fn named(&self, caller: &Caller, namespace: &str, key: &str) -> Result<MemoryKey, BankError> {
        self.limits().check_namespace(namespace)?;
        self.limits().check_key(key)?;
        Ok(MemoryKey { tenant: caller.tenant().into(), namespace: namespace.into(), key: key.into() })
    }

    fn allow(
        &self,
        caller: &Caller,
        action: Action,
        namespace: &str,
        operation: &'static str,
        uri: &str,
    ) -> Result<(), BankError> {
        let access =
            AccessRequest { action, kind: AccessKind::Memory, name: namespace, operation, resource: &uri };
        Ok(self.engine.allow(caller, &access)?)
    }

    /// An entry as clients see it: decrypted, and including reads that are not in the store yet.
    fn entry(&self, mut found: MemoryEntry, key: &MemoryKey) -> Result<BankEntry, BankError> {
        if found.value.is_empty() {
            return Ok(self.without_value(found, key));
        }
        let json = self.open_value(&mut found, key)?;
        let value = parse_value(&json, &found.key)?;
        Ok(BankEntry { value, ..self.without_value(found, key) })
    }

    /// The value of an entry, decrypted.
    fn open_value(&self, found: &mut MemoryEntry, key: &MemoryKey) -> Result<String, BankError> {
        let secret = || self.engine.derive_key(privacy::PURPOSE);
        Ok(privacy::open(secret, key, std::mem::take(&mut found.value))?)
    }

    fn without_value(&self, found: MemoryEntry, key: &MemoryKey) -> BankEntry {
        let (mut accessed, mut reads) = (found.accessed_at, found.reads);
        if let Some((more, at)) = self.engine.0.reads.of(key) {
            reads += more;
            accessed = accessed.max(at);
        }
        BankEntry {
            key: found.key,
            value: Value::Null,
            version: found.version,
            created: found.created_at,
            updated: found.updated_at,
            accessed,
            reads,
            size: found.size,
            ttl: found.ttl_ms.map(|ttl| ttl / 1_000),
        }
    }

    fn refusal(&self, error: crate::knowledge::MemoryError) -> BankError {
        BankError::from_store(error, self.limits())
    }

    fn knowledge(&self) -> &dyn Knowledge {
        self.engine.0.store.knowledge()
    }

    fn now(&self) -> Timestamp {
        self.engine.0.clock.now()
    }
}

/// Permission to write an export into a namespace; see [`Memory::begin_import`].
pub struct MemoryImport {
    memory: Memory,
    tenant: String,
    namespace: String,
}

impl MemoryImport {
    /// Whether the key exists. Does not count as a read.
    pub async fn exists(&self, key: &str) -> Result<bool, BankError> {
        self.memory.limits().check_key(key)?;
        let found = self.memory.knowledge().memory(&self.key(key), self.memory.now()).await?;
        Ok(found.is_some())
    }

    /// Writes one entry, as [`Memory::store`] does.
    pub async fn store(
        &self,
        key: &str,
        value: &Value,
        ttl: Option<Duration>,
        expected: ExpectedVersion,
    ) -> Result<MemoryWriteResult, BankError> {
        self.memory.limits().check_key(key)?;
        self.memory.put(self.key(key), value, ttl, expected).await
    }

    fn key(&self, key: &str) -> MemoryKey {
        MemoryKey { tenant: self.tenant.clone(), namespace: self.namespace.clone(), key: key.into() }
    }
}

impl EngineCore {
    /// Notifies subscribers that an entry was changed or deleted.
    pub(crate) fn memory_changed(&self, key: &MemoryKey) {
        self.notify_changed(&key.tenant, &data_uri(&key.namespace, &key.key));
        self.notify_changed_within(&key.tenant, &keys_uri(&key.namespace));
        self.notify_search_changed(&key.tenant, &search_uri(&key.namespace), &key.key);
    }

    /// Notifies subscribers of a namespace's keys, of any page of them, and of searches in it.
    pub(crate) fn namespace_changed(&self, tenant: &str, namespace: &str) {
        self.notify_changed_within(tenant, &keys_uri(namespace));
        self.notify_changed_within(tenant, &search_uri(namespace));
    }
}

/// The query of a page as the store takes it.
fn page_query(
    tenant: &str,
    namespace: &str,
    query: &BankPageQuery,
    values: bool,
    now: Timestamp,
) -> MemoryPageQuery {
    MemoryPageQuery {
        tenant: tenant.to_owned(),
        namespace: namespace.to_owned(),
        prefix: query.prefix.clone(),
        after: query.after.clone(),
        // One more than the page, to know whether there is a next one.
        limit: query.limit + usize::from(!values),
        values,
        now,
    }
}

/// A stored value, as a value or as a text that is JSON.
fn parse_value<'a, T: Deserialize<'a>>(json: &'a str, key: &str) -> Result<T, BankError> {
    serde_json::from_str(json)
        .map_err(|error| Error::Internal(format!("the value of {key:?} cannot be read back: {error}")).into())
}
