//! The server-sent event stream of one task, in one dialect; written once for all dialects.
//!
//! The SSE id of a frame is the event's cursor, so that `Last-Event-ID` continues after it with the same bytes.
//! All frames of one batch are written as one chunk.

use std::{borrow::Cow, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, header},
};
use futures_util::stream;
use nuncio_engine::{Event, Follower, Next, Task, event::EntryBatch, task::Origin};
use nuncio_wire::{
    a2a::{A2aFrame, Dialect, TaskDetail, TaskIds, card::LOG_EXTENSION},
    jsonrpc::{self, RpcId},
    sse,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    auth::CredentialRecheck,
    rpc,
    streams::{MAX_TYPE, OpenStream, STREAM_ID},
};

/// The header in which a request activates A2A extensions, and the response lists the active ones.
pub(crate) const EXTENSIONS: &str = "a2a-extensions";

/// The first frame of a stream.
pub(crate) enum StreamStart {
    /// The task as it was created, when its first event arrives.
    Birth,
    /// The current task.
    Current(Arc<Task>),
    /// None: the client has seen the beginning.
    Nothing,
}

/// A stream that is about to be written.
pub(crate) struct A2aEventStream {
    pub(crate) dialect: Dialect,
    pub(crate) id: RpcId,
    pub(crate) origin: Origin,
    pub(crate) follower: Follower,
    pub(crate) begin: StreamStart,
    /// Whether the stream belongs to one message and ends with the agent's turn.
    pub(crate) one_turn: bool,
    /// Whether the client activated the extension for log messages.
    pub(crate) logs: bool,
    pub(crate) keep_alive: Duration,
    pub(crate) live: OpenStream,
    /// Rechecks the caller's credentials: the stream ends when they are no longer valid.
    pub(crate) recheck: CredentialRecheck,
}

impl A2aEventStream {
    /// The HTTP response that carries the stream.
    pub(crate) fn respond(self) -> Response<Body> {
        let (birth, current) = match self.begin {
            StreamStart::Birth => (true, None),
            StreamStart::Current(task) => (false, Some(task)),
            StreamStart::Nothing => (false, None),
        };
        let (name, logs) = (self.live.header(), self.logs);
        let state = A2aStreamWriter {
            task_id: self.origin.public_id().into(),
            dialect: self.dialect,
            id: self.id,
            origin: self.origin,
            follower: self.follower,
            birth,
            current,
            one_turn: self.one_turn,
            logs: self.logs,
            keep_alive: self.keep_alive,
            ended: false,
            live: self.live,
            recheck: self.recheck,
        };
        let frames = stream::unfold(state, |mut writer| async move {
            let bytes = writer.next().await?;
            Some((Ok::<_, Infallible>(bytes), writer))
        });
        let mut response = event_stream(Body::from_stream(frames));
        response.headers_mut().insert(STREAM_ID, name);
        if logs {
            // Lists the active ones of the requested extensions.
            response.headers_mut().insert(EXTENSIONS, HeaderValue::from_static(LOG_EXTENSION));
        }
        response
    }
}

/// The response head of every event stream.
pub(crate) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that buffer would delay events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct A2aStreamWriter {
    dialect: Dialect,
    id: RpcId,
    task_id: Arc<str>,
    origin: Origin,
    follower: Follower,
    /// Whether the first event must be shown as the task that it created.
    birth: bool,
    /// The task, if it must be shown first.
    current: Option<Arc<Task>>,
    one_turn: bool,
    logs: bool,
    keep_alive: Duration,
    ended: bool,
    live: OpenStream,
    recheck: CredentialRecheck,
}

impl A2aStreamWriter {
    /// The next chunk of the body; `None` closes the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(task) = self.current.take() {
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
                    let fault = rpc::fault_of(self.dialect, &error);
                    sse::write_numbered_event(&mut out, None, |out| {
                        self.dialect.write_fault(out, Some(&self.id), &fault);
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
            self.ended = if seq == 1 && std::mem::take(&mut self.birth) {
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
        let mut frame = None;
        sse::write_numbered_event(out, Some(seq), |out| {
            jsonrpc::write_result(out, &self.id, |out| frame = write(out));
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
