//! The protocol between this server and a program or endpoint that is an agent: one JSON object per line.
//!
//! [`ProgramMessage`] is what the agent sends, [`ProgramReply`] what it receives. An object with an unknown
//! member is rejected, because a silently ignored limit, name or type is found much later.
//! `docs/agents-process.md` specifies the protocol as a table.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nuncio_engine::{
    AgentError, Answer, Artifact, Chunk, Content, Level, Message, Outcome, Part, Role, StepContext, Task,
    TaskContext, content::Metadata,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// The protocol version, sent with the input.
pub(super) const PROTOCOL: u32 = 1;
/// Tokens of a sample, if the agent names no limit.
const SAMPLE_TOKENS: u32 = 1_000;
/// The artifact for `data` of the final message.
const RESULT: &str = "result";

/// A message of the agent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum ProgramMessage {
    /// The progress of the work.
    Progress {
        #[serde(default)]
        done: f64,
        total: Option<f64>,
        #[serde(default)]
        text: String,
    },
    /// A line for the task's log.
    Log {
        #[serde(default = "info")]
        level: Level,
        text: String,
    },
    /// An artifact, or a chunk of one.
    Artifact(ArtifactPiece),
    /// From now on the agent accepts messages of the caller while it works.
    Listen,
    /// A form for the caller.
    Ask { text: String, schema: Option<Value> },
    /// A prompt for the caller's model.
    Sample { text: String, system: Option<String>, max_tokens: Option<u32> },
    /// A link for the caller to visit.
    Authorize { text: String, url: String },
    /// Begins a step that is to be done once.
    Step { name: String },
    /// The step is done.
    StepDone {
        name: String,
        #[serde(default)]
        result: Value,
    },
    /// The step has failed permanently.
    StepFailed { name: String, error: String },
    /// Calls another agent of this server.
    Call {
        agent: String,
        text: Option<String>,
        #[serde(default, deserialize_with = "present")]
        data: Option<Value>,
    },
    /// Sleeps; may be long.
    Sleep { seconds: f64 },
    /// Reads a key of the memory bank.
    MemoryGet { namespace: String, key: String },
    /// Stores a value in the memory bank.
    MemoryStore { namespace: String, key: String, value: Value, ttl_seconds: Option<u64> },
    /// Deletes a key of the memory bank.
    MemoryDelete { namespace: String, key: String },
    /// The end: completed.
    Done {
        text: Option<String>,
        #[serde(default, deserialize_with = "present")]
        data: Option<Value>,
    },
    /// The end: the agent answers with a message, and no task is shown.
    Reply(ReplyMessage),
    /// The end: failed.
    Failed { text: String },
    /// The end: rejected.
    Rejected { text: String },
    /// The end after a cancellation.
    Canceled { text: Option<String> },
}

/// An artifact, or a chunk of one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ArtifactPiece {
    #[serde(default = "result_id")]
    id: String,
    name: Option<String>,
    description: Option<String>,
    text: Option<String>,
    #[serde(default, deserialize_with = "present")]
    data: Option<Value>,
    /// Base64.
    file: Option<String>,
    url: Option<String>,
    filename: Option<String>,
    media_type: Option<String>,
    /// Several parts, instead of one above.
    parts: Option<Vec<ProgramPart>>,
    /// Attributes of the artifact.
    metadata: Option<Metadata>,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(default)]
    append: bool,
    last: Option<bool>,
}

/// One part of a message or an artifact.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProgramPart {
    text: Option<String>,
    #[serde(default, deserialize_with = "present")]
    data: Option<Value>,
    /// Base64.
    file: Option<String>,
    url: Option<String>,
    filename: Option<String>,
    media_type: Option<String>,
    metadata: Option<Metadata>,
}

/// A message with which the agent answers instead of a task. `text` and `data` are parts before `parts`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReplyMessage {
    text: Option<String>,
    #[serde(default, deserialize_with = "present")]
    data: Option<Value>,
    #[serde(default)]
    parts: Vec<ProgramPart>,
    metadata: Option<Metadata>,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(default)]
    reference_task_ids: Vec<String>,
}

