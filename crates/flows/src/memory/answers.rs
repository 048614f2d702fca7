//! The answers of the memory bank, made from the entries of the engine.

use nuncio_engine::{
    knowledge::{MemoryStats, SEARCHED_BYTES},
    memory::{BankEntry, BankEntryText, BankError, BankSearchPage},
    redact::Redactor,
};

use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{
    api::{
        MemoryEntryAnswer, MemoryKeySummary, MemoryMetadata, MemoryPagination, MemorySearchAnswer,
        MemorySearchResult, NamespaceStats,
    },
    preview::preview,
};
use crate::resource::{iso, plain_value};

/// [`MemoryEntryAnswer`] with the text of the value, which is written as it is stored.
#[derive(Serialize)]
pub(super) struct MemoryEntryText<'a> {
    key: &'a str,
    value: &'a RawValue,
    metadata: MemoryMetadata,
}

impl<'a> MemoryEntryText<'a> {
    pub(super) fn of(namespace: &str, found: &'a BankEntryText) -> Result<Self, BankError> {
        let metadata = MemoryMetadata::of(namespace, &found.entry);
        Ok(Self { key: &found.entry.key, value: found.raw()?, metadata })
    }
}

impl MemoryEntryAnswer {
    /// The answer as a value, into which the entry's value is moved: it may be large.
    pub(super) fn structured(namespace: &str, found: &BankEntryText) -> Result<Value, BankError> {
        let metadata = MemoryMetadata::of(namespace, &found.entry);
        let mut answer = plain_value(&Self { key: found.entry.key.clone(), value: Value::Null, metadata });
        answer["value"] = found.value()?;
        Ok(answer)
    }
}

impl MemoryMetadata {
    fn of(namespace: &str, entry: &BankEntry) -> Self {
        Self {
            namespace: namespace.to_owned(),
            created: iso(entry.created),
            updated: iso(entry.updated),
            accessed: iso(entry.accessed),
            access_count: entry.reads,
            ttl: entry.ttl,
            version: entry.version,
            size: entry.size,
        }
    }
}

impl MemoryKeySummary {
    pub(super) fn all(entries: Vec<BankEntry>) -> Vec<Self> {
        let summary = |entry: BankEntry| Self {
            key: entry.key,
            created: iso(entry.created),
            accessed: iso(entry.accessed),
            size: entry.size,
            ttl: entry.ttl,
        };
        entries.into_iter().map(summary).collect()
    }
}

impl NamespaceStats {
    pub(super) fn of(stats: &MemoryStats) -> Self {
        Self { total: stats.entries, size: stats.bytes, oldest_entry: iso(stats.oldest) }
    }
}

impl MemorySearchAnswer {
    pub(super) fn of(
        redactor: &Redactor,
        namespace: &str,
        (pattern, text): (Option<&str>, Option<&str>),
        found: &BankSearchPage,
        page: u32,
        limit: usize,
    ) -> Self {
        let result = |(entry, score): &(BankEntry, f64)| MemorySearchResult {
            key: entry.key.clone(),
            score: *score,
            preview: match entry.size <= SEARCHED_BYTES {
                true => preview(redactor, &entry.value),
                // The value was not read for this page.
                false => format!("… {} bytes", entry.size),
            },
            metadata: MemoryMetadata::of(namespace, entry),
        };
        Self {
            pattern: pattern.map(str::to_owned),
            text: text.map(str::to_owned),
            namespace: namespace.to_owned(),
            results: found.results.iter().map(result).collect(),
            pagination: MemoryPagination { total: found.total, page, limit },
        }
    }
}
