//! The contract of the batch engine: what its tools take, and what its tools, its agent and its resources answer.
//! The doc comments of the fields are published as their descriptions. The content of a batch is described where
//! it is read (`input.rs`).

#![allow(missing_docs, reason = "a doc comment is published; most names say enough")]

use std::borrow::Cow;

use nuncio_engine::surface::{input_schema, limit_field};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    BatchOptions,
    input::{BatchInput, Strategy},
    scheduler::Priority,
    settings::{MAX_CONCURRENCY, MAX_QUEUE},
};
use crate::resource::given;

/// Maximum operations that `batch_status` returns.
pub(super) const MAX_PAGE: usize = 1_000;

// ---------------------------------------------------------------------------------------------- requests

/// The arguments of `batch_submit`, as they are passed on to the agent: its parser names what is wrong more
/// exactly than a schema, and the task holds what was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchSubmitRequest(pub Map<String, Value>);

impl JsonSchema for BatchSubmitRequest {
    fn schema_name() -> Cow<'static, str> {
        "BatchSubmitRequest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = input_schema::<BatchInput>();
        remove_defaults(&mut schema);
        schema["properties"]["strategy"]["default"] = Strategy::default().name().into();
        schema["properties"]["operations"]["items"]["description"] = "One operation.".into();
        Schema::try_from(schema).unwrap_or_default()
    }
}

/// The limits of a batch that the operator sets: field, keyword, limit.
pub(super) fn limits(options: &BatchOptions) -> [(&'static str, &'static str, usize); 3] {
    [
        ("operations", "maxItems", options.operations_per_batch),
        ("process.chunkBytes", "maximum", options.content_bytes),
        ("optimize.contents", "maxItems", options.operations_per_batch),
    ]
}

/// The schema of a batch, with the operator's limits.
pub(super) fn submit_schema(options: &BatchOptions) -> Value {
    let mut schema = input_schema::<BatchSubmitRequest>();
    for (field, keyword, limit) in limits(options) {
        // The tool of the same input refuses to be installed where a field is missing.
        let _ = limit_field(&mut schema, field, keyword, limit.into());
    }
    schema
}

/// What an operation does by default is said where it matters, in descriptions.
fn remove_defaults(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.shift_remove("default");
            members.values_mut().for_each(remove_defaults);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(remove_defaults),
        _ => {}
    }
}

/// The arguments of `batch_status`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchStatusRequest {
    #[schemars(length(min = 1, max = 64))]
    pub batch_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    pub limit: Option<usize>,
}

/// The arguments of `batch_cancel`, `batch_pause`, `batch_resume` and `batch_retry`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchIdRequest {
    #[schemars(length(min = 1, max = 64))]
    pub batch_id: String,
}

/// The arguments of `batch_list`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchListRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<BatchState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub page_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub page_token: Option<String>,
}

/// The states that a batch may be listed by: those of a task that asks nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchState {
    Submitted,
    Working,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

/// The arguments of `batch_configure`: the settings that change.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchConfigureRequest {
    /// Whether batches are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Operations of all batches that run at once on each node. Takes effect at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_CONCURRENCY))]
    pub max_concurrency: Option<usize>,
    /// Whether the thresholds for memory and CPU apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_monitoring: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<BatchThresholdsChange>,
    /// The strategies that may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("uniqueItems" = true))]
    pub optimization_strategies: Option<Vec<Strategy>>,
}

/// The thresholds that change.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchThresholdsChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub memory_usage: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub cpu_usage: Option<f64>,
    /// Batches of one tenant that may wait or be at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_QUEUE))]
    pub queue_size: Option<u64>,
}

// ----------------------------------------------------------------------------------------------- answers

/// The settings of the batch engine that can change at runtime: the answer of `batch_configure`, the content of
/// `batchtools://config/settings`, and what is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchSettings {
    /// Whether batches are taken.
    pub enabled: bool,
    /// Operations of all batches that run at once on each node. Takes effect at once.
    #[schemars(range(min = 1, max = MAX_CONCURRENCY))]
    pub max_concurrency: usize,
    /// Whether the thresholds for memory and CPU apply.
    pub resource_monitoring: bool,
    pub thresholds: BatchThresholds,
    /// The strategies that may be used.
    #[schemars(extend("uniqueItems" = true))]
    pub optimization_strategies: Vec<Strategy>,
}

/// The limits on load, as shares from 0 to 1, and on the queue. Exceeded load delays a batch; a full queue refuses
/// it. The queue is counted per tenant, so that no tenant can block another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchThresholds {
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub memory_usage: f64,
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub cpu_usage: f64,
    /// Batches of one tenant that may wait or be at work.
    #[schemars(range(min = 1, max = MAX_QUEUE))]
    pub queue_size: u64,
}

/// The answer of `batch_submit` and `batch_retry`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchSubmitAnswer {
    pub batch_id: String,
    pub status: String,
    pub operations: Option<u64>,
    pub uri: String,
    /// Why it does not begin yet.
    pub waiting: Option<String>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer of `batch_cancel`, `batch_pause` and `batch_resume`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchChangeAnswer {
    pub batch_id: String,
    pub status: String,
    pub paused: bool,
}

/// The operations of a batch, counted by outcome. Null: not known without reading the result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchCounts {
    pub total: Option<u64>,
    pub succeeded: Option<u64>,
    pub failed: Option<u64>,
    pub skipped: Option<u64>,
}

