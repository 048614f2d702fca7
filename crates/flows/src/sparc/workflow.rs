//! A workflow as a state machine: a command comes in, and the new state with what is to be written comes out. It
//! reads nothing and writes nothing; that is `store.rs` and `workflows.rs`.
//!
//! Phases before the current one have passed, those after it are pending. No phase is skipped; going back makes
//! what comes after pending again, and leaves the artifacts as they are: each is a version that stays.

use nuncio_engine::clock::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    gate::GateVerdict,
    phase::{SparcPhase, names},
};

/// Artifacts that one phase may have.
pub const MAX_VERSIONS: u32 = 200;
/// Changes whose keys are remembered, so that one that is repeated is noticed.
const REMEMBERED: usize = 64;

/// Where a phase stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseStatus {
    /// Its turn has not come.
    #[default]
    Pending,
    /// It is worked on.
    Active,
    /// Its gate has refused an artifact, or whoever worked on it has given up. It still takes artifacts.
    Blocked,
    /// Its gate has let an artifact through.
    Passed,
}

/// One phase of one workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseState {
    /// Where it stands.
    pub status: PhaseStatus,
    /// Artifacts that were submitted, over all visits.
    pub attempts: u32,
    /// When it was last entered.
    pub entered_at: Option<Timestamp>,
    /// When its gate let it through.
    pub passed_at: Option<Timestamp>,
    /// The version that passed.
    pub passed_version: Option<u32>,
    /// What the gate last said, since the phase was entered.
    pub gate: Option<GateVerdict>,
    /// Why whoever worked on it gave up.
    pub reason: Option<String>,
}

/// What is said about an artifact without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactNote {
    /// The phase that it belongs to.
    pub phase: SparcPhase,
    /// From 1, for each phase.
    pub version: u32,
    /// When it was submitted.
    pub created: Timestamp,
    /// By whom.
    pub by: RecordedActor,
    /// Bytes of its JSON.
    pub size: u64,
    /// Whether the gate let it through.
    pub passed: bool,
}

/// Who did something: a caller, or an agent for a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedActor {
    /// The caller.
    pub caller: String,
    /// The agent, where it was one.
    pub agent: Option<String>,
    /// The agent's task.
    pub task: Option<String>,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    /// Its name.
    pub context_id: String,
    /// What it is to achieve.
    pub goal: String,
    /// Whether whoever works on it may use the batch engine.
    pub batchtools_enabled: bool,
    /// When it was started.
    pub started_at: Timestamp,
    /// The phase that is worked on; the last one when all have passed.
    pub current: SparcPhase,
    /// The phases, in their order.
    pub phases: [PhaseState; 5],
    /// The artifacts, oldest first.
    pub artifacts: Vec<ArtifactNote>,
    /// How many entries its history has.
    pub entries: u64,
    /// Keys of the last changes that had one, each with the number of its entry.
    pub remembered: Vec<(String, u64)>,
}

/// What somebody wants.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkflowCommand {
    /// Submits an artifact, which the gate has judged.
    Submit {
        /// For this phase, which has to be the current one.
        phase: SparcPhase,
        /// The artifact.
        artifact: Value,
        /// Bytes of its JSON.
        size: u64,
        /// What the gate says.
        verdict: GateVerdict,
    },
    /// Goes back to an earlier phase.
    Back {
        /// To this one.
        to: SparcPhase,
        /// Why.
        reason: String,
    },
    /// Gives up on the current phase for now.
    Block {
        /// The phase, which has to be the current one.
        phase: SparcPhase,
        /// Why.
        reason: String,
    },
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowChange {
    /// The workflow from now on.
    pub workflow: Workflow,
    /// What goes into its history.
    pub entry: WorkflowEntry,
    /// The artifact, where there is one.
    pub artifact: Option<WorkflowArtifact>,
}

/// One line of a workflow's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowEntry {
    /// From 1, without gaps.
    pub n: u64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: RecordedActor,
    /// What.
    pub what: WorkflowAction,
    /// The phase that it was about; of going back, the one that was gone back to.
    pub phase: SparcPhase,
    /// The version of the artifact, where there was one.
    pub version: Option<u32>,
    /// What came of it: where the phase stood afterwards.
    pub outcome: PhaseStatus,
    /// More about it, in words.
    pub detail: Option<String>,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowAction {
    /// The workflow was started.
    Started,
    /// An artifact was submitted.
    Submitted,
    /// It went back to an earlier phase.
    WentBack,
    /// Whoever worked on the phase gave up.
    Blocked,
}

/// An artifact as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkflowArtifact {
    /// What is said about it.
    pub note: ArtifactNote,
    /// What the gate said.
    pub gate: GateVerdict,
    /// What identifies the submission, where it has to be one however often it is tried.
    pub key: Option<String>,
    /// The artifact itself.
    pub content: Value,
}

/// Why nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowRefusal {
    /// The phase is not the current one.
    #[error(
        "phase: {phase} is not the current phase, {current} is: phases are worked on in their order, and none is skipped"
    )]
    NotCurrent {
        /// The one that was asked for.
        phase: SparcPhase,
        /// The one that it is.
        current: SparcPhase,
    },
    /// All phases have passed.
    #[error("all five phases have passed: go back to an earlier phase (sparc_back) to work on it again")]
    Done,
    /// Not an earlier phase.
    #[error("to: {to} does not come before the current phase {current}: {}", back_to(*.current))]
    NotEarlier {
        /// Where it was to go.
        to: SparcPhase,
        /// Where it is.
        current: SparcPhase,
    },
    /// No reason was given.
    #[error("reason: going back needs a reason, for those who read the history")]
    NoReason,
    /// The phase has as many artifacts as it may.
    #[error("{0} has {MAX_VERSIONS} artifacts already (max_versions): start another workflow")]
    TooManyVersions(SparcPhase),
    /// The history is as long as it may be.
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
    /// A workflow that begins now, with the first entry of its history.
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

    /// A phase of it.
    pub fn phase(&self, phase: SparcPhase) -> &PhaseState {
        &self.phases[phase.index()]
    }

    /// Whether all phases have passed.
    pub fn is_done(&self) -> bool {
        self.phase(SparcPhase::Completion).status == PhaseStatus::Passed
    }

    /// The number of the entry that a change with this key made.
    pub fn made_by(&self, key: &str) -> Option<u64> {
        self.remembered.iter().rev().find(|(known, _)| known == key).map(|(_, n)| *n)
    }

    /// The last artifact of a phase, passed or not.
    pub fn last_version(&self, phase: SparcPhase) -> Option<u32> {
        self.artifacts.iter().rev().find(|note| note.phase == phase).map(|note| note.version)
    }

    /// Whether that phase can be worked on now.
    pub fn check_current(&self, phase: SparcPhase) -> Result<(), WorkflowRefusal> {
        if phase != self.current {
            return Err(WorkflowRefusal::NotCurrent { phase, current: self.current });
        }
        if self.is_done() { Err(WorkflowRefusal::Done) } else { Ok(()) }
    }

    /// What a command comes to. `max_history` is what its history may hold.
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
