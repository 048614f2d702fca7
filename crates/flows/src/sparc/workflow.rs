//! The workflow state machine: a command goes in; the new state and the records to write come out. It performs
//! no I/O; that is in `store.rs` and `workflows.rs`.
//!
//! Phases before the current one have passed, those after it are pending. No phase is skipped. Going back makes
//! the later phases pending again and leaves the artifacts unchanged: each one is a permanent version.

use nuncio_engine::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    gate::GateVerdict,
    phase::{SparcPhase, names},
};

/// Maximum artifacts of one phase.
pub const MAX_VERSIONS: u32 = 200;
/// Idempotency keys that are remembered, to detect repeated changes.
const REMEMBERED: usize = 64;

/// The status of a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PhaseStatus {
    /// An earlier phase has not passed yet.
    #[default]
    Pending,
    /// The phase is being worked on.
    Active,
    /// The gate has refused an artifact, or the agent or person that worked on the phase has given up. It still
    /// accepts artifacts.
    Blocked,
    /// The gate has accepted an artifact.
    Passed,
}

/// The state of one phase of a workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseState {
    /// The current status.
    pub status: PhaseStatus,
    /// The number of submitted artifacts, over all visits.
    pub attempts: u32,
    /// When the phase was last entered.
    pub entered_at: Option<Timestamp>,
    /// When the gate accepted an artifact.
    pub passed_at: Option<Timestamp>,
    /// The version of the artifact that passed.
    pub passed_version: Option<u32>,
    /// The last verdict since the phase was entered.
    pub gate: Option<GateVerdict>,
    /// Why the agent or person that worked on the phase gave up.
    pub reason: Option<String>,
}

/// The metadata of an artifact, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactNote {
    /// The phase that the artifact belongs to.
    pub phase: SparcPhase,
    /// The version, from 1 for each phase.
    pub version: u32,
    /// When it was submitted.
    pub created: Timestamp,
    /// The caller or agent that submitted it.
    pub by: RecordedActor,
    /// The size of its JSON, in bytes.
    pub size: u64,
    /// Whether the gate accepted it.
    pub passed: bool,
}

/// The author of a change: a caller, or an agent on behalf of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedActor {
    /// The caller's name.
    pub caller: String,
    /// The agent's name, if an agent made the change.
    pub agent: Option<String>,
    /// The id of the agent's task.
    pub task: Option<String>,
}

/// The state of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    /// The name of the workflow, unique within its tenant.
    pub context_id: String,
    /// The goal, as the caller wrote it.
    pub goal: String,
    /// Whether its agents may use the batch engine.
    pub batchtools_enabled: bool,
    /// When the workflow was started.
    pub started_at: Timestamp,
    /// The current phase; the last one when all have passed.
    pub current: SparcPhase,
    /// The phases, in order.
    pub phases: [PhaseState; 5],
    /// The artifacts, oldest first.
    pub artifacts: Vec<ArtifactNote>,
    /// The number of entries in its history.
    pub entries: u64,
    /// The idempotency keys of the latest changes, each with the number of its history entry.
    pub remembered: Vec<(String, u64)>,
}

/// A command to a workflow.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkflowCommand {
    /// Submits an artifact, with the gate's verdict.
    Submit {
        /// The phase of the artifact, which must be the current one.
        phase: SparcPhase,
        /// The content of the artifact.
        artifact: Value,
        /// The size of its JSON, in bytes.
        size: u64,
        /// The gate's verdict on it.
        verdict: GateVerdict,
    },
    /// Goes back to an earlier phase.
    Back {
        /// The phase to go back to.
        to: SparcPhase,
        /// The reason, for the history.
        reason: String,
    },
    /// Marks the current phase as blocked.
    Block {
        /// The phase, which must be the current one.
        phase: SparcPhase,
        /// The reason, for the history.
        reason: String,
    },
}

/// The records to write for a command.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowChange {
    /// The new state of the workflow.
    pub workflow: Workflow,
    /// The new entry of its history.
    pub entry: WorkflowEntry,
    /// The new artifact, if there is one.
    pub artifact: Option<WorkflowArtifact>,
}

