//! Somebody elsewhere, whatever protocol they speak: what they offer, and calls that can be taken up again.
//!
//! A [`Peer`] is an A2A agent or an MCP server. A call of what it offers is one stream of what happens in the words
//! of the engine, with questions that are answered on the way, and a [`CallHandle`] that leads back to it after this
//! process has died. A stream that is cut is continued by the peer itself as far as its protocol allows; what ends
//! without an end is an error, never a success.

mod connect;
mod error;

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
};

/// How much of what happened waits for whoever follows a call; then the peer waits.
pub const HAPPENED: usize = 64;

/// What a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerProtocol {
    /// A2A, in any generation.
    A2a,
    /// MCP, in any revision.
    Mcp,
}

/// Where somebody is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerLocation {
    /// At an address: an A2A agent, its card, or an MCP endpoint.
    Url(url::Url),
    /// In a process that is started, and spoken to by its pipes: an MCP server.
    Command(PeerProgram),
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What it finds in its environment beside what this process lets through.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it starts.
    #[serde(default)]
    pub dir: Option<std::path::PathBuf>,
}

/// Something that a peer can be called for: an A2A agent, or a tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerCapability {
    /// What it is called for under.
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// What structured input has to satisfy. `None`: it takes text.
    pub input_schema: Option<Value>,
    /// What its structured result satisfies.
    pub output_schema: Option<Value>,
    /// What it is good at: an agent's skills. Of a tool, the tool itself.
    pub skills: Vec<nuncio_engine::Skill>,
    /// Whether calling it twice does no more than calling it once, as far as it says: by its nature, or because a
    /// repeat under the same message id is the same call to it.
    pub idempotent: bool,
}

/// A call to begin.
#[derive(Debug, Clone)]
pub struct PeerCallRequest {
    /// What to call: the name of an [`PeerCapability`].
    pub offer: String,
    /// What to say: text, files, and arguments as the first data part. The message's id is the same whenever the
    /// same call is begun again.
    pub input: Message,
    /// The conversation that it belongs to, where there is one already.
    pub context: Option<String>,
    /// W3C `traceparent`.
    pub trace: Option<String>,
}

/// What leads back to a call: to be written down, and given to [`Peer::resume`] by another process. What is inside
/// is the peer's own business. It holds no credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallHandle {
    /// What was called.
    pub offer: String,
    /// The task's id, where the protocol has given it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Where the call stands, in the protocol's own words.
    pub state: Value,
}

/// Something that happened in a call, in the order in which it did.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    /// From now on this leads back to the call, to what follows. Whoever wants to come back writes it down.
    HandleUpdated(CallHandle),
    /// The peer's own name of the conversation: to be named with the next call that belongs to it. Where there is
    /// none, the peer makes one for each call.
    Context(String),
    /// How far the work is.
    Progress(Progress),
    /// A line of the log.
    Log(LogLine),
    /// A piece of the result. `index` is the peer's own.
    Artifact(ArtifactChunk),
    /// Words on the way.
    Message(Message),
    /// It wants to know something, and waits for [`PeerCall::answer`]. It may be told twice, under one id.
    Question(Question),
    /// A question needs no answer any more.
    QuestionClosed(String),
    /// It is over. Nothing follows.
    Ended(PeerCallEnd),
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerCallEnd {
    /// A terminal state. A tool that says it failed has failed.
    pub state: State,
    /// The last words.
    pub message: Option<Message>,
}

impl PeerCallEnd {
    /// Done, nothing to add.
    pub fn completed() -> Self {
        Self { state: State::Completed, message: None }
    }
}

/// A call that goes on. Dropped it is let go, not stopped, as far as the protocol knows the difference.
pub struct PeerCall {
    events: mpsc::Receiver<Result<Vec<CallEvent>, PeerError>>,
    /// What came together and was not taken yet.
    rest: VecDeque<CallEvent>,
    commands: mpsc::Sender<CallCommand>,
}

/// What whoever follows a call wants of it.
pub enum CallCommand {
    /// Answers a question; says whether the answer was taken.
    Answer {
        /// The question's id.
        question: String,
        /// The answer.
        answer: Answer,
        /// Where to say it.
        taken: oneshot::Sender<Result<(), PeerError>>,
    },
    /// Sends a message to the work that goes on; says whether it was taken.
    Message {
        /// The message. Its id is the same whenever it is sent again.
        message: Message,
        /// Where to say it.
        taken: oneshot::Sender<Result<(), PeerError>>,
    },
    /// Stops the work; says when the peer has been told.
    Cancel {
        /// Where to say it.
        told: oneshot::Sender<Result<(), PeerError>>,
    },
}

/// The peer's side of a call.
pub struct CallDriver {
    /// Where what happened goes. When it is closed nobody follows the call any more.
    pub events: CallEventSender,
    /// What is wanted.
    pub commands: mpsc::Receiver<CallCommand>,
}

/// Where what happened in a call goes.
pub struct CallEventSender(mpsc::Sender<Result<Vec<CallEvent>, PeerError>>);

