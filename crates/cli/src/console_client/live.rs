//! The events of a task from a number on, as they are committed: none is left out and none comes twice.
//!
//! They come over the live stream of the console API. A stream that is cut is opened again after the last event that was
//! received; a server that stays unreachable is given up after [`OUTAGE`].

use std::{collections::VecDeque, time::Duration};

use nuncio_outbound::{Backoff, HttpRequest, HttpResponse, OutboundError};
use nuncio_wire::sse::{ServerEvent, SseParser};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{ConsoleClient, ConsoleClientError};
use crate::error::CliError;

/// The first and the longest pause before a stream is opened again, and how long the server may be unreachable.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const OUTAGE: Duration = Duration::from_secs(60);
/// How long a stream may be silent: three heartbeats of the server.
const SILENCE: Duration = Duration::from_secs(45);
/// The deadline of the headers of a stream.
const OPENING: Duration = Duration::from_secs(30);
/// Bytes of a frame. One has an event at least, however large it is.
const MAX_FRAME: usize = 64 * 1024 * 1024;
/// The key of the only topic.
const KEY: &str = "task";

/// Reads the events of one task.
pub(crate) struct TaskEventReader<'a> {
    client: &'a ConsoleClient,
    task: String,
    /// The number of the last event that was received.
    after: u64,
    /// Bytes of an event's data that are sent; of a longer one its beginning.
    preview: usize,
    stream: Option<OpenTaskStream>,
    outage: Backoff,
    retry_at: Option<Instant>,
    /// Whether the task has ended and its last event was received.
    is_over: bool,
}

struct OpenTaskStream {
    response: HttpResponse,
    parser: SseParser,
    frames: VecDeque<ServerEvent>,
    since: Instant,
}

/// The members of a frame that are used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskFrame {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    ended: bool,
    #[serde(default)]
    why: Option<String>,
    #[serde(default)]
    retry_after_seconds: Option<u64>,
}

/// What a frame means for its reader.
enum FrameContent {
    /// Events; whether nothing follows them.
    Events(Vec<Value>, bool),
    /// The task has ended, and all its events were sent.
    End,
    /// The server ends the stream, and names when to open another one.
    Closing(Option<Duration>),
    Other,
}

