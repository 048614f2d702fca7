//! The contract of the memory bank: what its tools take, and what its tools and resources answer. The doc
//! comments of the fields are published as their descriptions.

#![allow(missing_docs, reason = "a doc comment is published; most names say enough")]

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LIST_LIMIT, SEARCH_LIMIT};

// ---------------------------------------------------------------------------------------------- requests

/// The arguments of `memory_store`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemoryStoreRequest {
    #[schemars(length(min = 1))]
    pub namespace: String,
    #[schemars(length(min = 1))]
    pub key: String,
    /// Any JSON value.
    pub value: Value,
    /// Seconds; null: until it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
}

/// The arguments of `memory_get`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryGetRequest {
    #[schemars(length(min = 1))]
    pub namespace: String,
    #[schemars(length(min = 1))]
    pub key: String,
}

/// The arguments of `memory_delete`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemoryDeleteRequest {
    #[schemars(length(min = 1))]
    pub namespace: String,
    #[schemars(length(min = 1))]
    pub key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub expected_version: Option<u64>,
}

/// The arguments of `memory_clear`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryClearRequest {
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Has to be true.
    #[schemars(schema_with = "only_true")]
    pub confirm: bool,
}

/// The arguments of `memory_list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryListRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub namespace: Option<String>,
    /// Only names that begin so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Only names after this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(default = "list_limit")]
    #[schemars(range(min = 1))]
    pub limit: usize,
}

/// The arguments of `memory_search`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySearchRequest {
    #[schemars(length(min = 1))]
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("examples" = ["task:*:notes"]))]
    pub pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("examples" = ["green tea"]))]
    pub text: Option<String>,
    #[serde(default = "first_page")]
    #[schemars(range(min = 1))]
    pub page: u32,
    #[serde(default = "search_limit")]
    #[schemars(range(min = 1))]
    pub limit: usize,
}

/// The arguments of `memory_export`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryExportRequest {
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Only keys after this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
}

/// The arguments of `memory_import`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryImportRequest {
    #[schemars(length(min = 1))]
    pub namespace: String,
    pub lines: String,
    pub mode: MemoryImportMode,
}

/// What an import does with a key that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemoryImportMode {
    /// Overwrites it.
    Overwrite,
    /// Leaves it as it is.
    Keep,
    /// Writes nothing at all.
    Fail,
}

fn list_limit() -> usize {
    LIST_LIMIT
}

fn search_limit() -> usize {
    SEARCH_LIMIT
}

fn first_page() -> u32 {
    1
}

fn only_true(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "const": true })
}

// ----------------------------------------------------------------------------------------------- answers

/// The answer of `memory_store`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStoreAnswer {
    pub namespace: String,
    pub key: String,
    /// Where it can be read, and followed.
    pub uri: String,
    #[schemars(range(min = 1))]
    pub version: u64,
    #[schemars(schema_with = "time")]
    pub created: String,
}

/// The answer of `memory_get` and the content of `memory://data/{namespace}/{key}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryEntryAnswer {
    pub key: String,
    pub value: Value,
    pub metadata: MemoryMetadata,
}

/// The metadata of an entry.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryMetadata {
    pub namespace: String,
    #[schemars(schema_with = "time")]
    pub created: String,
    #[schemars(schema_with = "time")]
    pub updated: String,
    #[schemars(schema_with = "time")]
    pub accessed: String,
    pub access_count: u64,
    /// For how many seconds it is kept since it was last written; null: until it is deleted.
    #[schemars(range(min = 1))]
    pub ttl: Option<u64>,
    #[schemars(range(min = 1))]
    pub version: u64,
    pub size: u64,
}

/// The answer of `memory_delete`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryDeleteAnswer {
    pub namespace: String,
    pub key: String,
    /// Whether there was one.
    pub deleted: bool,
    /// The version that it had.
    pub version: Option<u64>,
}

/// The answer of `memory_clear`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryClearAnswer {
    pub namespace: String,
    pub cleared: u64,
}

/// The answer of `memory_list`: namespaces, or the keys of one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{ "required": ["namespaces"] }, { "required": ["namespace", "keys", "stats"] }]))]
pub struct MemoryListAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<MemoryKeySummary>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<NamespaceStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The content of `memory://namespace/{namespace}/keys`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryKeysAnswer {
    pub namespace: String,
    pub keys: Vec<MemoryKeySummary>,
    pub stats: NamespaceStats,
    /// The address of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A key in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryKeySummary {
    pub key: String,
    #[schemars(schema_with = "time")]
    pub created: String,
    #[schemars(schema_with = "time")]
    pub accessed: String,
    pub size: u64,
    /// For how many seconds it is kept since it was last written; null: until it is deleted.
    #[schemars(range(min = 1))]
    pub ttl: Option<u64>,
}

/// The totals of a namespace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceStats {
    pub total: u64,
    pub size: u64,
    #[schemars(schema_with = "time")]
    pub oldest_entry: String,
}

/// The answer of `memory_search` and the content of `memory://search/{namespace}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemorySearchAnswer {
    /// Null where words were searched for.
    pub pattern: Option<String>,
    /// The words that were searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub namespace: String,
    pub results: Vec<MemorySearchResult>,
    pub pagination: MemoryPagination,
}

/// An entry that a search found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemorySearchResult {
    pub key: String,
    #[schemars(range(min = 0, max = 1))]
    pub score: f64,
    pub preview: String,
    pub metadata: MemoryMetadata,
}

/// Which page of the results it is.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryPagination {
    pub total: u64,
    #[schemars(range(min = 1))]
    pub page: u32,
    #[schemars(range(min = 1))]
    pub limit: usize,
}

/// The answer of `memory_export`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryExportAnswer {
    pub namespace: String,
    pub count: u64,
    /// JSON Lines.
    pub lines: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The answer of `memory_import`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryImportAnswer {
    pub namespace: String,
    pub written: u64,
    /// Keys that were there and stayed as they were.
    pub kept: u64,
    /// Lines that were not written.
    pub failed: u64,
    /// The first hundred of them.
    pub errors: Vec<MemoryImportFailure>,
}

/// A line that was not written.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemoryImportFailure {
    pub line: u64,
    pub error: String,
}

/// ISO 8601, in UTC, to the millisecond.
fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "format": "date-time",
        "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z$",
    })
}
