//! A task's states, and the fold from its events to the [`Task`] that clients see.
//!
//! The fold is the only way to a `Task`. It never fails on a log that the engine wrote: an event that breaks
//! a rule is a bug of the writer, found by the property tests, not an error of the reader.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    clock::Timestamp,
    content::{Artifact, Content, Message, Metadata, Part, Role},
    event::{ArtifactChunk, Entry, Event, Progress, QuestionAnswer, QuestionWithdrawal},
    question::{Ask, Question},
};

/// The caller's messages in a task's history that do not answer a question, oldest first.
pub(crate) fn messages_beside_answers(history: Vec<Message>) -> Vec<Message> {
    let mut asked = false;
    let said = history.into_iter().filter(|message| {
        let answers = std::mem::replace(&mut asked, asks(message));
        message.role == Role::User && !answers
    });
    said.collect()
}

/// How many messages of the caller are in a task's history up to its last answer; 1 if there is no answer.
pub(crate) fn count_until_answer(history: &[Message]) -> usize {
    let (mut asked, mut said, mut until) = (false, 0, 1);
    for message in history {
        let answers = std::mem::replace(&mut asked, asks(message));
        if message.role == Role::User {
            said += 1;
            until = if answers { said } else { until };
        }
    }
    until
}

/// Whether a message of the history is a question. A question moves to the history when it is answered, and
/// the message right after it is the answer.
fn asks(message: &Message) -> bool {
    message.role == Role::Agent && message.data().is_some_and(|data| data.get("questionId").is_some())
}

/// The identity of a task, the same in every protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Uuid);

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl TaskId {
    /// Parses the hyphenated form only: `{…}`, `urn:uuid:` and unhyphenated spellings are not task ids.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 36).then(|| Uuid::try_parse(text).ok().map(Self)).flatten()
    }

    /// The time at which the id was generated.
    pub fn made_at(self) -> Timestamp {
        // UUIDv7: the first 48 bits are the time in milliseconds.
        Timestamp((self.0.as_u128() >> 80) as i64)
    }

    /// The context that a task opens when its caller names none.
    pub fn own_context(self) -> String {
        format!("ctx-{self}")
    }

    /// The task that opened this context, if a task did.
    pub fn of_own_context(context: &str) -> Option<Self> {
        context.strip_prefix("ctx-").and_then(Self::parse)
    }
}

/// A task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Accepted, not started.
    Submitted,
    /// An agent is working on it.
    Working,
    /// Waits for an answer.
    InputRequired,
    /// Waits for an authorization.
    AuthRequired,
    /// Ended successfully.
    Completed,
    /// Ended by an error.
    Failed,
    /// Ended on request.
    Canceled,
    /// Refused by the agent.
    Rejected,
    /// Answered by a message. The record is retained so that a repeated send gets the same message; no client
    /// sees it as a task.
    #[schemars(skip)]
    Replied,
}

impl State {
    /// The states that clients see; the position is the code that stores write.
    pub const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Rejected,
    ];

    /// The state's name, as stored and displayed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input-required",
            Self::AuthRequired => "auth-required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
            Self::Replied => "replied",
        }
    }

    /// The code that stores write. States from 4 on are terminal.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state of a stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            REPLIED => Some(Self::Replied),
            _ => Self::ALL.get(usize::from(code)).copied(),
        }
    }

    /// Whether the state is final.
    pub fn is_terminal(self) -> bool {
        self.code() >= Self::Completed.code()
    }

    /// Whether the task waits for an answer or an authorization.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// The legal transitions: none from a terminal state, none back to submitted, every other one.
    pub fn may_become(self, next: Self) -> bool {
        !self.is_terminal() && next != Self::Submitted
    }
}

/// The code of [`State::Replied`]. Stores leave tasks in this state out of lists and totals.
pub const REPLIED: u8 = State::Replied as u8;

/// A task's immutable attributes, set when it is created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The task's id, the same in every protocol.
    pub id: TaskId,
    /// The id that the client chose. Only clients of A2A 0.1 choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The conversation that it belongs to.
    pub context: String,
    /// The agent that works on it.
    pub agent: String,
    /// The owner: the caller that created it.
    pub owner: String,
    /// The protocol dialect in which it was created, e.g. `a2a/1.0`.
    pub dialect: String,
    /// Attributes that the caller sent with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// W3C `traceparent` of the request that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Whether its caller waits for the answer, and takes a message instead of the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepts_reply: bool,
}

