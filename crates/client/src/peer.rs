//! A remote A2A agent or MCP server behind one trait: what it can be called for, and calls that can be
//! resumed.
//!
//! A call of a [`Peer`] is one stream of engine events, with questions that are answered on the way, and a
//! [`CallHandle`] with which another process can resume it after this one has died. The peer itself
//! reconnects a cut stream as far as its protocol allows, for as long as its options allow, and is the only one
//! that does so while the call runs. A stream that stops without a final event is an error, never a success.

mod connect;
mod error;
mod follower;

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use nuncio_engine::{
    Level,
    content::{Message, Part},
    event::{ArtifactChunk, LogLine, Progress},
    question::{Answer, Question},
    task::State,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub use self::{
    connect::{PeerConnectOptions, connect},
    error::PeerError,
    follower::{CallFollower, FollowOptions, FollowedEvent},
};

/// Batches of events that are buffered for the follower of a call; then the peer waits (backpressure).
pub const HAPPENED: usize = 64;

/// The protocol of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerProtocol {
    /// A2A, in any generation.
    A2a,
    /// MCP, in any revision.
    Mcp,
}

/// Where a peer is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerLocation {
    /// An HTTP address: an A2A agent, its card, or an MCP endpoint.
    Url(url::Url),
    /// A process that this one starts and speaks to over its pipes: an MCP server.
    Command(PeerProgram),
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerProgram {
    /// The program, then its arguments.
    pub command: Vec<String>,
    /// Environment variables that are set for it, in addition to those that are inherited.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its working directory; `None`: that of this process.
    #[serde(default)]
    pub dir: Option<std::path::PathBuf>,
}

/// Something that a peer can be called for: an A2A agent, or a tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerCapability {
    /// The name that a call refers to it by.
    pub name: String,
    /// A display name.
    pub title: Option<String>,
    /// What it does, as the peer describes it.
    pub description: String,
    /// The JSON Schema of structured input. `None`: it takes text.
    pub input_schema: Option<Value>,
    /// The JSON Schema of its structured result.
    pub output_schema: Option<Value>,
    /// An agent's skills; for a tool, the tool itself as the only one.
    pub skills: Vec<nuncio_engine::Skill>,
    /// Whether calling it twice has the same effect as calling it once, as the peer declares: by its nature,
    /// or because it recognizes a repeated message id.
    pub idempotent: bool,
}

/// A call to begin.
#[derive(Debug, Clone)]
pub struct PeerCallRequest {
    /// What to call: the name of a [`PeerCapability`].
    pub offer: String,
    /// The message: text, files, and arguments as the first data part. Its id is the idempotency key: it
    /// must be the same whenever the same call is begun again.
    pub input: Message,
    /// The peer's id of the conversation that the call belongs to, if there is one already.
    pub context: Option<String>,
    /// The W3C `traceparent` to send along.
    pub trace: Option<String>,
}

/// What is needed to resume a call: to be stored, and given to [`Peer::resume`], by this or another process.
/// Its content is private to the peer. It holds no credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallHandle {
    /// The name of the [`PeerCapability`] that was called.
    pub offer: String,
    /// The task's id, if the protocol has assigned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The position in the call, in the protocol's own form.
    pub state: Value,
}

/// Something that happened in a call; events come in the order in which they happened.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    /// The handle that resumes the call after this point. It replaces the one before; a follower that may
    /// resume stores it.
    HandleUpdated(CallHandle),
    /// The peer's id of the conversation, to be sent with the next call that belongs to it. Without one the
    /// peer starts a new conversation for each call.
    Context(String),
    /// How far the work has got.
    Progress(Progress),
    /// A line of the peer's log.
    Log(LogLine),
    /// A chunk of the result. `index` is the peer's own.
    Artifact(ArtifactChunk),
    /// An intermediate message.
    Message(Message),
    /// The peer waits for [`PeerCall::answer`]. The same question may be reported twice, under one id.
    Question(Question),
    /// The question with this id no longer needs an answer.
    QuestionClosed(String),
    /// The call is over. No event follows.
    Ended(PeerCallEnd),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerCallEnd {
    /// A terminal state. A tool that reports an error is `Failed`.
    pub state: State,
    /// The final message.
    pub message: Option<Message>,
}

impl PeerCallEnd {
    /// Completed, without a final message.
    pub fn completed() -> Self {
        Self { state: State::Completed, message: None }
    }
}

