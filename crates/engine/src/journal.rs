//! The private journal that lets a restarted agent skip what it has done.
//!
//! Every durable effect of the context has a position: its scope and its ordinal there (`branch#3`). An entry
//! records what happened at a position. `ReplayJournal` looks it up, and detects an agent that does something
//! else at the same position than before.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    agent::AgentError,
    clock::Timestamp,
    error::Error,
    event::FormatError,
    question::{Answer, QuestionOutcome},
    store::{JournalRecord, NodeId},
    stored_json,
    task::Task,
    task_header::EmitCursor,
};

const FORMAT: u8 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JournalEntry {
    /// A step ended: with a value, or with the text of its error. Older entries have no times.
    Step {
        at: String,
        name: String,
        result: Result<Value, String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        began: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Timestamp>,
    },
    /// A question was asked. `emitted`: how much the agent had emitted by then, if it asked in its own scope and not in a
    /// branch; older entries do not have it. A fork is cut here.
    Asked {
        at: String,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emitted: Option<EmitCursor>,
    },
    /// A question was answered. Written by the command that accepted the answer.
    Answered { question: String, answer: Answer },
    /// A question was withdrawn: there will be no answer.
    Withdrawn { question: String },
    /// A message that arrived while the agent worked was delivered to it here: after `emitted` emissions, or
    /// `within` the barrier at this position. `number` counts the messages after the one that created the
    /// task.
    Received { at: String, number: u64, emitted: u64, within: bool },
    /// A sleep began.
    Slept {
        at: String,
        until: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        began: Option<Timestamp>,
    },
    /// A called task ended in this state. Stored whole: the called task may expire before its caller ends.
    Called { at: String, agent: String, task: Box<Task> },
    /// A call was refused, for this reason.
    Refused { at: String, agent: String, why: String },
    /// A branch ended with this emit cursor. Stored here and removed from the header, which is written with
    /// every commit and would otherwise grow with each branch that ever existed.
    Left { scope: String, mark: EmitCursor },
    /// A message arrived with an idempotency key. Not for the agent: a repeat of the message finds it here.
    /// It was committed together with the message's effect.
    Heard { key: String, digest: String },
    /// A node claimed the task and began a run. `attempts`: how many runs before it died with their process, one
    /// after the other, before they committed anything. Not for the agent. Written with the run's first commit, so a
    /// run that committed nothing has none.
    Claimed { epoch: u64, node: NodeId, when: Timestamp, attempts: u32 },
    /// The run of this epoch parked the task: nothing ran after that. Not for the agent.
    Parked { epoch: u64, when: Timestamp },
}

/// The maximum number of [`JournalEntry::Claimed`] and [`JournalEntry::Parked`] that a task has. They are beside
/// `limits.events-per-task`: a task that sleeps often must not run into it earlier.
pub(crate) const MAX_RUN_RECORDS: u64 = 10_000;

impl JournalEntry {
    /// Whether it was written by a branch: at a position of another scope than the agent's own.
    pub(crate) fn is_in_branch(&self) -> bool {
        let at = match self {
            Self::Step { at, .. }
            | Self::Asked { at, .. }
            | Self::Received { at, .. }
            | Self::Slept { at, .. }
            | Self::Called { at, .. }
            | Self::Refused { at, .. } => at,
            Self::Left { .. } => return true,
            Self::Answered { .. }
            | Self::Withdrawn { .. }
            | Self::Heard { .. }
            | Self::Claimed { .. }
            | Self::Parked { .. } => return false,
        };
        // A relayed question has the id of the called task as its position, without an ordinal.
        at.rsplit_once('#').is_some_and(|(scope, _)| !scope.is_empty())
    }

    /// Whether it is about the task's runs and requests, and not for the agent.
    pub(crate) fn is_of_runs(&self) -> bool {
        matches!(self, Self::Heard { .. } | Self::Claimed { .. } | Self::Parked { .. })
    }

    pub(crate) fn encode(&self) -> JournalRecord {
        let mut bytes = vec![FORMAT];
        // As in `event::encode`: serializing these types cannot fail.
        let _ = serde_json::to_writer(&mut bytes, self);
        JournalRecord(bytes.into())
    }