fn info() -> Level {
    Level::Info
}

fn result_id() -> String {
    RESULT.into()
}

/// `null` is a value here, so the presence of the member is what counts.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

impl ProgramMessage {
    /// The message's `type` on the wire.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Progress { .. } => "progress",
            Self::Log { .. } => "log",
            Self::Artifact(_) => "artifact",
            Self::Listen => "listen",
            Self::Ask { .. } => "ask",
            Self::Sample { .. } => "sample",
            Self::Authorize { .. } => "authorize",
            Self::Step { .. } => "step",
            Self::StepDone { .. } => "step-done",
            Self::StepFailed { .. } => "step-failed",
            Self::Call { .. } => "call",
            Self::Sleep { .. } => "sleep",
            Self::MemoryGet { .. } => "memory-get",
            Self::MemoryStore { .. } => "memory-store",
            Self::MemoryDelete { .. } => "memory-delete",
            Self::Done { .. } => "done",
            Self::Reply(_) => "reply",
            Self::Failed { .. } => "failed",
            Self::Rejected { .. } => "rejected",
            Self::Canceled { .. } => "canceled",
        }
    }
}

/// Where reports go: to the task itself, or to the current step.
pub(super) enum ReportTarget<'a> {
    Task(&'a TaskContext),
    Step(&'a StepContext),
}

impl ReportTarget<'_> {
    /// Reports progress, log lines and artifacts; returns any other message. `written`: the artifacts that
    /// have been begun.
    pub(super) async fn pass_on(
        &self,
        said: ProgramMessage,
        written: &mut Vec<String>,
    ) -> Result<Option<ProgramMessage>, AgentError> {
        match said {
            ProgramMessage::Progress { done, total, text } => match self {
                Self::Task(cx) => cx.progress(done, total, text).await,
                Self::Step(step) => step.progress(done, total, text).await,
            },
            ProgramMessage::Log { level, text } => match self {
                Self::Task(cx) => cx.log(level, text).await,
                Self::Step(step) => step.log(level, text).await,
            },
            ProgramMessage::Artifact(piece) => self.artifact(piece.chunk(written)?).await,
            other => return Ok(Some(other)),
        }
        .map(|()| None)
    }

    /// Writes `data` of the final message as an artifact.
    pub(super) async fn result(&self, data: Value) -> Result<(), AgentError> {
        self.artifact(Chunk::data(RESULT, data).complete()).await
    }

    async fn artifact(&self, chunk: Chunk) -> Result<(), AgentError> {
        match self {
            Self::Task(cx) => cx.artifact(chunk).await,
            Self::Step(step) => step.artifact(chunk).await,
        }
    }
}

impl ArtifactPiece {
    fn chunk(self, written: &mut Vec<String>) -> Result<Chunk, AgentError> {
        let id = self.id.clone();
        let wrong = |why: &str| Err(AgentError::Misuse(format!("artifact {id:?}: {why}")));
        let begun = written.contains(&self.id);
        if begun && !self.append {
            return wrong(
                "it was written before: say \"append\": true to go on with it, or choose another id",
            );
        }
        let own = ProgramPart {
            text: self.text,
            data: self.data,
            file: self.file,
            url: self.url,
            filename: self.filename,
            media_type: self.media_type,
            metadata: None,
        };
        let parts = match self.parts {
            None => own.part().map(|part| vec![part]),
            Some(_) if !own.is_empty() => Err("it has parts, or one of their members, not both".to_owned()),
            Some(parts) if parts.is_empty() => Err("it has no parts".to_owned()),
            Some(parts) => parts.into_iter().map(ProgramPart::part).collect(),
        };
        let parts = match parts {
            Ok(parts) => parts,
            Err(why) => return wrong(&why),
        };
        if !begun {
            written.push(self.id.clone());
        }
        let mut chunk = Chunk::parts(self.id, parts).with_extensions(self.extensions);
        if let Some(metadata) = self.metadata {
            chunk = chunk.with_metadata(metadata);
        }
        if let Some(name) = self.name {
            chunk = chunk.named(name);
        }
        if let Some(description) = self.description {
            chunk = chunk.described(description);
        }
        Ok(if self.last.unwrap_or(true) { chunk.complete() } else { chunk })
    }
}

