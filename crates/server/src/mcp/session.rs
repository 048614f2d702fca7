//! The MCP sessions (to 2025-11-25): what a client declares once, in its handshake, and is bound to from then
//! on.
//!
//! The store holds them, so that they survive a restart and every node can serve them; this node caches those
//! in use. On a shared store a cache entry is read again after a second, so that a session that ends on one
//! node ends everywhere within that time.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_engine::{Caller, Engine, Error, Level, TaskId, clock::Timestamp, store};
use nuncio_wire::{
    jsonrpc::RpcId,
    mcp::{ClientCapabilities, McpFault, McpVersion},
};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::{sync::watch, task::AbortHandle};

use super::{McpEndpoint, McpOptions};

/// How long a cached session of a shared store is used without reading it again.
const BELIEVED: Duration = Duration::from_secs(1);
/// How often use is recorded in the store and idle sessions are deleted.
const UPKEEP: Duration = Duration::from_secs(60);
/// A session that is never used is deleted after this; at the limit, one that was idle for this long.
const UNUSED: Duration = Duration::from_secs(600);
/// Maximum retries of a change when another request changes the session concurrently.
const AGAIN: usize = 10;
/// Sessions that are deleted at once to make space for a new one.
const ROOM: usize = 100;
/// Cancelled requests that a session remembers.
const MAX_CANCELLED: usize = 64;
/// Sessions that are deleted per batch.
const PIECE: usize = 1000;

/// One client's session.
pub(crate) struct McpSession {
    id: String,
    owner: String,
    context: String,
    version: McpVersion,
    capabilities: ClientCapabilities,
    /// The agent at whose endpoint it was opened; `None`: the server's. It is used there alone.
    agent: Option<String>,
    state: RwLock<McpSessionState>,
    /// The version of the stored session; 0: the store does not have this session.
    stored_version: AtomicU64,
    used: AtomicBool,
    ended: watch::Sender<bool>,
    /// Counts the changes that this node has seen.
    changed: watch::Sender<u64>,
    /// Requests that the client has cancelled, newest last.
    cancelled: Mutex<VecDeque<RpcId>>,
    /// The session's streams that are open on this node, by topic. Each message is sent on one stream only, so
    /// a new stream replaces the old one of its topic.
    streams: Mutex<HashMap<StreamTopic, watch::Sender<()>>>,
    /// Handlers that wait for answers of the client, by the request that they answer.
    handlers: Mutex<HashMap<RpcId, AbortHandle>>,
    /// Locked while the session is changed: each change must see what the previous one wrote.
    changing: tokio::sync::Mutex<()>,
}

/// What a stream of a session reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum StreamTopic {
    /// Everything that belongs to no call.
    Session,
    /// A task, for the client that waits for the response to that request.
    Task(TaskId, RpcId),
}

/// A stream's slot in its session.
pub(super) struct SessionStreamSlot {
    session: Arc<McpSession>,
    topic: StreamTopic,
    mine: watch::Receiver<()>,
}

impl SessionStreamSlot {
    /// Waits until a newer stream has replaced this one.
    pub(super) async fn wait_until_replaced(&mut self) {
        while self.mine.changed().await.is_ok() {}
    }
}

impl Drop for SessionStreamSlot {
    fn drop(&mut self) {
        let mut streams = self.session.streams.lock();
        if streams.get(&self.topic).is_some_and(|seat| seat.subscribe().same_channel(&self.mine)) {
            streams.remove(&self.topic);
        }
    }
}

/// The mutable part of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct McpSessionState {
    /// The lowest level of log messages that the client wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) level: Option<Level>,
    /// The resources that it subscribes to; for a task, with the last event that the client knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) subscriptions: BTreeMap<String, u64>,
    /// The name and version that the client declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<String>,
}

/// The stored form of a session. Fields are only ever added.
#[derive(Serialize, Deserialize)]
struct StoredMcpSession {
    version: String,
    capabilities: ClientCapabilities,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(flatten)]
    state: McpSessionState,
}

impl McpSession {
    /// A session that lasts as long as its connection.
    pub(crate) fn transient(
        engine: &Engine,
        caller: &Caller,
        version: McpVersion,
        capabilities: ClientCapabilities,
    ) -> Self {
        Self::of(
            new_id(engine),
            caller.owner().to_owned(),
            version,
            capabilities,
            McpSessionState::default(),
            0,
        )
    }