/// What was measured of a batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchMetrics {
    pub wall_ms: Option<f64>,
    pub operation_ms: Option<f64>,
    /// operationMs over wallMs: how many ran beside each other.
    pub concurrency: Option<f64>,
    /// What the operations take one after another, as measured, over the time that they took together.
    pub speedup: Option<f64>,
    /// The operations that ran alone, which the speed-up is measured against.
    pub speedup_basis: Option<SpeedupBasis>,
    pub sequential_ms: Option<f64>,
    pub success_rate: Option<f64>,
    #[schemars(with = "Option<f64>")]
    pub bytes_before: Option<u64>,
    #[schemars(with = "Option<f64>")]
    pub bytes_after: Option<u64>,
    pub memory_reduction: Option<f64>,
    #[schemars(with = "Option<f64>")]
    pub peak_concurrency: Option<u64>,
}

/// What a speed-up is measured against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SpeedupBasis {
    pub sample_operations: u64,
    #[schemars(range(min = 0, max = 1), extend("type" = ["number", "null"]))]
    pub sample_share: f64,
    pub calibrations: Vec<UsedCalibration>,
}

/// A calibration of an earlier batch that a speed-up is measured against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsedCalibration {
    #[serde(rename = "type")]
    pub kind: String,
    pub operations: u64,
    pub age_seconds: u64,
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationAnswer {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub attempts: u64,
    pub status: OperationStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub duration_ms: Option<f64>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The outcome of an operation, if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OperationStatus {
    Succeeded,
    Failed,
    Skipped,
    Pending,
}

/// The result of a batch that has ended. Stored as its artifact: fields are only added.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchResult {
    pub batch_id: String,
    pub status: String,
    pub strategy: Strategy,
    #[serde(rename = "type")]
    pub kind: String,
    pub priority: Priority,
    pub counts: BatchCounts,
    pub metrics: BatchMetrics,
    pub operations: Vec<OperationAnswer>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

/// The answer of `batch_status`: where a batch stands, or its result without the operations.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchStatusAnswer {
    pub batch_id: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    pub counts: BatchCounts,
    pub metrics: Option<BatchMetrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<OperationAnswer>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    pub paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<f64>,
    pub estimated_duration: Option<f64>,
    /// Why it does not begin yet: the machine is busier than a threshold says.
    pub waiting: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
}

/// The answer of `batch_list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchListAnswer {
    pub batches: Vec<BatchSummary>,
    pub total: u64,
    pub bytes_before: Option<u64>,
    pub bytes_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A batch in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchSummary {
    pub batch_id: String,
    pub status: String,
    pub done: Option<f64>,
    pub total: Option<f64>,
    pub counts: BatchCounts,
    pub waiting: Option<String>,
    pub changed: String,
    pub uri: String,
}

/// The content of `batchtools://metrics/performance`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerformanceAnswer {
    pub overall: OverallPerformance,
    pub by_type: PerformanceByStrategy,
    /// What one operation of a type took alone, as speed-ups are measured against.
    pub calibration: Vec<CalibrationAnswer>,
    #[schemars(extend("format" = "date-time"))]
    pub timestamp: String,
}

/// What all batches came to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverallPerformance {
    pub enabled: bool,
    /// Batches that ended.
    pub optimizations_applied: u64,
    #[schemars(range(min = 0))]
    pub average_speedup: Option<f64>,
    #[schemars(range(max = 1))]
    pub memory_reduction: Option<f64>,
}

/// What the batches of each strategy came to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PerformanceByStrategy {
    pub concurrent_processing: SpeedupPerformance,
    pub parallel_content_processing: SpeedupPerformance,
    pub resource_optimization: ReductionPerformance,
}

/// What the batches of a strategy came to that saves time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpeedupPerformance {
    pub count: u64,
    #[schemars(range(min = 0))]
    pub average_speedup: Option<f64>,
    #[schemars(range(min = 0, max = 1))]
    pub success_rate: Option<f64>,
}

/// What the batches of a strategy came to that saves memory. A compressed content may be larger than the original,
/// which is stored then: the reduction may be below zero.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReductionPerformance {
    pub count: u64,
    #[schemars(range(max = 1))]
    pub memory_reduction: Option<f64>,
    #[schemars(range(min = 0, max = 1))]
    pub success_rate: Option<f64>,
}

/// What one operation of a type takes alone.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CalibrationAnswer {
    #[serde(rename = "type")]
    pub kind: String,
    #[schemars(range(min = 0))]
    pub sequential_ms: f64,
    pub operations: u64,
    pub age_seconds: u64,
}

/// The content of `batchtools://queue/status`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueAnswer {
    /// Batches that wait or are paused.
    pub queue_size: u64,
    pub active_batches: u64,
    #[schemars(range(min = 1))]
    pub max_concurrency: u64,
    pub operations: Vec<QueuedBatch>,
    pub throughput: ThroughputAnswer,
}

/// A batch that has not ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedBatch {
    pub id: String,
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "file_operations", "memory_operations", "agent_operations", "mixed_operations", "content_processing",
        "resource_optimization",
    ]))]
    pub kind: String,
    pub priority: Priority,
    /// Milliseconds, from how long such operations took here; null where none was measured.
    pub estimated_duration: Option<f64>,
    /// When its first operation began.
    pub start_time: Option<String>,
    pub status: QueueStatus,
    /// Why it does not begin yet: the machine is busier than a threshold says.
    pub waiting: Option<String>,
}

/// Where a batch stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueueStatus {
    Queued,
    Waiting,
    Running,
    Paused,
}

/// What this node did in the last minute.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThroughputAnswer {
    pub operations_per_second: Option<f64>,
    /// Milliseconds from the begin to the end of an operation.
    pub average_latency: Option<f64>,
}
