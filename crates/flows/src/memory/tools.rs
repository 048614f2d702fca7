//! The tools of the memory bank.
//!
//! Each returns structured content for programs, and a shorter text of the same content for clients that read
//! only text.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    Surface,
    knowledge::ExpectedVersion,
    memory::{BankPageQuery, data_uri},
    surface::{
        HandlerError, HandlerReply, SchemaError, ToolCall, ToolGroup, ToolOutput, TypedReply, TypedTool,
        structured_tool, typed_reply, typed_tool,
    },
};
use serde_json::json;

use super::{
    MemoryBank,
    api::{
        MemoryClearAnswer, MemoryClearRequest, MemoryDeleteAnswer, MemoryDeleteRequest, MemoryEntryAnswer,
        MemoryGetRequest, MemoryKeySummary, MemoryListAnswer, MemoryListRequest, MemorySearchAnswer,
        MemorySearchRequest, MemoryStoreAnswer, MemoryStoreRequest, NamespaceStats,
    },
    sought, transfer,
};
use crate::resource::iso;

pub(super) fn install(bank: &Arc<MemoryBank>, surface: &Surface) -> Result<(), SchemaError> {
    let memory = bank.memory();
    let limits = memory.limits();
    let (name, key) = (limits.namespace_bytes, limits.key_bytes);
    overwriting(typed_tool(
        "memory_store",
        "Stores a JSON value under a key of a namespace, durably. With ttl it is gone after so many seconds. With \
         expectedVersion it is only written if the entry is at that version (0: if there is none), so that nobody's \
         change is lost; otherwise it replaces whatever is there.",
        bank,
        store,
    ))
    .limit("namespace", "maxLength", name)
    .limit("key", "maxLength", key)
    .limit("ttl", "maximum", limits.longest_ttl.as_secs())
    // The one argument that may be null: it says the same as its absence.
    .limit("ttl", "type", json!(["integer", "null"]))
    .install(ToolGroup::Memory, surface)?;
    reading(structured_tool::<_, _, MemoryEntryAnswer, _, _>(
        "memory_get",
        "Reads the value of a key, with its version, when it was written and read, and how often it was read (this \
         time included).",
        bank,
        get,
    ))
    .limit("namespace", "maxLength", name)
    .limit("key", "maxLength", key)
    .install(ToolGroup::Memory, surface)?;
    overwriting(typed_tool(
        "memory_delete",
        "Deletes a key and its value. With expectedVersion only if the entry is at that version.",
        bank,
        delete,
    ))
    .limit("namespace", "maxLength", name)
    .limit("key", "maxLength", key)
    .install(ToolGroup::Memory, surface)?;
    reading(typed_tool(
        "memory_list",
        "Lists the keys of a namespace in their order, with their sizes in bytes and times; without a namespace, the \
         namespaces. Where there are more, next is what to give as after for the next page.",
        bank,
        list,
    ))
    .limit("namespace", "maxLength", name)
    .limit("limit", "maximum", limits.keys_page)
    .install(ToolGroup::Memory, surface)?;
    reading(typed_tool(
        "memory_search",
        "Searches a namespace, either by pattern or by text. Pattern: keys that fit it; * stands for any characters, ? \
         for one, [abc] or [a-z] for one of these, [!a] for any other; the score is the number of characters that the \
         pattern says literally divided by the number of characters of the key, rounded to four \
         digits, so that a key that is spelled out has 1 and * alone gives 0. Text: values that have all of these words \
         in them; the score is the store's own rank, from 0 to 1, which compares the results of one search with each \
         other. The best come first. The previews are filtered for secrets; memory_get reads the whole value.",
        bank,
        search,
    ))
    .limit("namespace", "maxLength", name)
    .limit("pattern", "maxLength", limits.pattern_bytes)
    .limit("text", "maxLength", limits.pattern_bytes)
    .limit("limit", "maximum", limits.search_page)
    .install(ToolGroup::Memory, surface)?;
    overwriting(typed_tool(
        "memory_clear",
        "Deletes all keys of a namespace. This cannot be undone: memory_export keeps a copy.",
        bank,
        clear,
    ))
    .limit("namespace", "maxLength", name)
    .install(ToolGroup::Memory, surface)?;
    reading(typed_tool(
        "memory_export",
        "Returns entries of a namespace with their values as JSON Lines, one {key, value, ttl, created} per line, in \
         the order of their keys. Where there are more, next is what to give as after for the next part. \
         memory_import takes the lines back.",
        bank,
        transfer::export,
    ))
    .limit("namespace", "maxLength", name)
    .limit("limit", "maximum", limits.keys_page)
    .limit("limit", "default", limits.keys_page)
    .install(ToolGroup::Memory, surface)?;
    overwriting(typed_tool(
        "memory_import",
        "Writes entries from JSON Lines as memory_export returns them: {key, value, ttl?, created?} per line; created is \
         not taken over, and ttl begins anew. All lines are checked first, and nothing is written when one is wrong. \
         mode says what happens to a key that there is already: overwrite it, keep what is there, or fail, which \
         writes nothing when there is one.",
        bank,
        transfer::import,
    ))
    .limit("namespace", "maxLength", name)
    .limit("lines", "maxLength", bank.options.import_bytes)
    .install(ToolGroup::Memory, surface)
}

/// The hints of a tool that only reads. No memory tool reaches outside this server.
fn reading(tool: TypedTool) -> TypedTool {
    hinted(tool, true, false)
}

