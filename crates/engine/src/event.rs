//! The public log of a task, and the format in which it is stored.
//!
//! `Event` is closed: everything that anybody sees of a task, in any protocol, is one of these. A batch is
//! what one commit wrote; the store keeps it as one opaque row. Stored bytes begin with a format version,
//! and `tests/it/golden/` holds a file of every version that was ever written: they must decode for ever.

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
    task::State,
};

/// One public entry of a task's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// Somebody spoke. The first event of every task is the message that made it.
    Message(Message),
    /// The state changed.
    Status(Status),
    /// A piece of a result.
    Artifact(ArtifactChunk),
    /// How far the work is. Not part of the history.
    Progress(Progress),
    /// A line of the agent's log.
    Log(LogLine),
    /// The agent asks; the task waits.
    Question(Question),
    /// A question was answered; the task goes on.
    Answer(QuestionAnswer),
    /// A question was taken back by whoever put it: nobody has answered, and nobody needs to.
    Withdrawn(QuestionWithdrawal),
}

impl Event {
    /// About how many bytes it holds.
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

/// A change of state, with what the agent says about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The new state.
    pub state: State,
    /// Words for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

/// A piece of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactChunk {
    /// The artifact that it belongs to.
    pub id: String,
    /// The artifact's position among the task's artifacts, from 0.
    pub index: u32,
    /// The pieces.
    pub parts: Vec<Part>,
    /// Whether the pieces follow what is there; otherwise they replace it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// Whether the artifact is complete with this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// A name for people; in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the artifact is; in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Attributes of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// URIs of the protocol extensions that the artifact uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

/// How far the work is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// What is done so far, in the agent's own unit.
    pub done: f64,
    /// What there is to do, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What is going on, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What is going on, for programs: a `type`, and what belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

/// A line of the agent's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// How grave it is.
    pub level: Level,
    /// The line.
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

/// The end of a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionAnswer {
    /// Which question.
    pub question: String,
    /// The answer.
    pub answer: Answer,
    /// Whether other questions are still open, so that the task goes on waiting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// A question that needs no answer any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionWithdrawal {
    /// Which question.
    pub question: String,
    /// Whether other questions are still open, so that the task goes on waiting.
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

    /// What happened.
    pub fn event(&self) -> &Event {
        &self.1
    }
}

/// Consecutive entries of one task's log: what one commit wrote, or a run of it.
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
}

/// The version that is written today.
pub const FORMAT: u8 = 1;

/// The bytes of a batch, as a store keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedBatch {
    /// How many entries.
    pub count: u32,
    /// A format version, then the entries.
    pub bytes: Bytes,
}

/// A stored batch could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Written by a newer version.
    #[error("events in format {0}; this version reads up to {FORMAT}: run a newer nuncio")]
    Newer(u8),
    /// Not what was written.
    #[error("a stored batch of events is damaged: {0}")]
    Damaged(String),
}

/// Writes entries in today's format.
pub fn encode(entries: &[Entry]) -> EncodedBatch {
    let mut bytes = Vec::with_capacity(64 + entries.len() * 192);
    bytes.push(FORMAT);
    #[allow(clippy::expect_used, reason = "string keys and a Vec as the sink: neither can fail")]
    serde_json::to_writer(&mut bytes, entries).expect("events always serialize");
    EncodedBatch { count: entries.len() as u32, bytes: bytes.into() }
}

/// An entry of an outline: an artifact or a line of the log is passed over, however large it is.
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
}

impl OutlineEntry {
    /// The entry, unless it was passed over.
    pub(crate) fn shown(self) -> Option<Entry> {
        let event = match self.1 {
            OutlineEvent::Message(message) => Event::Message(message),
            OutlineEvent::Status(status) => Event::Status(status),
            OutlineEvent::Progress(progress) => Event::Progress(progress),
            OutlineEvent::Question(question) => Event::Question(question),
            OutlineEvent::Answer(answered) => Event::Answer(answered),
            OutlineEvent::Artifact(_) | OutlineEvent::Log(_) => return None,
        };
        Some(Entry(self.0, event))
    }
}

/// Reads entries in any format that was ever written, without artifacts and log lines.
pub(crate) fn decode_outline(bytes: &[u8]) -> Result<Vec<OutlineEntry>, FormatError> {
    decode_as(bytes)
}

/// Reads entries in any format that was ever written.
pub fn decode(bytes: &[u8]) -> Result<Vec<Entry>, FormatError> {
    decode_as(bytes)
}

fn decode_as<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<T>, FormatError> {
    match bytes.split_first() {
        Some((1, json)) => serde_json::from_slice(json).map_err(|e| FormatError::Damaged(e.to_string())),
        Some((version, _)) if *version > FORMAT => Err(FormatError::Newer(*version)),
        _ => Err(FormatError::Damaged("no format version".into())),
    }
}