/// A running call. Dropping it stops following it, not the work, where the protocol can tell the two apart.
pub struct PeerCall {
    events: mpsc::Receiver<Result<Vec<CallEvent>, PeerError>>,
    /// Events of the last batch that `next` has not returned yet.
    rest: VecDeque<CallEvent>,
    commands: mpsc::Sender<CallCommand>,
}

/// A command from the follower of a call to its driver.
pub enum CallCommand {
    /// Answers a question and reports whether the answer was accepted.
    Answer {
        /// The id of the question.
        question: String,
        /// The answer to send.
        answer: Answer,
        /// Receives the result.
        taken: oneshot::Sender<Result<(), PeerError>>,
    },
    /// Sends a message to the running task and reports whether it was accepted.
    Message {
        /// The message. Its id stays the same whenever it is sent again.
        message: Message,
        /// Receives the result.
        taken: oneshot::Sender<Result<(), PeerError>>,
    },
    /// Cancels the work and reports when the peer has received the request.
    Cancel {
        /// Receives the result.
        told: oneshot::Sender<Result<(), PeerError>>,
    },
}

/// The peer's side of a call.
pub struct CallDriver {
    /// Where the driver sends events. It is closed when the call no longer has a follower.
    pub events: CallEventSender,
    /// Commands of the follower.
    pub commands: mpsc::Receiver<CallCommand>,
}

/// The sending side of a call's events.
pub struct CallEventSender(mpsc::Sender<Result<Vec<CallEvent>, PeerError>>);

impl CallEventSender {
    /// Sends one event, or the error that ends the call.
    pub async fn send(&self, happened: Result<CallEvent, PeerError>) -> Result<(), CallClosed> {
        self.0.send(happened.map(|happened| vec![happened])).await.map_err(|_| CallClosed)
    }

    /// Waits for a free slot in the buffer.
    pub(crate) async fn reserve(&self) -> Result<CallEventPermit<'_>, CallClosed> {
        self.0.reserve().await.map(CallEventPermit).map_err(|_| CallClosed)
    }

    /// Whether the call no longer has a follower.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the call no longer has a follower.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// A reserved slot for one batch of events.
pub(crate) struct CallEventPermit<'a>(mpsc::Permit<'a, Result<Vec<CallEvent>, PeerError>>);

impl CallEventPermit<'_> {
    /// Sends the first events of a queue that belong together: everything up to the handle that resumes the
    /// call after them, so that a follower can record both in one commit.
    pub(crate) fn send_first(self, queue: &mut VecDeque<CallEvent>) {
        let kept = queue.iter().position(|happened| matches!(happened, CallEvent::HandleUpdated(_)));
        let count = kept.map_or(queue.len(), |at| at + 1);
        self.0.send(Ok(queue.drain(..count).collect()));
    }

    /// Sends one event or error.
    pub(crate) fn send(self, happened: Result<CallEvent, PeerError>) {
        self.0.send(happened.map(|happened| vec![happened]));
    }
}

/// The call no longer has a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallClosed;

impl PeerCall {
    /// A new call: the follower's side and the driver's side.
    pub fn new() -> (Self, CallDriver) {
        let (happened, seen) = mpsc::channel(HAPPENED);
        let (orders, wanted) = mpsc::channel(4);
        let call = Self { events: seen, rest: VecDeque::new(), commands: orders };
        (call, CallDriver { events: CallEventSender(happened), commands: wanted })
    }

    /// The next event. After [`CallEvent::Ended`] or an error there is none. A stream that ends without
    /// either is an error, too.
    pub async fn next(&mut self) -> Result<CallEvent, PeerError> {
        loop {
            if let Some(happened) = self.rest.pop_front() {
                return Ok(happened);
            }
            self.rest = self.receive().await?.into();
        }
    }

    /// As [`Self::next`], for all events that belong together: with the handle that resumes the call after
    /// them, if the peer gives one.
    pub async fn next_batch(&mut self) -> Result<Vec<CallEvent>, PeerError> {
        match self.rest.is_empty() {
            true => self.receive().await,
            false => Ok(std::mem::take(&mut self.rest).into()),
        }
    }

    async fn receive(&mut self) -> Result<Vec<CallEvent>, PeerError> {
        match self.events.recv().await {
            Some(happened) => happened,
            None => Err(PeerError::Cut("the call broke off without an end".into())),
        }
    }

