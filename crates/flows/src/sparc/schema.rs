//! The JSON Schemas of SPARC resources and tool results.

use serde_json::{Map, Value, json};

use super::phase::{SparcPhase, SparcRole};

fn object(properties: Value) -> Value {
    let required: Vec<Value> =
        properties.as_object().into_iter().flat_map(|all| all.keys().cloned().map(Value::String)).collect();
    let mut schema = json!({ "type": "object", "required": required, "additionalProperties": false });
    schema["properties"] = properties;
    schema
}

fn list(items: Value) -> Value {
    let mut schema = json!({ "type": "array" });
    schema["items"] = items;
    schema
}

fn nullable(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

fn or_null(schema: Value) -> Value {
    let mut either = json!({ "anyOf": [null, { "type": "null" }] });
    either["anyOf"][0] = schema;
    either
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn yes_or_no() -> Value {
    json!({ "type": "boolean" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn moment() -> Value {
    json!({ "type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$" })
}

fn or_no_moment() -> Value {
    or_null(moment())
}

pub(super) fn phase() -> Value {
    json!({ "type": "string", "enum": SparcPhase::ALL })
}

fn role() -> Value {
    json!({ "type": "string", "enum": SparcRole::ALL })
}

fn status() -> Value {
    json!({ "type": "string", "enum": ["pending", "active", "blocked", "passed"] })
}

fn by() -> Value {
    object(json!({ "caller": text(), "agent": nullable("string"), "task": nullable("string") }))
}

fn gate() -> Value {
    object(json!({
        "passed": yes_or_no(),
        "checkedAt": moment(),
        "violations": list(object(json!({ "path": text(), "message": text() }))),
        "command": or_null(object(json!({
            "command": list(text()),
            "exitCode": nullable("integer"),
            "timedOut": yes_or_no(),
            "failure": nullable("string"),
            "durationMs": count(),
            "output": text(),
            "truncated": yes_or_no(),
        }))),
    }))
}

fn note() -> Map<String, Value> {
    let properties = json!({
        "phase": phase(),
        "version": { "type": "integer", "minimum": 1 },
        "uri": text(),
        "created": moment(),
        "by": by(),
        "size": count(),
        "passed": yes_or_no(),
    });
    properties.as_object().cloned().unwrap_or_default()
}

pub(super) fn workflow() -> Value {
    let state = object(json!({
        "status": status(),
        "attempts": count(),
        "enteredAt": or_no_moment(),
        "passedAt": or_no_moment(),
        "agentType": role(),
        "artifact": nullable("string"),
        "gate": or_null(gate()),
        "reason": nullable("string"),
    }));
    let phases: Map<String, Value> =
        SparcPhase::ALL.into_iter().map(|phase| (phase.name().into(), state.clone())).collect();
    object(json!({
        "contextId": text(),
        "currentPhase": phase(),
        "done": yes_or_no(),
        "phases": object(Value::Object(phases)),
        "artifacts": list(object(Value::Object(note()))),
        "metadata": object(json!({
            "startTime": moment(),
            "agentType": role(),
            "batchtoolsEnabled": yes_or_no(),
            "goal": text(),
            "lastModified": moment(),
            "historyEntries": count(),
        })),
    }))
}

pub(super) fn artifact() -> Value {
    let mut properties = note();
    properties.insert("contextId".into(), text());
    properties.insert("gate".into(), gate());
    properties.insert("content".into(), json!({}));
    object(Value::Object(properties))
}

pub(super) fn history() -> Value {
    object(json!({
        "contextId": text(),
        "entries": list(object(json!({
            "n": { "type": "integer", "minimum": 1 },
            "when": moment(),
            "who": by(),
            "what": { "type": "string", "enum": ["started", "submitted", "went_back", "blocked"] },
            "phase": phase(),
            "version": nullable("integer"),
            "outcome": status(),
            "detail": nullable("string"),
        }))),
        "total": count(),
        "next": nullable("integer"),
    }))
}

pub(super) fn template() -> Value {
    object(json!({
        "phase": phase(),
        "template": { "type": "object", "additionalProperties": { "type": "string" } },
        "guidelines": text(),
        "examples": list(object(json!({ "title": text(), "artifact": { "type": "object" } }))),
        "validation": { "type": "object" },
    }))
}

pub(super) fn capabilities() -> Value {
    object(json!({
        "agentType": role(),
        "name": text(),
        "description": text(),
        "version": text(),
        "skills": list(object(json!({
            "id": text(),
            "name": text(),
            "description": text(),
            "tags": list(text()),
            "examples": list(text()),
        }))),
        "specializations": list(phase()),
        "inputModes": list(text()),
        "outputModes": list(text()),
        "streaming": yes_or_no(),
        "pushNotifications": yes_or_no(),
        "inputSchema": nullable("object"),
    }))
}

pub(super) fn submitted() -> Value {
    object(json!({
        "contextId": text(),
        "phase": phase(),
        "version": { "type": "integer", "minimum": 1 },
        "uri": text(),
        "passed": yes_or_no(),
        "gate": gate(),
        "currentPhase": phase(),
        "done": yes_or_no(),
    }))
}

pub(super) fn listed() -> Value {
    object(json!({
        "workflows": list(object(json!({
            "contextId": text(),
            "uri": text(),
            "goal": text(),
            "currentPhase": phase(),
            "status": status(),
            "done": yes_or_no(),
            "startTime": moment(),
            "lastModified": moment(),
        }))),
        "next": nullable("string"),
    }))
}

/// The schema of a role agent's result.
pub(super) fn worked() -> Value {
    object(json!({
        "contextId": text(),
        "phase": phase(),
        "outcome": { "type": "string", "enum": ["passed", "went_back", "blocked"] },
        "version": nullable("integer"),
        "uri": nullable("string"),
        "to": or_null(phase()),
        "reason": nullable("string"),
        "artifact": nullable("object"),
    }))
}

/// The schema of the coordinator's result.
pub(super) fn ran() -> Value {
    let mut schema = object(json!({
        "contextId": text(),
        "uri": text(),
        "currentPhase": phase(),
        "done": yes_or_no(),
        "phases": list(object(json!({ "phase": phase(), "version": count(), "uri": text() }))),
    }));
    schema["properties"]["batch"] = json!({ "type": "string", "description": "The batch that stored the artifacts (batchtoolsEnabled)." });
    schema
}
