//! The event stream of one task, in one dialect; written once for all dialects and bindings.
//!
//! Each frame has the event's cursor, so that a stream continues after it with the same bytes. All frames of one batch are
//! one chunk. How a frame is written, and how a stream ends, is the binding's.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::body::Bytes;
use nuncio_engine::{
    Error, Event, Follower, Message, Next, Task,
    event::{Entry, EntryBatch},
    task::Origin,
};
use nuncio_wire::a2a::{A2aFault, A2aFrame, Dialect, TaskDetail, TaskIds};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::handler::StreamStart;
use crate::{
    auth::CredentialRecheck,
    open_streams::{MAX_TYPE, OpenStream},
};

/// The maximum number of events that a stream holds while its agent may still answer with a message alone.
const MAX_HELD: usize = 256;

/// How a binding writes the frames of a stream.
pub(crate) trait StreamFraming: Send + 'static {
    /// Writes a frame; `write` adds the JSON of its result. A frame without a cursor cannot be continued after.
    fn write_frame(
        &self,
        out: &mut Vec<u8>,
        dialect: Dialect,
        cursor: Option<u64>,
        write: &mut dyn FnMut(&mut Vec<u8>),
    );

    /// What is sent when a stream was quiet for long; `None` if the connection has its own way.
    fn keep_alive(&self) -> Option<Bytes>;

    /// Writes the error that ends a stream, if it is a frame.
    fn write_fault(&self, out: &mut Vec<u8>, dialect: Dialect, fault: &A2aFault);
}

/// The next part of a stream.
pub(super) enum StreamChunk {
    Frames(Bytes),
    KeepAlive(Bytes),
    End(StreamEnd),
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// With the task, or with the agent's turn.
    Complete,
    /// The caller's credentials are no longer valid.
    CredentialsEnded,
    /// The server stops. The stream can be continued after this cursor.
    ServerStops(u64),
}

/// A stream and where it stands.
pub(crate) struct A2aEventStream {
    pub(crate) dialect: Dialect,
    pub(crate) framing: Box<dyn StreamFraming>,
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
    /// The first chunk, once the stream has something to send; until then an error is the caller's, which can still
    /// choose the status of the response. A stream that may be quiet for long begins at once, without one.
    pub(super) async fn first_chunk(&mut self) -> Result<Option<StreamChunk>, Error> {
        self.live.follow(&self.task_id, self.follower.cursor());
        match self.start {
            // It may be long before it is decided what the first frame is.
            StreamStart::Nothing | StreamStart::Held(_) => Ok(None),
            StreamStart::Birth | StreamStart::Current(_) => self.next_chunk().await.map(Some),
        }
    }

    /// The next chunk. Nothing follows an end or an error.
    pub(super) async fn next_chunk(&mut self) -> Result<StreamChunk, Error> {
        if let StreamStart::Current(task) = &self.start {
            let task = Arc::clone(task);
            self.start = StreamStart::Nothing;
            let mut out = Vec::with_capacity(1024);
            self.ended = match task.reply() {
                Some(message) => self.write_reply(&mut out, message),
                None => self.write_task(&mut out, &task),
            };
            return Ok(StreamChunk::Frames(out.into()));
        }
        // Not every event has a frame: the keep-alive timer runs from the last bytes sent to the client.
        let quiet_until = Instant::now() + self.keep_alive;
        let keep_alive = self.framing.keep_alive();
        let quiet = async || match &keep_alive {
            Some(bytes) => {
                tokio::time::sleep_until(quiet_until).await;
                bytes.clone()
            }
            None => std::future::pending().await,
        };
        while !self.ended {
            let next = tokio::select! {
                biased;
                () = self.recheck.wait_until_invalid() => {
                    self.ended = true;
                    return Ok(StreamChunk::End(StreamEnd::CredentialsEnded));
                }
                next = self.follower.next() => next,
                bytes = quiet() => return Ok(StreamChunk::KeepAlive(bytes)),
            };
            match next {
                Ok(Next::Batch(batch)) => {
                    let out = self.write_batch(&batch);
                    if !out.is_empty() {
                        return Ok(StreamChunk::Frames(out.into()));
                    }
                }
                // A2A clients resume in their own way, and its questions stay open until they are answered.
                Ok(Next::Nudge(_)) => {}
                Ok(Next::End) => self.ended = true,
                Ok(Next::Closing) => {
                    self.ended = true;
                    return Ok(StreamChunk::End(StreamEnd::ServerStops(self.follower.cursor())));
                }
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(StreamChunk::End(StreamEnd::Complete))
    }

    fn write_batch(&mut self, batch: &EntryBatch) -> Vec<u8> {
        let mut out = Vec::with_capacity(batch.entries.len() * 384);
        for (seq, entry) in batch.iter() {
            if let StreamStart::Held(held) = &mut self.start {
                if let Some(message) = entry.event().reply() {
                    self.ended = self.write_reply(&mut out, message);
                    break;
                }
                // Only log lines can be many here: they are held for a client that wants them, and no more than these.
                let is_log = matches!(entry.event(), Event::Log(_));
                if !is_log || (self.logs && held.len() < MAX_HELD) {
                    held.push((seq, entry.clone()));
                }
                if seq > 1 && entry.event().shows_task() {
                    let held = std::mem::take(held);
                    self.start = StreamStart::Birth;
                    held.iter().for_each(|(seq, entry)| self.write_entry(&mut out, *seq, entry));
                }
            } else {
                self.write_entry(&mut out, seq, entry);
            }
            if self.ended {
                break;
            }
        }
        out
    }

    /// Writes the frame of an event, if it has one and the stream has not ended.
    fn write_entry(&mut self, out: &mut Vec<u8>, seq: u64, entry: &Entry) {
        if !self.ended {
            self.ended = if seq == 1 && matches!(self.start, StreamStart::Birth) {
                self.start = StreamStart::Nothing;
                self.write_task(out, &Task::new(self.origin.clone()).fold([entry]))
            } else {
                let ids = TaskIds { task: &self.task_id, context: &self.origin.context };
                let (kind, data) = summary_of(entry.event());
                self.write_frame(out, seq, (kind, data), |out| match self.logs {
                    true => self.dialect.write_event_or_log(out, &ids, seq, entry),
                    false => self.dialect.write_event(out, &ids, seq, entry),
                })
            };
        }
    }

    /// Writes the message with which the agent answered instead of a task: the only frame.
    fn write_reply(&self, out: &mut Vec<u8>, message: &Message) -> bool {
        let context = &self.origin.context;
        // Without an id: there is no task whose stream could be resumed after it.
        self.framing.write_frame(out, self.dialect, None, &mut |out| {
            self.dialect.write_reply(out, context, message);
        });
        self.live.record_event(Cow::Borrowed("message"), None, None);
        true
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
        self.framing.write_frame(out, self.dialect, Some(seq), &mut |out| {
            frame = write.take().and_then(|write| write(out));
        });
        match frame {
            None => {
                out.truncate(start);
                // Nothing to send is nothing to miss.
                self.live.follow(&self.task_id, seq);
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
