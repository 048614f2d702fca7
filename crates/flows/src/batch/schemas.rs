//! The JSON Schemas of the batch engine's requests and results.

use nuncio_engine::Surface;
use serde_json::{Value, json};

use super::{
    BatchOptions,
    input::{
        CHUNK_BYTES, ID_BYTES, MATCHES, MAX_RETRIES, NEEDS_PER_OPERATION, PATH_BYTES, PATTERN_BYTES,
        Strategy, TYPES,
    },
    settings::{MAX_CONCURRENCY, MAX_QUEUE},
};

/// The name of the schema of `batchtools://metrics/performance`.
pub(crate) const PERFORMANCE: &str = "batchtools-performance";
/// The name of the schema of `batchtools://queue/status`.
pub(crate) const QUEUE: &str = "batchtools-queue";
/// The name of the schema of `batchtools://config/settings`.
pub(crate) const SETTINGS: &str = "batchtools-settings";

/// Publishes the schemas of the resources.
pub(crate) fn publish(surface: &Surface) {
    surface.add_schema(PERFORMANCE, performance());
    surface.add_schema(QUEUE, queue());
    surface.add_schema(SETTINGS, settings(true));
}

fn closed(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({ "type": "object", "required": required, "additionalProperties": false });
    schema["properties"] = properties;
    schema
}

fn strategies() -> Vec<&'static str> {
    Strategy::ALL.iter().map(|strategy| strategy.name()).collect()
}

fn share() -> Value {
    json!({ "type": ["number", "null"], "minimum": 0, "maximum": 1 })
}

fn performance() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let speedup = json!({ "type": ["number", "null"], "minimum": 0 });
    // A compressed content may be larger than the original; the original is stored then.
    let faster = closed(
        json!({ "count": count, "averageSpeedup": speedup, "successRate": share() }),
        &["count", "averageSpeedup", "successRate"],
    );
    let smaller = closed(
        json!({ "count": count, "memoryReduction": { "type": ["number", "null"], "maximum": 1 }, "successRate": share() }),
        &["count", "memoryReduction", "successRate"],
    );
    let mut schema = closed(
        json!({
            "overall": closed(
                json!({
                    "enabled": { "type": "boolean" },
                    "optimizationsApplied": { "type": "integer", "minimum": 0, "description": "Batches that ended." },
                    "averageSpeedup": speedup,
                    "memoryReduction": { "type": ["number", "null"], "maximum": 1 },
                }),
                &["enabled", "optimizationsApplied", "averageSpeedup", "memoryReduction"],
            ),
            "byType": closed(
                json!({
                    "concurrent_processing": faster,
                    "parallel_content_processing": faster,
                    "resource_optimization": smaller,
                }),
                &strategies(),
            ),
            "calibration": {
                "type": "array",
                "description": "What one operation of a type took alone, as speed-ups are measured against.",
                "items": closed(
                    json!({
                        "type": { "type": "string" },
                        "sequentialMs": { "type": "number", "minimum": 0 },
                        "operations": count,
                        "ageSeconds": count,
                    }),
                    &["type", "sequentialMs", "operations", "ageSeconds"],
                ),
            },
            "timestamp": { "type": "string", "format": "date-time" },
        }),
        &["overall", "byType", "calibration", "timestamp"],
    );
    schema["description"] = json!("What the batches of the tenant came to. Null: not measured.");
    schema
}

fn queue() -> Value {
    let operation = closed(
        json!({
            "id": { "type": "string" },
            "type": { "enum": [
                "file_operations", "memory_operations", "agent_operations", "mixed_operations",
                "content_processing", "resource_optimization",
            ] },
            "priority": { "enum": ["high", "normal", "low"] },
            "estimatedDuration": {
                "type": ["number", "null"],
                "description": "Milliseconds, from how long such operations took here; null where none was measured.",
            },
            "startTime": { "type": ["string", "null"], "description": "When its first operation began." },
            "status": { "enum": ["queued", "waiting", "running", "paused"] },
            "waiting": {
                "type": ["string", "null"],
                "description": "Why it does not begin yet: the machine is busier than a threshold says.",
            },
        }),
        &["id", "type", "priority", "estimatedDuration", "startTime", "status", "waiting"],
    );
    closed(
        json!({
            "queueSize": { "type": "integer", "minimum": 0, "description": "Batches that wait or are paused." },
            "activeBatches": { "type": "integer", "minimum": 0 },
            "maxConcurrency": { "type": "integer", "minimum": 1 },
            "operations": { "type": "array", "items": operation },
            "throughput": closed(
                json!({
                    "operationsPerSecond": { "type": ["number", "null"] },
                    "averageLatency": { "type": ["number", "null"], "description": "Milliseconds from the begin to the end of an operation." },
                }),
                &["operationsPerSecond", "averageLatency"],
            ),
        }),
        &["queueSize", "activeBatches", "maxConcurrency", "operations", "throughput"],
    )
}

