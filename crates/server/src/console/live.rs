//! The live stream of a console: several topics on one response, each with its own cursor.
//!
//! Each topic runs by itself and writes frames into one bounded queue. What waits there is charged to the caller: a reader
//! that is slow uses up the bytes in flight of its own caller, and then no further frames are made. The events of a task
//! come from the same follower that every protocol reads.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, Response},
};
use nuncio_engine::{
    BytePermit, Caller, Engine, Event, Follower, Next,
    event::{Entry, EntryBatch},
    task::Origin,
};
use nuncio_wire::{sse, timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, MutexGuard, mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use super::{
    api::ConsoleRequest,
    events::{EventView, MAX_PREVIEW},
    live_resource::ResourceTopic,
    live_rows::{self, QuestionTopic, RowTopic},
    problem::ConsoleProblem,
    pulse::PulseTopic,
    sender::Senders,
    tasks,
};
use crate::{
    app::App,
    auth::{AuthError, ConnectionPeer},
    charged_body::ChargedChunks,
    open_streams::OpenStream,
    responses,
};

/// The topics of one stream (`console.live-topics`).
pub(super) const MAX_TOPICS: usize = 16;
/// The interval of the comments on a silent stream (`console.heartbeat`).
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// The bytes after which a frame of events ends (`console.live-frame`).
const FRAME_BYTES: usize = 256 * 1024;
/// The longest key of a topic.
const MAX_KEY: usize = 32;
/// Frames that wait for the reader.
const QUEUE: usize = 8;
/// The pause after a reservation for frames was refused.
const PAUSE_WHEN_BUSY: Duration = Duration::from_secs(1);
/// How often the credentials of a stream are verified.
const RECHECK: Duration = Duration::from_secs(3);
/// How long a client waits before it asks a server that stops again.
const RETRY_SECONDS: u64 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct NewLiveStream {
    topics: Vec<NewTopic>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct NewTopic {
    key: String,
    topic: TopicKind,
    id: Option<String>,
    uri: Option<String>,
    after: Option<String>,
    preview: Option<u64>,
    filter: Option<RowFilter>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum TopicKind {
    Rows,
    Task,
    Questions,
    Resource,
    Pulse,
}

/// The filter of the topic `rows`. States and times are accepted and ignored: a row that was shown and no longer matches
/// must still change on the screen.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RowFilter {
    agent: Vec<String>,
    owner: Option<String>,
}

/// A frame that waits for the reader, and its charge to the caller: until the last byte of it is sent.
struct QueuedFrame {
    bytes: Bytes,
    charge: Arc<[BytePermit]>,
}

impl QueuedFrame {
    /// A frame that is too small to be counted.
    fn small(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), charge: Arc::default() }
    }

    /// The bytes, with the charge: it ends when they are dropped, and so are all pieces that were split off them.
    fn into_bytes(self) -> Bytes {
        if self.charge.is_empty() { self.bytes } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for QueuedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Frames on their way to the reader. An error means that there is none any more.
#[derive(Clone)]
pub(super) struct FrameSender {
    queue: mpsc::Sender<QueuedFrame>,
    /// The record of the stream, which lists what it was sent.
    stream: Arc<OpenStream>,
    engine: Engine,
    caller: Caller,
    /// Held by the topic of a task from its reservation until its frames are queued: a stream holds the frames of one
    /// batch beside its queue.
    batches: Arc<Mutex<()>>,
}

/// The reader has gone.
pub(super) struct ReaderGone;

impl FrameSender {
    pub(super) async fn send(&self, kind: &'static str, data: &impl Serialize) -> Result<(), ReaderGone> {
        let bytes = render(kind, data);
        let permit = self.reserve(bytes.len()).await;
        let frame = QueuedFrame { bytes, charge: [permit].into() };
        self.queue.send(frame).await.map_err(|_| ReaderGone)?;
        self.stream.record_event(kind.into(), None, None);
        Ok(())
    }

    /// Reserves memory for the frames of one batch, before it is read.
    async fn reserve_batch(&self, bytes: usize) -> BatchPermit<'_> {
        let batch = self.batches.lock().await;
        BatchPermit { frames: self, permit: self.reserve(bytes).await, bytes, _batch: batch }
    }

    /// Waits until the caller has so many bytes left. A reader gets nothing until then.
    async fn reserve(&self, bytes: usize) -> BytePermit {
        loop {
            match self.engine.reserve_bytes(&self.caller, bytes as u64).await {
                Ok(permit) => return permit,
                Err(_) => tokio::time::sleep(PAUSE_WHEN_BUSY).await,
            }
        }
    }
}

fn render(kind: &'static str, data: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(512);
    sse::write_event_type(&mut out, kind);
    sse::write_event(&mut out, None, |out| nuncio_wire::json::value(out, data));
    out.into()
}

/// Memory for the frames of one batch.
struct BatchPermit<'a> {
    frames: &'a FrameSender,
    permit: BytePermit,
    bytes: usize,
    _batch: MutexGuard<'a, ()>,
}

