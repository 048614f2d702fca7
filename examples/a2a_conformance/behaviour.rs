//! What the kit asks for, by the prefix of the message's id.

use std::time::Duration;

use nuncio::prelude::*;

/// How long the agent works before a client has resubscribed: twice the kit's timeout of a stream.
const LONG: Duration = Duration::from_secs(5);

/// How the id of an answer begins that wants another question.
const ASK_AGAIN: &str = "tck-input-required";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Complete,
    /// A text artifact with this content.
    Text(&'static str),
    File,
    FileUrl,
    Data,
    /// A text artifact in two pieces.
    Chunks,
    /// A message, and no task.
    Reply,
    Ask,
    Reject,
    /// Completed without any message.
    End,
    WorkLong,
}

/// Prefixes and what they stand for. The longest one that fits counts.
const PREFIXES: [(&str, Behaviour); 18] = [
    ("tck-", Behaviour::Complete),
    ("tck-complete-task", Behaviour::Complete),
    ("tck-artifact-text", Behaviour::Text("Generated text content")),
    ("tck-artifact-file", Behaviour::File),
    ("tck-artifact-file-url", Behaviour::FileUrl),
    ("tck-artifact-data", Behaviour::Data),
    ("tck-message-response", Behaviour::Reply),
    (ASK_AGAIN, Behaviour::Ask),
    ("tck-reject-task", Behaviour::Reject),
    ("tck-stream-001", Behaviour::Text("Stream hello from TCK")),
    ("tck-stream-002", Behaviour::End),
    ("tck-stream-003", Behaviour::Text("Stream task lifecycle")),
    ("tck-stream-ordering-001", Behaviour::Text("Ordered output")),
    ("tck-stream-artifact-text", Behaviour::Text("Streamed text content")),
    ("tck-stream-artifact-file", Behaviour::File),
    ("tck-stream-artifact-chunked", Behaviour::Chunks),
    ("test-resubscribe-message-id", Behaviour::WorkLong),
    ("tck-cancel-001", Behaviour::Ask),
];

impl Behaviour {
    /// The behaviour that a message's id names.
    pub(crate) fn of(message_id: &str) -> Option<Self> {
        let known = PREFIXES.iter().filter(|(prefix, _)| message_id.starts_with(prefix));
        known.max_by_key(|(prefix, _)| prefix.len()).map(|(_, behaviour)| *behaviour)
    }

    pub(crate) async fn run(self, cx: &TaskContext) -> Result<Outcome, AgentError> {
        match self {
            Self::Complete => return Ok(Outcome::said("Hello from TCK")),
            Self::End => {}
            Self::Text(text) => cx.artifact(Chunk::text("result", text).complete()).await?,
            Self::Chunks => {
                cx.artifact(Chunk::text("result", "chunk-1 ")).await?;
                cx.artifact(Chunk::text("result", "chunk-2").complete()).await?;
            }
            Self::File => file(cx, Content::Bytes(b"File content from TCK".to_vec())).await?,
            Self::FileUrl => file(cx, Content::Url("https://example.com/output.txt".into())).await?,
            Self::Data => {
                let data = json!({ "key": "value", "count": 42 });
                cx.artifact(Chunk::data("result", data).complete()).await?;
            }
            Self::Reply => return Ok(Outcome::replied("Direct message response")),
            Self::Ask => {
                // Started again after each answer, so that the ids of all answers are known by then.
                let mut answers = cx.messages_until_answer().iter().skip(1);
                loop {
                    let answer = cx.ask_text("What else?").await?.unwrap_or_default();
                    if !answers.next().is_some_and(|said| said.id.starts_with(ASK_AGAIN)) {
                        return Ok(Outcome::said(format!("You said: {answer}")));
                    }
                }
            }
            Self::Reject => return Ok(Outcome::rejected("rejected")),
            Self::WorkLong => {
                cx.progress(0.0, None, "working").await?;
                cx.sleep(LONG).await?;
            }
        }
        Ok(Outcome::done())
    }
}

/// An artifact that is one file.
async fn file(cx: &TaskContext, content: Content) -> Result<(), AgentError> {
    let part = Part {
        filename: Some("output.txt".into()),
        media_type: Some("text/plain".into()),
        ..Part::from(content)
    };
    cx.artifact(Chunk::parts("result", vec![part]).complete()).await
}
