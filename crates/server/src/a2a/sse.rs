//! The server-sent event stream of one task, in one dialect; written once for all dialects and bindings.
//!
//! The SSE id of a frame is the event's cursor, so that `Last-Event-ID` continues after it with the same bytes.
//! All frames of one batch are written as one chunk. The binding's envelope is around the data of each frame.

use std::{borrow::Cow, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response},
};
use futures_util::stream;
use nuncio_engine::{Event, Follower, Next, Task, event::EntryBatch, task::Origin};
use nuncio_wire::{
    a2a::{A2aFault, A2aFrame, Dialect, TaskDetail, TaskIds, card::LOG_EXTENSION},
    sse,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{handler::StreamStart, jsonrpc::fault_of};
use crate::{
    auth::CredentialRecheck,
    open_streams::{MAX_TYPE, OpenStream, STREAM_ID},
    responses::event_stream,
};

/// The header in which a request activates A2A extensions, and the response lists the active ones.
pub(crate) const EXTENSIONS: &str = "a2a-extensions";

/// What a binding writes around the data of a frame.
pub(crate) trait StreamEnvelope: Send + 'static {
    /// Writes a result; `write` adds its JSON.
    fn write_result(&self, out: &mut Vec<u8>, write: &mut dyn FnMut(&mut Vec<u8>));

    /// Writes the error that ends a stream.
    fn write_fault(&self, out: &mut Vec<u8>, dialect: Dialect, fault: &A2aFault);
}

/// A stream and where it stands.
pub(crate) struct A2aEventStream {
    pub(crate) dialect: Dialect,
    pub(crate) envelope: Box<dyn StreamEnvelope>,
    pub(crate) task_id: Arc<str>,
    pub(crate) origin: Origin,
    pub(crate) follower: Follower,
    /// The first frame, until it is written.
    pub(crate) start: StreamStart,
    /// Whether the stream belongs to one message and ends with the agent's turn.
    pub(crate) one_turn: bool,
    /// Whether the client activated the extension for log messages.
    pub(crate) logs: bool,
    pub(crate) keep_alive: Duration,
    pub(crate) live: OpenStream,
    /// Rechecks the caller's credentials: the stream ends when they are no longer valid.
    pub(crate) recheck: CredentialRecheck,
    pub(crate) ended: bool,
}

impl A2aEventStream {
    /// The HTTP response that carries the stream.
    pub(crate) fn respond(self) -> Response<Body> {
        let (name, logs) = (self.live.header(), self.logs);
        let frames = stream::unfold(self, |mut stream| async move {
            let bytes = stream.next().await?;
            Some((Ok::<_, Infallible>(bytes), stream))
        });
        let mut response = event_stream(Body::from_stream(frames));
        response.headers_mut().insert(STREAM_ID, name);
        if logs {
            // Lists the active ones of the requested extensions.
            response.headers_mut().insert(EXTENSIONS, HeaderValue::from_static(LOG_EXTENSION));
        }
        response
    }

