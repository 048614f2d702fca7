//! The status of a plan. The artifact `plan` begins with the plan itself, and every change of a subtask appends
//! a line. Any reader of the artifact can draw the plan while it runs; this module does it for this server.

use nuncio_engine::{Content, Task, clock::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PLAN, PlanOptions,
    api::{SubtaskStatus, UnavailableAgent},
    file::Plan,
};
use crate::resource::iso;

/// The state of a subtask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SubtaskState {
    /// A dependency is not done.
    #[default]
    Waiting,
    /// An agent works on it.
    Working,
    /// An attempt failed, and a retry follows.
    Retrying,
    /// It succeeded.
    Done,
    /// It failed, and no retry is left.
    Failed,
    /// Not begun, because a required dependency is not done.
    Skipped,
}

impl SubtaskState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Working, Self::Retrying, Self::Done, Self::Failed, Self::Skipped];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Working => "working",
            Self::Retrying => "retrying",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// A one-character symbol for drawings.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Waiting => "·",
            Self::Working => "▶",
            Self::Retrying => "↻",
            Self::Done => "✔",
            Self::Failed => "✘",
            Self::Skipped => "−",
        }
    }

    /// Whether the state is final.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Skipped)
    }

    pub(super) fn colours(self) -> (&'static str, &'static str) {
        match self {
            Self::Waiting => ("#f5f5f5", "#999999"),
            Self::Working => ("#dbeafe", "#2563eb"),
            Self::Retrying => ("#fef3c7", "#d97706"),
            Self::Done => ("#dcfce7", "#16a34a"),
            Self::Failed => ("#fee2e2", "#dc2626"),
            Self::Skipped => ("#e5e7eb", "#6b7280"),
        }
    }
}

/// A line of the artifact: one change of a subtask.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubtaskChange {
    pub(crate) task: String,
    pub(crate) state: SubtaskState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_id: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rerouted_from: Vec<UnavailableAgent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The current status of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanStatus {
    /// The plan that is run.
    pub plan: Plan,
    /// The status of its subtasks, in the order of the plan.
    pub parts: Vec<SubtaskStatus>,
}

impl PlanStatus {
    /// The status of a plan, read from its task. `None`: the task has no plan yet.
    pub fn of(task: &Task, options: &PlanOptions) -> Option<Self> {
        let artifact = task.artifacts.iter().find(|artifact| artifact.id == PLAN)?;
        let mut lines = artifact.parts.iter().filter_map(|part| match &part.content {
            Content::Data(value) => Some(value),
            _ => None,
        });
        let plan = Plan::read(&lines.next()?["plan"], options).ok()?;
        let part = |task: &super::file::PlanTask| SubtaskStatus { id: task.id.clone(), ..Default::default() };
        let mut status = Self { parts: plan.tasks.iter().map(part).collect(), plan };
        let positions: std::collections::HashMap<String, usize> =
            status.plan.tasks.iter().enumerate().map(|(n, task)| (task.id.clone(), n)).collect();
        for line in lines {
            let Ok(changed) = SubtaskChange::deserialize(line) else { continue };
            if let Some(n) = positions.get(&changed.task) {
                status.parts[*n].change(changed);
            }
        }
        Some(status)
    }

    /// The status of the subtask with that id.
    pub fn part(&self, id: &str) -> Option<&SubtaskStatus> {
        self.parts.iter().find(|part| part.id == id)
    }

    /// The number of subtasks in a final state.
    pub fn finished_count(&self) -> usize {
        self.parts.iter().filter(|part| part.state.is_over()).count()
    }
}

impl SubtaskStatus {
    fn change(&mut self, changed: SubtaskChange) {
        self.state = changed.state;
        self.why = changed.why;
        self.attempts = self.attempts.max(changed.attempts);
        self.agent = changed.agent.or(self.agent.take());
        self.task_id = changed.task_id.or(self.task_id.take());
        self.started_at = self.started_at.take().or_else(|| changed.started_at.map(iso));
        self.duration_ms = changed.duration_ms.or(self.duration_ms);
        self.rerouted_from = changed.rerouted_from;
    }
}