    pub(crate) fn decode(record: &JournalRecord) -> Result<Self, Error> {
        match record.0.split_first() {
            Some((&FORMAT, json)) => stored_json::read(json).map_err(|e| FormatError::Damaged(e.to_string())),
            Some((version, _)) => Err(FormatError::Newer(*version)),
            None => Err(FormatError::Damaged("an empty journal record".into())),
        }
        .map_err(|e| Error::Internal(e.to_string()))
    }
}

/// The position at which a message was delivered to the agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MessageReceipt {
    pub(crate) at: String,
    pub(crate) emitted: u64,
    pub(crate) within: bool,
}

/// What a task's earlier runs did, by position.
#[derive(Debug, Default)]
pub(crate) struct ReplayJournal {
    steps: HashMap<String, (String, Result<Value, String>)>,
    asked: HashMap<String, String>,
    answers: HashMap<String, QuestionOutcome>,
    sleeps: HashMap<String, Timestamp>,
    calls: HashMap<String, (String, Result<Box<Task>, String>)>,
    left: HashMap<String, EmitCursor>,
    received: HashMap<u64, MessageReceipt>,
    records: u64,
    /// How many records of runs there are beside those.
    run_records: u64,
}

impl ReplayJournal {
    pub(crate) fn new(records: &[JournalRecord]) -> Result<Self, Error> {
        let mut replay = Self::default();
        for record in records {
            replay.add(JournalEntry::decode(record)?);
        }
        Ok(replay)
    }

    pub(crate) fn add(&mut self, record: JournalEntry) {
        match &record {
            JournalEntry::Claimed { .. } | JournalEntry::Parked { .. } => self.run_records += 1,
            _ => self.records += 1,
        }
        match record {
            JournalEntry::Step { at, name, result, .. } => drop(self.steps.insert(at, (name, result))),
            JournalEntry::Asked { at, text, .. } => drop(self.asked.insert(at, text)),
            JournalEntry::Answered { question, answer } => {
                self.answers.insert(question, QuestionOutcome::Answered(answer));
            }
            JournalEntry::Withdrawn { question } => {
                self.answers.insert(question, QuestionOutcome::Withdrawn);
            }
            JournalEntry::Slept { at, until, .. } => drop(self.sleeps.insert(at, until)),
            JournalEntry::Called { at, agent, task } => drop(self.calls.insert(at, (agent, Ok(task)))),
            JournalEntry::Refused { at, agent, why } => drop(self.calls.insert(at, (agent, Err(why)))),
            JournalEntry::Left { scope, mark } => drop(self.left.insert(scope, mark)),
            JournalEntry::Received { at, number, emitted, within } => {
                self.received.insert(number, MessageReceipt { at, emitted, within });
            }
            JournalEntry::Heard { .. } | JournalEntry::Claimed { .. } | JournalEntry::Parked { .. } => {}
        }
    }

    /// Merges another read of the same journal.
    pub(crate) fn merge(&mut self, other: Self) {
        self.steps.extend(other.steps);
        self.asked.extend(other.asked);
        self.answers.extend(other.answers);
        self.sleeps.extend(other.sleeps);
        self.calls.extend(other.calls);
        self.left.extend(other.left);
        self.received.extend(other.received);
        self.records = self.records.max(other.records);
        self.run_records = self.run_records.max(other.run_records);
    }

    /// The number of entries, without those about runs.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Whether runs of this task are still recorded.
    pub(crate) fn records_runs(&self) -> bool {
        self.run_records < MAX_RUN_RECORDS
    }

    /// What the step at this position returned, if it ended.
    pub(crate) fn step(&self, at: &str, name: &str) -> Result<Option<Result<Value, String>>, AgentError> {
        self.same_kind(at, "step", self.steps.contains_key(at))?;
        match self.steps.get(at) {
            None => Ok(None),
            Some((recorded, result)) if recorded == name => Ok(Some(result.clone())),
            Some((recorded, _)) => Err(differs(at, &format!("step {recorded:?}"), &format!("step {name:?}"))),
        }
    }

