//! The contract of the plan tools: what they take and what they answer. The doc comments of the fields are
//! published as their descriptions. The content of a plan is validated by its own parser, whose errors are more
//! detailed than a schema's.

#![allow(missing_docs, reason = "a doc comment is published; most names say enough")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{drawing::PlanDrawing, status::SubtaskState};

// ---------------------------------------------------------------------------------------------- requests

/// The arguments of the agent `orchestrator`, which also takes them as text.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "a caller may leave anything out: the agent reads what is there by itself")]
pub(super) struct OrchestratorRequest {
    /// The plan, as docs/plans.md describes it: an object, or the text of a TOML or JSON file.
    #[schemars(extend("type" = ["object", "string"]))]
    plan: Option<Value>,
    /// What is wanted, in words.
    #[schemars(length(min = 1))]
    request: Option<String>,
    /// The agent that makes the plan; without it, rules do.
    #[schemars(length(max = 64))]
    by: Option<String>,
    /// Whether the model makes the plan.
    model: Option<bool>,
    /// Whether a plan is only made, and not run.
    make: Option<bool>,
}

/// The arguments of `plan_make`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanMakeRequest {
    /// What is wanted, in words.
    #[schemars(length(min = 1))]
    pub request: String,
    /// The agent that makes the plan; without it, rules do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub by: Option<String>,
    /// Whether the model makes the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<bool>,
}

/// The arguments of `plan_run`: a plan, or a request to make one of.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRunRequest {
    /// The plan, as docs/plans.md describes it: an object, or the text of a TOML or JSON file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = ["object", "string"]))]
    pub plan: Option<Value>,
    /// What is wanted, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub request: Option<String>,
    /// The agent that makes the plan; without it, rules do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub by: Option<String>,
    /// Whether the model makes the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<bool>,
}

/// The arguments of `plan_check`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanCheckRequest {
    /// The plan, as docs/plans.md describes it: an object, or the text of a TOML or JSON file.
    #[schemars(extend("type" = ["object", "string"]))]
    pub plan: Value,
}

/// The arguments of `plan_show`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanShowRequest {
    /// The plan, as docs/plans.md describes it: an object, or the text of a TOML or JSON file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = ["object", "string"]))]
    pub plan: Option<Value>,
    /// A plan that runs or ran, instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub plan_id: Option<String>,
    /// Default: text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<PlanDrawing>,
}

/// The arguments of `plan_status`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanStatusRequest {
    #[schemars(length(min = 1, max = 256))]
    pub plan_id: String,
    /// Tasks of the plan whose results are wanted, as far as they are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(inner(length(max = 64)))]
    pub results: Option<Vec<String>>,
}

/// The arguments of `plan_list`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanListRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub page_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub page_token: Option<String>,
}

/// The arguments of `plan_cancel`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanCancelRequest {
    #[schemars(length(min = 1, max = 256))]
    pub plan_id: String,
}

// ----------------------------------------------------------------------------------------------- answers

/// The answer of `plan_make`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlanMakeAnswer {
    pub plan: Map<String, Value>,
    /// The plan as TOML, with comments that say why it is so.
    pub file: String,
    pub matches: Vec<PlanMatchAnswer>,
}

/// The assignment of a part of a request to an agent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlanMatchAnswer {
    pub task: String,
    pub part: String,
    pub agent: String,
    pub skill: String,
    #[schemars(range(min = 0, max = 1))]
    pub score: f64,
    pub words: Vec<String>,
}

/// The answer of `plan_check`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanCheckAnswer {
    pub valid: bool,
    pub problems: Vec<PlanProblem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_way: Option<Vec<String>>,
}

/// One problem of a plan: of a task, or of the plan as a whole; the key in its file; and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanProblem {
    pub task: Option<String>,
    pub key: String,
    pub why: String,
}

/// The answer of `plan_show`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlanShowAnswer {
    pub format: PlanDrawing,
    pub drawing: String,
}

/// The answer of `plan_status`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatusAnswer {
    pub plan_id: String,
    /// The state of the plan's task.
    pub state: String,
    pub name: Option<String>,
    pub message: Option<String>,
    pub plan: Option<Map<String, Value>>,
    pub parts: Vec<SubtaskStatus>,
    pub over: u64,
    pub total: u64,
    /// What the plan came to, in words.
    pub result: Option<String>,
    /// Where each part of it came from.
    pub provenance: Option<Map<String, Value>>,
    /// What the tasks came to that were asked for, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<BTreeMap<String, String>>,
}

/// The current status of a subtask: the agent of the current or last attempt and its task, the number of attempts,
/// why it failed, is retried or was skipped, the agents that could not do it, when the first attempt began, and
/// how long it took from then to the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubtaskStatus {
    #[serde(rename = "task")]
    pub id: String,
    pub state: SubtaskState,
    pub agent: Option<String>,
    pub task_id: Option<String>,
    pub attempts: u32,
    pub why: Option<String>,
    pub rerouted_from: Vec<UnavailableAgent>,
    #[schemars(extend("format" = "date-time"))]
    pub started_at: Option<String>,
    pub duration_ms: Option<u64>,
}

/// An agent that was considered for a subtask, and why it could not do it. Stored with the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnavailableAgent {
    pub agent: String,
    pub why: String,
}

/// The answer of `plan_list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanListAnswer {
    pub plans: Vec<PlanSummary>,
    pub total: u64,
    pub next_page_token: Option<String>,
}

/// A plan in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    pub plan_id: String,
    pub state: String,
    pub name: Option<String>,
    pub over: u64,
    pub total: u64,
    #[schemars(extend("format" = "date-time"))]
    pub updated_at: String,
}

/// The answer of `plan_cancel`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanCancelAnswer {
    pub plan_id: String,
    pub state: String,
}
