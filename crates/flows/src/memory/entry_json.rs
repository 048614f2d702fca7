//! Memory bank entries as JSON, in the format of `schemas.rs`.

use nuncio_engine::{
    knowledge::{MemoryStats, SEARCHED_BYTES},
    memory::{BankEntry, BankSearchPage},
    redact::Redactor,
};
use serde_json::{Value, json};

use super::preview::preview;
use crate::resource::iso;

/// One entry with its value and metadata.
pub(super) fn data(namespace: &str, entry: &BankEntry) -> Value {
    json!({ "key": entry.key, "value": entry.value, "metadata": metadata(namespace, entry) })
}

/// The metadata of an entry.
fn metadata(namespace: &str, entry: &BankEntry) -> Value {
    json!({
        "namespace": namespace,
        "created": iso(entry.created),
        "updated": iso(entry.updated),
        "accessed": iso(entry.accessed),
        "accessCount": entry.reads,
        "ttl": entry.ttl,
        "version": entry.version,
        "size": entry.size,
    })
}

/// A page of keys of a namespace; `next` is the cursor of the next page.
pub(super) fn keys(
    namespace: &str,
    stats: &MemoryStats,
    entries: &[BankEntry],
    next: Option<String>,
) -> Value {
    let key = |entry: &BankEntry| {
        json!({
            "key": entry.key,
            "created": iso(entry.created),
            "accessed": iso(entry.accessed),
            "size": entry.size,
            "ttl": entry.ttl,
        })
    };
    let mut keys = json!({
        "namespace": namespace,
        "keys": entries.iter().map(key).collect::<Vec<_>>(),
        "stats": { "total": stats.entries, "size": stats.bytes, "oldestEntry": iso(stats.oldest) },
    });
    if let Some(next) = next {
        keys["next"] = next.into();
    }
    keys
}

/// A page of search results.
pub(super) fn found(
    redactor: &Redactor,
    namespace: &str,
    (pattern, text): (Option<&str>, Option<&str>),
    found: &BankSearchPage,
    page: u32,
    limit: usize,
) -> Value {
    let result = |(entry, score): &(BankEntry, f64)| {
        json!({
            "key": entry.key,
            "score": score,
            "preview": match entry.size <= SEARCHED_BYTES {
                true => preview(redactor, &entry.value),
                // The value was not read for this page.
                false => format!("… {} bytes", entry.size),
            },
            "metadata": metadata(namespace, entry),
        })
    };
    let mut shown = json!({
        "pattern": pattern,
        "namespace": namespace,
        "results": found.results.iter().map(result).collect::<Vec<_>>(),
        "pagination": { "total": found.total, "page": page, "limit": limit },
    });
    if let Some(text) = text {
        shown["text"] = text.into();
    }
    shown
}