    /// Whether the question at this position was asked already.
    pub(crate) fn asked(&self, at: &str, text: &str) -> Result<bool, AgentError> {
        self.same_kind(at, "question", self.asked.contains_key(at))?;
        match self.asked.get(at) {
            None => Ok(false),
            Some(recorded) if recorded == text => Ok(true),
            Some(recorded) => {
                Err(differs(at, &format!("question {recorded:?}"), &format!("question {text:?}")))
            }
        }
    }

    /// The emit cursor of a branch at its end, if it ended.
    pub(crate) fn left(&self, scope: &str) -> Option<EmitCursor> {
        self.left.get(scope).copied()
    }

    /// Where the message of that number was delivered to the agent, if it was.
    pub(crate) fn received(&self, number: u64) -> Option<&MessageReceipt> {
        self.received.get(&number)
    }

    /// How many messages were delivered to a scope before this ordinal.
    pub(crate) fn received_before(&self, scope: &str, ordinal: u32) -> u64 {
        let places = self.received.values().filter_map(|received| ordinal_in(scope, &received.at));
        places.filter(|at| *at < ordinal).count() as u64
    }

    /// The last ordinal of a scope with an entry; 0 if there is none.
    pub(crate) fn last_ordinal(&self, scope: &str) -> u32 {
        let places = self.steps.keys().chain(self.asked.keys()).chain(self.sleeps.keys());
        let places = places.chain(self.calls.keys()).filter_map(|at| ordinal_in(scope, at));
        places.max().unwrap_or(0)
    }

    /// The outcome of a question, if it has one.
    pub(crate) fn outcome(&self, question: &str) -> Option<&QuestionOutcome> {
        self.answers.get(question)
    }

    /// The end of the sleep at this position, if it began.
    pub(crate) fn slept(&self, at: &str) -> Result<Option<Timestamp>, AgentError> {
        self.same_kind(at, "sleep", self.sleeps.contains_key(at))?;
        Ok(self.sleeps.get(at).copied())
    }

    /// The result of the call at this position, if it ended; or why it was refused.
    pub(crate) fn called(
        &self,
        at: &str,
        agent: &str,
    ) -> Result<Option<Result<Box<Task>, String>>, AgentError> {
        self.same_kind(at, "call", self.calls.contains_key(at))?;
        match self.calls.get(at) {
            None => Ok(None),
            Some((recorded, ended)) if recorded == agent => Ok(Some(ended.clone())),
            Some((recorded, _)) => {
                Err(differs(at, &format!("call of {recorded:?}"), &format!("call of {agent:?}")))
            }
        }
    }

    /// At a position without an entry of the wanted kind, there must be no entry of another kind.
    fn same_kind(&self, at: &str, wanted: &str, found: bool) -> Result<(), AgentError> {
        let there = [
            ("step", self.steps.contains_key(at)),
            ("question", self.asked.contains_key(at)),
            ("sleep", self.sleeps.contains_key(at)),
            ("call", self.calls.contains_key(at)),
        ];
        match there.iter().find(|(_, there)| *there && !found) {
            Some((other, _)) => Err(differs(at, other, wanted)),
            None => Ok(()),
        }
    }
}

/// The ordinal of a position, if it belongs to this scope.
pub(crate) fn ordinal_in(scope: &str, at: &str) -> Option<u32> {
    at.strip_prefix(scope)?.strip_prefix('#')?.parse().ok()
}