impl Origin {
    /// The id that callers use: the client's own if it chose one.
    pub fn public_id(&self) -> String {
        self.client_id.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// Marks the final message of a task that failed because of a server fault, not by its agent's decision.
const FAULT: &str = "nuncio/fault";

pub(crate) fn as_fault(mut message: Message) -> Message {
    message.metadata.get_or_insert_default().insert(FAULT.into(), true.into());
    message
}

/// Marks the final message of a task that failed because the remote agent could not be reached.
const UNREACHABLE: &str = "nuncio/unreachable";

pub(crate) fn as_unreachable(mut message: Message) -> Message {
    message.metadata.get_or_insert_default().insert(UNREACHABLE.into(), true.into());
    message
}

/// Marks the final message of a task that ended because nobody answered its question.
const UNANSWERED: &str = "nuncio/unanswered";

pub(crate) fn as_unanswered(mut message: Message) -> Message {
    message.metadata.get_or_insert_default().insert(UNANSWERED.into(), true.into());
    message
}

/// A task as of some sequence number: the fold of its events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The immutable attributes.
    pub origin: Origin,
    /// The current state.
    pub state: State,
    /// The time of the current status: when the state was entered, or the latest progress in it was reported.
    pub status_at: Timestamp,
    /// The agent's message about the state.
    pub status_message: Option<Message>,
    /// The latest progress since the state was entered, with its sequence number.
    pub progress: Option<(u64, Progress)>,
    /// The results so far.
    pub artifacts: Vec<Artifact>,
    /// All messages, oldest first. The current status message is not in it yet.
    pub history: Vec<Message>,
    /// Open questions, oldest first, each with the sequence number at which it was asked.
    pub questions: Vec<(u64, Question)>,
    /// The number of events folded: the cursor after which a follower continues.
    pub seq: u64,
    /// When any visible part of it last changed. The epoch before the first event, and in snapshots of
    /// earlier releases, which did not record it.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub changed_at: Timestamp,
}

fn is_unknown(at: &Timestamp) -> bool {
    *at == Timestamp::default()
}

impl Task {
    /// The task before its first event.
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            state: State::Submitted,
            status_at: Timestamp::default(),
            status_message: None,
            progress: None,
            artifacts: vec![],
            history: vec![],
            questions: vec![],
            seq: 0,
            changed_at: Timestamp::default(),
        }
    }

    /// When any visible part of it last changed.
    pub fn modified_at(&self) -> Timestamp {
        self.changed_at.max(self.status_at)
    }

    /// Whether it failed because of a server fault (a panic, an agent that is no longer served) and not by
    /// its agent's decision.
    pub fn is_fault(&self) -> bool {
        let metadata = self.status_message.as_ref().and_then(|message| message.metadata.as_ref());
        self.state == State::Failed && metadata.is_some_and(|metadata| metadata.contains_key(FAULT))
    }

    /// Whether it may still end as a message, because nothing of it was shown so far: then no client may see it
    /// as a task yet.
    pub fn awaits_reply(&self) -> bool {
        self.origin.accepts_reply
            && matches!(self.state, State::Submitted | State::Working)
            && self.history.len() <= 1
            && self.status_message.is_none()
            && self.progress.is_none()
            && self.artifacts.is_empty()
            && self.questions.is_empty()
    }

    /// The message with which the agent answered instead of a task.
    pub fn reply(&self) -> Option<&Message> {
        self.status_message.as_ref().filter(|_| self.state == State::Replied)
    }

    /// Whether it failed because the remote agent could not be reached: the caller may try another agent.
    pub fn is_unreachable(&self) -> bool {
        let metadata = self.status_message.as_ref().and_then(|message| message.metadata.as_ref());
        self.state == State::Failed && metadata.is_some_and(|metadata| metadata.contains_key(UNREACHABLE))
    }

    /// Why it ended, if it ended because nobody answered its question.
    pub fn unanswered(&self) -> Option<String> {
        let message = self.status_message.as_ref().filter(|_| self.state == State::Failed)?;
        message.metadata.as_ref()?.contains_key(UNANSWERED).then(|| message.joined_text())
    }

    /// Folds the given entries into the task.
    #[must_use]
    pub fn fold<'a>(mut self, entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        for entry in entries {
            self.apply(entry);
        }
        self
    }

    /// Applies the next event of the log, from a reference.
    pub fn apply(&mut self, entry: &Entry) {
        self.take(entry.clone());
    }

    /// Applies the next event of the log, by value.
    pub fn take(&mut self, Entry(at, event): Entry) {
        self.seq += 1;
        // Log lines are not part of the visible task.
        if !matches!(event, Event::Log(_)) {
            self.changed_at = at;
        }
        match event {
            Event::Message(mut message) => {
                // A fold is what every protocol shows: it names no caller.
                message.by = None;
                if self.seq == 1 {
                    self.status_at = at;
                }
                self.history.push(message);
            }
            Event::Status(status) => self.enter(status.state, at, status.message),
            Event::Artifact(chunk) => self.take_chunk(chunk),
            Event::Progress(progress) => {
                // Progress is a status of its own: its time is that of the status, in a stream and here.
                if self.state == State::Working {
                    self.status_at = at;
                }
                self.progress = Some((self.seq, progress));
            }
            Event::Log(_) => {}
            Event::Question(question) => {
                self.questions.push((self.seq, question));
                self.show_oldest_question(at);
            }
            Event::Answer(QuestionAnswer { question, .. })
            | Event::Withdrawn(QuestionWithdrawal { question, .. }) => {
                self.questions.retain(|(_, open)| open.id != question);
                // If other questions are open, a status event for the next one follows where needed.
                if self.questions.is_empty() {
                    self.enter(State::Working, at, None);
                }
            }
        }
    }

    fn enter(&mut self, state: State, at: Timestamp, message: Option<Message>) {
        debug_assert!(self.state.may_become(state), "{:?} -> {state:?}", self.state);
        // The message about the old state moves to the history, as in the official A2A servers.
        self.history.extend(self.status_message.take());
        if state.is_terminal() {
            self.questions.clear();
        }
        self.state = state;
        self.status_at = at;
        self.status_message = message;
        self.progress = None;
    }

    /// While questions are open, the oldest of them is the status.
    fn show_oldest_question(&mut self, at: Timestamp) {
        let Some((seq, question)) = self.questions.first() else { return };
        let message = question.message(&self.origin.public_id(), *seq);
        if self.status_message.as_ref().is_some_and(|shown| shown.id == message.id) {
            return;
        }
        let state = state_while_asking(question);
        self.enter(state, at, Some(message));
    }

    fn take_chunk(&mut self, chunk: ArtifactChunk) {
        let index = chunk.index as usize;
        if self.artifacts.len() <= index {
            self.artifacts.push(Artifact {
                id: chunk.id.clone(),
                name: None,
                description: None,
                parts: vec![],
                metadata: None,
                extensions: vec![],
                complete: false,
            });
        }
        let Some(artifact) = self.artifacts.get_mut(index) else { return };
        if !chunk.append {
            artifact.parts.clear();
        }
        match plain_text(&chunk, artifact).zip(artifact.parts.last_mut().and_then(text_of)) {
            Some((more, text)) => text.push_str(more),
            None => artifact.parts.extend(chunk.parts),
        }
        artifact.complete = chunk.last;
        artifact.name = chunk.name.or(artifact.name.take());
        artifact.description = chunk.description.or(artifact.description.take());
        artifact.metadata = chunk.metadata.or(artifact.metadata.take());
        if !chunk.extensions.is_empty() {
            artifact.extensions = chunk.extensions;
        }
    }
}