    fn of(
        id: String,
        owner: String,
        version: McpVersion,
        capabilities: ClientCapabilities,
        state: McpSessionState,
        kept: u64,
    ) -> Self {
        // The id grants access to the session, and a task shows its context: so the context must not reveal the
        // id.
        let digest = Sha256::digest(&id);
        let context =
            digest[..16].iter().fold(String::from("mcp-"), |text, byte| format!("{text}{byte:02x}"));
        Self {
            id,
            owner,
            context,
            version,
            capabilities,
            agent: None,
            state: RwLock::new(state),
            stored_version: AtomicU64::new(kept),
            used: AtomicBool::new(false),
            ended: watch::Sender::new(false),
            changed: watch::Sender::new(0),
            cancelled: Mutex::default(),
            streams: Mutex::default(),
            handlers: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// The same session, opened at the endpoint of that agent.
    fn opened_at(self, agent: Option<String>) -> Self {
        Self { agent, ..self }
    }

    fn read(stored: store::Session) -> Result<Self, Error> {
        let damaged = |what: &dyn std::fmt::Display| Error::Internal(format!("a session is damaged: {what}"));
        let body: StoredMcpSession = serde_json::from_slice(&stored.body).map_err(|e| damaged(&e))?;
        let version = McpVersion::parse(&body.version).ok_or_else(|| damaged(&body.version))?;
        let session =
            Self::of(stored.id, stored.owner, version, body.capabilities, body.state, stored.version);
        Ok(session.opened_at(body.agent))
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn context(&self) -> &str {
        &self.context
    }

    pub(super) fn version(&self) -> McpVersion {
        self.version
    }

    pub(super) fn capabilities(&self) -> ClientCapabilities {
        self.capabilities
    }

    pub(super) fn level(&self) -> Option<Level> {
        self.state.read().level
    }

    pub(super) fn state(&self) -> McpSessionState {
        self.state.read().clone()
    }

    /// Becomes true when the session ends, as far as this node knows.
    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Opens the slot of a topic, and replaces the stream that had it.
    pub(super) fn open_stream_slot(self: &Arc<Self>, tells: StreamTopic) -> SessionStreamSlot {
        let (seat, mine) = watch::channel(());
        self.streams.lock().insert(tells.clone(), seat);
        SessionStreamSlot { session: Arc::clone(self), topic: tells, mine }
    }

    /// Whether it outlives its connection.
    pub(super) fn is_stored(&self) -> bool {
        self.stored_version.load(Ordering::Acquire) > 0
    }

    /// Notifies of every change.
    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Records that the client has cancelled that request.
    pub(super) fn cancel_request(&self, request: &RpcId) {
        let mut cancelled = self.cancelled.lock();
        if cancelled.len() >= MAX_CANCELLED {
            cancelled.pop_front();
        }
        cancelled.push_back(request.clone());
        drop(cancelled);
        // Its stream ends at once, and sends no more questions.
        let mut streams = self.streams.lock();
        streams.retain(|tells, _| !matches!(tells, StreamTopic::Task(_, answers) if answers == request));
    }

    /// Whether it has ended, as far as this node knows.
    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Registers a handler that waits for answers on behalf of a request, so that it can be stopped.
    pub(super) fn runs_handler(&self, request: &RpcId, work: AbortHandle) {
        self.handlers.lock().insert(request.clone(), work);
    }

    /// Stops the handler of that request; returns whether there was one.
    pub(super) fn stop_handler(&self, request: &RpcId) -> bool {
        let work = self.handlers.lock().remove(request);
        work.inspect(AbortHandle::abort).is_some()
    }

    pub(super) fn is_cancelled(&self, request: &RpcId) -> bool {
        self.cancelled.lock().contains(request)
    }

    fn body(&self, state: &McpSessionState) -> Vec<u8> {
        let (version, capabilities) = (self.version.name().to_owned(), self.capabilities);
        let body =
            StoredMcpSession { version, capabilities, agent: self.agent.clone(), state: state.clone() };
        // Strings, numbers and string keys: it cannot fail.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    fn set(&self, state: McpSessionState, kept: u64) {
        *self.state.write() = state;
        self.stored_version.store(kept, Ordering::Release);
        self.changed.send_modify(|count| *count += 1);
    }
}

/// All sessions, with a cache of those in use.
pub(crate) struct McpSessions {
    engine: Engine,
    limit: usize,
    idle: Duration,
    known: Arc<Mutex<HashMap<String, CachedSession>>>,
    /// The number of sessions removed from the cache: a concurrent load may have just read one of them.
    forgotten: AtomicU64,
}

/// A session at one moment, for a list. Its id is a digest: the real one grants access.
pub(crate) struct SessionView {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) version: &'static str,
    pub(crate) client: Option<String>,
    pub(crate) streams: usize,
    pub(crate) subscriptions: usize,
}

struct CachedSession {
    session: Arc<McpSession>,
    checked: Instant,
}

impl McpSessions {
    /// The sessions in use on this node, of owners that `seen` accepts.
    pub(super) fn views(&self, seen: impl Fn(&str) -> bool) -> Vec<SessionView> {
        let known = self.known.lock();
        let found: Vec<_> = known
            .values()
            .map(|cached| &cached.session)
            .filter(|session| seen(&session.owner))
            .cloned()
            .collect();
        drop(known);
        let view = |session: &Arc<McpSession>| {
            let (client, subscriptions) = {
                let state = session.state.read();
                (state.client.clone(), state.subscriptions.len())
            };
            SessionView {
                id: session.context.clone(),
                owner: session.owner.clone(),
                version: session.version.name(),
                client: client.map(|client| self.engine.redactor().text(&client).into_owned()),
                streams: session.streams.lock().len(),
                subscriptions,
            }
        };
        found.iter().filter(|session| !session.has_ended()).map(view).collect()
    }

    pub(super) fn new(engine: Engine, options: &McpOptions) -> Self {
        let (limit, idle) = (options.max_sessions, options.session_idle);
        let known = Arc::default();
        tokio::spawn(maintain_sessions(engine.clone(), Arc::clone(&known), idle));
        Self { engine, limit, idle, known, forgotten: AtomicU64::new(0) }
    }

    /// Creates a session; returns once it is durable. It is not cached before it is used, so a client that only
    /// opens sessions costs no memory.
    pub(super) async fn create(
        &self,
        caller: &Caller,
        endpoint: &McpEndpoint,
        version: McpVersion,
        capabilities: ClientCapabilities,
        client: Option<String>,
    ) -> Result<McpSession, McpFault> {
        let (id, state) = (new_id(&self.engine), McpSessionState { client, ..McpSessionState::default() });
        let session = McpSession::of(id, caller.owner().to_owned(), version, capabilities, state.clone(), 1)
            .opened_at(endpoint.agent().map(str::to_owned));
        let now = self.engine.clock().now();
        let stored = store::Session {
            id: session.id.clone(),
            owner: session.owner.clone(),
            body: session.body(&state).into(),
            version: 1,
            used_at: now.before(self.idle.saturating_sub(UNUSED)),
        };
        let store = self.engine.sessions();
        let mut made = store.create_session(stored.clone(), self.limit).await.map_err(Error::from)?;
        if !made {
            // Clients that do not end their sessions are common: the least recently used sessions of the same
            // caller make space.
            let owner = Some(caller.owner());
            store.expire_sessions(owner, now.before(UNUSED), ROOM).await.map_err(Error::from)?;
            made = store.create_session(stored, self.limit).await.map_err(Error::from)?;
        }
        if !made {
            let why =
                format!("there are {} sessions (mcp.max-sessions): end those that are not used", self.limit);
            return Err(Error::busy("mcp.max-sessions", why, Duration::from_secs(60)).into());
        }
        Ok(session)
    }

    /// The session of that id, if it is the caller's and was opened at this endpoint.
    pub(super) async fn find(
        &self,
        caller: &Caller,
        endpoint: &McpEndpoint,
        id: &str,
    ) -> Result<Option<Arc<McpSession>>, McpFault> {
        let is_theirs = |session: &Arc<McpSession>| {
            caller.sees(&session.owner) && session.agent.as_deref() == endpoint.agent()
        };
        let shared = self.engine.is_shared();
        let remembered = self.known.lock().get(id).map(|known| (Arc::clone(&known.session), known.checked));
        let session = match remembered {
            Some((session, checked)) if !shared || checked.elapsed() < BELIEVED => Some(session),
            remembered => {
                let is_new = remembered.is_none();
                let session = self.load_session(id, remembered.map(|(session, _)| session)).await?;
                if is_new && session.as_ref().is_some_and(is_theirs) {
                    // Recorded as used, so that it is not deleted to make space.
                    let now = self.engine.clock().now();
                    self.engine
                        .sessions()
                        .touch_sessions(&[id.to_owned()], now)
                        .await
                        .map_err(Error::from)?;
                }
                session
            }
        };
        let session = session.filter(is_theirs);
        if let Some(session) = &session {
            session.used.store(true, Ordering::Relaxed);
        }
        Ok(session)
    }

    async fn load_session(
        &self,
        id: &str,
        remembered: Option<Arc<McpSession>>,
    ) -> Result<Option<Arc<McpSession>>, McpFault> {
        let forgotten = self.forgotten.load(Ordering::Acquire);
        let Some(stored) = self.engine.sessions().session(id).await.map_err(Error::from)? else {
            if let Some(session) = remembered {
                self.forget(&session);
            }
            return Ok(None);
        };
        let session = match remembered {
            Some(session) => {
                if session.stored_version.load(Ordering::Acquire) != stored.version {
                    let read = McpSession::read(stored)?;
                    session.set(read.state(), read.stored_version.load(Ordering::Acquire));
                }
                session
            }
            None => Arc::new(McpSession::read(stored)?),
        };
        let mut known = self.known.lock();
        if self.forgotten.load(Ordering::Acquire) != forgotten {
            drop(known);
            return Box::pin(self.load_session(id, None)).await;
        }
        let entry = known
            .entry(id.to_owned())
            .or_insert_with(|| CachedSession { session: Arc::clone(&session), checked: Instant::now() });
        entry.checked = Instant::now();
        Ok(Some(Arc::clone(&entry.session)))
    }

    /// Reads whether the session was changed or ended elsewhere.
    pub(super) async fn refresh(&self, session: &Arc<McpSession>) -> Result<(), McpFault> {
        if session.is_stored() && self.engine.is_shared() {
            self.load_session(&session.id, Some(Arc::clone(session))).await?;
        }
        Ok(())
    }

    /// Changes a session; returns once that is durable.
    pub(super) async fn change(
        &self,
        session: &McpSession,
        change: impl Fn(&mut McpSessionState) -> Result<(), McpFault>,
    ) -> Result<(), McpFault> {
        let _changing = session.changing.lock().await;
        for _ in 0..AGAIN {
            let kept = session.stored_version.load(Ordering::Acquire);
            let mut state = session.state();
            change(&mut state)?;
            if kept == 0 {
                session.set(state, 0);
                return Ok(());
            }
            let (store, body) = (self.engine.sessions(), session.body(&state).into());
            if store.update_session(&session.id, kept, body).await.map_err(Error::from)? {
                session.set(state, kept + 1);
                return Ok(());
            }
            // Changed on another node, or deleted.
            let stored = store.session(&session.id).await.map_err(Error::from)?;
            let Some(stored) = stored else {
                return Err(McpFault::invalid_request("the session has ended").with_status(404));
            };
            let read = McpSession::read(stored)?;
            session.set(read.state(), read.stored_version.load(Ordering::Acquire));
        }
        Err(McpFault::internal("the session changes too often: try again"))
    }

    /// Ends a session; returns whether there was one.
    pub(super) async fn end(&self, session: &McpSession) -> Result<bool, McpFault> {
        let ended = self.engine.sessions().delete_session(&session.id).await.map_err(Error::from)?;
        self.forget(session);
        Ok(ended)
    }

    /// Ends this node's part of a session: its streams, and handlers that wait for answers.
    fn forget(&self, session: &McpSession) {
        let mut known = self.known.lock();
        known.remove(&session.id);
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        drop(known);
        session.ended.send_replace(true);
        session.streams.lock().clear();
        for (_, work) in session.handlers.lock().drain() {
            work.abort();
        }
    }
}

/// Records the sessions that were used, and deletes idle ones, here and in the store.
async fn maintain_sessions(
    engine: Engine,
    known: Arc<Mutex<HashMap<String, CachedSession>>>,
    idle: Duration,
) {
    let mut closing = engine.closing();
    while !*closing.borrow() {
        tokio::select! {
            () = tokio::time::sleep(UPKEEP) => {}
            _ = closing.changed() => {}
        }
        let used: Vec<String> = {
            let mut known = known.lock();
            let mut used = vec![];
            known.retain(|id, entry| {
                // A stream holds it: its client is connected.
                let held = Arc::strong_count(&entry.session) > 1;
                let was_used = entry.session.used.swap(false, Ordering::Relaxed) || held;
                if was_used {
                    used.push(id.clone());
                }
                was_used
            });
            used
        };
        let now: Timestamp = engine.clock().now();
        let kept = async {
            engine.sessions().touch_sessions(&used, now).await?;
            while engine.sessions().expire_sessions(None, now.before(idle), PIECE).await? == PIECE as u64 {}
            Ok::<_, store::StoreError>(())
        };
        if let Err(error) = kept.await {
            tracing::warn!(%error, "could not expire idle sessions; retrying later");
        }
    }
}

/// An unguessable id: two UUIDs, each with 74 random bits.
fn new_id(engine: &Engine) -> String {
    let clock = engine.clock();
    format!("{}{}", clock.new_id().simple(), clock.new_id().simple())
}