    /// Answers a question. An error means that the answer was not accepted. The question is then still open,
    /// unless the error is [`PeerError::Gone`].
    pub async fn answer(&self, question: &str, answer: Answer) -> Result<(), PeerError> {
        self.control().answer(question, answer).await
    }

    /// Cancels the work. Returns when the peer has received the request; the end arrives as an event like
    /// any other.
    pub async fn cancel(&self) -> Result<(), PeerError> {
        self.control().cancel().await
    }

    /// A handle that can answer and cancel while another task waits in [`Self::next`].
    pub fn control(&self) -> CallControl {
        CallControl { commands: self.commands.clone() }
    }
}

/// Sends commands to a call, independently of its follower.
#[derive(Debug, Clone)]
pub struct CallControl {
    commands: mpsc::Sender<CallCommand>,
}

impl CallControl {
    /// As [`PeerCall::answer`].
    pub async fn answer(&self, question: &str, answer: Answer) -> Result<(), PeerError> {
        let (taken, said) = oneshot::channel();
        let order = CallCommand::Answer { question: question.into(), answer, taken };
        self.order(order, said).await
    }

    /// Sends a message to the running task. A2A can do this, MCP cannot. An error means that the message was
    /// not accepted or that the protocol has no such thing.
    pub async fn send_message(&self, message: Message) -> Result<(), PeerError> {
        let (taken, said) = oneshot::channel();
        self.order(CallCommand::Message { message, taken }, said).await
    }

    /// As [`PeerCall::cancel`].
    pub async fn cancel(&self) -> Result<(), PeerError> {
        let (told, said) = oneshot::channel();
        self.order(CallCommand::Cancel { told }, said).await
    }

    async fn order(
        &self,
        order: CallCommand,
        said: oneshot::Receiver<Result<(), PeerError>>,
    ) -> Result<(), PeerError> {
        let over = || PeerError::Gone("the call is over".into());
        self.commands.send(order).await.map_err(|_| over())?;
        said.await.map_err(|_| over())?
    }
}

/// How a peer describes itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeerDescription {
    /// The card of an A2A agent, or the name and version of an MCP server (`serverInfo`), as received.
    pub document: Option<Value>,
    /// The ids of an agent's skills, or the names of a server's capabilities.
    pub capabilities: Vec<String>,
}

/// A remote A2A agent or MCP server.
#[async_trait]
pub trait Peer: Send + Sync + 'static {
    /// The protocol that it speaks.
    fn protocol(&self) -> PeerProtocol;

    /// Its address for display, without credentials.
    fn address(&self) -> String;

    /// The name that it gives itself, once that is known.
    fn name(&self) -> Option<String>;

    /// What it can be called for now.
    async fn list_capabilities(&self) -> Result<Vec<PeerCapability>, PeerError>;

    /// Returns when the list of capabilities may have changed. Never returns if the peer does not announce
    /// changes.
    async fn wait_for_change(&self);

    /// Sets the lowest level of log lines to receive from now on. Without effect where the protocol has no
    /// such setting.
    async fn set_log_level(&self, level: Level) -> Result<(), PeerError> {
        let _ = level;
        Ok(())
    }

    /// Whether it can be reached.
    async fn check_reachable(&self) -> Result<(), PeerError>;

    /// How it describes itself now. Leaves no session and no process behind.
    async fn describe(&self) -> Result<PeerDescription, PeerError>;

    /// Begins a call. The first event is [`CallEvent::HandleUpdated`] if the call can be resumed.
    async fn begin(&self, begin: PeerCallRequest) -> Result<PeerCall, PeerError>;

    /// Resumes a call that this or another process began. [`PeerError::Gone`]: it cannot be resumed.
    async fn resume(&self, handle: &CallHandle) -> Result<PeerCall, PeerError>;

    /// Whether answering what is open under this handle repeats the whole call. If so, answering twice may
    /// do the work twice.
    fn answer_repeats_call(&self, _handle: &CallHandle) -> bool {
        false
    }

    /// Closes connections and child processes. Running calls end with an error.
    async fn close(&self);
}

/// The id of the artifact that holds a tool's result.
pub const RESULT: &str = "result";

/// A complete artifact in one chunk.
pub fn whole_artifact(id: &str, parts: Vec<Part>) -> ArtifactChunk {
    ArtifactChunk {
        id: id.into(),
        index: 0,
        parts,
        append: false,
        last: true,
        name: None,
        description: None,
        metadata: None,
        extensions: vec![],
    }
}
