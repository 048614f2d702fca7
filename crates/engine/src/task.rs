//! What a task is: its states, and the fold from events to the `Task` that people see.
//!
//! The fold is the only way to a `Task`. It never fails on a log that the engine wrote; an event that
//! breaks a rule is a bug of the writer, found by the property tests, not an error of the reader.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    clock::Timestamp,
    content::{Artifact, Content, Message, Metadata, Part, Role},
    event::{ArtifactChunk, Entry, Event, Progress, QuestionAnswer, QuestionWithdrawal},
    question::{Ask, Question},
};

/// What the caller said beside answers, of a task's history, oldest first.
pub(crate) fn messages_beside_answers(history: Vec<Message>) -> Vec<Message> {
    let mut asked = false;
    let said = history.into_iter().filter(|message| {
        let answers = std::mem::replace(&mut asked, asks(message));
        message.role == Role::User && !answers
    });
    said.collect()
}

/// How many messages of the caller there are in a task's history up to its last answer; one, where there is none.
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

/// Whether a message of the history is a question. With its answer it becomes history, and the answer is what was said
/// right after it.
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
    /// Reads the hyphenated form, and no other: `{…}`, `urn:uuid:` and unhyphenated spellings are not
    /// names of a task.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 36).then(|| Uuid::try_parse(text).ok().map(Self)).flatten()
    }

    /// When it was given.
    pub fn made_at(self) -> Timestamp {
        // The time stands in the first 48 bits of an id that is ordered by time.
        Timestamp((self.0.as_u128() >> 80) as i64)
    }

    /// The context that a task opens when its caller names none.
    pub fn own_context(self) -> String {
        format!("ctx-{self}")
    }

    /// The task whose own context this is.
    pub fn of_own_context(context: &str) -> Option<Self> {
        context.strip_prefix("ctx-").and_then(Self::parse)
    }
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Accepted, not started.
    Submitted,
    /// An agent is at it.
    Working,
    /// Waits for an answer.
    InputRequired,
    /// Waits for an authorization.
    AuthRequired,
    /// Done.
    Completed,
    /// Ended by an error.
    Failed,
    /// Ended on request.
    Canceled,
    /// The agent would not take it.
    Rejected,
}

impl State {
    /// All states; the position is the code that stores keep.
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

    /// Its name, as it is stored and shown.
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
        }
    }

    /// The number that stores keep. States from 4 on are terminal.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state of a stored number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Whether nothing leaves this state.
    pub fn is_terminal(self) -> bool {
        self.code() >= Self::Completed.code()
    }

    /// Whether the task waits for somebody.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// The legal transitions: from terminal states none, back to submitted none, everything else.
    pub fn may_become(self, next: Self) -> bool {
        !self.is_terminal() && next != Self::Submitted
    }
}

