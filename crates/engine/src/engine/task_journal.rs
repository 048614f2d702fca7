//! What a task's journal tells about its past: who ran it and when, its steps, sleeps and calls.
//!
//! The log has what callers see; times of the agent's own work are only in the journal.

use serde_json::Value;

use crate::{
    access::{Action, Caller},
    clock::Timestamp,
    engine::Engine,
    error::Error,
    journal::{JournalEntry, MAX_RUN_RECORDS},
    store::{NodeId, TaskRow},
    task::{State, TaskId},
    task_header::TaskHeader,
};

/// The runs of a task, and what its agent did in them.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskJournal {
    /// In the order in which they began.
    pub runs: Vec<RunSpan>,
    /// Whether there were more runs than are recorded.
    pub more_runs: bool,
    /// In the order in which they were journaled.
    pub effects: Vec<JournaledEffect>,
    /// The log's last sequence number when this was read.
    pub last: u64,
}

/// One run: a node that worked on the task.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSpan {
    /// Increases from run to run. A gap: a run that committed nothing.
    pub epoch: u64,
    /// The node.
    pub node: NodeId,
    /// When it began.
    pub began: Timestamp,
    /// When it ended, if that is known: a run that died has no end.
    pub ended: Option<Timestamp>,
    /// How it ended.
    pub end: RunEnd,
    /// How many runs in a row had died before this one began without committing anything.
    pub attempts: u32,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// It has not ended.
    Running,
    /// The task only waited, so nothing was held for it.
    Parked,
    /// The task ended.
    Ended,
    /// Its process died, or lost the task.
    Lost,
    /// Its server stopped and handed the task back.
    HandedBack,
}

/// One journaled effect of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct JournaledEffect {
    /// Where in the agent's work: the scope and the ordinal there, such as `left/inner#2`.
    pub position: String,
    /// When it began, if that is known.
    pub began: Option<Timestamp>,
    /// When it ended, if that is known.
    pub ended: Option<Timestamp>,
    /// What it was.
    pub kind: EffectKind,
}

/// What an agent did.
#[derive(Debug, Clone, PartialEq)]
pub enum EffectKind {
    /// A step that ended.
    Step {
        /// Its name.
        name: String,
        /// Its value, or the text of its error.
        result: Result<Value, String>,
    },
    /// A sleep that began.
    Sleep {
        /// Its end.
        until: Timestamp,
    },
    /// A call that ended.
    Call {
        /// The called agent.
        agent: String,
        /// The task that it was.
        task: TaskId,
        /// How that task ended.
        state: State,
    },
    /// A call that was refused.
    RefusedCall {
        /// The called agent.
        agent: String,
        /// Why.
        why: String,
    },
    /// A question.
    Question {
        /// Its text.
        text: String,
    },
}

impl Engine {
    /// What a task's journal tells. Results of steps are among it: they are the agent's, not the caller's, so a binding
    /// shows them to administrators only.
    pub async fn task_journal(&self, caller: &Caller, task: &str) -> Result<TaskJournal, Error> {
        self.allow_task(caller, Action::Read, "task.journal", task)?;
        let row = self.0.find_row(caller, task).await?;
        let head = TaskHeader::decode(&row.head)?;
        let _permit = self.0.reserve_for(caller, &row).await?;
        let records = self.0.store.journal(row.no).await?;
        let mut effects = vec![];
        let mut runs = RunHistory::of(&row, &head);
        for record in &records {
            let entry = JournalEntry::decode(record)?;
            runs.add(&entry);
            effects.extend(effect_of(entry));
        }
        let more_runs = runs.records >= MAX_RUN_RECORDS;
        Ok(TaskJournal { runs: runs.close(&row), more_runs, effects, last: row.seq })
    }
}

/// The runs, from the records of their claims.
struct RunHistory {
    runs: Vec<RunSpan>,
    records: u64,
}

impl RunHistory {
    fn of(row: &TaskRow, head: &TaskHeader) -> Self {
        let first = head.first_node.map(|node| RunSpan {
            epoch: 1,
            node,
            began: row.created_at,
            ended: None,
            end: RunEnd::Running,
            attempts: 0,
        });
        Self { runs: first.into_iter().collect(), records: 0 }
    }

    fn add(&mut self, entry: &JournalEntry) {
        match *entry {
            JournalEntry::Claimed { epoch, node, when, attempts } => {
                self.records += 1;
                self.settle(attempts);
                self.runs.push(RunSpan {
                    epoch,
                    node,
                    began: when,
                    ended: None,
                    end: RunEnd::Running,
                    attempts,
                });
            }
            JournalEntry::Parked { epoch, when } => {
                self.records += 1;
                if let Some(run) = self.runs.iter_mut().rev().find(|run| run.epoch == epoch) {
                    (run.ended, run.end) = (Some(when), RunEnd::Parked);
                }
            }
            _ => {}
        }
    }

    /// Another run began, or the task has no runner: the last run did not end by itself.
    fn settle(&mut self, attempts: u32) {
        if let Some(run) = self.runs.last_mut().filter(|run| run.end == RunEnd::Running) {
            run.end = if attempts > 0 { RunEnd::Lost } else { RunEnd::HandedBack };
        }
    }

    fn close(mut self, row: &TaskRow) -> Vec<RunSpan> {
        match (row.state.is_terminal(), row.node) {
            (true, _) => {
                if let Some(run) = self.runs.last_mut().filter(|run| run.end == RunEnd::Running) {
                    (run.ended, run.end) = (Some(row.status_at), RunEnd::Ended);
                }
            }
            (false, Some(node)) => {
                // A run that has committed nothing yet has no record.
                if self.runs.last().is_none_or(|run| run.node != node) {
                    self.settle(row.attempts);
                }
            }
            (false, None) => self.settle(row.attempts),
        }
        self.runs
    }
}

fn effect_of(entry: JournalEntry) -> Option<JournaledEffect> {
    let effect = |position, began, ended, kind| Some(JournaledEffect { position, began, ended, kind });
    match entry {
        JournalEntry::Step { at, name, result, began, ended } => {
            effect(at, began, ended, EffectKind::Step { name, result })
        }
        JournalEntry::Slept { at, until, began } => effect(at, began, None, EffectKind::Sleep { until }),
        JournalEntry::Called { at, agent, task } => {
            let kind = EffectKind::Call { agent, task: task.origin.id, state: task.state };
            effect(at, Some(task.origin.id.made_at()), Some(task.status_at), kind)
        }
        JournalEntry::Refused { at, agent, why } => {
            effect(at, None, None, EffectKind::RefusedCall { agent, why })
        }
        JournalEntry::Asked { at, text, .. } => effect(at, None, None, EffectKind::Question { text }),
        JournalEntry::Answered { .. }
        | JournalEntry::Withdrawn { .. }
        | JournalEntry::Received { .. }
        | JournalEntry::Left { .. }
        | JournalEntry::Heard { .. }
        | JournalEntry::Claimed { .. }
        | JournalEntry::Parked { .. } => None,
    }
}
