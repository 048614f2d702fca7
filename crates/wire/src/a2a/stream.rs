//! The items of a stream, and the result of a send, as a client reads them.

use nuncio_engine::{clock::Timestamp, content::Message, event::ArtifactChunk, task::State};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    Dialect,
    artifact::ArtifactIn,
    input::{self, EnumValue, JsonPath, MalformedInput, non_empty},
    message::{AddressedMessage, MessageIn},
    status::StatusIn,
    task::{TaskIn, TaskView},
};

/// One item of a stream, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// The current task.
    Task(Box<TaskView>),
    /// A response without a task.
    Message(AddressedMessage),
    /// A change of state, or progress.
    Status(StatusUpdate),
    /// A chunk of an artifact.
    Artifact(ArtifactUpdate),
}

/// A change of state, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusUpdate {
    /// The task's public id.
    pub task: String,
    /// The conversation's id; 0.1 does not include it.
    pub context: Option<String>,
    /// The new state.
    pub state: State,
    /// The state's name as received, if this version does not know it: `state` is then [`State::Working`].
    pub unknown_state: Option<String>,
    /// The agent's message about the state.
    pub message: Option<Message>,
    /// The time of the change, if the server sent one.
    pub at: Option<Timestamp>,
    /// Whether the server marked this as the end of the stream; 1.0 has no such mark.
    pub last: bool,
}

/// A chunk of an artifact, as a client reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactUpdate {
    /// The task's public id.
    pub task: String,
    /// The conversation's id; 0.1 does not include it.
    pub context: Option<String>,
    /// The chunk. Its index is known only in 0.1.
    pub chunk: ArtifactChunk,
}

/// The members that tell the kind of an item before 1.0. The first servers of 0.3 omitted `kind`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ItemKindIn<'a> {
    #[serde(borrow)]
    kind: Option<EnumValue<'a>>,
    message_id: Option<IgnoredAny>,
    id: Option<IgnoredAny>,
}

/// The envelope of an item in 1.0.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ItemShellIn<'a> {
    #[serde(borrow)]
    task: Option<TaskIn<'a>>,
    #[serde(borrow)]
    message: Option<MessageIn<'a>>,
    #[serde(borrow, alias = "status_update")]
    status_update: Option<StreamUpdateIn<'a>>,
    #[serde(borrow, alias = "artifact_update")]
    artifact_update: Option<StreamUpdateIn<'a>>,
}

/// A status or an artifact update.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct StreamUpdateIn<'a> {
    id: Option<String>,
    #[serde(alias = "task_id")]
    task_id: Option<String>,
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    #[serde(borrow)]
    status: Option<StatusIn<'a>>,
    #[serde(borrow)]
    artifact: Option<ArtifactIn<'a>>,
    append: Option<bool>,
    #[serde(alias = "last_chunk")]
    last_chunk: Option<bool>,
    r#final: Option<bool>,
}

/// The root of an item's path: its member in a JSON-RPC response.
const ROOT: &str = "result";

/// Reads an item of a stream. The result of a send without a stream is an item too.
pub(super) fn read(dialect: Dialect, json: &str) -> Result<StreamEvent, MalformedInput> {
    match dialect {
        Dialect::V0_1 => input::parse::<StreamUpdateIn<'_>>(ROOT, json)?.read(dialect, JsonPath::Root(ROOT)),
        Dialect::V0_3 => read_kind(json),
        Dialect::V1 => read_shell(json),
    }
}

fn read_kind(json: &str) -> Result<StreamEvent, MalformedInput> {
    let (dialect, at) = (Dialect::V0_3, JsonPath::Root(ROOT));
    let item: ItemKindIn<'_> = input::parse(ROOT, json)?;
    let kind = match &item.kind {
        Some(EnumValue::Name(kind)) => kind,
        _ if item.message_id.is_some() => "message",
        _ if item.id.is_some() => "task",
        _ => "update",
    };
    match kind {
        "task" => {
            let task: TaskIn<'_> = input::parse(ROOT, json)?;
            Ok(StreamEvent::Task(Box::new(task.read(dialect, at)?)))
        }
        "message" => {
            let message: MessageIn<'_> = input::parse(ROOT, json)?;
            Ok(StreamEvent::Message(message.read(dialect, at)?))
        }
        _ => input::parse::<StreamUpdateIn<'_>>(ROOT, json)?.read(dialect, at),
    }
}

fn read_shell(json: &str) -> Result<StreamEvent, MalformedInput> {
    let (dialect, at) = (Dialect::V1, JsonPath::Root(ROOT));
    let item: ItemShellIn<'_> = input::parse(ROOT, json)?;
    if let Some(task) = item.task {
        return Ok(StreamEvent::Task(Box::new(task.read(dialect, at.member("task"))?)));
    }
    if let Some(message) = item.message {
        return Ok(StreamEvent::Message(message.read(dialect, at.member("message"))?));
    }
    match (item.status_update, item.artifact_update) {
        (Some(update), _) => update.read(dialect, at.member("statusUpdate")),
        (_, Some(update)) => update.read(dialect, at.member("artifactUpdate")),
        _ => Err(at.malformed("expected one of task, message, statusUpdate, artifactUpdate")),
    }
}

impl StreamUpdateIn<'_> {
    fn read(self, dialect: Dialect, at: JsonPath<'_>) -> Result<StreamEvent, MalformedInput> {
        let plain = dialect == Dialect::V0_1;
        let (name, task) = if plain { ("id", self.id) } else { ("taskId", self.task_id) };
        let task = at.required_text(name, task)?;
        let context = if plain { None } else { non_empty(self.context_id) };
        if let Some(artifact) = self.artifact {
            let mut chunk = artifact.read(dialect, at.member("artifact"))?;
            if !plain {
                chunk.append = self.append.unwrap_or_default();
                chunk.last = self.last_chunk.unwrap_or_default();
            }
            return Ok(StreamEvent::Artifact(ArtifactUpdate { task, context, chunk }));
        }
        let status = at.required("status", self.status)?.read(dialect, at.member("status"))?;
        let last = dialect < Dialect::V1 && self.r#final.unwrap_or_default();
        Ok(StreamEvent::Status(StatusUpdate {
            task,
            context,
            state: status.state,
            unknown_state: status.unknown_state,
            message: status.message,
            at: status.at,
            last,
        }))
    }
}
