//! The answers of SPARC tools and resources, made from stored workflows.

use nuncio_engine::{Profile, Skill, clock::Timestamp};
use serde_json::Value;

use super::{
    api::{
        ActorAnswer, ArtifactAnswer, ArtifactSummary, CapabilitiesAnswer, CommandAnswer, GateAnswer,
        HistoryEntryAnswer, PhaseAnswer, SkillAnswer, SparcSubmitAnswer, SparcTime, WorkflowAnswer,
        WorkflowHistoryAnswer, WorkflowMetadata, WorkflowPhases, WorkflowSummary,
    },
    command::CommandReport,
    gate::GateVerdict,
    phase::{SparcPhase, SparcRole},
    resources::{artifact_uri, workflow_uri},
    store::StoredWorkflow,
    workflow::{ArtifactNote, RecordedActor, Workflow, WorkflowArtifact, WorkflowEntry},
    workflows::SubmissionResult,
};
use crate::resource::iso;

/// Maximum characters of a goal in a list.
const PREVIEW: usize = 200;

impl From<Timestamp> for SparcTime {
    fn from(time: Timestamp) -> Self {
        Self(iso(time))
    }
}

/// A workflow with all details.
pub(super) fn workflow(stored: &StoredWorkflow) -> WorkflowAnswer {
    let workflow = &stored.workflow;
    let phase = |phase| phase_state(workflow, phase);
    WorkflowAnswer {
        context_id: workflow.context_id.clone(),
        current_phase: workflow.current,
        done: workflow.is_done(),
        phases: WorkflowPhases {
            specification: phase(SparcPhase::Specification),
            pseudocode: phase(SparcPhase::Pseudocode),
            architecture: phase(SparcPhase::Architecture),
            refinement: phase(SparcPhase::Refinement),
            completion: phase(SparcPhase::Completion),
        },
        artifacts: workflow.artifacts.iter().map(|note| summary(&workflow.context_id, note)).collect(),
        metadata: WorkflowMetadata {
            start_time: workflow.started_at.into(),
            agent_type: workflow.current.role(),
            batchtools_enabled: workflow.batchtools_enabled,
            goal: workflow.goal.clone(),
            last_modified: stored.updated_at.into(),
            history_entries: workflow.entries,
        },
    }
}

fn phase_state(workflow: &Workflow, phase: SparcPhase) -> PhaseAnswer {
    let state = workflow.phase(phase);
    let last = workflow.last_version(phase);
    PhaseAnswer {
        status: state.status,
        attempts: state.attempts,
        entered_at: state.entered_at.map(SparcTime::from),
        passed_at: state.passed_at.map(SparcTime::from),
        agent_type: phase.role(),
        artifact: last.map(|version| artifact_uri(&workflow.context_id, phase, version)),
        gate: state.gate.as_ref().map(GateAnswer::from),
        reason: state.reason.clone(),
    }
}

impl From<&GateVerdict> for GateAnswer {
    fn from(verdict: &GateVerdict) -> Self {
        Self {
            passed: verdict.passed,
            checked_at: verdict.checked_at.into(),
            violations: verdict.violations.clone(),
            command: verdict.command.as_ref().map(CommandAnswer::from),
        }
    }
}

impl From<&CommandReport> for CommandAnswer {
    fn from(report: &CommandReport) -> Self {
        Self {
            command: report.command.clone(),
            exit_code: report.exit_code,
            timed_out: report.timed_out,
            failure: report.failure.clone(),
            duration_ms: report.duration_ms,
            output: report.output.clone(),
            truncated: report.truncated,
        }
    }
}

impl From<&RecordedActor> for ActorAnswer {
    fn from(by: &RecordedActor) -> Self {
        Self { caller: by.caller.clone(), agent: by.agent.clone(), task: by.task.clone() }
    }
}

fn summary(context_id: &str, note: &ArtifactNote) -> ArtifactSummary {
    ArtifactSummary {
        phase: note.phase,
        version: note.version,
        uri: artifact_uri(context_id, note.phase, note.version),
        created: note.created.into(),
        by: (&note.by).into(),
        size: note.size,
        passed: note.passed,
    }
}

/// One artifact.
pub(super) fn artifact(context_id: &str, artifact: &WorkflowArtifact) -> ArtifactAnswer {
    ArtifactAnswer {
        summary: summary(context_id, &artifact.note),
        context_id: context_id.to_owned(),
        gate: (&artifact.gate).into(),
        content: artifact.content.clone(),
    }
}

/// A page of a history.
pub(super) fn history(stored: &StoredWorkflow, entries: &[WorkflowEntry]) -> WorkflowHistoryAnswer {
    let total = stored.workflow.entries;
    let next = entries.last().map(|entry| entry.n).filter(|n| *n < total);
    let answer = |entry: &WorkflowEntry| HistoryEntryAnswer {
        n: entry.n,
        when: entry.at.into(),
        who: (&entry.by).into(),
        what: entry.what,
        phase: entry.phase,
        version: entry.version,
        outcome: entry.outcome,
        detail: entry.detail.clone(),
    };
    WorkflowHistoryAnswer {
        context_id: stored.workflow.context_id.clone(),
        entries: entries.iter().map(answer).collect(),
        total,
        next,
    }
}

/// A workflow as one item of a list.
pub(super) fn line(stored: &StoredWorkflow, redact: impl Fn(&str) -> String) -> WorkflowSummary {
    let workflow = &stored.workflow;
    WorkflowSummary {
        context_id: workflow.context_id.clone(),
        uri: workflow_uri(&workflow.context_id),
        goal: redact(&workflow.goal).chars().take(PREVIEW).collect(),
        current_phase: workflow.current,
        status: workflow.phase(workflow.current).status,
        done: workflow.is_done(),
        start_time: workflow.started_at.into(),
        last_modified: stored.updated_at.into(),
    }
}

/// The result of a submission.
pub(super) fn submitted(context_id: &str, submitted: &SubmissionResult) -> SparcSubmitAnswer {
    SparcSubmitAnswer {
        context_id: context_id.to_owned(),
        phase: submitted.phase,
        version: submitted.version,
        uri: artifact_uri(context_id, submitted.phase, submitted.version),
        passed: submitted.verdict.passed,
        gate: (&submitted.verdict).into(),
        current_phase: submitted.current,
        done: submitted.done,
    }
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
pub(super) fn capabilities(role: SparcRole, profile: &Profile) -> CapabilitiesAnswer {
    let skill = |skill: &Skill| SkillAnswer {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
    };
    CapabilitiesAnswer {
        agent_type: role,
        name: profile.name.clone(),
        description: profile.description.clone(),
        version: profile.version.clone(),
        skills: profile.skills.iter().map(skill).collect(),
        specializations: role.phases(),
        input_modes: profile.input_modes.clone(),
        output_modes: profile.output_modes.clone(),
        streaming: profile.streaming,
        push_notifications: profile.push_notifications,
        input_schema: profile.input_schema.as_ref().and_then(Value::as_object).cloned(),
    }
}