impl BatchPermit<'_> {
    /// Sends the frames, each with the number of its last event.
    async fn send(mut self, task: &Arc<str>, frames: Vec<(u64, Bytes)>) -> Result<(), ReaderGone> {
        let FrameSender { queue, stream, engine, caller, .. } = self.frames;
        let bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
        self.permit.shrink_to(bytes as u64);
        let more = engine.charge_bytes(caller, bytes.saturating_sub(self.bytes) as u64);
        let charge: Arc<[BytePermit]> = [self.permit, more].into();
        for (seq, bytes) in frames {
            let frame = QueuedFrame { bytes, charge: Arc::clone(&charge) };
            queue.send(frame).await.map_err(|_| ReaderGone)?;
            stream.record_event("events".into(), Some(task), Some(seq));
        }
        Ok(())
    }
}

/// Why a topic has no more frames.
pub(super) enum TopicEnd {
    /// It said so itself, or the reader has gone.
    Done,
    /// The server stops.
    Closing,
}

impl From<ReaderGone> for TopicEnd {
    fn from(_: ReaderGone) -> Self {
        Self::Done
    }
}

/// `POST /live`
pub(super) async fn open(
    request: &ConsoleRequest<'_>,
    wanted: NewLiveStream,
) -> Result<Response<Body>, ConsoleProblem> {
    request.check_parameters(&[])?;
    check_topics(&wanted.topics)?;
    // Bounded as every stream is: in all, for the caller, and by the share of its tenant.
    let slot = request.app.reserve_stream_slot(&request.caller)?;
    let mut topics = Vec::with_capacity(wanted.topics.len());
    for (index, topic) in wanted.topics.into_iter().enumerate() {
        let prepared = LiveTopic::prepare(request, index, topic).await;
        topics.push(prepared.map_err(|problem| problem.in_field(&format!("topics/{index}")))?);
    }
    check_tasks(&topics)?;
    let stream = Arc::new(slot.open(&request.caller, "console", request.headers));
    for topic in &topics {
        if let LiveTopic::Task(topic) = topic {
            stream.follow(&topic.task, topic.follower.cursor());
        }
    }
    // One slot more, for the frame that closes the stream.
    let (queue, reader) = mpsc::channel(QUEUE + 1);
    let frames = FrameSender {
        queue,
        stream,
        engine: request.engine().clone(),
        caller: request.caller.clone(),
        batches: Arc::default(),
    };
    let context = LiveContext {
        app: Arc::clone(request.app),
        headers: request.headers.clone(),
        peer: request.peer.clone(),
        frames,
    };
    tokio::spawn(context.run(topics));
    let body = futures_util::stream::unfold(reader, async |mut reader: mpsc::Receiver<QueuedFrame>| {
        reader.recv().await.map(|frame| (Ok::<_, Infallible>(frame.into_bytes()), reader))
    });
    let mut response = responses::event_stream(Body::from_stream(body));
    response.extensions_mut().insert(ChargedChunks);
    Ok(response)
}

fn check_topics(topics: &[NewTopic]) -> Result<(), ConsoleProblem> {
    if topics.is_empty() || topics.len() > MAX_TOPICS {
        let message = format!("topics: a stream has 1 to {MAX_TOPICS} topics (console.live-topics)");
        return Err(ConsoleProblem::bad_request("topics", message));
    }
    let mut keys = HashSet::new();
    for (index, topic) in topics.iter().enumerate() {
        if topic.key.is_empty() || topic.key.len() > MAX_KEY || !keys.insert(&topic.key) {
            let message =
                format!("topics/{index}/key: expected 1 to {MAX_KEY} characters, unique in the request");
            return Err(ConsoleProblem::bad_request(format!("topics/{index}/key"), message));
        }
    }
    Ok(())
}

/// Refuses a second topic of a task: it would hold and send the same events again.
fn check_tasks(topics: &[LiveTopic]) -> Result<(), ConsoleProblem> {
    let mut followed = HashMap::new();
    for (index, topic) in topics.iter().enumerate() {
        let LiveTopic::Task(topic) = topic else { continue };
        if let Some(first) = followed.insert(&topic.task, index) {
            let field = format!("topics/{index}/id");
            let message = format!("{field}: a stream follows a task once, and topics/{first} names this one");
            return Err(ConsoleProblem::bad_request(field, message));
        }
    }
    Ok(())
}