/// The hints of a tool that replaces or deletes what is stored, and may be repeated.
fn overwriting(tool: TypedTool) -> TypedTool {
    hinted(tool, false, true)
}

fn hinted(tool: TypedTool, reads: bool, destroys: bool) -> TypedTool {
    tool.hint("readOnlyHint", reads)
        .hint("destructiveHint", destroys)
        .hint("idempotentHint", true)
        .hint("openWorldHint", false)
}

async fn store(bank: Arc<MemoryBank>, call: ToolCall<MemoryStoreRequest>) -> TypedReply<MemoryStoreAnswer> {
    let MemoryStoreRequest { namespace, key, value, ttl, expected_version } = call.input;
    let expected = match expected_version {
        None => ExpectedVersion::Any,
        Some(0) => ExpectedVersion::Absent,
        Some(version) => ExpectedVersion::Version(version),
    };
    let ttl = ttl.map(Duration::from_secs);
    let stored = bank.memory().store(&call.caller, &namespace, &key, &value, ttl, expected).await?;
    let (version, created) = (stored.version, iso(stored.created_at));
    let text = format!("Stored {key} in {namespace}: version {version}.");
    let uri = data_uri(&namespace, &key);
    typed_reply(text, MemoryStoreAnswer { namespace, key, uri, version, created })
}

async fn get(
    bank: Arc<MemoryBank>,
    call: ToolCall<MemoryGetRequest>,
) -> Result<HandlerReply<ToolOutput>, HandlerError> {
    let MemoryGetRequest { namespace, key } = call.input;
    let found = bank.memory().get_text(&call.caller, &namespace, &key).await?;
    let found = found.ok_or_else(|| {
        HandlerError::Failed(format!(
            "there is no key {key:?} in {namespace:?}: memory_list and memory_search show those that there are"
        ))
    })?;
    let structured = Some(MemoryEntryAnswer::structured(&namespace, &found)?);
    Ok(HandlerReply::Done(ToolOutput { structured, ..ToolOutput::text(found.json) }))
}

async fn delete(
    bank: Arc<MemoryBank>,
    call: ToolCall<MemoryDeleteRequest>,
) -> TypedReply<MemoryDeleteAnswer> {
    let MemoryDeleteRequest { namespace, key, expected_version } = call.input;
    let version = bank.memory().delete(&call.caller, &namespace, &key, expected_version).await?;
    let text = match version {
        Some(version) => format!("Deleted {key} from {namespace}, which was at version {version}."),
        None => format!("There was no {key} in {namespace}."),
    };
    typed_reply(text, MemoryDeleteAnswer { namespace, key, deleted: version.is_some(), version })
}

async fn clear(bank: Arc<MemoryBank>, call: ToolCall<MemoryClearRequest>) -> TypedReply<MemoryClearAnswer> {
    let MemoryClearRequest { namespace, confirm } = call.input;
    if !confirm {
        return Err(HandlerError::Invalid(
            "confirm: has to be true, to delete all keys of a namespace".into(),
        ));
    }
    let cleared = bank.memory().clear(&call.caller, &namespace).await?;
    let text = format!("Deleted {cleared} keys from {namespace}.");
    typed_reply(text, MemoryClearAnswer { namespace, cleared })
}

async fn list(bank: Arc<MemoryBank>, call: ToolCall<MemoryListRequest>) -> TypedReply<MemoryListAnswer> {
    let MemoryListRequest { namespace, prefix, after, limit } = call.input;
    let (prefix, after) = (prefix.unwrap_or_default(), after.unwrap_or_default());
    let memory = bank.memory();
    let Some(namespace) = namespace else {
        let page = memory.namespaces(&call.caller, &prefix, &after, limit).await?;
        let text = match page.names.as_slice() {
            [] => "There are no namespaces.".into(),
            names => names.join("\n"),
        };
        let namespaces = Some(page.names);
        return typed_reply(text, MemoryListAnswer { namespaces, next: page.next, ..Default::default() });
    };
    let page = memory.page(&call.caller, &namespace, &BankPageQuery { prefix, after, limit }).await?;
    let page = page.ok_or_else(|| {
        HandlerError::Failed(format!(
            "there is nothing in {namespace:?}: memory_list without a namespace names those that hold something"
        ))
    })?;
    let keys: Vec<&str> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
    let text = format!("{} of {} keys:\n{}", keys.len(), page.stats.entries, keys.join("\n"));
    let next = page.entries.last().filter(|_| page.more).map(|entry| entry.key.clone());
    let answer = MemoryListAnswer {
        namespaces: None,
        namespace: Some(namespace),
        keys: Some(MemoryKeySummary::all(page.entries)),
        stats: Some(NamespaceStats::of(&page.stats)),
        next,
    };
    typed_reply(text, answer)
}

async fn search(
    bank: Arc<MemoryBank>,
    call: ToolCall<MemorySearchRequest>,
) -> TypedReply<MemorySearchAnswer> {
    let MemorySearchRequest { namespace, pattern, text, page, limit } = call.input;
    let given = (pattern.as_deref(), text.as_deref());
    let what = sought(given.0, given.1)?;
    let found = bank.memory().search(&call.caller, &namespace, &what, page, limit).await?;
    let answer = MemorySearchAnswer::of(bank.engine.redactor(), &namespace, given, &found, page, limit);
    let mut text = format!("{} found.", found.total);
    for result in &answer.results {
        text += &format!("\n{} ({}): {}", result.key, json!(result.score), result.preview);
    }
    typed_reply(text, answer)
}
