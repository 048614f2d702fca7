//! The registry of the streams that are open on this node, of all callers and protocols: how many events each
//! was sent, and the last of them. For an event it holds the type, the position in a task's log, the time and a
//! short summary, without what looks like a secret. Every stream has one of `max_streams` slots, which bounds
//! the registry's memory.

mod resource;
mod slots;

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::http::{HeaderMap, HeaderValue, header};
use nuncio_engine::{
    Caller, Engine, Error,
    clock::{Clock, Timestamp},
    content::json_size,
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use self::slots::{StreamPermit, StreamSlots};

pub(crate) use resource::register_stream_resources;

/// The response header that names the stream's id.
pub(crate) const STREAM_ID: &str = "nuncio-stream-id";
/// Recent events that are recorded per stream.
pub(crate) const MAX_REMEMBERED: usize = 16;
/// Tasks per stream whose cursors are recorded; of more, the newest.
const MAX_FOLLOWED: usize = 64;
/// Maximum characters of a client's description.
const MAX_CLIENT_INFO: usize = 200;
/// Maximum bytes of an event's summary.
const MAX_SUMMARY: usize = 2048;
/// Maximum characters of an event's type.
pub(crate) const MAX_TYPE: usize = 64;

tokio::task_local! {
    /// The connection of the current request. A request is answered within the task of its connection, so this
    /// costs nothing for requests that do not stream.
    pub(crate) static CONNECTION: u64;
}

/// The open streams, and the slots for more of them.
pub(crate) struct OpenStreams {
    engine: Engine,
    slots: StreamSlots,
    live: Mutex<HashMap<String, Arc<OpenStreamRecord>>>,
}

/// The record of an open stream.
struct OpenStreamRecord {
    id: String,
    owner: String,
    connection: String,
    kind: &'static str,
    started: Timestamp,
    client: Option<String>,
    total: AtomicU64,
    log: Mutex<StreamLog>,
}

/// What a stream was sent.
#[derive(Default)]
struct StreamLog {
    /// The last events, oldest first.
    last: VecDeque<SentEvent>,
    /// The last event of each task that the stream follows, at most [`MAX_FOLLOWED`].
    cursors: Vec<(Arc<str>, u64)>,
}

impl StreamLog {
    fn move_cursor(&mut self, task: &Arc<str>, seq: u64) {
        match self.cursors.iter_mut().find(|(known, _)| known == task) {
            Some((_, cursor)) => *cursor = seq.max(*cursor),
            None => {
                if self.cursors.len() >= MAX_FOLLOWED {
                    self.cursors.remove(0);
                }
                self.cursors.push((Arc::clone(task), seq));
            }
        }
    }
}

/// A stream at one moment, for a list.
pub(crate) struct StreamView {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) connection: String,
    pub(crate) kind: &'static str,
    pub(crate) started: Timestamp,
    pub(crate) client: Option<String>,
    pub(crate) events: u64,
    /// The type and the time of the last event.
    pub(crate) last: Option<(String, Timestamp)>,
    /// The last event of each task that it follows.
    pub(crate) cursors: Vec<(Arc<str>, u64)>,
}

/// The record of an event.
struct SentEvent {
    kind: Cow<'static, str>,
    at: Timestamp,
    task: Option<Arc<str>>,
    seq: Option<u64>,
    data: Value,
}

impl OpenStreamRecord {
    fn view(&self) -> StreamView {
        let log = self.log.lock();
        StreamView {
            id: self.id.clone(),
            owner: self.owner.clone(),
            connection: self.connection.clone(),
            kind: self.kind,
            started: self.started,
            client: self.client.clone(),
            events: self.total.load(Ordering::Relaxed),
            last: log.last.back().map(|sent| (sent.kind.to_string(), sent.at)),
            cursors: log.cursors.clone(),
        }
    }
}

impl OpenStreams {
    /// `each`: the slots of one caller, where callers are distinguished.
    pub(crate) fn new(engine: Engine, most: usize, each: Option<usize>) -> Arc<Self> {
        Arc::new(Self { engine, slots: StreamSlots::new(most, each), live: Mutex::default() })
    }

    /// Reserves a slot for one more stream of that caller.
    pub(crate) fn reserve_slot(self: &Arc<Self>, caller: &Caller) -> Result<StreamSlot, Error> {
        let permit = self.slots.reserve_slot(&self.engine, caller)?;
        Ok(StreamSlot { streams: Arc::clone(self), permit, client: None })
    }

    /// The number of slots in use.
    pub(crate) fn count_open(&self) -> usize {
        StreamSlots::count_used(&self.engine)
    }

    /// The caller's stream of that id.
    fn find(&self, caller: &Caller, id: &str) -> Option<Arc<OpenStreamRecord>> {
        self.lock().get(id).filter(|entry| caller.sees(&entry.owner)).cloned()
    }

