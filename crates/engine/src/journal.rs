//! The private record that lets a restarted agent skip what it has done.
//!
//! Every durable effect of the context has a place: its scope and its ordinal there (`branch#3`). A record
//! says what happened at a place; `ReplayJournal` finds it again, and notices when the agent asks for something
//! else at the same place than it did before.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    agent::AgentError,
    clock::Timestamp,
    error::Error,
    event::FormatError,
    question::{Answer, QuestionOutcome},
    store::JournalRecord,
    task::Task,
    task_header::EmitCursor,
};

const FORMAT: u8 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JournalEntry {
    /// A step ended: with a value, or with the words of its failure.
    Step { at: String, name: String, result: Result<Value, String> },
    /// A question was put.
    Asked { at: String, text: String },
    /// It was answered. Written by whoever took the answer.
    Answered { question: String, answer: Answer },
    /// It was taken back: there will be no answer.
    Withdrawn { question: String },
    /// A message that came while the agent worked was given to it here: after so many emissions, or `within` the
    /// barrier of this place. `number` counts the messages behind the one that made the task.
    Received { at: String, number: u64, emitted: u64, within: bool },
    /// A sleep began.
    Slept { at: String, until: Timestamp },
    /// A called task ended like this. Kept whole: the called task may expire before its caller ends.
    Called { at: String, agent: String, task: Box<Task> },
    /// A call was not taken, and why.
    Refused { at: String, agent: String, why: String },
    /// A branch ended, and had emitted so much. Kept here and no longer in the head, which is written with every commit
    /// and would grow with each branch that ever was.
    Left { scope: String, mark: EmitCursor },
    /// A message came under an idempotency key. Not for the agent: a repeat of the message finds it here, and
    /// it was committed with what the message did.
    Heard { key: String, digest: String },
}

impl JournalEntry {
    pub(crate) fn encode(&self) -> JournalRecord {
        let mut bytes = vec![FORMAT];
        // As in `event::encode`: there is nothing in it that could fail.
        let _ = serde_json::to_writer(&mut bytes, self);
        JournalRecord(bytes.into())
    }

    pub(crate) fn decode(record: &JournalRecord) -> Result<Self, Error> {
        match record.0.split_first() {
            Some((&FORMAT, json)) => {
                serde_json::from_slice(json).map_err(|e| FormatError::Damaged(e.to_string()))
            }
            Some((version, _)) => Err(FormatError::Newer(*version)),
            None => Err(FormatError::Damaged("an empty journal record".into())),
        }
        .map_err(|e| Error::Internal(e.to_string()))
    }
}

/// Where a message was given to the agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MessageReceipt {
    pub(crate) at: String,
    pub(crate) emitted: u64,
    pub(crate) within: bool,
}

/// What a task's earlier runs did, by place.
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
        self.records += 1;
        match record {
            JournalEntry::Step { at, name, result } => drop(self.steps.insert(at, (name, result))),
            JournalEntry::Asked { at, text } => drop(self.asked.insert(at, text)),
            JournalEntry::Answered { question, answer } => {
                self.answers.insert(question, QuestionOutcome::Answered(answer));
            }
            JournalEntry::Withdrawn { question } => {
                self.answers.insert(question, QuestionOutcome::Withdrawn);
            }
            JournalEntry::Slept { at, until } => drop(self.sleeps.insert(at, until)),
            JournalEntry::Called { at, agent, task } => drop(self.calls.insert(at, (agent, Ok(task)))),
            JournalEntry::Refused { at, agent, why } => drop(self.calls.insert(at, (agent, Err(why)))),
            JournalEntry::Left { scope, mark } => drop(self.left.insert(scope, mark)),
            JournalEntry::Received { at, number, emitted, within } => {
                self.received.insert(number, MessageReceipt { at, emitted, within });
            }
            JournalEntry::Heard { .. } => {}
        }
    }

    /// Adds what another reading of the same journal found.
    pub(crate) fn merge(&mut self, other: Self) {
        self.steps.extend(other.steps);
        self.asked.extend(other.asked);
        self.answers.extend(other.answers);
        self.sleeps.extend(other.sleeps);
        self.calls.extend(other.calls);
        self.left.extend(other.left);
        self.received.extend(other.received);
        self.records = self.records.max(other.records);
    }

    /// How many records there are.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// What the step at this place returned, if it ended.
    pub(crate) fn step(&self, at: &str, name: &str) -> Result<Option<Result<Value, String>>, AgentError> {
        self.same_kind(at, "step", self.steps.contains_key(at))?;
        match self.steps.get(at) {
            None => Ok(None),
            Some((recorded, result)) if recorded == name => Ok(Some(result.clone())),
            Some((recorded, _)) => Err(differs(at, &format!("step {recorded:?}"), &format!("step {name:?}"))),
        }
    }

    /// Whether the question at this place was put already.
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

    /// How much a branch had emitted when it ended, if it did.
    pub(crate) fn left(&self, scope: &str) -> Option<EmitCursor> {
        self.left.get(scope).copied()
    }

    /// Where the message of that number was given to the agent, if it was.
    pub(crate) fn received(&self, number: u64) -> Option<&MessageReceipt> {
        self.received.get(&number)
    }

    /// How many messages were given to a scope before a place of it.
    pub(crate) fn received_before(&self, scope: &str, ordinal: u32) -> u64 {
        let places = self.received.values().filter_map(|received| ordinal_in(scope, &received.at));
        places.filter(|at| *at < ordinal).count() as u64
    }

    /// The last place of a scope at which anything is recorded; 0 where nothing is.
    pub(crate) fn last_ordinal(&self, scope: &str) -> u32 {
        let places = self.steps.keys().chain(self.asked.keys()).chain(self.sleeps.keys());
        let places = places.chain(self.calls.keys()).filter_map(|at| ordinal_in(scope, at));
        places.max().unwrap_or(0)
    }

    /// How a question ended, if it did.
    pub(crate) fn outcome(&self, question: &str) -> Option<&QuestionOutcome> {
        self.answers.get(question)
    }

    /// Until when the sleep at this place lasts, if it began.
    pub(crate) fn slept(&self, at: &str) -> Result<Option<Timestamp>, AgentError> {
        self.same_kind(at, "sleep", self.sleeps.contains_key(at))?;
        Ok(self.sleeps.get(at).copied())
    }

    /// How the call at this place ended, if it did; or why it was not taken.
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

    /// At a place where nothing of the wanted kind is recorded, nothing of another kind may be either.
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

/// The ordinal of a place, if it is one of this scope.
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

    /// Every kind of record that is written today. The file is never changed: see `tests/it/golden.rs`.
    #[test]
    fn records_in_format_1() {
        let golden = include_str!("../tests/it/golden/journal-1.json");
        let lines: Vec<&str> = golden.lines().map(|line| line.trim_end_matches(',')).collect();
        let lines = &lines[1..lines.len() - 1];
        let expected = every_record();
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
        let step = |result| JournalEntry::Step { at: at(), name: "a step".into(), result };
        let answered = |answer| JournalEntry::Answered { question: "q1".into(), answer };
        vec![
            step(Ok(json!({"n": 1.5}))),
            step(Ok(Value::Null)),
            step(Err("it failed".into())),
            JournalEntry::Asked { at: at(), text: "which?".into() },
            answered(Answer::Accept(json!({"x": 1}))),
            answered(Answer::Decline(None)),
            answered(Answer::Cancel),
            answered(Answer::Unavailable),
            JournalEntry::Slept { at: at(), until: Timestamp(1_700_000_000_000) },
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
        }
    }
}
