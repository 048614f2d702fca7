//! Memory bank operations, run as the caller that submitted the batch.

use std::time::Duration;

use nuncio_engine::{
    knowledge::{ExpectedVersion, MemoryQuery},
    memory::{BankEntry, BankError, words},
};
use serde_json::{Value, json};

use super::{
    input::{MemoryName, SearchMemory, StoreMemory},
    operation::{BatchContext, OperationFailure, OperationOutput},
};
use crate::resource::iso;

/// Entries that a search returns by default.
const SEARCH_LIMIT: usize = 10;

impl From<BankError> for OperationFailure {
    fn from(error: BankError) -> Self {
        match error {
            BankError::Engine(error) => error.into(),
            error => Self::of(error.to_string()),
        }
    }
}

pub(crate) async fn get(
    common: &BatchContext,
    name: &MemoryName,
) -> Result<OperationOutput, OperationFailure> {
    Ok(OperationOutput::of(entry_json(name, &find(common, name).await?)))
}

/// The bytes of an entry: a string as it is, any other value as JSON.
pub(crate) async fn bytes(common: &BatchContext, name: &MemoryName) -> Result<Vec<u8>, OperationFailure> {
    Ok(match find(common, name).await?.value {
        Value::String(text) => text.into_bytes(),
        value => value.to_string().into_bytes(),
    })
}

async fn find(common: &BatchContext, name: &MemoryName) -> Result<BankEntry, OperationFailure> {
    let found = common.engine.memory().get(&common.caller, &name.namespace, &name.key).await?;
    found.ok_or_else(|| {
        OperationFailure::of(format!("there is no key {:?} in {:?}", name.key, name.namespace))
    })
}

pub(crate) async fn store(
    common: &BatchContext,
    store: StoreMemory,
) -> Result<OperationOutput, OperationFailure> {
    let StoreMemory { namespace, key, value, ttl, expected_version } = store;
    let expected = match expected_version {
        None => ExpectedVersion::Any,
        Some(0) => ExpectedVersion::Absent,
        Some(version) => ExpectedVersion::Version(version),
    };
    let ttl = ttl.map(Duration::from_secs);
    let memory = common.engine.memory();
    let stored = match memory.store(&common.caller, &namespace, &key, &value, ttl, expected).await {
        Ok(stored) => stored.version,
        // An operation that a crash interrupted between the write and its journal record is repeated: the
        // version found then is the one that it wrote itself.
        Err(BankError::Moved { found: Some(found) }) if expected_version == Some(found.saturating_sub(1)) => {
            let there = memory.get(&common.caller, &namespace, &key).await?;
            match there.filter(|entry| entry.version == found && entry.value == value) {
                Some(_) => found,
                None => return Err(BankError::Moved { found: Some(found) }.into()),
            }
        }
        Err(error) => return Err(error.into()),
    };
    Ok(OperationOutput::of(json!({ "namespace": namespace, "key": key, "version": stored })))
}

pub(crate) async fn delete(
    common: &BatchContext,
    name: &MemoryName,
) -> Result<OperationOutput, OperationFailure> {
    let deleted = common.engine.memory().delete(&common.caller, &name.namespace, &name.key, None).await?;
    Ok(OperationOutput::of(
        json!({ "namespace": name.namespace, "key": name.key, "deleted": deleted.is_some() }),
    ))
}

pub(crate) async fn search(
    common: &BatchContext,
    search: &SearchMemory,
) -> Result<OperationOutput, OperationFailure> {
    let what = match (&search.pattern, &search.text) {
        (Some(pattern), _) => MemoryQuery::Keys(pattern.clone()),
        (None, text) => MemoryQuery::Words(words(text.as_deref().unwrap_or_default())),
    };
    let memory = common.engine.memory();
    let limit = search.limit.unwrap_or(SEARCH_LIMIT);
    let found = memory.search(&common.caller, &search.namespace, &what, 1, limit).await?;
    let results: Vec<Value> = found
        .results
        .iter()
        .map(|(entry, score)| json!({ "key": entry.key, "score": score, "value": entry.value }))
        .collect();
    let truncated = found.total > results.len() as u64;
    let output = json!({ "namespace": search.namespace, "total": found.total, "results": results });
    Ok(OperationOutput { output, truncated, skipped: None })
}

fn entry_json(name: &MemoryName, entry: &BankEntry) -> Value {
    json!({
        "namespace": name.namespace,
        "key": name.key,
        "value": entry.value,
        "version": entry.version,
        "updated": iso(entry.updated),
        "size": entry.size,
    })
}