/// The schema of the settings; unless `whole`, every field is optional.
pub(crate) fn settings(whole: bool) -> Value {
    let share = json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 });
    let all = |names: &[&'static str]| if whole { names.to_vec() } else { vec![] };
    closed(
        json!({
            "enabled": { "type": "boolean", "description": "Whether batches are taken." },
            "maxConcurrency": {
                "type": "integer", "minimum": 1, "maximum": MAX_CONCURRENCY,
                "description": "Operations of all batches that run at once on each node. Takes effect at once.",
            },
            "resourceMonitoring": {
                "type": "boolean", "description": "Whether the thresholds for memory and CPU apply.",
            },
            "thresholds": closed(
                json!({
                    "memoryUsage": share,
                    "cpuUsage": share,
                    "queueSize": {
                        "type": "integer", "minimum": 1, "maximum": MAX_QUEUE,
                        "description": "Batches of one tenant that may wait or be at work.",
                    },
                }),
                &all(&["memoryUsage", "cpuUsage", "queueSize"]),
            ),
            "optimizationStrategies": {
                "type": "array", "uniqueItems": true, "items": { "enum": strategies() },
                "description": "The strategies that may be used.",
            },
        }),
        &all(&["enabled", "maxConcurrency", "resourceMonitoring", "thresholds", "optimizationStrategies"]),
    )
}

/// The schema of a batch request.
pub(crate) fn batch(options: &BatchOptions) -> Value {
    let id = json!({ "type": "string", "pattern": format!("^[A-Za-z0-9_.:-]{{1,{ID_BYTES}}}$") });
    let path = json!({ "type": "string", "minLength": 1, "maxLength": PATH_BYTES });
    let priority = json!({ "enum": ["high", "normal", "low"] });
    let retries = json!({ "type": "integer", "minimum": 0, "maximum": MAX_RETRIES });
    let mut operation = closed(
        json!({
            "id": id,
            "type": { "enum": TYPES },
            "args": {
                "type": "object",
                "description": "files.read {path, encoding?: text|base64}; files.write {path, content, encoding?, append?, createFolders?, overwrite?}; files.copy {from, to, createFolders?, overwrite?}; files.hash {path}; files.search {path, pattern, regex?, ignoreCase?, maxMatches?}; memory.get and memory.delete {namespace, key}; memory.store {namespace, key, value, ttl?, expectedVersion?}; memory.search {namespace, pattern | text, limit?}; agent.call {agent, input: text or object}; wait {ms}.",
            },
            "priority": priority,
            "needs": {
                "type": "array", "items": id, "maxItems": NEEDS_PER_OPERATION,
                "description": "Operations that have to succeed first.",
            },
            "retries": retries,
        }),
        &["id", "type"],
    );
    operation["description"] = json!("One operation.");
    let process = closed(
        json!({
            "content": { "type": "string" },
            "file": path,
            "chunkBytes": { "type": "integer", "minimum": CHUNK_BYTES, "maximum": options.content_bytes },
            "operation": { "enum": ["hash", "count", "search", "compress"] },
            "pattern": { "type": "string", "minLength": 1, "maxLength": PATTERN_BYTES },
            "regex": { "type": "boolean" },
            "ignoreCase": { "type": "boolean" },
            "maxMatches": { "type": "integer", "minimum": 1, "maximum": MATCHES },
            "to": path,
        }),
        &["operation"],
    );
    let contents = closed(
        json!({
            "id": id,
            "content": { "type": "string" },
            "file": path,
            "memory": closed(
                json!({ "namespace": { "type": "string" }, "key": { "type": "string" } }),
                &["namespace", "key"],
            ),
            "retries": retries,
        }),
        &["id"],
    );
    closed(
        json!({
            "operations": {
                "type": "array", "items": operation, "maxItems": options.operations_per_batch,
                "description": "For concurrent_processing.",
            },
            "strategy": { "enum": strategies(), "default": "concurrent_processing" },
            "priority": priority,
            "maxConcurrency": {
                "type": "integer", "minimum": 1,
                "description": "Operations of this batch that run at once, where that is less than the server's cap.",
            },
            "sequentialSample": {
                "type": "integer", "minimum": 0,
                "description": "So many operations are done one after another first, which is what the speed-up is measured against. Each is done once. Not given: a small part of a large batch, for at most a second; 0: none.",
            },
            "stopOnFailure": { "type": "boolean", "description": "Whether nothing more begins after a failure." },
            "process": process,
            "optimize": closed(
                json!({
                    "contents": {
                        "type": "array", "items": contents, "minItems": 1, "maxItems": options.operations_per_batch,
                    },
                    "to": path,
                }),
                &["contents"],
            ),
        }),
        &[],
    )
}

fn counts() -> Value {
    let count = json!({ "type": ["integer", "null"], "minimum": 0 });
    closed(
        json!({ "total": count, "succeeded": count, "failed": count, "skipped": count }),
        &["total", "succeeded", "failed", "skipped"],
    )
}

