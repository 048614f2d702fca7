//! Workflows, artifacts and histories as resources and tools show them, with the JSON Schemas of what is shown.

use nuncio_engine::{Profile, clock::Timestamp};
use serde_json::{Map, Value, json};

use super::{
    gate::{Verdict, Violation},
    phase::{Phase, Role},
    store::{Stored, Submitted, artifact_uri, workflow_uri},
    workflow::{Artifact, ArtifactNote, By, Entry, Workflow},
};
use crate::resource::iso;

/// The longest piece of a goal in a list, in characters.
const PREVIEW: usize = 200;

/// A workflow, whole.
pub(super) fn workflow(stored: &Stored) -> Value {
    let workflow = &stored.workflow;
    let phases: Map<String, Value> =
        Phase::ALL.into_iter().map(|phase| (phase.name().into(), phase_state(workflow, phase))).collect();
    let artifacts: Vec<Value> =
        workflow.artifacts.iter().map(|artifact| note(&workflow.context_id, artifact)).collect();
    json!({
        "contextId": workflow.context_id,
        "currentPhase": workflow.current,
        "done": workflow.is_done(),
        "phases": phases,
        "artifacts": artifacts,
        "metadata": {
            "startTime": iso(workflow.started_at),
            "agentType": workflow.current.role(),
            "batchtoolsEnabled": workflow.batchtools_enabled,
            "goal": workflow.goal,
            "lastModified": iso(stored.updated_at),
            "historyEntries": workflow.entries,
        },
    })
}

fn phase_state(workflow: &Workflow, phase: Phase) -> Value {
    let state = workflow.phase(phase);
    let last = workflow.last_version(phase);
    json!({
        "status": state.status,
        "attempts": state.attempts,
        "enteredAt": time(state.entered_at),
        "passedAt": time(state.passed_at),
        "agentType": phase.role(),
        "artifact": last.map(|version| artifact_uri(&workflow.context_id, phase, version)),
        "gate": state.gate.as_ref().map(verdict),
        "reason": state.reason,
    })
}

fn time(at: Option<Timestamp>) -> Option<String> {
    at.map(iso)
}

/// What a gate said.
pub(super) fn verdict(verdict: &Verdict) -> Value {
    json!({
        "passed": verdict.passed,
        "checkedAt": iso(verdict.checked_at),
        "violations": violations(&verdict.violations),
        "command": verdict.command.as_ref().map(super::command::CommandReport::to_json),
    })
}

fn violations(violations: &[Violation]) -> Value {
    violations.iter().map(|found| json!({ "path": found.path, "message": found.message })).collect()
}

fn note(context_id: &str, note: &ArtifactNote) -> Value {
    json!({
        "phase": note.phase,
        "version": note.version,
        "uri": artifact_uri(context_id, note.phase, note.version),
        "created": iso(note.created),
        "by": by(&note.by),
        "size": note.size,
        "passed": note.passed,
    })
}

fn by(by: &By) -> Value {
    json!({ "caller": by.caller, "agent": by.agent, "task": by.task })
}

/// One artifact.
pub(super) fn artifact(context_id: &str, artifact: &Artifact) -> Value {
    let mut shown = note(context_id, &artifact.note);
    shown["contextId"] = context_id.into();
    shown["gate"] = verdict(&artifact.gate);
    shown["content"] = artifact.content.clone();
    shown
}

/// A page of a history.
pub(super) fn history(stored: &Stored, entries: &[Entry]) -> Value {
    let total = stored.workflow.entries;
    let next = entries.last().map(|entry| entry.n).filter(|n| *n < total);
    let entries: Vec<Value> = entries
        .iter()
        .map(|entry| {
            json!({
                "n": entry.n,
                "when": iso(entry.at),
                "who": by(&entry.by),
                "what": entry.what,
                "phase": entry.phase,
                "version": entry.version,
                "outcome": entry.outcome,
                "detail": entry.detail,
            })
        })
        .collect();
    json!({ "contextId": stored.workflow.context_id, "entries": entries, "total": total, "next": next })
}

/// One line of a list.
pub(super) fn line(stored: &Stored, redact: impl Fn(&str) -> String) -> Value {
    let workflow = &stored.workflow;
    let goal: String = redact(&workflow.goal).chars().take(PREVIEW).collect();
    json!({
        "contextId": workflow.context_id,
        "uri": workflow_uri(&workflow.context_id),
        "goal": goal,
        "currentPhase": workflow.current,
        "status": workflow.phase(workflow.current).status,
        "done": workflow.is_done(),
        "startTime": iso(workflow.started_at),
        "lastModified": iso(stored.updated_at),
    })
}