/// One entry of a workflow's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowEntry {
    /// The number of the entry, from 1, without gaps.
    pub n: u64,
    /// The time of the change.
    pub at: Timestamp,
    /// The author of the change.
    pub by: RecordedActor,
    /// The kind of change.
    pub what: WorkflowAction,
    /// The phase concerned; for going back, the phase that was returned to.
    pub phase: SparcPhase,
    /// The version of the artifact, if there was one.
    pub version: Option<u32>,
    /// The status of the phase after the change.
    pub outcome: PhaseStatus,
    /// Further details, as text.
    pub detail: Option<String>,
}

/// The kind of a change in a workflow's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowAction {
    /// The workflow was started.
    Started,
    /// An artifact was submitted.
    Submitted,
    /// The workflow went back to an earlier phase.
    WentBack,
    /// The agent or person that worked on the phase gave up.
    Blocked,
}

/// An artifact as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowArtifact {
    /// Its metadata.
    pub note: ArtifactNote,
    /// The gate's verdict on it.
    pub gate: GateVerdict,
    /// The idempotency key of the submission, if it has one.
    pub key: Option<String>,
    /// The content of the artifact.
    pub content: Value,
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowRefusal {
    /// The phase is not the current one.
    #[error(
        "phase: {phase} is not the current phase, {current} is: phases are worked on in their order, and none is skipped"
    )]
    NotCurrent {
        /// The phase that the command named.
        phase: SparcPhase,
        /// The current phase.
        current: SparcPhase,
    },
    /// All phases have passed.
    #[error("all five phases have passed: go back to an earlier phase (sparc_back) to work on it again")]
    Done,
    /// The phase to go back to is not an earlier one.
    #[error("to: {to} does not come before the current phase {current}: {}", back_to(*.current))]
    NotEarlier {
        /// The phase that the command named.
        to: SparcPhase,
        /// The current phase.
        current: SparcPhase,
    },
    /// The reason is empty.
    #[error("reason: going back needs a reason, for those who read the history")]
    NoReason,
    /// The phase has reached its limit of artifacts.
    #[error("{0} has {MAX_VERSIONS} artifacts already (max_versions): start another workflow")]
    TooManyVersions(SparcPhase),
    /// The history has reached its limit of entries.
    #[error("the workflow has a history of {0} entries already (max_history): start another workflow")]
    HistoryFull(u64),
}

fn back_to(current: SparcPhase) -> String {
    match current.earlier() {
        [] => "it is the first, so there is nothing to go back to".into(),
        earlier => format!("it can go back to {}", names(earlier)),
    }
}

impl Workflow {
    /// A new workflow, with the first entry of its history.
    pub fn start(
        context_id: &str,
        goal: &str,
        batchtools_enabled: bool,
        by: RecordedActor,
        key: Option<&str>,
        at: Timestamp,
    ) -> WorkflowChange {
        let mut workflow = Self {
            context_id: context_id.into(),
            goal: goal.into(),
            batchtools_enabled,
            started_at: at,
            current: SparcPhase::Specification,
            phases: <[PhaseState; 5]>::default(),
            artifacts: vec![],
            entries: 0,
            remembered: vec![],
        };
        workflow.enter(SparcPhase::Specification, at);
        let entry =
            workflow.note(by, key, at, WorkflowAction::Started, SparcPhase::Specification, None, None);
        WorkflowChange { workflow, entry, artifact: None }
    }

    /// The state of a phase.
    pub fn phase(&self, phase: SparcPhase) -> &PhaseState {
        &self.phases[phase.index()]
    }

    /// Whether all phases have passed.
    pub fn is_done(&self) -> bool {
        self.phase(SparcPhase::Completion).status == PhaseStatus::Passed
    }

    /// The number of the history entry of the change with this key.
    pub fn made_by(&self, key: &str) -> Option<u64> {
        self.remembered.iter().rev().find(|(known, _)| known == key).map(|(_, n)| *n)
    }

    /// The latest artifact version of a phase, passed or not.
    pub fn last_version(&self, phase: SparcPhase) -> Option<u32> {
        self.artifacts.iter().rev().find(|note| note.phase == phase).map(|note| note.version)
    }

    /// Checks that the phase is the current one and can be worked on.
    pub fn check_current(&self, phase: SparcPhase) -> Result<(), WorkflowRefusal> {
        if phase != self.current {
            return Err(WorkflowRefusal::NotCurrent { phase, current: self.current });
        }
        if self.is_done() { Err(WorkflowRefusal::Done) } else { Ok(()) }
    }