fn metrics() -> Value {
    let figure = json!({ "type": ["number", "null"] });
    let names = [
        "wallMs",
        "operationMs",
        "concurrency",
        "speedup",
        "sequentialMs",
        "successRate",
        "bytesBefore",
        "bytesAfter",
        "memoryReduction",
        "peakConcurrency",
    ];
    let mut properties: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), figure.clone())).collect();
    properties["speedup"]["description"] = json!(
        "What the operations take one after another, as measured, over the time that they took together."
    );
    properties["concurrency"]["description"] =
        json!("operationMs over wallMs: how many ran beside each other.");
    let calibration = closed(
        json!({
            "type": { "type": "string" },
            "operations": { "type": "integer" },
            "ageSeconds": { "type": "integer" },
        }),
        &["type", "operations", "ageSeconds"],
    );
    let mut basis = closed(
        json!({
            "sampleOperations": { "type": "integer", "minimum": 0 },
            "sampleShare": share(),
            "calibrations": { "type": "array", "items": calibration },
        }),
        &["sampleOperations", "sampleShare", "calibrations"],
    );
    basis["type"] = json!(["object", "null"]);
    basis["description"] = json!("The operations that ran alone, which the speed-up is measured against.");
    properties.insert("speedupBasis".into(), basis);
    let mut required = names.to_vec();
    required.push("speedupBasis");
    closed(Value::Object(properties), &required)
}

fn operation_result() -> Value {
    closed(
        json!({
            "id": { "type": "string" },
            "type": { "type": "string" },
            "status": { "enum": ["succeeded", "failed", "skipped", "pending"] },
            "attempts": { "type": "integer", "minimum": 0 },
            "startTime": { "type": "string" },
            "durationMs": { "type": "number", "minimum": 0 },
            "output": {},
            "truncated": { "type": "boolean" },
            "error": { "type": "string" },
        }),
        &["id", "type", "status", "attempts"],
    )
}

fn described() -> Value {
    json!({
        "batchId": { "type": "string" },
        "status": { "type": "string" },
        "strategy": { "enum": strategies() },
        "type": { "type": "string" },
        "priority": { "enum": ["high", "normal", "low"] },
        "counts": counts(),
        "metrics": metrics(),
        "operations": { "type": "array", "items": operation_result() },
        "content": {},
    })
}

/// The schema of a batch's result.
pub(crate) fn result() -> Value {
    let required = ["batchId", "status", "strategy", "type", "priority", "counts", "metrics", "operations"];
    closed(described(), &required)
}

/// The result schema of `batch_status`.
pub(crate) fn status() -> Value {
    let mut properties = described();
    properties["metrics"] = json!({ "anyOf": [metrics(), { "type": "null" }] });
    properties["paused"] = json!({ "type": "boolean" });
    properties["done"] = json!({ "type": ["number", "null"] });
    properties["estimatedDuration"] = json!({ "type": ["number", "null"] });
    properties["waiting"] = json!({
        "type": ["string", "null"],
        "description": "Why it does not begin yet: the machine is busier than a threshold says.",
    });
    properties["message"] = json!({ "type": "string" });
    properties["nextOffset"] = json!({ "type": "integer" });
    closed(properties, &["batchId", "status", "paused", "counts", "metrics", "estimatedDuration"])
}

/// The result schema of the tools that submit or change a batch.
pub(crate) fn submitted() -> Value {
    closed(
        json!({
            "batchId": { "type": "string" },
            "status": { "type": "string" },
            "operations": { "type": ["integer", "null"] },
            "uri": { "type": "string" },
            "waiting": { "type": ["string", "null"], "description": "Why it does not begin yet." },
            "reason": { "type": "string", "description": "Why it was rejected." },
        }),
        &["batchId", "status", "operations", "uri", "waiting"],
    )
}

/// The result schema of `batch_pause`, `batch_resume` and `batch_cancel`.
pub(crate) fn changed() -> Value {
    closed(
        json!({ "batchId": { "type": "string" }, "status": { "type": "string" }, "paused": { "type": "boolean" } }),
        &["batchId", "status", "paused"],
    )
}

/// The result schema of `batch_list`.
pub(crate) fn list() -> Value {
    let one = closed(
        json!({
            "batchId": { "type": "string" },
            "status": { "type": "string" },
            "done": { "type": ["number", "null"] },
            "total": { "type": ["number", "null"] },
            "counts": counts(),
            "waiting": { "type": ["string", "null"] },
            "changed": { "type": "string" },
            "uri": { "type": "string" },
        }),
        &["batchId", "status", "done", "total", "counts", "waiting", "changed", "uri"],
    );
    let bytes = json!({ "type": ["integer", "null"] });
    closed(
        json!({
            "batches": { "type": "array", "items": one },
            "total": { "type": "integer" },
            "bytesBefore": bytes,
            "bytesAfter": bytes,
            "nextPageToken": { "type": "string" },
        }),
        &["batches", "total", "bytesBefore", "bytesAfter"],
    )
}

/// The schema of arguments that name one batch, with further properties.
pub(crate) fn named(more: Value) -> Value {
    let mut properties = json!({ "batchId": { "type": "string", "minLength": 1, "maxLength": 64 } });
    if let (Some(properties), Value::Object(more)) = (properties.as_object_mut(), more) {
        properties.extend(more);
    }
    closed(properties, &["batchId"])
}

/// The schema of arguments that are all optional.
pub(crate) fn optional(properties: Value) -> Value {
    closed(properties, &[])
}
