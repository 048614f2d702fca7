//! The public log of a task, and its storage format.
//!
//! `Event` is closed: everything that a client sees of a task, in any protocol, is one of its variants. A
//! batch is what one commit wrote; the store keeps it as one opaque row. Stored bytes begin with a format
//! version. `tests/it/golden/` holds a file of every version ever written, and each must decode forever.

use std::sync::Arc;

use bytes::Bytes;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::{
    clock::Timestamp,
    content::{Message, Metadata, Part, json_size},
    question::{Answer, Question},
    sent_by::SentBy,
    stored_json,
    task::State,
};

/// One public entry of a task's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A message of the caller or the agent. The first event of every task is the message that created it.
    Message(Message),
    /// The state changed.
    Status(Status),
    /// A chunk of a result.
    Artifact(ArtifactChunk),
    /// How far the work has come. Not part of the history.
    Progress(Progress),
    /// A line of the agent's log.
    Log(LogLine),
    /// The agent asks a question; the task waits.
    Question(Question),
    /// A question was answered; the task continues.
    Answer(QuestionAnswer),
    /// A question was withdrawn by the agent that asked it: it has no answer and needs none.
    Withdrawn(QuestionWithdrawal),
}

impl Event {
    /// Whether a client that gets this event knows that there is a task, so that its agent can no longer
    /// answer with a message alone. Not so: the start of the work, and log lines.
    pub fn shows_task(&self) -> bool {
        match self {
            Self::Log(_) => false,
            Self::Status(status) => status.message.is_some() || status.state != State::Working,
            _ => true,
        }
    }

    /// The message with which the agent answered instead of a task, if this event is that answer.
    pub fn reply(&self) -> Option<&Message> {
        match self {
            Self::Status(Status { state: State::Replied, message, .. }) => message.as_ref(),
            _ => None,
        }
    }

    /// Who sent it, where that is recorded: a message of the caller after the first, an answer, or the end that a cancel
    /// request caused.
    pub fn by(&self) -> Option<&SentBy> {
        match self {
            Self::Message(message) => message.by.as_deref(),
            Self::Status(status) => status.by.as_deref(),
            Self::Answer(answered) => answered.by.as_deref(),
            _ => None,
        }
    }

    /// The approximate size in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Message(message) => message.size(),
            Self::Status(status) => status.message.as_ref().map_or(0, Message::size),
            Self::Artifact(chunk) => chunk.parts.iter().map(Part::size).sum(),
            Self::Progress(progress) => {
                progress.text.as_ref().map_or(0, String::len) + progress.data.as_ref().map_or(0, json_size)
            }
            Self::Log(line) => line.text.len(),
            Self::Question(question) => question.size(),
            Self::Answer(answered) => match &answered.answer {
                Answer::Accept(data) => json_size(data),
                Answer::Decline(note) => note.as_ref().map_or(0, String::len),
                Answer::Cancel | Answer::Unavailable => 0,
            },
            Self::Withdrawn(withdrawn) => withdrawn.question.len(),
        }
    }
}

/// A change of state, with the agent's message about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The state that the task enters.
    pub state: State,
    /// A message for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// Who requested the cancelling, if that caused the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<SentBy>>,
}

/// A chunk of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactChunk {
    /// The artifact that it belongs to.
    pub id: String,
    /// The artifact's position among the task's artifacts, from 0.
    pub index: u32,
    /// The content of this chunk.
    pub parts: Vec<Part>,
    /// Whether the parts are appended to the existing ones; otherwise they replace them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// Whether this chunk completes the artifact.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// A display name; in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the artifact contains; in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Attributes of the artifact, from the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the protocol extensions that the artifact uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

/// How far the work has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The amount done so far, in the agent's own unit.
    pub done: f64,
    /// The total amount, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What is being done, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What is being done, for programs: an object with a `type` and its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

/// A line of the agent's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// The severity.
    pub level: Level,
    /// What the agent logged.
    pub text: String,
}

/// Severity, by the names of syslog that MCP uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionAnswer {
    /// The id of the question.
    pub question: String,
    /// What the caller answered.
    pub answer: Answer,
    /// Whether other questions are still open, so that the task keeps waiting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Who answered. Older events do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<SentBy>>,
}

/// A question that no longer needs an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionWithdrawal {
    /// The id of the question.
    pub question: String,
    /// Whether other questions are still open, so that the task keeps waiting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// An event with the time at which it was emitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry(pub Timestamp, pub Event);

impl Entry {
    /// When it was emitted.
    pub fn at(&self) -> Timestamp {
        self.0
    }

