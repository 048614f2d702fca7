//! The JSON Schemas of the plan tools and the orchestrator. The content of a plan is validated by its own
//! parser, whose errors are more detailed than a schema's.

use serde_json::{Value, json};

use super::status::SubtaskState;

/// The schema of a plan: as a value, or as the text of its file.
fn plan() -> Value {
    json!({
        "type": ["object", "string"],
        "description": "The plan, as docs/plans.md describes it: an object, or the text of a TOML or JSON file.",
    })
}

fn request() -> Value {
    json!({ "type": "string", "minLength": 1, "description": "What is wanted, in words." })
}

fn by() -> Value {
    json!({ "type": "string", "maxLength": 64, "description": "The agent that makes the plan; without it, rules do." })
}

fn model() -> Value {
    json!({ "type": "boolean", "description": "Whether the model makes the plan." })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

pub(super) fn orchestrator() -> Value {
    json!({
        "type": "object",
        "properties": {
            "plan": plan(),
            "request": request(),
            "by": by(),
            "model": model(),
            "make": { "type": "boolean", "description": "Whether a plan is only made, and not run." },
        },
    })
}

pub(super) fn run() -> Value {
    object(&json!({ "plan": plan(), "request": request(), "by": by(), "model": model() }), &[])
}

pub(super) fn make() -> Value {
    object(&json!({ "request": request(), "by": by(), "model": model() }), &["request"])
}

pub(super) fn given() -> Value {
    object(&json!({ "plan": plan() }), &["plan"])
}

pub(super) fn show() -> Value {
    object(
        &json!({
            "plan": plan(),
            "planId": { "type": "string", "maxLength": 256, "description": "A plan that runs or ran, instead." },
            "format": { "enum": ["text", "mermaid", "svg"], "description": "Default: text." },
        }),
        &[],
    )
}

pub(super) fn named() -> Value {
    object(&json!({ "planId": { "type": "string", "minLength": 1, "maxLength": 256 } }), &["planId"])
}

pub(super) fn looked_at() -> Value {
    object(
        &json!({
            "planId": { "type": "string", "minLength": 1, "maxLength": 256 },
            "results": {
                "type": "array",
                "items": { "type": "string", "maxLength": 64 },
                "description": "Tasks of the plan whose results are wanted, as far as they are done.",
            },
        }),
        &["planId"],
    )
}

pub(super) fn list() -> Value {
    object(
        &json!({
            "pageSize": { "type": "integer", "minimum": 1, "maximum": 100 },
            "pageToken": { "type": "string", "maxLength": 64 },
        }),
        &[],
    )
}

pub(super) fn made() -> Value {
    object(
        &json!({
            "plan": { "type": "object" },
            "file": { "type": "string", "description": "The plan as TOML, with comments that say why it is so." },
            "matches": {
                "type": "array",
                "items": object(
                    &json!({
                        "task": { "type": "string" },
                        "part": { "type": "string" },
                        "agent": { "type": "string" },
                        "skill": { "type": "string" },
                        "score": { "type": "number", "minimum": 0, "maximum": 1 },
                        "words": { "type": "array", "items": { "type": "string" } },
                    }),
                    &["task", "part", "agent", "skill", "score", "words"],
                ),
            },
        }),
        &["plan", "file", "matches"],
    )
}

pub(super) fn checked() -> Value {
    object(
        &json!({
            "valid": { "type": "boolean" },
            "problems": {
                "type": "array",
                "items": object(
                    &json!({
                        "task": { "type": ["string", "null"] },
                        "key": { "type": "string" },
                        "why": { "type": "string" },
                    }),
                    &["task", "key", "why"],
                ),
            },
            "tasks": { "type": "integer", "minimum": 0 },
            "order": { "type": "array", "items": { "type": "string" } },
            "longestWay": { "type": "array", "items": { "type": "string" } },
        }),
        &["valid", "problems"],
    )
}

pub(super) fn shown() -> Value {
    object(
        &json!({ "format": { "enum": ["text", "mermaid", "svg"] }, "drawing": { "type": "string" } }),
        &["format", "drawing"],
    )
}

fn part() -> Value {
    object(
        &json!({
            "task": { "type": "string" },
            "state": { "enum": SubtaskState::ALL.map(SubtaskState::name) },
            "agent": { "type": ["string", "null"] },
            "taskId": { "type": ["string", "null"] },
            "attempts": { "type": "integer", "minimum": 0 },
            "why": { "type": ["string", "null"] },
            "reroutedFrom": {
                "type": "array",
                "items": object(&json!({ "agent": { "type": "string" }, "why": { "type": "string" } }), &["agent", "why"]),
            },
            "startedAt": { "type": ["string", "null"], "format": "date-time" },
            "durationMs": { "type": ["integer", "null"], "minimum": 0 },
        }),
        &["task", "state", "agent", "taskId", "attempts", "why", "reroutedFrom", "startedAt", "durationMs"],
    )
}

pub(super) fn status() -> Value {
    object(
        &json!({
            "planId": { "type": "string" },
            "state": { "type": "string", "description": "The state of the plan's task." },
            "name": { "type": ["string", "null"] },
            "message": { "type": ["string", "null"] },
            "plan": { "type": ["object", "null"] },
            "parts": { "type": "array", "items": part() },
            "over": { "type": "integer", "minimum": 0 },
            "total": { "type": "integer", "minimum": 0 },
            "result": { "type": ["string", "null"], "description": "What the plan came to, in words." },
            "provenance": { "type": ["object", "null"], "description": "Where each part of it came from." },
            "results": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "What the tasks came to that were asked for, in words.",
            },
        }),
        &["planId", "state", "name", "message", "plan", "parts", "over", "total", "result", "provenance"],
    )
}

pub(super) fn listed() -> Value {
    object(
        &json!({
            "plans": {
                "type": "array",
                "items": object(
                    &json!({
                        "planId": { "type": "string" },
                        "state": { "type": "string" },
                        "name": { "type": ["string", "null"] },
                        "over": { "type": "integer", "minimum": 0 },
                        "total": { "type": "integer", "minimum": 0 },
                        "updatedAt": { "type": "string", "format": "date-time" },
                    }),
                    &["planId", "state", "name", "over", "total", "updatedAt"],
                ),
            },
            "total": { "type": "integer", "minimum": 0 },
            "nextPageToken": { "type": ["string", "null"] },
        }),
        &["plans", "total", "nextPageToken"],
    )
}

pub(super) fn canceled() -> Value {
    object(&json!({ "planId": { "type": "string" }, "state": { "type": "string" } }), &["planId", "state"])
}
