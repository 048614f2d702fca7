//! The contract of SPARC workflows: what the tools take, and what tools, agents and resources answer. The doc
//! comments of the fields are published as their descriptions.

#![allow(missing_docs, reason = "a doc comment is published; most names say enough")]

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    phase::{SparcPhase, SparcRole},
    workflow::{PhaseStatus, WorkflowAction},
    workflows::{MAX_CONTEXT_ID, MAX_PAGE},
};

// ---------------------------------------------------------------------------------------------- requests

/// The arguments of `sparc_start`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SparcStartRequest {
    /// The name of the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_CONTEXT_ID))]
    pub context_id: Option<String>,
    /// What is to be achieved.
    #[schemars(length(min = 1))]
    pub goal: String,
    /// Whether a coordinator that completes it stores the artifacts that passed in the memory bank, by one batch:
    /// each under contextId:phase of the namespace sparc-workflow. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batchtools_enabled: Option<bool>,
}

/// The arguments of `sparc_status`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SparcStatusRequest {
    /// The name of the workflow.
    #[schemars(length(min = 1, max = MAX_CONTEXT_ID))]
    pub context_id: String,
}

/// The arguments of `sparc_submit`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SparcSubmitRequest {
    /// The name of the workflow.
    #[schemars(length(min = 1, max = MAX_CONTEXT_ID))]
    pub context_id: String,
    /// What the phase's template asks for.
    #[schemars(extend("type" = "object"))]
    pub artifact: Value,
    /// The phase that it is for; refused unless it is the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<SparcPhase>,
}

/// The arguments of `sparc_back`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SparcBackRequest {
    /// The name of the workflow.
    #[schemars(length(min = 1, max = MAX_CONTEXT_ID))]
    pub context_id: String,
    /// An earlier phase.
    pub to: SparcPhase,
    /// Why, for the history.
    #[schemars(length(min = 1))]
    pub reason: String,
}

/// The arguments of `sparc_list`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SparcListRequest {
    /// Only names that begin so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_CONTEXT_ID))]
    pub prefix: Option<String>,
    /// The last name that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_CONTEXT_ID))]
    pub after: Option<String>,
    /// How many at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    pub limit: Option<usize>,
}

/// The arguments of `sparc_history`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SparcHistoryRequest {
    /// The name of the workflow.
    #[schemars(length(min = 1, max = MAX_CONTEXT_ID))]
    pub context_id: String,
    /// The last entry that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// How many at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    pub limit: Option<usize>,
}

/// The arguments of `sparc_run`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SparcRunRequest {
    /// The name of the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_CONTEXT_ID))]
    pub context_id: Option<String>,
    /// What is to be achieved.
    #[schemars(length(min = 1))]
    pub goal: String,
}

// ----------------------------------------------------------------------------------------------- answers

/// A time, as ISO 8601 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("pattern" = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"))]
pub struct SparcTime(pub String);

/// A workflow with all details: the answer of `sparc_start`, `sparc_status` and `sparc_back`, and the content of
/// `sparc://workflow/{contextId}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowAnswer {
    pub context_id: String,
    pub current_phase: SparcPhase,
    pub done: bool,
    #[schemars(schema_with = "phases")]
    pub phases: WorkflowPhases,
    pub artifacts: Vec<ArtifactSummary>,
    pub metadata: WorkflowMetadata,
}

/// The schema of [`WorkflowPhases`] with that of a phase written once: five copies of it would be most of the list of
/// the workflow tools.
fn phases(generator: &mut SchemaGenerator) -> Schema {
    let names = SparcPhase::ALL.map(SparcPhase::name);
    json_schema!({
        "type": "object",
        "propertyNames": { "enum": names },
        "additionalProperties": generator.subschema_for::<PhaseAnswer>(),
        "required": names,
    })
}

/// The phases of a workflow, by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkflowPhases {
    pub specification: PhaseAnswer,
    pub pseudocode: PhaseAnswer,
    pub architecture: PhaseAnswer,
    pub refinement: PhaseAnswer,
    pub completion: PhaseAnswer,
}

/// The state of one phase.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseAnswer {
    pub status: PhaseStatus,
    pub attempts: u32,
    pub entered_at: Option<SparcTime>,
    pub passed_at: Option<SparcTime>,
    pub agent_type: SparcRole,
    pub artifact: Option<String>,
    pub gate: Option<GateAnswer>,
    pub reason: Option<String>,
}

/// The verdict of a gate.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateAnswer {
    pub passed: bool,
    pub checked_at: SparcTime,
    pub violations: Vec<Violation>,
    pub command: Option<CommandAnswer>,
}

/// One problem of an artifact: its place as a JSON pointer (empty: the artifact as a whole), and what to do. Stored
/// with the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Violation {
    pub path: String,
    pub message: String,
}