fn differs(at: &str, before: &str, now: &str) -> AgentError {
    AgentError::Nondeterministic(format!(
        "at {at:?} there was {before} before the restart, and {now} after it"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::task::{Origin, TaskId};

    /// Every kind of entry, as they were before they had times. The file is never changed: see `tests/it/golden.rs`.
    #[test]
    fn records_in_format_1() {
        holds(include_str!("../tests/it/golden/journal-1.json"), every_record());
    }

    /// Entries with times, and those about runs.
    #[test]
    fn records_in_format_1_with_times() {
        let (began, ended) = (Some(Timestamp(1_700_000_000_000)), Some(Timestamp(1_700_000_000_250)));
        let step =
            |result| JournalEntry::Step { at: "#1".into(), name: "a step".into(), result, began, ended };
        let node = NodeId(Uuid::from_u128(9));
        let expected = vec![
            step(Ok(json!(1))),
            step(Err("it failed".into())),
            JournalEntry::Slept { at: "#2".into(), until: Timestamp(1_700_000_060_000), began },
            JournalEntry::Claimed { epoch: 2, node, when: Timestamp(1_700_000_000_500), attempts: 1 },
            JournalEntry::Parked { epoch: 2, when: Timestamp(1_700_000_001_000) },
        ];
        holds(include_str!("../tests/it/golden/journal-1-times.json"), expected);
    }

    /// A question with the cursor at which a fork is cut.
    #[test]
    fn records_in_format_1_with_cursors() {
        let emitted = Some(EmitCursor { n: 3, trail: 7 });
        let asked = JournalEntry::Asked { at: "#2".into(), text: "which?".into(), emitted };
        holds(include_str!("../tests/it/golden/journal-1-cursors.json"), vec![asked]);
    }

    fn holds(golden: &str, expected: Vec<JournalEntry>) {
        let lines: Vec<&str> = golden.lines().map(|line| line.trim_end_matches(',')).collect();
        let lines = &lines[1..lines.len() - 1];
        assert_eq!(lines.len(), expected.len());
        for (line, expected) in lines.iter().zip(expected) {
            let mut stored = vec![1];
            stored.extend(line.as_bytes());
            let stored = JournalRecord(stored.into());
            assert_eq!(JournalEntry::decode(&stored).unwrap(), expected);
            assert_eq!(
                expected.encode(),
                stored,
                "today's encoding is {}",
                expected.encode().0.escape_ascii()
            );
        }
    }

    #[test]
    fn records_that_cannot_be_read_say_why() {
        let error = |bytes: &'static [u8]| {
            JournalEntry::decode(&JournalRecord(bytes.into())).unwrap_err().to_string()
        };
        assert!(error(b"").contains("damaged"));
        assert!(error(b"\x01{").contains("damaged"));
        assert!(error(b"\x02{}").contains("run a newer nuncio"));
    }

    fn every_record() -> Vec<JournalEntry> {
        let at = || "left/inner#2".to_owned();
        let step =
            |result| JournalEntry::Step { at: at(), name: "a step".into(), result, began: None, ended: None };
        let answered = |answer| JournalEntry::Answered { question: "q1".into(), answer };
        vec![
            step(Ok(json!({"n": 1.5}))),
            step(Ok(Value::Null)),
            step(Err("it failed".into())),
            JournalEntry::Asked { at: at(), text: "which?".into(), emitted: None },
            answered(Answer::Accept(json!({"x": 1}))),
            answered(Answer::Decline(None)),
            answered(Answer::Cancel),
            answered(Answer::Unavailable),
            JournalEntry::Slept { at: at(), until: Timestamp(1_700_000_000_000), began: None },
            JournalEntry::Called { at: at(), agent: "helper".into(), task: Box::new(Task::new(origin())) },
            JournalEntry::Heard { key: "a key".into(), digest: "3q2-7w".into() },
            JournalEntry::Refused { at: at(), agent: "helper".into(), why: "nobody is called so".into() },
            JournalEntry::Left { scope: "left/inner".into(), mark: EmitCursor { n: 3, trail: 7 } },
            JournalEntry::Withdrawn { question: "q1".into() },
            JournalEntry::Received { at: at(), number: 1, emitted: 5, within: true },
        ]
    }

    fn origin() -> Origin {
        let id = TaskId(Uuid::from_u128(7));
        Origin {
            id,
            client_id: None,
            context: id.own_context(),
            agent: "helper".into(),
            owner: "local".into(),
            dialect: "engine".into(),
            metadata: None,
            trace: None,
            accepts_reply: false,
        }
    }
}