    /// Applies a command to the workflow. `max_history`: the maximum number of entries in its history.
    pub fn decide(
        &self,
        command: WorkflowCommand,
        by: RecordedActor,
        key: Option<&str>,
        at: Timestamp,
        max_history: u64,
    ) -> Result<WorkflowChange, WorkflowRefusal> {
        if self.entries >= max_history {
            return Err(WorkflowRefusal::HistoryFull(max_history));
        }
        let mut next = self.clone();
        match command {
            WorkflowCommand::Submit { phase, artifact, size, verdict } => {
                self.check_current(phase)?;
                let version = self.last_version(phase).unwrap_or(0) + 1;
                if version > MAX_VERSIONS {
                    return Err(WorkflowRefusal::TooManyVersions(phase));
                }
                let passed = verdict.passed;
                let note = ArtifactNote { phase, version, created: at, by: by.clone(), size, passed };
                next.artifacts.push(note.clone());
                next.judge(phase, version, verdict.clone(), at);
                let detail = (!passed).then(|| verdict.in_short());
                let entry = next.note(by, key, at, WorkflowAction::Submitted, phase, Some(version), detail);
                let key = key.map(str::to_owned);
                let artifact = Some(WorkflowArtifact { note, gate: verdict, key, content: artifact });
                Ok(WorkflowChange { workflow: next, entry, artifact })
            }
            WorkflowCommand::Back { to, reason } => {
                if to >= self.current {
                    return Err(WorkflowRefusal::NotEarlier { to, current: self.current });
                }
                if reason.trim().is_empty() {
                    return Err(WorkflowRefusal::NoReason);
                }
                for phase in &SparcPhase::ALL[to.index()..] {
                    let attempts = next.phases[phase.index()].attempts;
                    next.phases[phase.index()] = PhaseState { attempts, ..PhaseState::default() };
                }
                next.enter(to, at);
                let entry = next.note(by, key, at, WorkflowAction::WentBack, to, None, Some(reason));
                Ok(WorkflowChange { workflow: next, entry, artifact: None })
            }
            WorkflowCommand::Block { phase, reason } => {
                self.check_current(phase)?;
                if reason.trim().is_empty() {
                    return Err(WorkflowRefusal::NoReason);
                }
                let state = &mut next.phases[phase.index()];
                state.status = PhaseStatus::Blocked;
                state.reason = Some(reason.clone());
                let entry = next.note(by, key, at, WorkflowAction::Blocked, phase, None, Some(reason));
                Ok(WorkflowChange { workflow: next, entry, artifact: None })
            }
        }
    }

    fn judge(&mut self, phase: SparcPhase, version: u32, verdict: GateVerdict, at: Timestamp) {
        let state = &mut self.phases[phase.index()];
        state.attempts += 1;
        state.reason = None;
        let passed = verdict.passed;
        state.gate = Some(verdict);
        if !passed {
            state.status = PhaseStatus::Blocked;
            return;
        }
        state.status = PhaseStatus::Passed;
        state.passed_at = Some(at);
        state.passed_version = Some(version);
        if let Some(next) = phase.next() {
            self.enter(next, at);
        }
    }

    fn enter(&mut self, phase: SparcPhase, at: Timestamp) {
        self.current = phase;
        let state = &mut self.phases[phase.index()];
        state.status = PhaseStatus::Active;
        state.entered_at = Some(at);
    }

    #[expect(clippy::too_many_arguments, reason = "an entry is made of all of these, and only here")]
    fn note(
        &mut self,
        by: RecordedActor,
        key: Option<&str>,
        at: Timestamp,
        what: WorkflowAction,
        phase: SparcPhase,
        version: Option<u32>,
        detail: Option<String>,
    ) -> WorkflowEntry {
        self.entries += 1;
        let n = self.entries;
        if let Some(key) = key {
            if self.remembered.len() >= REMEMBERED {
                self.remembered.remove(0);
            }
            self.remembered.push((key.into(), n));
        }
        WorkflowEntry { n, at, by, what, phase, version, outcome: self.phase(phase).status, detail }
    }
}

#[cfg(test)]
mod tests;