impl CallEventSender {
    /// Sends one thing that happened, or why nothing more will.
    pub async fn send(&self, happened: Result<CallEvent, PeerError>) -> Result<(), CallClosed> {
        self.0.send(happened.map(|happened| vec![happened])).await.map_err(|_| CallClosed)
    }

    /// Waits for room.
    pub(crate) async fn reserve(&self) -> Result<CallEventPermit<'_>, CallClosed> {
        self.0.reserve().await.map(CallEventPermit).map_err(|_| CallClosed)
    }

    /// Whether the call is not followed any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns when the call is not followed any more.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Room for what happened.
pub(crate) struct CallEventPermit<'a>(mpsc::Permit<'a, Result<Vec<CallEvent>, PeerError>>);

impl CallEventPermit<'_> {
    /// Sends the first things of a queue that belong together: everything up to the handle that leads back to what
    /// follows them, so that a follower can record both at once.
    pub(crate) fn send_first(self, queue: &mut VecDeque<CallEvent>) {
        let kept = queue.iter().position(|happened| matches!(happened, CallEvent::HandleUpdated(_)));
        let count = kept.map_or(queue.len(), |at| at + 1);
        self.0.send(Ok(queue.drain(..count).collect()));
    }

    /// Sends one thing.
    pub(crate) fn send(self, happened: Result<CallEvent, PeerError>) {
        self.0.send(happened.map(|happened| vec![happened]));
    }
}

/// The call is not followed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallClosed;

impl PeerCall {
    /// Both sides of a new call.
    pub fn new() -> (Self, CallDriver) {
        let (happened, seen) = mpsc::channel(HAPPENED);
        let (orders, wanted) = mpsc::channel(4);
        let call = Self { events: seen, rest: VecDeque::new(), commands: orders };
        (call, CallDriver { events: CallEventSender(happened), commands: wanted })
    }

    /// What happens next. After [`CallEvent::Ended`] or an error there is nothing more. A stream of it that ends in
    /// any other way is an error, too.
    pub async fn next(&mut self) -> Result<CallEvent, PeerError> {
        loop {
            if let Some(happened) = self.rest.pop_front() {
                return Ok(happened);
            }
            self.rest = self.receive().await?.into();
        }
    }

    /// As [`Self::next`]: everything that belongs together, with the handle that leads back to what follows it, where
    /// the peer gives one.
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

    /// Answers a question. An error says that the answer was not taken; the question is open still, unless the
    /// error is [`PeerError::Gone`].
    pub async fn answer(&self, question: &str, answer: Answer) -> Result<(), PeerError> {
        self.control().answer(question, answer).await
    }

    /// Stops the work. Returns when the peer has been told; the end comes as any other.
    pub async fn cancel(&self) -> Result<(), PeerError> {
        self.control().cancel().await
    }

    /// What answers and cancels while somebody else waits for what happens next.
    pub fn control(&self) -> CallControl {
        CallControl { commands: self.commands.clone() }
    }
}

/// The way to order something of a call, beside whoever follows it.
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

    /// Sends a message to the work that goes on, where the protocol knows such a thing: A2A does, MCP does not. An
    /// error says that it was not taken, or that this is not known.
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

/// Somebody elsewhere.
#[async_trait]
pub trait Peer: Send + Sync + 'static {
    /// What it speaks.
    fn protocol(&self) -> PeerProtocol;

    /// Where it is, for people: without credentials.
    fn address(&self) -> String;

    /// What it calls itself, once that is known.
    fn name(&self) -> Option<String>;

    /// What it offers now.
    async fn list_capabilities(&self) -> Result<Vec<PeerCapability>, PeerError>;

    /// Returns when what it offers may have changed. Never, where it does not tell.
    async fn wait_for_change(&self);

    /// From which level on log lines are wanted from now on. Where the protocol knows no such wish it keeps its own.
    async fn set_log_level(&self, level: Level) -> Result<(), PeerError> {
        let _ = level;
        Ok(())
    }

    /// Whether it can be reached.
    async fn check_reachable(&self) -> Result<(), PeerError>;

    /// Begins a call. The first thing that happens is [`CallEvent::HandleUpdated`] where the call can be taken up again.
    async fn begin(&self, begin: PeerCallRequest) -> Result<PeerCall, PeerError>;

    /// Goes on with a call that was begun by this process or by another. [`PeerError::Gone`] when there is no way
    /// back to it.
    async fn resume(&self, handle: &CallHandle) -> Result<PeerCall, PeerError>;

    /// Whether an answer to what is open under this handle goes over by making the whole call again, so that to give
    /// it twice may do the work twice.
    fn answer_repeats_call(&self, _handle: &CallHandle) -> bool {
        false
    }

    /// Lets go of connections and child processes. Calls that go on end with an error.
    async fn close(&self);
}

/// The artifact that the result of a tool becomes.
pub const RESULT: &str = "result";

/// A whole artifact in one chunk.
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