    /// The event itself, without its time.
    pub fn event(&self) -> &Event {
        &self.1
    }
}

/// Consecutive entries of one task's log: what one commit wrote, or a part of it.
#[derive(Debug, Clone)]
pub struct EntryBatch {
    /// The sequence number of the first entry.
    pub first_seq: u64,
    /// The entries, in order.
    pub entries: Arc<[Entry]>,
}

impl EntryBatch {
    /// The sequence number of the last entry.
    pub fn last_seq(&self) -> u64 {
        self.first_seq + self.entries.len() as u64 - 1
    }

    /// The entries with their sequence numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        (self.first_seq..).zip(self.entries.iter())
    }

    /// The entries after a cursor that is not before the batch.
    pub(crate) fn after(&self, cursor: u64) -> Self {
        match (cursor + 1 - self.first_seq) as usize {
            0 => self.clone(),
            known => Self { first_seq: cursor + 1, entries: self.entries[known..].into() },
        }
    }
}

/// The format version that this release writes.
pub const FORMAT: u8 = 1;

/// The encoded bytes of a batch, as a store keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedBatch {
    /// The number of entries.
    pub count: u32,
    /// A format version, then the entries.
    pub bytes: Bytes,
}

/// Why a stored batch could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Written by a newer version of nuncio.
    #[error("events in format {0}; this version reads up to {FORMAT}: run a newer nuncio")]
    Newer(u8),
    /// The bytes are not a valid batch.
    #[error("a stored batch of events is damaged: {0}")]
    Damaged(String),
}

/// Encodes entries in the current format.
pub fn encode(entries: &[Entry]) -> EncodedBatch {
    let mut bytes = Vec::with_capacity(64 + entries.len() * 192);
    bytes.push(FORMAT);
    #[allow(clippy::expect_used, reason = "string keys and a Vec as the sink: neither can fail")]
    serde_json::to_writer(&mut bytes, entries).expect("events always serialize");
    EncodedBatch { count: entries.len() as u32, bytes: bytes.into() }
}

/// An entry of an outline. Artifacts and log lines are skipped, whatever their size.
#[derive(Debug, Deserialize)]
pub(crate) struct OutlineEntry(pub(crate) Timestamp, pub(crate) OutlineEvent);

/// The public events without the content that an outline does not show.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OutlineEvent {
    Message(Message),
    Status(Status),
    Artifact(IgnoredAny),
    Progress(Progress),
    Log(IgnoredAny),
    Question(Question),
    Answer(QuestionAnswer),
    Withdrawn(QuestionWithdrawal),
}

impl OutlineEntry {
    /// The entry, unless it was skipped.
    pub(crate) fn shown(self) -> Option<Entry> {
        let event = match self.1 {
            OutlineEvent::Message(message) => Event::Message(message),
            OutlineEvent::Status(status) => Event::Status(status),
            OutlineEvent::Progress(progress) => Event::Progress(progress),
            OutlineEvent::Question(question) => Event::Question(question),
            OutlineEvent::Answer(answered) => Event::Answer(answered),
            OutlineEvent::Withdrawn(withdrawn) => Event::Withdrawn(withdrawn),
            OutlineEvent::Artifact(_) | OutlineEvent::Log(_) => return None,
        };
        Some(Entry(self.0, event))
    }
}

/// Decodes entries in any format ever written, skipping artifacts and log lines.
pub(crate) fn decode_outline(bytes: &[u8]) -> Result<Vec<OutlineEntry>, FormatError> {
    decode_as(bytes)
}

/// Decodes entries in any format ever written.
pub fn decode(bytes: &[u8]) -> Result<Vec<Entry>, FormatError> {
    decode_as(bytes)
}

fn decode_as<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<T>, FormatError> {
    match bytes.split_first() {
        Some((1, json)) => stored_json::read(json).map_err(|e| FormatError::Damaged(e.to_string())),
        Some((version, _)) if *version > FORMAT => Err(FormatError::Newer(*version)),
        _ => Err(FormatError::Damaged("no format version".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list reads outlines: one event that it did not know would make the whole list unreadable.
    #[test]
    fn an_outline_reads_a_question_that_was_withdrawn() {
        let withdrawn = Event::Withdrawn(QuestionWithdrawal { question: "q1".into(), more: false });
        let entries = [Entry(Timestamp(1), withdrawn)];
        let bytes = encode(&entries).bytes;
        let read: Vec<Entry> =
            decode_outline(&bytes).unwrap().into_iter().filter_map(OutlineEntry::shown).collect();
        assert_eq!(read, entries);
    }
}