/// The state that a question puts its task into.
pub fn state_while_asking(question: &Question) -> State {
    match question.ask {
        Ask::Authorization { .. } => State::AuthRequired,
        Ask::Form { .. } | Ask::Sample { .. } => State::InputRequired,
    }
}

/// The text of a chunk that is nothing but more text of the artifact: one bare text, and no attribute that the artifact
/// does not have already. It is joined with the text before it, so that a text of 100,000 chunks is one part. Everything
/// else stays apart, as a client sees it that puts the chunks of a stream together.
fn plain_text<'a>(chunk: &'a ArtifactChunk, artifact: &Artifact) -> Option<&'a str> {
    fn adds<T: PartialEq>(new: Option<&T>, known: Option<&T>) -> bool {
        new.is_some() && new != known
    }
    let [Part { content: Content::Text(text), metadata: None, filename: None, media_type: None }] =
        &chunk.parts[..]
    else {
        return None;
    };
    let attributes = adds(chunk.name.as_ref(), artifact.name.as_ref())
        || adds(chunk.description.as_ref(), artifact.description.as_ref())
        || adds(chunk.metadata.as_ref(), artifact.metadata.as_ref())
        || !(chunk.extensions.is_empty() || chunk.extensions == artifact.extensions);
    (chunk.append && !attributes).then_some(text)
}

/// The text of a bare text part.
fn text_of(part: &mut Part) -> Option<&mut String> {
    match part {
        Part { content: Content::Text(text), metadata: None, filename: None, media_type: None } => Some(text),
        _ => None,
    }
}