impl ProgramPart {
    fn is_empty(&self) -> bool {
        let Self { text, data, file, url, filename, media_type, metadata } = self;
        let texts = [text, file, url, filename, media_type];
        texts.into_iter().all(Option::is_none) && data.is_none() && metadata.is_none()
    }

    fn part(self) -> Result<Part, String> {
        let content = match (self.text, self.data, self.file, self.url) {
            (Some(text), None, None, None) => Content::Text(text),
            (None, Some(data), None, None) => Content::Data(data),
            (None, None, Some(file), None) => match BASE64_STANDARD.decode(&file) {
                Ok(bytes) => Content::Bytes(bytes),
                Err(error) => return Err(format!("file is not base64: {error}")),
            },
            (None, None, None, Some(url)) => Content::Url(url),
            _ => return Err("a part has one of text, data, file and url".to_owned()),
        };
        Ok(Part { content, filename: self.filename, media_type: self.media_type, metadata: self.metadata })
    }
}

impl ReplyMessage {
    /// The message; its id is assigned when it is written.
    pub(super) fn message(self) -> Result<Message, AgentError> {
        let wrong = |why: String| AgentError::Misuse(format!("reply: {why}"));
        let first = self.text.map(Part::text).into_iter().chain(self.data.map(Part::data)).map(Ok);
        let parts: Vec<Part> = first
            .chain(self.parts.into_iter().map(ProgramPart::part))
            .collect::<Result<_, _>>()
            .map_err(wrong)?;
        if parts.is_empty() {
            return Err(wrong("it has text, data or parts".to_owned()));
        }
        let mut message = Message::of("", Role::Agent, parts);
        (message.metadata, message.extensions) = (self.metadata, self.extensions);
        message.reference_task_ids = self.reference_task_ids;
        Ok(message)
    }
}

/// The outcome that a final message stands for; `None` if the message is not final.
pub(super) fn outcome(said: &ProgramMessage) -> Result<Option<Outcome>, AgentError> {
    Ok(Some(match said {
        ProgramMessage::Done { text: Some(text), .. } => Outcome::said(text),
        ProgramMessage::Done { text: None, .. } => Outcome::done(),
        ProgramMessage::Reply(reply) => Outcome::Replied(reply.clone().message()?),
        ProgramMessage::Failed { text } => Outcome::failed(text),
        ProgramMessage::Rejected { text } => Outcome::rejected(text),
        ProgramMessage::Canceled { text } => Outcome::Canceled(text.clone()),
        _ => return Ok(None),
    }))
}