    /// The next chunk of the body; `None` closes the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if let StreamStart::Current(task) = &self.start {
            let task = Arc::clone(task);
            self.start = StreamStart::Nothing;
            let mut out = Vec::with_capacity(1024);
            self.ended = self.write_task(&mut out, &task);
            return Some(out.into());
        }
        // Not every event has a frame: the keep-alive timer runs from the last bytes sent to the client.
        let quiet_until = Instant::now() + self.keep_alive;
        while !self.ended {
            let next = tokio::select! {
                biased;
                () = self.recheck.wait_until_invalid() => return None,
                next = tokio::time::timeout_at(quiet_until, self.follower.next()) => next,
            };
            let next = match next {
                Err(_) => return Some(Bytes::from_static(sse::KEEP_ALIVE)),
                Ok(next) => next,
            };
            match next {
                Ok(Next::Batch(batch)) => {
                    let out = self.write_batch(&batch);
                    if !out.is_empty() {
                        return Some(out.into());
                    }
                }
                // A2A clients resume in their own way, and its questions stay open until they are answered.
                Ok(Next::Nudge(_)) => {}
                Ok(Next::End) => self.ended = true,
                Ok(Next::Closing) => {
                    self.ended = true;
                    let cursor = self.follower.cursor();
                    let note = format!(": the server is stopping; continue with Last-Event-ID: {cursor}\n\n");
                    return Some(note.into());
                }
                Err(error) => {
                    self.ended = true;
                    let mut out = Vec::new();
                    let fault = fault_of(self.dialect, &error);
                    sse::write_numbered_event(&mut out, None, |out| {
                        self.envelope.write_fault(out, self.dialect, &fault);
                    });
                    self.live.record_event(Cow::Borrowed("error"), Some(&self.task_id), None);
                    return Some(out.into());
                }
            }
        }
        None
    }

    fn write_batch(&mut self, batch: &EntryBatch) -> Vec<u8> {
        let mut out = Vec::with_capacity(batch.entries.len() * 384);
        for (seq, entry) in batch.iter() {
            self.ended = if seq == 1 && matches!(self.start, StreamStart::Birth) {
                self.start = StreamStart::Nothing;
                self.write_task(&mut out, &Task::new(self.origin.clone()).fold([entry]))
            } else {
                let ids = TaskIds { task: &self.task_id, context: &self.origin.context };
                let (kind, data) = summary_of(entry.event());
                self.write_frame(&mut out, seq, (kind, data), |out| match self.logs {
                    true => self.dialect.write_event_or_log(out, &ids, seq, entry),
                    false => self.dialect.write_event(out, &ids, seq, entry),
                })
            };
            if self.ended {
                break;
            }
        }
        out
    }

    fn write_task(&self, out: &mut Vec<u8>, task: &Task) -> bool {
        let write = |out: &mut Vec<u8>| self.dialect.write_stream_start(out, task, TaskDetail::default());
        let told = (Cow::Borrowed("task"), json!({ "state": task.state }));
        self.write_frame(out, task.seq, told, |out| Some(write(out)))
    }

    /// Writes a frame, if there is one. Returns whether the stream ends with it.
    fn write_frame(
        &self,
        out: &mut Vec<u8>,
        seq: u64,
        (kind, data): (Cow<'static, str>, Value),
        write: impl FnOnce(&mut Vec<u8>) -> Option<A2aFrame>,
    ) -> bool {
        let start = out.len();
        let (mut frame, mut write) = (None, Some(write));
        sse::write_numbered_event(out, Some(seq), |out| {
            self.envelope.write_result(out, &mut |out| frame = write.take().and_then(|write| write(out)));
        });
        match frame {
            None => {
                out.truncate(start);
                false
            }
            Some(frame) => {
                self.live.record_event_with_data(kind, Some(&self.task_id), Some(seq), &data);
                frame.ends_stream || (self.one_turn && frame.ends_turn)
            }
        }
    }
}

/// The type and summary of an event for the list of open streams. A progress event that names what happened has
/// that type.
fn summary_of(event: &Event) -> (Cow<'static, str>, Value) {
    let (kind, data) = match event {
        Event::Message(_) => ("message", Value::Null),
        Event::Status(status) => ("status", json!({ "state": status.state })),
        Event::Artifact(chunk) => {
            ("artifact", json!({ "artifactId": chunk.id, "append": chunk.append, "lastChunk": chunk.last }))
        }
        Event::Progress(progress) => {
            let figures =
                json!({ "progress": progress.done, "total": progress.total, "message": progress.text });
            match progress.data.as_ref().and_then(|data| Some((data["type"].as_str()?, data))) {
                Some((kind, data)) => {
                    return (Cow::Owned(kind.chars().take(MAX_TYPE).collect()), data.clone());
                }
                None => ("progress", figures),
            }
        }
        Event::Log(line) => ("log", json!({ "level": line.level })),
        Event::Question(question) => {
            ("question", json!({ "questionId": question.id, "text": question.text }))
        }
        Event::Answer(answered) => ("answer", json!({ "questionId": answered.question })),
        Event::Withdrawn(withdrawn) => ("withdrawn", json!({ "questionId": withdrawn.question })),
    };
    (Cow::Borrowed(kind), data)
}