/// What came of an artifact.
pub(super) fn submitted(context_id: &str, submitted: &Submitted) -> Value {
    json!({
        "contextId": context_id,
        "phase": submitted.phase,
        "version": submitted.version,
        "uri": artifact_uri(context_id, submitted.phase, submitted.version),
        "passed": submitted.verdict.passed,
        "gate": verdict(&submitted.verdict),
        "currentPhase": submitted.current,
        "done": submitted.done,
    })
}

/// The same in a sentence, with everything that was wrong.
pub(super) fn submitted_in_words(submitted: &Submitted) -> String {
    let Submitted { phase, version, verdict, current, done } = submitted;
    if *done && verdict.passed {
        return format!("{phase} version {version} has passed its gate: all five phases have passed.");
    }
    if verdict.passed {
        return format!("{phase} version {version} has passed its gate; {current} is next.");
    }
    let wrong = verdict.in_words();
    format!("{phase} version {version} did not pass its gate. Correct this and submit it again:\n{wrong}")
}

/// What an agent can do, from its live profile.
pub(super) fn capabilities(role: Role, profile: &Profile) -> Value {
    let skills: Vec<Value> = profile
        .skills
        .iter()
        .map(|skill| {
            json!({
                "id": skill.id,
                "name": skill.name,
                "description": skill.description,
                "tags": skill.tags,
                "examples": skill.examples,
            })
        })
        .collect();
    json!({
        "agentType": role,
        "name": profile.name,
        "description": profile.description,
        "version": profile.version,
        "skills": skills,
        "specializations": role.phases(),
        "inputModes": profile.input_modes,
        "outputModes": profile.output_modes,
        "streaming": profile.streaming,
        "pushNotifications": profile.push_notifications,
        "inputSchema": profile.input_schema,
    })
}

/// JSON Schemas of what is shown.
pub(super) mod schema {
    use super::*;

    fn object(properties: Value) -> Value {
        let required: Vec<Value> = properties
            .as_object()
            .into_iter()
            .flat_map(|all| all.keys().cloned().map(Value::String))
            .collect();
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    }

    fn list(items: Value) -> Value {
        json!({ "type": "array", "items": items })
    }

    fn nullable(kind: &str) -> Value {
        json!({ "type": [kind, "null"] })
    }

    fn or_null(schema: Value) -> Value {
        json!({ "anyOf": [schema, { "type": "null" }] })
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

    pub(in crate::sparc) fn phase() -> Value {
        json!({ "type": "string", "enum": Phase::ALL })
    }

    fn role() -> Value {
        json!({ "type": "string", "enum": Role::ALL })
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

    pub(in crate::sparc) fn workflow() -> Value {
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
            Phase::ALL.into_iter().map(|phase| (phase.name().into(), state.clone())).collect();
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

    pub(in crate::sparc) fn artifact() -> Value {
        let mut properties = note();
        properties.insert("contextId".into(), text());
        properties.insert("gate".into(), gate());
        properties.insert("content".into(), json!({}));
        object(Value::Object(properties))
    }

    pub(in crate::sparc) fn history() -> Value {
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

    pub(in crate::sparc) fn template() -> Value {
        object(json!({
            "phase": phase(),
            "template": { "type": "object", "additionalProperties": { "type": "string" } },
            "guidelines": text(),
            "examples": list(object(json!({ "title": text(), "artifact": { "type": "object" } }))),
            "validation": { "type": "object" },
        }))
    }

    pub(in crate::sparc) fn capabilities() -> Value {
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

    pub(in crate::sparc) fn submitted() -> Value {
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

    pub(in crate::sparc) fn listed() -> Value {
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

    /// What a role agent's work came to.
    pub(in crate::sparc) fn worked() -> Value {
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

    /// What a run of the coordinator came to.
    pub(in crate::sparc) fn ran() -> Value {
        object(json!({
            "contextId": text(),
            "uri": text(),
            "currentPhase": phase(),
            "done": yes_or_no(),
            "phases": list(object(json!({ "phase": phase(), "version": count(), "uri": text() }))),
        }))
    }
}
