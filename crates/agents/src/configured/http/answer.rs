//! The response of an endpoint: JSON, text, a file, or a stream of messages as NDJSON or server-sent events.
//!
//! The size is capped, and so is the time: of the whole, or of the next piece of a stream. A stream without
//! a final message was cut, whatever arrived before.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::header;
use nuncio_engine::{AgentError, Chunk, Content, Message, Part, StepContext};
use nuncio_outbound::{HttpResponse, OutboundError};
use nuncio_wire::sse::SseParser;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::protocol::{ProgramMessage, ReportTarget};

/// Bytes of an error response that are shown.
const SHOWN: usize = 500;
/// Members that make an object an answer of our protocol without a `type`.
const PLAIN: [&str; 3] = ["text", "data", "artifacts"];

/// What an endpoint wants next, as the step journals it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HttpTurn {
    Done { text: Option<String> },
    Replied { message: Message },
    Failed { text: String },
    Rejected { text: String },
    Ask { text: String, schema: Option<Value> },
    Sample { text: String, system: Option<String>, max_tokens: Option<u32> },
    Authorize { text: String, url: String },
}

/// A response whose headers have arrived.
pub(super) struct HttpAnswerBody {
    response: HttpResponse,
    timeout: Duration,
    max: usize,
    read: usize,
}

/// How a body is split into messages.
enum HttpAnswerFraming {
    Lines(Vec<u8>),
    Events(SseParser),
}

impl HttpAnswerBody {
    pub(super) fn new(response: HttpResponse, timeout: Duration, max: usize) -> Self {
        Self { response: response.silence_limit(timeout), timeout, max, read: 0 }
    }

    /// Reads the response, reports its messages, and returns what the endpoint wants at its end. From the
    /// moment at which a stream accepts messages of the caller, `messages` is polled; `listens` is called then.
    pub(super) async fn read_turn(
        &mut self,
        step: &StepContext,
        listens: impl Fn(),
        messages: impl Future<Output = AgentError>,
    ) -> Result<HttpTurn, AgentError> {
        let kind = media_type(&self.response);
        match kind.as_str() {
            "text/event-stream" => {
                self.stream(step, HttpAnswerFraming::Events(SseParser::new(self.max)), listens, messages)
                    .await
            }
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines" => {
                self.stream(step, HttpAnswerFraming::Lines(vec![]), listens, messages).await
            }
            _ => {
                let body = self.whole(step).await?;
                if kind == "application/json" || kind.ends_with("+json") {
                    return json_answer(&body, step).await;
                }
                if body.is_empty() {
                    return Ok(HttpTurn::Done { text: None });
                }
                if kind.starts_with("text/") {
                    return Ok(HttpTurn::Done { text: Some(String::from_utf8_lossy(&body).into_owned()) });
                }
                let media_type = (!kind.is_empty()).then_some(kind);
                let file = Part { media_type, ..Part::from(Content::Bytes(body)) };
                step.artifact(Chunk::parts("result", vec![file]).complete()).await?;
                Ok(HttpTurn::Done { text: None })
            }
        }
    }

    async fn whole(&mut self, step: &StepContext) -> Result<Vec<u8>, AgentError> {
        let limit = self.timeout;
        let read = async {
            let mut body = vec![];
            while let Some(piece) = self.piece(step).await? {
                body.extend_from_slice(&piece);
            }
            Ok(body)
        };
        tokio::time::timeout(limit, read).await.unwrap_or_else(|_| Err(late(limit)))
    }

    /// The next bytes; `None` at the regular end.
    async fn piece(&mut self, step: &StepContext) -> Result<Option<Bytes>, AgentError> {
        let piece = tokio::select! {
            biased;
            () = step.canceled() => return Err(AgentError::Canceled),
            piece = self.response.chunk() => piece,
        };
        let piece = piece.map_err(|error| match error {
            OutboundError::Timeout { limit, .. } => late(limit),
            error => AgentError::failed(format!("the answer was cut: {}", error.reason())),
        })?;
        self.read += piece.as_ref().map_or(0, Bytes::len);
        if self.read > self.max {
            return Err(AgentError::failed(format!(
                "max-answer-bytes: the answer is longer than {} bytes",
                self.max
            )));
        }
        Ok(piece)
    }

    async fn stream(
        &mut self,
        step: &StepContext,
        mut framing: HttpAnswerFraming,
        listens: impl Fn(),
        messages: impl Future<Output = AgentError>,
    ) -> Result<HttpTurn, AgentError> {
        let (mut written, mut is_listening) = (vec![], false);
        let mut messages = std::pin::pin!(messages);
        loop {
            // Concurrently: an endpoint may accept messages late, or never.
            let piece = tokio::select! {
                biased;
                error = &mut messages, if is_listening => return Err(error),
                piece = self.piece(step) => piece?,
            };
            for message in framing.messages(piece.as_deref())? {
                let said = read_message(&message)?;
                if said == ProgramMessage::Listen {
                    is_listening = true;
                    listens();
                    continue;
                }
                let said = ReportTarget::Step(step).pass_on(said, &mut written).await?;
                if let Some(said) = said {
                    return end(said, step).await;
                }
            }
            if piece.is_none() {
                return Err(AgentError::failed(
                    "the stream ended without done, reply, failed, rejected or a question: it was cut",
                ));
            }
        }
    }
}