/// One topic, ready to run. All are prepared before the stream begins: one that is refused refuses the request.
enum LiveTopic {
    Task(Box<TaskTopic>),
    Rows(RowTopic),
    Questions(Box<QuestionTopic>),
    Resource(ResourceTopic),
    Pulse(PulseTopic),
}

impl LiveTopic {
    async fn prepare(
        request: &ConsoleRequest<'_>,
        index: usize,
        wanted: NewTopic,
    ) -> Result<Self, ConsoleProblem> {
        let NewTopic { key, topic, id, uri, after, preview, filter } = wanted;
        let refused = |member: &str, why: &str| {
            let field = format!("topics/{index}/{member}");
            ConsoleProblem::bad_request(field.as_str(), format!("{field}: {why}"))
        };
        let (engine, caller) = (request.engine().clone(), request.caller.clone());
        match topic {
            TopicKind::Task => {
                let id = id.ok_or_else(|| refused("id", "the topic task needs it"))?;
                let after = match &after {
                    None => 0,
                    Some(text) => {
                        text.parse().map_err(|_| refused("after", "expected the number of an event"))?
                    }
                };
                let preview = preview.unwrap_or(MAX_PREVIEW).min(MAX_PREVIEW) as usize;
                let reader = request.reader_of(&id).await?;
                let last = engine.task_summary(&reader, &id).await?.seq;
                let (origin, follower) = engine.follow_with_origin(&reader, &id, after).await?;
                let task = origin.id.to_string().into();
                Ok(Self::Task(Box::new(TaskTopic {
                    key,
                    task,
                    follower,
                    preview,
                    last,
                    viewer: caller,
                    origin,
                })))
            }
            TopicKind::Rows => {
                let RowFilter { agent: agents, owner } = filter.unwrap_or_default();
                let scope = tasks::scope_of(request, owner.as_deref());
                // Refused now if it may not be read at all.
                let watch = engine.watch_overview(&caller, scope)?;
                let topic = RowTopic { key, engine, watch, agents, after };
                topic.check().await?;
                Ok(Self::Rows(topic))
            }
            TopicKind::Questions => {
                let mut watch = engine.watch_questions(&caller)?;
                let open = watch.read().await?;
                Ok(Self::Questions(Box::new(QuestionTopic { key, engine, caller, after, open, watch })))
            }
            TopicKind::Resource => {
                let uri = uri.ok_or_else(|| refused("uri", "the topic resource needs it"))?;
                ResourceTopic::prepare(request, key, uri, after).await.map(Self::Resource)
            }
            TopicKind::Pulse => PulseTopic::prepare(request, key, after).map(Self::Pulse),
        }
    }

    async fn run(self, frames: &FrameSender) -> TopicEnd {
        match self {
            Self::Task(topic) => topic.run(frames).await,
            Self::Rows(topic) => live_rows::run_rows(topic, frames).await,
            Self::Questions(topic) => live_rows::run_questions(*topic, frames).await,
            Self::Resource(topic) => topic.run(frames).await,
            Self::Pulse(topic) => topic.run(frames).await,
        }
    }
}

struct LiveContext {
    app: Arc<App>,
    headers: HeaderMap,
    peer: ConnectionPeer,
    frames: FrameSender,
}

impl LiveContext {
    /// Runs the topics until the reader has gone, the credentials have ended, or the server stops. Never waits for the
    /// reader, which may have stopped reading.
    async fn run(self, topics: Vec<LiveTopic>) {
        let engine = &self.app.engine;
        let queue = &self.frames.queue;
        // The queue is empty: both have their slots, unless the reader has gone already.
        let Ok(closing_slot) = queue.clone().try_reserve_owned() else { return };
        let opened =
            json!({ "now": timestamp::format(engine.clock().now()), "node": engine.node().0.to_string() });
        if self.frames.send("open", &opened).await.is_err() {
            return;
        }
        let mut running = JoinSet::new();
        for topic in topics {
            let (engine, frames) = (engine.clone(), self.frames.clone());
            running.spawn(async move { engine.cpu().meter(frames.caller.owner(), topic.run(&frames)).await });
        }
        let (mut recheck, mut beat) = (Instant::now() + RECHECK, Instant::now() + HEARTBEAT);
        let mut closing = engine.closing();
        let why = loop {
            tokio::select! {
                () = queue.closed() => return,
                () = stopped(&mut closing) => break "shutdown",
                ended = running.join_next(), if !running.is_empty() => {
                    if let Some(Ok(TopicEnd::Closing)) = ended {
                        break "shutdown";
                    }
                }
                () = tokio::time::sleep_until(recheck) => {
                    recheck = Instant::now() + RECHECK;
                    if self.refused().await {
                        break "revoked";
                    }
                }
                () = tokio::time::sleep_until(beat) => {
                    beat = Instant::now() + HEARTBEAT;
                    // A stream whose queue is full is not silent.
                    drop(queue.try_send(QueuedFrame::small(Bytes::from_static(sse::KEEP_ALIVE))));
                }
            }
        };
        let frame = json!({ "why": why, "retryAfterSeconds": RETRY_SECONDS });
        closing_slot.send(QueuedFrame::small(render("closing", &frame)));
        self.frames.stream.record_event("closing".into(), None, None);
    }