impl<'a> TaskEventReader<'a> {
    pub(crate) fn new(client: &'a ConsoleClient, task: &str, after: u64, preview: usize) -> Self {
        Self {
            client,
            task: task.to_owned(),
            after,
            preview,
            stream: None,
            outage: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, OUTAGE),
            retry_at: None,
            is_over: false,
        }
    }

    /// The number of the last event that was received.
    pub(crate) fn cursor(&self) -> u64 {
        self.after
    }

    /// The next events; `None` after the last one of a task that has ended. It may be dropped while it waits: nothing is
    /// lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Value>>, CliError> {
        while !self.is_over {
            let Some(stream) = &mut self.stream else {
                self.open().await?;
                continue;
            };
            let frame = match stream.next_frame().await {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    self.record_failure(Instant::now(), self.cut("the server ended the stream"), None)?;
                    continue;
                }
                Err(error) => {
                    self.record_failure(Instant::now(), error, None)?;
                    continue;
                }
            };
            match self.read(&frame).map_err(|error| self.client.failed(error))? {
                FrameContent::Events(events, is_last) => {
                    self.outage.reset();
                    self.is_over = is_last;
                    if !events.is_empty() {
                        return Ok(Some(events));
                    }
                }
                FrameContent::End => self.is_over = true,
                FrameContent::Closing(wanted) => {
                    self.record_failure(Instant::now(), self.cut("the server stops"), wanted)?;
                }
                FrameContent::Other => {}
            }
        }
        Ok(None)
    }

    fn read(&mut self, frame: &ServerEvent) -> Result<FrameContent, ConsoleClientError> {
        let kind = frame.event.as_deref().unwrap_or_default();
        if !matches!(kind, "events" | "end" | "closing") {
            return Ok(FrameContent::Other);
        }
        let content: TaskFrame = serde_json::from_str(&frame.data)
            .map_err(|error| ConsoleClientError::Malformed(format!("a frame {kind}: {error}")))?;
        match (kind, content.why.as_deref()) {
            ("end", Some("ended")) => return Ok(FrameContent::End),
            ("end", why) => {
                let (status, message) = match why {
                    Some("not_found") => (404, format!("task {} was deleted", self.task)),
                    _ => {
                        (403, format!("task {} may not be followed any more: a scope is missing", self.task))
                    }
                };
                let code = why.unwrap_or_default().to_owned();
                return Err(ConsoleClientError::Refused {
                    status,
                    code,
                    message,
                    retry_after: None,
                    supplied: true,
                });
            }
            ("closing", _) => {
                return Ok(FrameContent::Closing(content.retry_after_seconds.map(Duration::from_secs)));
            }
            _ => {}
        }
        let cursor = content.cursor.as_deref().and_then(|cursor| cursor.parse::<u64>().ok());
        let Some(cursor) = cursor else {
            return Err(ConsoleClientError::Malformed("a frame of events without its cursor".to_owned()));
        };
        self.after = self.after.max(cursor);
        Ok(FrameContent::Events(content.events, content.ended))
    }

    /// Opens a stream after the last event.
    async fn open(&mut self) -> Result<(), CliError> {
        if let Some(at) = self.retry_at.take() {
            sleep_until(at).await;
        }
        let began = Instant::now();
        match self.opened().await {
            Ok(stream) => self.stream = Some(stream),
            Err(error) => {
                let wanted = match &error {
                    ConsoleClientError::Refused { retry_after, .. } => *retry_after,
                    _ => None,
                };
                self.record_failure(began, error, wanted)?;
            }
        }
        Ok(())
    }

    async fn opened(&self) -> Result<OpenTaskStream, ConsoleClientError> {
        let topic = json!({
            "key": KEY, "topic": "task", "id": self.task, "after": self.after.to_string(), "preview": self.preview,
        });
        let request = HttpRequest::post(self.client.url(&["live"])?)
            .json(json!({ "topics": [topic] }).to_string())
            .response_timeout(OPENING);
        let response = self.client.send(request).await?.silence_limit(SILENCE);
        Ok(OpenTaskStream {
            response,
            parser: SseParser::new(MAX_FRAME),
            frames: VecDeque::new(),
            since: Instant::now(),
        })
    }

    fn cut(&self, why: &str) -> ConsoleClientError {
        OutboundError::Cut { to: self.client.base.borrow().clone(), why: why.to_owned() }.into()
    }

    /// A stream failed: schedules the next one, unless another attempt does not help or the outage has lasted too long.
    fn record_failure(
        &mut self,
        began: Instant,
        error: ConsoleClientError,
        wanted: Option<Duration>,
    ) -> Result<(), CliError> {
        // A server that ends every stream at once is as good as unreachable.
        if self.stream.take().is_some_and(|stream| stream.since.elapsed() > LONGEST_PAUSE) {
            self.outage.reset();
        }
        let helps = self.client.renew(&error) || error.may_pass();
        if !self.client.reached.get() || !helps {
            return Err(self.client.failed(error));
        }
        let Some(pause) = self.outage.fail(began, wanted) else { return Err(self.client.failed(error)) };
        self.retry_at = Some(Instant::now() + pause);
        Ok(())
    }
}

impl OpenTaskStream {
    /// The next frame; `None` where the server has ended the response.
    async fn next_frame(&mut self) -> Result<Option<ServerEvent>, ConsoleClientError> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(Some(frame));
            }
            let Some(bytes) = self.response.chunk().await? else { return Ok(None) };
            let frames = self.parser.feed(&bytes);
            self.frames.extend(frames.map_err(|error| ConsoleClientError::Malformed(error.to_string()))?);
        }
    }
}
