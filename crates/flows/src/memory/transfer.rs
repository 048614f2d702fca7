//! Export and import of the memory bank as JSON Lines: one `{"key", "value", "ttl", "created"}` per line.
//!
//! An import is validated as a whole before any line is written. `ttl` counts from the import. `created` is
//! informational: an imported entry has the time of the import as its creation time.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use nuncio_engine::{
    Memory,
    knowledge::ExpectedVersion,
    memory::{BankError, BankPageQuery, MemoryImport},
    surface::{HandlerError, HandlerReply, ToolCall, TypedOutput, TypedReply, typed_reply},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    MemoryBank, MemoryOptions,
    api::{
        MemoryExportAnswer, MemoryExportRequest, MemoryImportAnswer, MemoryImportFailure, MemoryImportMode,
        MemoryImportRequest,
    },
};
use crate::resource::iso;

/// Concurrent writes of an import; the store commits them together.
const AT_ONCE: usize = 32;
/// Maximum errors that are listed one by one.
const TOLD: usize = 100;

pub(super) async fn export(
    bank: Arc<MemoryBank>,
    call: ToolCall<MemoryExportRequest>,
) -> TypedReply<MemoryExportAnswer> {
    let MemoryExportRequest { namespace, after, limit } = call.input;
    let memory = bank.memory();
    let limit = limit.unwrap_or(memory.limits().keys_page);
    let query = BankPageQuery { prefix: String::new(), after: after.unwrap_or_default(), limit };
    let (entries, more) = memory.export(&call.caller, &namespace, &query, bank.options.export_bytes).await?;
    let mut lines = String::new();
    for entry in &entries {
        let line = json!({
            "key": entry.key,
            "value": entry.value,
            "ttl": entry.ttl,
            "created": iso(entry.created),
        });
        lines += &line.to_string();
        lines.push('\n');
    }
    let next = entries.last().filter(|_| more).map(|last| last.key.clone());
    let count = entries.len() as u64;
    typed_reply(lines.clone(), MemoryExportAnswer { namespace, count, lines, next })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryImportLine {
    key: String,
    value: Value,
    ttl: Option<u64>,
    #[serde(rename = "created")]
    _created: Option<String>,
}

/// A line that can be written, or why it is invalid.
type MemoryLineCheck = Result<MemoryImportLine, String>;

/// The outcome of an import.
#[derive(Default)]
struct MemoryImportOutcome {
    written: u64,
    skipped: u64,
    errors: Vec<(usize, String)>,
}

pub(super) async fn import(
    bank: Arc<MemoryBank>,
    call: ToolCall<MemoryImportRequest>,
) -> TypedReply<MemoryImportAnswer> {
    let MemoryImportRequest { namespace, lines, mode } = call.input;
    let memory = bank.memory();
    let import = memory.begin_import(&call.caller, &namespace)?;
    let (good, errors) = read(&memory, &bank.options, &namespace, &lines)?;
    let mut outcome = MemoryImportOutcome { errors, ..MemoryImportOutcome::default() };
    if outcome.errors.is_empty() && mode == MemoryImportMode::Fail {
        outcome.errors = existing(&import, &good).await?;
    }
    if outcome.errors.is_empty() {
        outcome = write(&import, good, mode).await;
    }
    outcome.errors.sort();
    let failed = outcome.errors.len();
    let mut text = format!("{} written, {} kept, {failed} failed.", outcome.written, outcome.skipped);
    let mut errors = vec![];
    for (line, error) in outcome.errors.into_iter().take(TOLD) {
        text += &format!("\nline {line}: {error}");
        errors.push(MemoryImportFailure { line: line as u64, error });
    }
    let (written, kept) = (outcome.written, outcome.skipped);
    let value = MemoryImportAnswer { namespace, written, kept, failed: failed as u64, errors };
    Ok(HandlerReply::Done(TypedOutput { text, value, is_error: failed > 0 }))
}

/// Parses the lines, each with its number, and checks everything that can be checked without writing.
#[allow(clippy::type_complexity, reason = "good lines and bad ones, each with its number")]
fn read(
    memory: &Memory,
    options: &MemoryOptions,
    namespace: &str,
    lines: &str,
) -> Result<(Vec<(usize, MemoryImportLine)>, Vec<(usize, String)>), HandlerError> {
    let wrong = |why: String| Err(HandlerError::Invalid(format!("lines: {why}")));
    if lines.len() > options.import_bytes {
        let most = options.import_bytes;
        return wrong(format!("has {} bytes, and may have {most} (import_bytes): import parts", lines.len()));
    }
    let numbered = || lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let count = numbered().count();
    if count > options.import_lines {
        let most = options.import_lines;
        return wrong(format!("has {count} lines, and may have {most} (import_lines): import parts"));
    }
    let (mut good, mut bad) = (vec![], vec![]);
    let mut keys = HashMap::new();
    for (at, line) in numbered() {
        match checked(memory, namespace, line) {
            Ok(line) => {
                if let Some(first) = keys.insert(line.key.clone(), at + 1) {
                    bad.push((at + 1, format!("key: {:?} stands in line {first}, too", line.key)));
                }
                good.push((at + 1, line));
            }
            Err(why) => bad.push((at + 1, why)),
        }
    }
    Ok((good, bad))
}

fn checked(memory: &Memory, namespace: &str, line: &str) -> MemoryLineCheck {
    let line: MemoryImportLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let ttl = line.ttl.map(Duration::from_secs);
    memory.check_entry(namespace, &line.key, ttl).map_err(|error| error.to_string())?;
    memory.check_value(&line.value).map_err(|error| error.to_string())?;
    Ok(line)
}

/// The lines whose keys already exist.
async fn existing(
    import: &MemoryImport,
    lines: &[(usize, MemoryImportLine)],
) -> Result<Vec<(usize, String)>, HandlerError> {
    let keys: Vec<(usize, String)> = lines.iter().map(|(at, line)| (*at, line.key.clone())).collect();
    let found: Vec<Result<_, BankError>> = stream::iter(keys)
        .map(async |(at, key)| {
            let there = import.exists(&key).await?;
            Ok(there.then(|| (at, format!("key: {key:?} is there already (mode fail)"))))
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut errors = vec![];
    for found in found {
        errors.extend(found?);
    }
    Ok(errors)
}

async fn write(
    import: &MemoryImport,
    lines: Vec<(usize, MemoryImportLine)>,
    mode: MemoryImportMode,
) -> MemoryImportOutcome {
    let expected =
        if mode == MemoryImportMode::Overwrite { ExpectedVersion::Any } else { ExpectedVersion::Absent };
    let mut writes = stream::iter(lines)
        .map(async |(at, line)| {
            let ttl = line.ttl.map(Duration::from_secs);
            (at, import.store(&line.key, &line.value, ttl, expected).await)
        })
        .buffer_unordered(AT_ONCE);
    let mut outcome = MemoryImportOutcome::default();
    while let Some((at, stored)) = writes.next().await {
        match stored {
            Ok(_) => outcome.written += 1,
            Err(BankError::Moved { .. }) if mode == MemoryImportMode::Keep => outcome.skipped += 1,
            Err(error) => outcome.errors.push((at, error.to_string())),
        }
    }
    outcome
}
