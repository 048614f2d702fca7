//! Workflows, artifacts and histories as JSON for resources and tools, in the format of `schema.rs`.

use nuncio_engine::{Profile, clock::Timestamp};
use serde_json::{Map, Value, json};

use super::{
    gate::{GateVerdict, Violation},
    phase::{SparcPhase, SparcRole},
    resources::{artifact_uri, workflow_uri},
    store::StoredWorkflow,
    workflow::{ArtifactNote, RecordedActor, Workflow, WorkflowArtifact, WorkflowEntry},
    workflows::SubmissionResult,
};
use crate::resource::iso;

/// Maximum characters of a goal in a list.
const PREVIEW: usize = 200;

/// A workflow with all details.
pub(super) fn workflow(stored: &StoredWorkflow) -> Value {
    let workflow = &stored.workflow;
    let phases: Map<String, Value> = SparcPhase::ALL
        .into_iter()
        .map(|phase| (phase.name().into(), phase_state(workflow, phase)))
        .collect();
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

fn phase_state(workflow: &Workflow, phase: SparcPhase) -> Value {
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

/// The verdict of a gate.
pub(super) fn verdict(verdict: &GateVerdict) -> Value {
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

fn by(by: &RecordedActor) -> Value {
    json!({ "caller": by.caller, "agent": by.agent, "task": by.task })
}

/// One artifact.
pub(super) fn artifact(context_id: &str, artifact: &WorkflowArtifact) -> Value {
    let mut shown = note(context_id, &artifact.note);
    shown["contextId"] = context_id.into();
    shown["gate"] = verdict(&artifact.gate);
    shown["content"] = artifact.content.clone();
    shown
}

/// A page of a history.
pub(super) fn history(stored: &StoredWorkflow, entries: &[WorkflowEntry]) -> Value {
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

/// A workflow as one item of a list.
pub(super) fn line(stored: &StoredWorkflow, redact: impl Fn(&str) -> String) -> Value {
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

/// The result of a submission.
pub(super) fn submitted(context_id: &str, submitted: &SubmissionResult) -> Value {
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

/// The result of a submission as text, with all violations.
pub(super) fn submitted_in_words(submitted: &SubmissionResult) -> String {
    let SubmissionResult { phase, version, verdict, current, done } = submitted;
    if *done && verdict.passed {
        return format!("{phase} version {version} has passed its gate: all five phases have passed.");
    }
    if verdict.passed {
        return format!("{phase} version {version} has passed its gate; {current} is next.");
    }
    let wrong = verdict.in_words();
    format!("{phase} version {version} did not pass its gate. Correct this and submit it again:\n{wrong}")
}

/// The capabilities of an agent, from its current profile.
pub(super) fn capabilities(role: SparcRole, profile: &Profile) -> Value {
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