    /// The caller's streams, oldest first.
    fn list_of_caller(&self, caller: &Caller) -> Vec<Arc<OpenStreamRecord>> {
        let mut all: Vec<_> =
            self.lock().values().filter(|entry| caller.sees(&entry.owner)).cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// The streams of owners that `seen` accepts.
    pub(crate) fn views(&self, seen: impl Fn(&str) -> bool) -> Vec<StreamView> {
        let found: Vec<_> = self.lock().values().filter(|entry| seen(&entry.owner)).cloned().collect();
        found.iter().map(|entry| entry.view()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenStreamRecord>>> {
        self.live.lock()
    }
}

/// A slot among the streams that may be open. A request that might become a stream holds one; it is released if
/// the request gets another kind of response.
pub(crate) struct StreamSlot {
    streams: Arc<OpenStreams>,
    permit: StreamPermit,
    client: Option<String>,
}

impl StreamSlot {
    /// Adds the name that the client declared in its protocol.
    #[must_use]
    pub(crate) fn of_client(mut self, client: Option<String>) -> Self {
        self.client = client;
        self
    }

    /// Opens a stream of that kind in this slot.
    pub(crate) fn open(self, caller: &Caller, kind: &'static str, headers: &HeaderMap) -> OpenStream {
        let Self { streams, permit, client } = self;
        let said = client.map(|said| streams.engine.redactor().text(&said).into_owned());
        let clock = streams.engine.clock();
        let connection = CONNECTION.try_with(|number| *number).unwrap_or_default();
        let entry = Arc::new(OpenStreamRecord {
            id: format!("stream-{}", clock.new_id().simple()),
            owner: caller.owner().to_owned(),
            connection: format!("conn-{connection}"),
            kind,
            started: clock.now(),
            client: said.or_else(|| client_info(&streams.engine, headers)),
            total: AtomicU64::new(0),
            log: Mutex::default(),
        });
        streams.lock().insert(entry.id.clone(), Arc::clone(&entry));
        OpenStream { entry, streams, _permit: permit }
    }
}

/// The client's `User-Agent`, without what looks like a secret.
fn client_info(engine: &Engine, headers: &HeaderMap) -> Option<String> {
    let said = headers.get(header::USER_AGENT)?.to_str().ok()?;
    let short: String = said.chars().take(MAX_CLIENT_INFO).collect();
    Some(engine.redactor().text(&short).into_owned())
}

/// An open stream. Dropping it, with the response body, removes it from the registry.
pub(crate) struct OpenStream {
    entry: Arc<OpenStreamRecord>,
    streams: Arc<OpenStreams>,
    _permit: StreamPermit,
}

impl OpenStream {
    /// The value of the header that names the stream's id.
    pub(crate) fn header(&self) -> HeaderValue {
        // Always valid: the id consists of letters and digits.
        HeaderValue::from_str(&self.entry.id).unwrap_or(HeaderValue::from_static(""))
    }

    /// Records that the stream follows a task after this event, before anything of it was sent.
    pub(crate) fn follow(&self, task: &Arc<str>, after: u64) {
        self.entry.log.lock().move_cursor(task, after);
    }

    /// Counts an event that is sent, and records it among the recent ones.
    pub(crate) fn record_event(&self, kind: Cow<'static, str>, task: Option<&Arc<str>>, seq: Option<u64>) {
        self.record_event_with_data(kind, task, seq, &Value::Null);
    }

    /// Like `record_event`, with the event's content. Content that is too long for a summary is left out.
    pub(crate) fn record_event_with_data(
        &self,
        kind: Cow<'static, str>,
        task: Option<&Arc<str>>,
        seq: Option<u64>,
        data: &Value,
    ) {
        let data = match json_size(data) <= MAX_SUMMARY {
            true => self.streams.engine.redactor().json(data),
            false => Value::Null,
        };
        let at = self.clock().now();
        let mut log = self.entry.log.lock();
        if log.last.len() >= MAX_REMEMBERED {
            log.last.pop_front();
        }
        if let (Some(task), Some(seq)) = (task, seq) {
            log.move_cursor(task, seq);
        }
        log.last.push_back(SentEvent { kind, at, task: task.cloned(), seq, data });
        // Under the lock, so that a reader of both sees them in step.
        self.entry.total.fetch_add(1, Ordering::Relaxed);
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.streams.engine.clock()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.lock().remove(&self.entry.id);
    }
}

/// The type of a JSON-RPC message: its method, or that it is a response. Reads only the beginning, which this
/// server wrote: the method precedes everything that is long.
pub(crate) fn type_of(message: &[u8]) -> Cow<'static, str> {
    const METHOD: &[u8] = b"\"method\":\"";
    const BEGINNING: usize = 256;
    let beginning = &message[..message.len().min(BEGINNING)];
    if beginning.is_empty() {
        return Cow::Borrowed("position");
    }
    let find = |wanted: &[u8]| beginning.windows(wanted.len()).position(|window| window == wanted);
    let content = find(b"\"result\":").or_else(|| find(b"\"error\":")).unwrap_or(usize::MAX);
    let Some(at) = find(METHOD).filter(|at| *at < content) else { return Cow::Borrowed("response") };
    let rest = &beginning[at + METHOD.len()..];
    match rest.split(|byte| *byte == b'"').next().unwrap_or_default() {
        b"notifications/progress" => Cow::Borrowed("notifications/progress"),
        b"notifications/message" => Cow::Borrowed("notifications/message"),
        method => Cow::Owned(String::from_utf8_lossy(method).chars().take(MAX_TYPE).collect()),
    }
}

/// The params of a JSON-RPC message, if they are short.
pub(crate) fn params_of(message: &[u8]) -> Value {
    if message.len() > MAX_SUMMARY {
        return Value::Null;
    }
    let message = serde_json::from_slice::<Value>(message);
    message.map(|mut message| message["params"].take()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::type_of;

    #[test]
    fn a_message_is_of_the_type_of_its_method() {
        let check = |message: &str, expected: &str| assert_eq!(type_of(message.as_bytes()), expected);
        check(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#, "notifications/progress");
        check(r#"{"jsonrpc":"2.0","id":"x","method":"elicitation/create"}"#, "elicitation/create");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response");
        check(r#"{"jsonrpc":"2.0","id":"\"method\":\"x","result":{}}"#, "response");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{"method":"x"}}"#, "response");
        check("", "position");
    }
}