/// A message to the agent.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum ProgramReply<'a> {
    /// The step is to be done. The key is the same whenever it is repeated.
    Run { name: &'a str, key: String },
    /// The step was done before, with this result.
    DoneBefore { name: &'a str, result: Value },
    /// The step failed before.
    FailedBefore { name: &'a str, error: String },
    /// The answer to a question.
    Answer(Map<String, Value>),
    /// The end of the called task.
    Called(Map<String, Value>),
    /// The sleep is over.
    Awake,
    /// The result of a memory operation.
    Memory(Value),
    /// A message that the caller sent while the work goes on.
    Message(Map<String, Value>),
    /// The task is canceled.
    Cancel,
}

/// A message to a running task in the protocol's form. `number` counts them, from 1.
pub(super) fn caller_message(message: &Message, number: u64) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("number".into(), number.into());
    out.insert("text".into(), message.joined_text().into());
    out.insert("data".into(), message.data().cloned().unwrap_or_default());
    out.insert("parts".into(), message.parts.iter().map(part).collect());
    add_attributes(&mut out, message);
    out
}

/// The first message to the agent. `said`: the caller's messages so far. `tell_caller`: whether to include
/// the caller.
pub(super) fn render_input(
    cx: &TaskContext,
    said: &[Message],
    agent: &str,
    tell_caller: bool,
) -> Map<String, Value> {
    let message = cx.input();
    let said = said.iter().map(|message| {
        let mut out = Map::new();
        out.insert("role".into(), json!(message.role));
        out.insert("parts".into(), message.parts.iter().map(part).collect());
        add_attributes(&mut out, message);
        Value::Object(out)
    });
    let mut input = heading(cx, agent, tell_caller, "input");
    input.insert("text".into(), message.joined_text().into());
    input.insert("data".into(), message.data().cloned().unwrap_or_default());
    input.insert("messages".into(), said.collect());
    add_attributes(&mut input, message);
    if let Some(metadata) = cx.metadata() {
        input.insert("requestMetadata".into(), Value::Object(metadata.clone()));
    }
    for (name, list) in
        [("acceptedOutputModes", cx.accepted_output_modes()), ("activeExtensions", cx.extensions())]
    {
        if !list.is_empty() {
            input.insert(name.into(), list.into());
        }
    }
    input
}

/// Adds what a message has beside its parts. A member without a value is left out, except the id.
fn add_attributes(out: &mut Map<String, Value>, message: &Message) {
    out.insert("messageId".into(), message.id.as_str().into());
    if let Some(metadata) = &message.metadata {
        out.insert("metadata".into(), Value::Object(metadata.clone()));
    }
    for (name, list) in
        [("extensions", &message.extensions), ("referenceTaskIds", &message.reference_task_ids)]
    {
        if !list.is_empty() {
            out.insert(name.into(), list.as_slice().into());
        }
    }
}

/// The members that every request begins with: its type, and the task and agent that it belongs to.
pub(super) fn heading(cx: &TaskContext, agent: &str, tell_caller: bool, word: &str) -> Map<String, Value> {
    let mut heading = Map::new();
    heading.insert("type".into(), word.into());
    heading.insert("protocol".into(), PROTOCOL.into());
    heading.insert("agent".into(), agent.into());
    heading.insert("task".into(), cx.task_id().to_string().into());
    heading.insert("context".into(), cx.context_digest().into());
    if tell_caller {
        let caller = cx.caller();
        heading.insert("caller".into(), caller.owner().into());
        heading.insert("tenant".into(), caller.tenant().into());
    }
    heading
}

/// A part in the protocol's form.
fn part(part: &Part) -> Value {
    let mut out = Map::new();
    match &part.content {
        Content::Text(text) => out.insert("text".into(), text.as_str().into()),
        Content::Data(data) => out.insert("data".into(), data.clone()),
        Content::Url(url) => out.insert("url".into(), url.as_str().into()),
        Content::Bytes(bytes) => out.insert("file".into(), BASE64_STANDARD.encode(bytes).into()),
    };
    if let Some(filename) = &part.filename {
        out.insert("filename".into(), filename.as_str().into());
    }
    if let Some(media_type) = &part.media_type {
        out.insert("mediaType".into(), media_type.as_str().into());
    }
    if let Some(metadata) = &part.metadata {
        out.insert("metadata".into(), Value::Object(metadata.clone()));
    }
    Value::Object(out)
}

/// An answer in the protocol's form: the action, and the data or the model's text.
pub(super) fn render_answer(answer: &Answer) -> Map<String, Value> {
    let (action, data) = match answer {
        Answer::Accept(data) => ("accept", data.clone()),
        Answer::Decline(_) => ("decline", Value::Null),
        Answer::Cancel => ("cancel", Value::Null),
        Answer::Unavailable => ("unavailable", Value::Null),
    };
    let mut out = Map::new();
    out.insert("action".into(), action.into());
    if let Some(text) = answer.text() {
        out.insert("text".into(), text.into());
    }
    out.insert("data".into(), data);
    if let Some(note) = answer.note() {
        out.insert("note".into(), note.into());
    }
    out
}

/// The end of a called task in the protocol's form.
pub(super) fn render_called_task(task: &Task) -> Map<String, Value> {
    let words = task.status_message.as_ref().map(Message::joined_text).unwrap_or_default();
    let made = |artifact: &Artifact| {
        let parts: Vec<Value> = artifact.parts.iter().map(part).collect();
        let mut out = json!({ "id": artifact.id, "name": artifact.name, "parts": parts });
        if let Some(metadata) = &artifact.metadata {
            out["metadata"] = Value::Object(metadata.clone());
        }
        out
    };
    let data =
        task.artifacts.iter().flat_map(|artifact| &artifact.parts).find_map(|part| match &part.content {
            Content::Data(data) => Some(data.clone()),
            _ => None,
        });
    let mut out = Map::new();
    out.insert("task".into(), task.origin.id.to_string().into());
    out.insert("state".into(), serde_json::to_value(task.state).unwrap_or_default());
    out.insert("text".into(), words.into());
    out.insert("data".into(), data.unwrap_or_default());
    out.insert("artifacts".into(), task.artifacts.iter().map(made).collect());
    out
}

/// A message with this text and data for another agent.
pub(super) fn message(text: Option<String>, data: Option<Value>) -> Message {
    let parts = text.map(Part::text).into_iter().chain(data.map(Part::data)).collect();
    Message::of("", Role::User, parts)
}

/// The form of a question without a schema: a single text field.
pub(super) fn form(schema: Option<Value>) -> Value {
    schema.unwrap_or_else(|| {
        json!({ "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"] })
    })
}