impl HttpAnswerFraming {
    /// The messages that are complete with these bytes, or with the end.
    fn messages(&mut self, bytes: Option<&[u8]>) -> Result<Vec<String>, AgentError> {
        match self {
            Self::Events(parser) => {
                let events = parser.feed(bytes.unwrap_or_default()).map_err(AgentError::failed)?;
                Ok(events.into_iter().map(|event| event.data).collect())
            }
            Self::Lines(rest) => {
                rest.extend_from_slice(bytes.unwrap_or(b"\n"));
                let mut lines = vec![];
                while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=at).collect();
                    let line = String::from_utf8_lossy(&line).trim().to_owned();
                    if !line.is_empty() {
                        lines.push(line);
                    }
                }
                Ok(lines)
            }
        }
    }
}

fn late(limit: Duration) -> AgentError {
    AgentError::failed(format!("the endpoint was silent for {limit:?} (timeout)"))
}

fn read_message(text: &str) -> Result<ProgramMessage, AgentError> {
    serde_json::from_str(text).map_err(|error| {
        let shown: String = text.chars().take(SHOWN).collect();
        AgentError::failed(format!("the stream says what is no message ({error}): {shown:?}"))
    })
}

/// What the final message of a response asks for.
async fn end(said: ProgramMessage, step: &StepContext) -> Result<HttpTurn, AgentError> {
    Ok(match said {
        ProgramMessage::Done { text, data } => {
            if let Some(data) = data {
                ReportTarget::Step(step).result(data).await?;
            }
            HttpTurn::Done { text }
        }
        ProgramMessage::Reply(reply) => HttpTurn::Replied { message: reply.message()? },
        ProgramMessage::Failed { text } => HttpTurn::Failed { text },
        ProgramMessage::Rejected { text } => HttpTurn::Rejected { text },
        ProgramMessage::Ask { text, schema } => HttpTurn::Ask { text, schema },
        ProgramMessage::Sample { text, system, max_tokens } => HttpTurn::Sample { text, system, max_tokens },
        ProgramMessage::Authorize { text, url } => HttpTurn::Authorize { text, url },
        other => {
            return Err(AgentError::failed(format!(
                "{:?} is not for endpoints: they say progress, log, artifact, listen, ask, sample, authorize, done, reply, \
                 failed and rejected",
                other.type_name()
            )));
        }
    })
}

/// JSON that is a message, an answer of our protocol, or just data.
async fn json_answer(body: &[u8], step: &StepContext) -> Result<HttpTurn, AgentError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        AgentError::failed(format!("the answer is not the JSON that it says it is: {error}"))
    })?;
    let Some(members) = value.as_object() else {
        ReportTarget::Step(step).result(value).await?;
        return Ok(HttpTurn::Done { text: None });
    };
    let mut written = vec![];
    if let Some(word) = members.get("type").and_then(Value::as_str)
        && let Ok(said) = serde_json::from_value::<ProgramMessage>(value.clone())
    {
        return match ReportTarget::Step(step).pass_on(said, &mut written).await? {
            Some(said) => end(said, step).await,
            None => Err(AgentError::failed(format!("an answer of {word:?} alone has no end: stream it"))),
        };
    }
    let ours = !members.is_empty() && members.keys().all(|key| PLAIN.contains(&key.as_str()));
    if !ours {
        ReportTarget::Step(step).result(value).await?;
        return Ok(HttpTurn::Done { text: None });
    }
    for artifact in members.get("artifacts").and_then(Value::as_array).into_iter().flatten() {
        let mut piece = artifact.as_object().cloned().unwrap_or_default();
        piece.insert("type".into(), "artifact".into());
        let said = read_message(&Value::Object(piece).to_string())?;
        ReportTarget::Step(step).pass_on(said, &mut written).await?;
    }
    if let Some(data) = members.get("data") {
        ReportTarget::Step(step).result(data.clone()).await?;
    }
    Ok(HttpTurn::Done { text: members.get("text").and_then(Value::as_str).map(str::to_owned) })
}

fn media_type(response: &HttpResponse) -> String {
    let kind = response.header(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// The beginning of an error response's text, to be appended to its status.
pub(super) async fn read_refusal_text(response: HttpResponse, limit: Duration) -> String {
    // On a timeout, the part that has arrived is enough.
    let (text, _) = response.body_limit(limit).read_beginning(4 * SHOWN).await;
    let text = String::from_utf8_lossy(&text);
    match text.trim() {
        "" => String::new(),
        text => format!(": {}", text.chars().take(SHOWN).collect::<String>()),
    }
}