/// What a task is before anything happened to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The task's identity.
    pub id: TaskId,
    /// The id that the client chose, in the one dialect where clients do (A2A 0.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The conversation that it belongs to.
    pub context: String,
    /// The agent that works on it.
    pub agent: String,
    /// Whose it is.
    pub owner: String,
    /// The dialect in which it was made, e.g. `a2a/1.0`.
    pub dialect: String,
    /// Attributes that the caller gave with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// W3C `traceparent` of the request that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Origin {
    /// The id that callers use: their own where they chose one.
    pub fn public_id(&self) -> String {
        self.client_id.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// Marks the last word of a task that failed by a fault of the program.
const FAULT: &str = "nuncio/fault";

pub(crate) fn as_fault(mut message: Message) -> Message {
    message.metadata.get_or_insert_default().insert(FAULT.into(), true.into());
    message
}

/// Marks the last word of a task that failed because nobody could be reached who would do the work.
const UNREACHABLE: &str = "nuncio/unreachable";

pub(crate) fn as_unreachable(mut message: Message) -> Message {
    message.metadata.get_or_insert_default().insert(UNREACHABLE.into(), true.into());
    message
}

/// A task as of some sequence number: the fold of its events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// What it was before its first event.
    pub origin: Origin,
    /// Where it stands.
    pub state: State,
    /// When that state was entered.
    pub status_at: Timestamp,
    /// What the agent said about the state.
    pub status_message: Option<Message>,
    /// The last word on progress since the state was entered, with its sequence number.
    pub progress: Option<(u64, Progress)>,
    /// The results.
    pub artifacts: Vec<Artifact>,
    /// What was said, oldest first. The current status message is not in it yet.
    pub history: Vec<Message>,
    /// Questions that wait for an answer, oldest first, with the sequence number at which each was asked.
    pub questions: Vec<(u64, Question)>,
    /// The number of events folded: the cursor after which a follower continues.
    pub seq: u64,
    /// When anything that is shown of it last changed; before the first event, and where a snapshot of an earlier
    /// release did not know, the beginning of time.
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

    /// When it last changed.
    pub fn modified_at(&self) -> Timestamp {
        self.changed_at.max(self.status_at)
    }

    /// Whether it failed by a fault of the program (a panic, an agent that is gone) and not by its agent's
    /// own word.
    pub fn is_fault(&self) -> bool {
        let metadata = self.status_message.as_ref().and_then(|message| message.metadata.as_ref());
        self.state == State::Failed && metadata.is_some_and(|metadata| metadata.contains_key(FAULT))
    }

    /// Whether it failed because whoever was to do the work could not be reached: another may be asked.
    pub fn is_unreachable(&self) -> bool {
        let metadata = self.status_message.as_ref().and_then(|message| message.metadata.as_ref());
        self.state == State::Failed && metadata.is_some_and(|metadata| metadata.contains_key(UNREACHABLE))
    }

    /// The task after the given entries.
    #[must_use]
    pub fn fold<'a>(mut self, entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        for entry in entries {
            self.apply(entry);
        }
        self
    }

    /// Applies the next event of the log, and leaves it to whoever has it.
    pub fn apply(&mut self, entry: &Entry) {
        self.take(entry.clone());
    }

    /// Takes the next event of the log.
    pub fn take(&mut self, Entry(at, event): Entry) {
        self.seq += 1;
        // A log line is no part of what is shown.
        if !matches!(event, Event::Log(_)) {
            self.changed_at = at;
        }
        match event {
            Event::Message(message) => {
                if self.seq == 1 {
                    self.status_at = at;
                }
                self.history.push(message);
            }
            Event::Status(status) => self.enter(status.state, at, status.message),
            Event::Artifact(chunk) => self.take_chunk(chunk),
            Event::Progress(progress) => self.progress = Some((self.seq, progress)),
            Event::Log(_) => {}
            Event::Question(question) => {
                self.questions.push((self.seq, question));
                self.show_oldest_question(at);
            }
            Event::Answer(QuestionAnswer { question, .. })
            | Event::Withdrawn(QuestionWithdrawal { question, .. }) => {
                self.questions.retain(|(_, open)| open.id != question);
                // Where others are open, a status that shows the next one follows if it has to.
                if self.questions.is_empty() {
                    self.enter(State::Working, at, None);
                }
            }
        }
    }

    fn enter(&mut self, state: State, at: Timestamp, message: Option<Message>) {
        debug_assert!(self.state.may_become(state), "{:?} -> {state:?}", self.state);
        // What was said about the old state becomes history, as the official servers do it.
        self.history.extend(self.status_message.take());
        if state.is_terminal() {
            self.questions.clear();
        }
        self.state = state;
        self.status_at = at;
        self.status_message = message;
        self.progress = None;
    }

    /// While anything is asked, the oldest open question is the status.
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
                id: chunk.id,
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
        for part in chunk.parts {
            append_part(&mut artifact.parts, part);
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

/// Adds a part; a plain text that follows a plain text is merged into it, so that a text of 100,000 chunks
/// is one part.
fn append_part(parts: &mut Vec<Part>, part: Part) {
    if let (
        Some(Part { content: Content::Text(text), metadata: None, filename: None, media_type: None }),
        Part { content: Content::Text(more), metadata: None, filename: None, media_type: None },
    ) = (parts.last_mut(), &part)
    {
        text.push_str(more);
    } else {
        parts.push(part);
    }
}