/// The token limit of a sample.
pub(super) fn sample_tokens(wanted: Option<u32>) -> u32 {
    wanted.unwrap_or(SAMPLE_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<ProgramMessage, String> {
        serde_json::from_str(line).map_err(|error| error.to_string())
    }

    #[test]
    fn words_are_few_and_mostly_optional() {
        let done = |text: Option<&str>, data| ProgramMessage::Done { text: text.map(Into::into), data };
        assert_eq!(read(r#"{"type":"done"}"#), Ok(done(None, None)));
        assert_eq!(
            read(r#"{"type":"done","text":"hi","data":null}"#),
            Ok(done(Some("hi"), Some(Value::Null)))
        );
        let progress = ProgramMessage::Progress { done: 3.0, total: Some(4.0), text: String::new() };
        assert_eq!(read(r#"{"type":"progress","done":3,"total":4}"#), Ok(progress));
        assert_eq!(
            read(r#"{"type":"log","text":"x"}"#),
            Ok(ProgramMessage::Log { level: Level::Info, text: "x".into() })
        );
        assert_eq!(
            read(r#"{"type":"sample","text":"x","maxTokens":5}"#),
            Ok(ProgramMessage::Sample { text: "x".into(), system: None, max_tokens: Some(5) })
        );
    }

    #[test]
    fn what_is_no_word_is_refused() {
        let check = |line: &str, words: &str| {
            let why = read(line).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        check("hello", "expected value");
        check(r#"{"text":"hi"}"#, "missing field `type`");
        check(r#"{"type":"dun"}"#, "unknown variant `dun`");
        check(r#"{"type":"done","txt":"hi"}"#, "unknown field `txt`");
        check(r#"{"type":"artifact","mediatype":"x"}"#, "unknown field `mediatype`");
        check(r#"{"type":"step"}"#, "missing field `name`");
    }

    #[test]
    fn an_artifact_has_one_content_and_goes_on_only_if_it_says_so() {
        let mut written = vec![];
        let mut chunk = |line: &str| match read(line) {
            Ok(ProgramMessage::Artifact(piece)) => {
                piece.chunk(&mut written).map(|_| ()).map_err(|e| e.to_string())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(chunk(r#"{"type":"artifact","id":"a","text":"x","last":false}"#), Ok(()));
        assert_eq!(chunk(r#"{"type":"artifact","id":"a","text":"y","append":true}"#), Ok(()));
        assert!(chunk(r#"{"type":"artifact","id":"a","text":"y"}"#).unwrap_err().contains("append"));
        assert!(chunk(r#"{"type":"artifact","id":"b"}"#).unwrap_err().contains("one of"));
        assert!(chunk(r#"{"type":"artifact","id":"b","text":"x","data":1}"#).unwrap_err().contains("one of"));
        assert!(chunk(r#"{"type":"artifact","id":"b","file":"?"}"#).unwrap_err().contains("base64"));
    }
}
