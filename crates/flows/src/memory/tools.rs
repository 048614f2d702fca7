//! The tools of the memory bank.
//!
//! Each returns structured content for programs, and a shorter text of the same content for clients that read
//! only text.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    Surface,
    knowledge::ExpectedVersion,
    memory::{BankPageQuery, MemoryLimits, data_uri},
    surface::{
        ContentBlock, HandlerError, HandlerReply, HandlerRequest, SchemaError, ToolOutput, ToolProfile, tool,
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{MemoryBank, entry_json, resources::SEARCH_LIMIT, schemas, sought, transfer};
use crate::resource::iso;

/// The result of a memory tool.
pub(super) type MemoryToolResult = Result<HandlerReply<ToolOutput>, HandlerError>;

/// Keys on a page of a list by default. It is short because a model reads it.
const LIST_LIMIT: usize = 100;

pub(super) fn install(bank: &Arc<MemoryBank>, surface: &Surface) -> Result<(), SchemaError> {
    let memory = bank.memory();
    let limits = memory.limits();
    add(surface, bank, store_profile(limits), store)?;
    add(surface, bank, get_profile(limits), get)?;
    add(surface, bank, delete_profile(limits), delete)?;
    add(surface, bank, list_profile(limits), list)?;
    add(surface, bank, search_profile(limits), search)?;
    add(surface, bank, clear_profile(limits), clear)?;
    add(surface, bank, transfer::export_profile(limits), transfer::export)?;
    add(surface, bank, transfer::import_profile(limits, &bank.options), transfer::import)
}

fn add<A>(
    surface: &Surface,
    bank: &Arc<MemoryBank>,
    profile: ToolProfile,
    answer: fn(Arc<MemoryBank>, HandlerRequest) -> A,
) -> Result<(), SchemaError>
where
    A: Future<Output = MemoryToolResult> + Send + 'static,
{
    let bank = Arc::clone(bank);
    surface.add_tool(tool(profile, move |request| answer(Arc::clone(&bank), request)))
}

// ------------------------------------------------------------------------------------------ store and get

fn store_profile(limits: &MemoryLimits) -> ToolProfile {
    let profile = ToolProfile::new(
        "memory_store",
        "Stores a JSON value under a key of a namespace, durably. With ttl it is gone after so many seconds. With \
         expectedVersion it is only written if the entry is at that version (0: if there is none), so that nobody's \
         change is lost; otherwise it replaces whatever is there.",
    );
    let longest = limits.longest_ttl.as_secs();
    let input = schemas::object(&[
        ("namespace", namespace(limits)),
        ("key", key(limits)),
        ("value", json!({ "description": "Any JSON value." })),
        (
            "ttl?",
            json!({
                "type": ["integer", "null"], "minimum": 1, "maximum": longest,
                "description": "Seconds; null: until it is deleted.",
            }),
        ),
        ("expectedVersion?", version(0)),
    ]);
    let output = schemas::object(&[
        ("namespace", schemas::text()),
        ("key", schemas::text()),
        ("uri", schemas::described("string", "Where it can be read, and followed.")),
        ("version", version(1)),
        ("created", schemas::time()),
    ]);
    hints(
        profile.input(input).output(output),
        MemoryToolHints { destructive: true, idempotent: true, ..WRITES },
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MemoryStoreArgs {
    namespace: String,
    key: String,
    value: Value,
    ttl: Option<u64>,
    expected_version: Option<u64>,
}

async fn store(bank: Arc<MemoryBank>, request: HandlerRequest) -> MemoryToolResult {
    let MemoryStoreArgs { namespace, key, value, ttl, expected_version } = arguments(request.arguments)?;
    let expected = match expected_version {
        None => ExpectedVersion::Any,
        Some(0) => ExpectedVersion::Absent,
        Some(version) => ExpectedVersion::Version(version),
    };
    let ttl = ttl.map(Duration::from_secs);
    let stored = bank.memory().store(&request.caller, &namespace, &key, &value, ttl, expected).await?;
    let text = format!("Stored {key} in {namespace}: version {}.", stored.version);
    let uri = data_uri(&namespace, &key);
    let (version, created) = (stored.version, iso(stored.created_at));
    tool_reply(
        text,
        json!({ "namespace": namespace, "key": key, "uri": uri, "version": version, "created": created }),
    )
}

fn get_profile(limits: &MemoryLimits) -> ToolProfile {
    let profile = ToolProfile::new(
        "memory_get",
        "Reads the value of a key, with its version, when it was written and read, and how often it was read (this \
         time included).",
    );
    let input = schemas::object(&[("namespace", namespace(limits)), ("key", key(limits))]);
    hints(profile.input(input).output(schemas::data()), READS)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryGetArgs {
    namespace: String,
    key: String,
}

async fn get(bank: Arc<MemoryBank>, request: HandlerRequest) -> MemoryToolResult {
    let MemoryGetArgs { namespace, key } = arguments(request.arguments)?;
    let entry = bank.memory().get(&request.caller, &namespace, &key).await?;
    let entry = entry.ok_or_else(|| {
        HandlerError::Failed(format!(
            "there is no key {key:?} in {namespace:?}: memory_list and memory_search show those that there are"
        ))
    })?;
    tool_reply(entry.value.to_string(), entry_json::data(&namespace, &entry))
}

// ------------------------------------------------------------------------------------------------ delete

fn delete_profile(limits: &MemoryLimits) -> ToolProfile {
    let profile = ToolProfile::new(
        "memory_delete",
        "Deletes a key and its value. With expectedVersion only if the entry is at that version.",
    );
    let input = schemas::object(&[
        ("namespace", namespace(limits)),
        ("key", key(limits)),
        ("expectedVersion?", version(1)),
    ]);
    let output = schemas::object(&[
        ("namespace", schemas::text()),
        ("key", schemas::text()),
        ("deleted", schemas::described("boolean", "Whether there was one.")),
        ("version", json!({ "type": ["integer", "null"], "description": "The version that it had." })),
    ]);
    hints(
        profile.input(input).output(output),
        MemoryToolHints { destructive: true, idempotent: true, ..WRITES },
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MemoryDeleteArgs {
    namespace: String,
    key: String,
    expected_version: Option<u64>,
}

async fn delete(bank: Arc<MemoryBank>, request: HandlerRequest) -> MemoryToolResult {
    let MemoryDeleteArgs { namespace, key, expected_version } = arguments(request.arguments)?;
    let version = bank.memory().delete(&request.caller, &namespace, &key, expected_version).await?;
    let text = match version {
        Some(version) => format!("Deleted {key} from {namespace}, which was at version {version}."),
        None => format!("There was no {key} in {namespace}."),
    };
    let deleted = version.is_some();
    tool_reply(text, json!({ "namespace": namespace, "key": key, "deleted": deleted, "version": version }))
}

fn clear_profile(limits: &MemoryLimits) -> ToolProfile {
    let profile = ToolProfile::new(
        "memory_clear",
        "Deletes all keys of a namespace. This cannot be undone: memory_export keeps a copy.",
    );
    let input = schemas::object(&[
        ("namespace", namespace(limits)),
        ("confirm", json!({ "const": true, "description": "Has to be true." })),
    ]);
    let output = schemas::object(&[("namespace", schemas::text()), ("cleared", schemas::count())]);
    hints(
        profile.input(input).output(output),
        MemoryToolHints { destructive: true, idempotent: true, ..WRITES },
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryClearArgs {
    namespace: String,
    confirm: bool,
}

async fn clear(bank: Arc<MemoryBank>, request: HandlerRequest) -> MemoryToolResult {
    let MemoryClearArgs { namespace, confirm } = arguments(request.arguments)?;
    if !confirm {
        return Err(HandlerError::Invalid(
            "confirm: has to be true, to delete all keys of a namespace".into(),
        ));
    }
    let cleared = bank.memory().clear(&request.caller, &namespace).await?;
    tool_reply(
        format!("Deleted {cleared} keys from {namespace}."),
        json!({ "namespace": namespace, "cleared": cleared }),
    )
}

// ---------------------------------------------------------------------------------------- list and search

fn list_profile(limits: &MemoryLimits) -> ToolProfile {
    let profile = ToolProfile::new(
        "memory_list",
        "Lists the keys of a namespace in their order, with their sizes in bytes and times; without a namespace, the \
         namespaces. Where there are more, next is what to give as after for the next page.",
    );
    let input = schemas::object(&[
        ("namespace?", namespace(limits)),
        ("prefix?", schemas::described("string", "Only names that begin so.")),
        ("after?", schemas::described("string", "Only names after this one.")),
        ("limit?", limit(limits.keys_page, LIST_LIMIT)),
    ]);
    let mut output = schemas::object(&[
        ("namespaces?", json!({ "type": "array", "items": { "type": "string" } })),
        ("namespace?", schemas::text()),
        ("keys?", json!({ "type": "array", "items": schemas::key() })),
        ("stats?", schemas::stats()),
        ("next?", schemas::text()),
    ]);
    output["oneOf"] = json!([{ "required": ["namespaces"] }, { "required": ["namespace", "keys", "stats"] }]);
    hints(profile.input(input).output(output), READS)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryListArgs {
    namespace: Option<String>,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    after: String,
    limit: Option<usize>,
}

async fn list(bank: Arc<MemoryBank>, request: HandlerRequest) -> MemoryToolResult {
    let MemoryListArgs { namespace, prefix, after, limit } = arguments(request.arguments)?;
    let (memory, caller, limit) = (bank.memory(), &request.caller, limit.unwrap_or(LIST_LIMIT));
    let Some(namespace) = namespace else {
        let page = memory.namespaces(caller, &prefix, &after, limit).await?;
        let text = match page.names.as_slice() {
            [] => "There are no namespaces.".into(),
            names => names.join("\n"),
        };
        let mut listed = json!({ "namespaces": page.names });
        if let Some(next) = page.next {
            listed["next"] = next.into();
        }
        return tool_reply(text, listed);
    };
    let page = memory.page(caller, &namespace, &BankPageQuery { prefix, after, limit }).await?;
    let page = page.ok_or_else(|| {
        HandlerError::Failed(format!(
            "there is nothing in {namespace:?}: memory_list without a namespace names those that hold something"
        ))
    })?;
    let keys: Vec<&str> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
    let text = format!("{} of {} keys:\n{}", keys.len(), page.stats.entries, keys.join("\n"));
    let next = page.entries.last().filter(|_| page.more).map(|entry| entry.key.clone());
    tool_reply(text, entry_json::keys(&namespace, &page.stats, &page.entries, next))
}

fn search_profile(limits: &MemoryLimits) -> ToolProfile {
    let profile = ToolProfile::new(
        "memory_search",
        "Searches a namespace, either by pattern or by text. Pattern: keys that fit it; * stands for any characters, ? \
         for one, [abc] or [a-z] for one of these, [!a] for any other; the score is the number of characters that the \
         pattern says literally divided by the number of characters of the key, rounded to four \
         digits, so that a key that is spelled out has 1 and * alone gives 0. Text: values that have all of these words \
         in them; the score is the store's own rank, from 0 to 1, which compares the results of one search with each \
         other. The best come first. The previews are filtered for secrets; memory_get reads the whole value.",
    );
    let most = limits.pattern_bytes;
    let input = schemas::object(&[
        ("namespace", namespace(limits)),
        (
            "pattern?",
            json!({ "type": "string", "minLength": 1, "maxLength": most, "examples": ["task:*:notes"] }),
        ),
        ("text?", json!({ "type": "string", "minLength": 1, "maxLength": most, "examples": ["green tea"] })),
        ("page?", json!({ "type": "integer", "minimum": 1, "default": 1 })),
        ("limit?", limit(limits.search_page, SEARCH_LIMIT)),
    ]);
    hints(profile.input(input).output(schemas::search()), READS)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemorySearchArgs {
    namespace: String,
    pattern: Option<String>,
    text: Option<String>,
    page: Option<u32>,
    limit: Option<usize>,
}

async fn search(bank: Arc<MemoryBank>, request: HandlerRequest) -> MemoryToolResult {
    let MemorySearchArgs { namespace, pattern, text, page, limit } = arguments(request.arguments)?;
    let given = (pattern.as_deref(), text.as_deref());
    let what = sought(given.0, given.1)?;
    let (page, limit) = (page.unwrap_or(1), limit.unwrap_or(SEARCH_LIMIT));
    let found = bank.memory().search(&request.caller, &namespace, &what, page, limit).await?;
    let shown = entry_json::found(bank.engine.redactor(), &namespace, given, &found, page, limit);
    let mut text = format!("{} found.", found.total);
    for result in shown["results"].as_array().into_iter().flatten() {
        let (key, preview) = (result["key"].as_str(), result["preview"].as_str());
        text += &format!("\n{} ({}): {}", key.unwrap_or(""), result["score"], preview.unwrap_or(""));
    }
    tool_reply(text, shown)
}

// ---------------------------------------------------------------------------------------------- shorthand

/// Parses the arguments of a call. Calls from outside are already validated against the schema.
pub(super) fn arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, HandlerError> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| HandlerError::Invalid(error.to_string()))
}

pub(super) fn tool_reply(text: String, structured: Value) -> MemoryToolResult {
    let content = vec![ContentBlock::Text(text)];
    Ok(HandlerReply::Done(ToolOutput { content, structured: Some(structured), is_error: false }))
}

pub(super) fn namespace(limits: &MemoryLimits) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": limits.namespace_bytes })
}

fn key(limits: &MemoryLimits) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": limits.key_bytes })
}

fn version(from: u64) -> Value {
    json!({ "type": "integer", "minimum": from })
}

pub(super) fn limit(most: usize, default: usize) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": most, "default": default })
}

/// The hints about a tool that a client gets before calling it. No memory tool reaches outside this server.
#[derive(Clone, Copy)]
pub(super) struct MemoryToolHints {
    pub(super) read_only: bool,
    pub(super) destructive: bool,
    pub(super) idempotent: bool,
}

/// The hints of a tool that only reads.
pub(super) const READS: MemoryToolHints =
    MemoryToolHints { read_only: true, destructive: false, idempotent: true };
/// The hints of a tool that writes.
pub(super) const WRITES: MemoryToolHints =
    MemoryToolHints { read_only: false, destructive: false, idempotent: false };

pub(super) fn hints(profile: ToolProfile, hints: MemoryToolHints) -> ToolProfile {
    let annotations = [
        ("readOnlyHint", hints.read_only),
        ("destructiveHint", hints.destructive),
        ("idempotentHint", hints.idempotent),
        ("openWorldHint", false),
    ];
    let annotations = annotations.into_iter().map(|(name, hint)| (name.to_owned(), hint.into())).collect();
    ToolProfile { annotations, ..profile }
}