/// The report of a test run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandAnswer {
    pub command: Vec<String>,
    pub exit_code: Option<i32>,
    pub timed_out: bool,
    pub failure: Option<String>,
    pub duration_ms: u64,
    pub output: String,
    pub truncated: bool,
}

/// An artifact without its content.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactSummary {
    pub phase: SparcPhase,
    #[schemars(range(min = 1))]
    pub version: u32,
    pub uri: String,
    pub created: SparcTime,
    pub by: ActorAnswer,
    pub size: u64,
    pub passed: bool,
}

/// The author of a change: a caller, or an agent on behalf of a caller.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ActorAnswer {
    pub caller: String,
    pub agent: Option<String>,
    pub task: Option<String>,
}

/// Further facts of a workflow.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowMetadata {
    pub start_time: SparcTime,
    pub agent_type: SparcRole,
    pub batchtools_enabled: bool,
    pub goal: String,
    pub last_modified: SparcTime,
    pub history_entries: u64,
}

/// The content of `sparc://artifact/…`: one version of an artifact.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactAnswer {
    #[serde(flatten)]
    pub summary: ArtifactSummary,
    pub context_id: String,
    pub gate: GateAnswer,
    pub content: Value,
}

/// The answer of `sparc_history` and the content of the history's resource.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowHistoryAnswer {
    pub context_id: String,
    pub entries: Vec<HistoryEntryAnswer>,
    pub total: u64,
    pub next: Option<u64>,
}

/// One entry of a history.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HistoryEntryAnswer {
    #[schemars(range(min = 1))]
    pub n: u64,
    pub when: SparcTime,
    pub who: ActorAnswer,
    pub what: WorkflowAction,
    pub phase: SparcPhase,
    pub version: Option<u32>,
    pub outcome: PhaseStatus,
    pub detail: Option<String>,
}

/// The content of `sparc://phase/{phase}/template`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PhaseTemplateAnswer {
    pub phase: SparcPhase,
    pub template: BTreeMap<String, String>,
    pub guidelines: String,
    pub examples: Vec<TemplateExample>,
    pub validation: Map<String, Value>,
}

/// A worked example of an artifact.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TemplateExample {
    pub title: String,
    pub artifact: Map<String, Value>,
}

/// The content of `sparc://agent/{agentType}/capabilities`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapabilitiesAnswer {
    pub agent_type: SparcRole,
    pub name: String,
    pub description: String,
    pub version: String,
    pub skills: Vec<SkillAnswer>,
    pub specializations: Vec<SparcPhase>,
    pub input_modes: Vec<String>,
    pub output_modes: Vec<String>,
    pub streaming: bool,
    pub push_notifications: bool,
    pub input_schema: Option<Map<String, Value>>,
}

/// One capability of an agent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SkillAnswer {
    pub id: String,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub examples: Vec<String>,
}

/// The answer of `sparc_submit`, and the result of the agent that it hands over to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparcSubmitAnswer {
    pub context_id: String,
    pub phase: SparcPhase,
    #[schemars(range(min = 1))]
    pub version: u32,
    pub uri: String,
    pub passed: bool,
    pub gate: GateAnswer,
    pub current_phase: SparcPhase,
    pub done: bool,
}

/// The answer of `sparc_list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowListAnswer {
    pub workflows: Vec<WorkflowSummary>,
    pub next: Option<String>,
}

/// A workflow in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowSummary {
    pub context_id: String,
    pub uri: String,
    pub goal: String,
    pub current_phase: SparcPhase,
    pub status: PhaseStatus,
    pub done: bool,
    pub start_time: SparcTime,
    pub last_modified: SparcTime,
}

/// The result of a role's agent: what came of its work on a phase.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseWorkAnswer {
    pub context_id: String,
    pub phase: SparcPhase,
    pub outcome: PhaseWorkOutcome,
    pub version: Option<u32>,
    pub uri: Option<String>,
    pub to: Option<SparcPhase>,
    pub reason: Option<String>,
    #[schemars(extend("type" = ["object", "null"]))]
    pub artifact: Option<Value>,
}

/// What came of the work on a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PhaseWorkOutcome {
    Passed,
    WentBack,
    Blocked,
}

/// The result of the coordinator, which `sparc_run` hands over to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparcRunAnswer {
    pub context_id: String,
    pub uri: String,
    pub current_phase: SparcPhase,
    pub done: bool,
    pub phases: Vec<PassedPhase>,
    /// The batch that stored the artifacts (batchtoolsEnabled).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
}

/// A phase that has passed, with its artifact.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PassedPhase {
    pub phase: SparcPhase,
    pub version: u32,
    pub uri: String,
}