    /// Whether the caller is no longer let in. Credentials that cannot be verified at the moment stay valid.
    async fn refused(&self) -> bool {
        let caller = self.app.caller(&self.headers, &self.peer, "/console/api/live").await;
        matches!(caller, Err(AuthError::Missing | AuthError::Invalid(_) | AuthError::Suspended(_)))
    }
}

/// Waits until the server begins to stop.
async fn stopped(closing: &mut watch::Receiver<bool>) {
    // The engine lives as long as the stream; without it there is nothing left to send either.
    drop(closing.wait_for(|closing| *closing).await);
}

/// The events of one task.
struct TaskTopic {
    key: String,
    task: Arc<str>,
    follower: Follower,
    preview: usize,
    /// The last event when the stream began.
    last: u64,
    viewer: Caller,
    origin: Origin,
}

#[derive(Serialize)]
struct EventsFrame<'a> {
    key: &'a str,
    cursor: String,
    events: &'a [EventView],
    last: u64,
    ended: bool,
}

impl TaskTopic {
    async fn run(mut self, frames: &FrameSender) -> TopicEnd {
        match self.follow(frames).await {
            Ok(end) | Err(end) => end,
        }
    }

    async fn follow(&mut self, frames: &FrameSender) -> Result<TopicEnd, TopicEnd> {
        let mut caught_up = false;
        loop {
            if !caught_up && self.follower.cursor() >= self.last {
                caught_up = true;
                let cursor = self.follower.cursor().to_string();
                frames.send("caught-up", &json!({ "key": self.key, "cursor": cursor })).await?;
            }
            let permit = frames.reserve_batch(FRAME_BYTES + self.preview).await;
            let batch = match self.follower.try_next().await {
                Ok(Some(Next::Batch(batch))) => batch,
                Ok(Some(Next::Nudge(_))) => continue,
                Ok(Some(Next::Closing)) => return Ok(TopicEnd::Closing),
                Ok(None) => {
                    drop(permit);
                    self.follower.wait_for_more().await;
                    continue;
                }
                Ok(Some(Next::End)) => {
                    drop(permit);
                    return self.end(frames, "ended").await;
                }
                Err(_) => {
                    drop(permit);
                    return self.end(frames, "not_found").await;
                }
            };
            let rendered = self.render(&batch);
            // Decoded it is many times as large: it is not held while the reader is waited for.
            drop(batch);
            permit.send(&self.task, rendered).await?;
        }
    }

    /// The frames of a batch, each with the number of its last event.
    fn render(&self, batch: &EntryBatch) -> Vec<(u64, Bytes)> {
        let ends =
            |entry: &Entry| matches!(entry.event(), Event::Status(status) if status.state.is_terminal());
        let ended = batch.entries.iter().any(ends);
        let senders = Senders { viewer: &self.viewer, origin: &self.origin };
        let (mut frames, mut events, mut bytes) = (vec![], vec![], 0);
        for (seq, entry) in batch.iter() {
            let view = EventView::of(seq, entry, self.preview, &senders);
            bytes += view.weight();
            events.push(view);
            let is_last = seq == batch.last_seq();
            if bytes >= FRAME_BYTES || is_last {
                let frame = EventsFrame {
                    key: &self.key,
                    cursor: seq.to_string(),
                    events: &events,
                    last: batch.last_seq(),
                    ended: ended && is_last,
                };
                frames.push((seq, render("events", &frame)));
                (events, bytes) = (vec![], 0);
            }
        }
        frames
    }

    async fn end(&self, frames: &FrameSender, why: &str) -> Result<TopicEnd, TopicEnd> {
        frames.send("end", &end_frame(&self.key, why)).await?;
        Ok(TopicEnd::Done)
    }
}

pub(super) fn end_frame(key: &str, why: &str) -> Value {
    json!({ "key": key, "why": why })
}
