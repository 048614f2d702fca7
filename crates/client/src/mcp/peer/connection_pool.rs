//! State that all calls of a peer share: the connections, which are opened on first use and reopened when
//! they break, and the last list of tools.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use nuncio_engine::Level;
use nuncio_wire::mcp::{ClientRequest, McpVersion, ServerDescription};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use super::{
    connection::{McpConnection, McpTransport},
    error::McpRequestError,
    exchange::AbortOnDrop,
    handshake,
    http::{McpHttp, display_url},
    options::McpPeerOptions,
    pipe,
    router::{CallInbox, MessageRouter},
    standing_streams,
    streamable::StreamableHttp,
    tools::{self, McpTool},
};
use crate::peer::{PeerError, PeerLocation};

/// A program that exits sooner than this is restarted after a backoff.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// How often `changed` retries a server that was unreachable.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Open questions whose full params are retained.
const MAX_ASKED: usize = 1000;

/// The connections of a peer, and what its calls share.
pub(super) struct McpConnectionPool {
    location: PeerLocation,
    pub(super) at: String,
    options: Arc<McpPeerOptions>,
    /// The HTTP client, if the location is a URL.
    http: Option<Result<Arc<McpHttp>, PeerError>>,
    now: tokio::sync::Mutex<CurrentConnection>,
    name: Mutex<Option<String>>,
    /// The tools, and the change count when they were listed.
    tools: Mutex<Option<(u64, Vec<Arc<McpTool>>)>>,
    changes: watch::Sender<u64>,
    /// The change count that the last caller of `changed` has seen.
    seen: AtomicU64,
    listening: Mutex<Option<AbortOnDrop>>,
    /// Replaced when the peer is closed; that ends everything that waits on it.
    closing: Mutex<watch::Sender<()>>,
    asked: Mutex<HashMap<String, Value>>,
    /// Whether the server has ever sent a question that does not name its call. From then on every call gets
    /// its own connection, up to `max_connections`.
    asks: AtomicBool,
    /// The connections beside the first.
    more: tokio::sync::Mutex<Vec<Arc<McpConnection>>>,
    /// The revision in which the server last described itself.
    described_in: Mutex<Option<McpVersion>>,
    /// Sessions of other processes in which calls were resumed.
    adopted: Mutex<Vec<Weak<McpConnection>>>,
}

#[derive(Default)]
struct CurrentConnection {
    connection: Option<Arc<McpConnection>>,
    /// When the program was last started, and how many times in a row it exited soon after.
    started: Option<Instant>,
    deaths: u32,
}

impl McpConnectionPool {
    pub(super) fn new(place_of: PeerLocation, options: McpPeerOptions) -> Self {
        let options = Arc::new(options);
        let (at, http) = match &place_of {
            PeerLocation::Url(url) => (display_url(url), Some(McpHttp::new(url, &options).map(Arc::new))),
            PeerLocation::Command(program) => (program.command.first().cloned().unwrap_or_default(), None),
        };
        Self {
            location: place_of,
            at,
            options,
            http,
            now: tokio::sync::Mutex::default(),
            name: Mutex::default(),
            tools: Mutex::default(),
            changes: watch::Sender::new(0),
            seen: AtomicU64::new(0),
            listening: Mutex::default(),
            closing: Mutex::new(watch::Sender::new(())),
            asked: Mutex::default(),
            asks: AtomicBool::new(false),
            more: tokio::sync::Mutex::default(),
            described_in: Mutex::default(),
            adopted: Mutex::default(),
        }
    }

    /// The connection; opens one if there is none.
    pub(super) async fn connection(&self) -> Result<Arc<McpConnection>, PeerError> {
        let mut now = self.now.lock().await;
        if let Some(connection) = &now.connection {
            if connection.closed().is_none() {
                return Ok(Arc::clone(connection));
            }
            now.connection = None;
        }
        if let (PeerLocation::Command(_), Some(started)) = (&self.location, now.started) {
            now.deaths = if started.elapsed() < SHORT_LIFE { now.deaths + 1 } else { 0 };
            if now.deaths > 0 {
                tokio::time::sleep(self.options.backoff(now.deaths)).await;
            }
        }
        now.started = Some(Instant::now());
        let connection = self.connect().await?;
        *self.name.lock() = connection.about.display_name().map(str::to_owned);
        if self.tools.lock().take().is_some() {
            // The restarted server may have other tools.
            self.changes.send_modify(|count| *count += 1);
        }
        now.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    async fn connect(&self) -> Result<Arc<McpConnection>, PeerError> {
        let connection = Arc::new(self.handshake().await?);
        standing_streams::open_session_stream(&connection).await;
        Ok(connection)
    }

    /// The server's description, from a handshake of its own. Ends the session, or the process, at once.
    pub(super) async fn describe(&self) -> Result<ServerDescription, PeerError> {
        let connection = match &self.http {
            Some(Ok(http)) => {
                let known = *self.described_in.lock();
                let negotiated = handshake::negotiate(http, &self.changes, known).await;
                negotiated.map_err(|fail| fail.into_peer(&self.at))?
            }
            _ => self.handshake().await?,
        };
        connection.end().await;
        *self.described_in.lock() = Some(connection.version);
        Ok(connection.about)
    }

    async fn handshake(&self) -> Result<McpConnection, PeerError> {
        let made = match (&self.location, &self.http) {
            (PeerLocation::Command(program), _) => {
                pipe::start(program, &self.at, &self.options, &self.changes).await
            }
            (PeerLocation::Url(_), Some(Ok(http))) => handshake::handshake(http, &self.changes).await,
            (PeerLocation::Url(_), Some(Err(error))) => Err(error.clone().into()),
            (PeerLocation::Url(_), None) => {
                Err(PeerError::Unsupported("there is no HTTP client".into()).into())
            }
        };
        made.map_err(|fail| fail.into_peer(&self.at))
    }

    /// An inbox for a call: on a connection of its own if calls that share one could not be told apart.
    pub(super) async fn open_inbox(&self, token: &str) -> Result<(Arc<McpConnection>, CallInbox), PeerError> {
        let mut first = self.connection().await?;
        if first.hub.asks() {
            self.asks.store(true, Ordering::Release);
        }
        if first.session().is_some() && first.hub.was_left() {
            // Calls go on in that session; it is left to the process that resumes them.
            self.forget(&first).await;
            first = self.connection().await?;
        }
        if first.version.is_stateless() || !self.asks.load(Ordering::Acquire) {
            let inbox = first.hub.open_inbox(token, None);
            return Ok((first, inbox));
        }
        if let Some(inbox) = first.hub.open_exclusive_inbox(token) {
            return Ok((first, inbox));
        }
        let mut more = self.more.lock().await;
        let is_over = |connection: &mut Arc<McpConnection>| {
            connection.closed().is_some() || connection.hub.is_deserted()
        };
        for over in more.extract_if(.., is_over) {
            tokio::spawn(async move { over.end().await });
        }
        for connection in more.iter() {
            if let Some(inbox) = connection.hub.open_exclusive_inbox(token) {
                return Ok((Arc::clone(connection), inbox));
            }
        }
        if more.len() + 1 < self.options.max_connections {
            match self.connect().await {
                Ok(connection) => {
                    let inbox = connection.hub.open_inbox(token, None);
                    more.push(Arc::clone(&connection));
                    return Ok((connection, inbox));
                }
                // Not every server can be started or connected to twice.
                Err(error) => tracing::debug!(%error, "no connection of its own for the call: it shares one"),
            }
        }
        let emptiest = more.iter().chain([&first]).min_by_key(|connection| connection.hub.calls());
        let connection = Arc::clone(emptiest.unwrap_or(&first));
        let inbox = connection.hub.open_inbox(token, None);
        Ok((connection, inbox))
    }

    /// A connection in the session of an earlier call, which may have been another process's.
    pub(super) async fn connection_in_session(
        &self,
        version: McpVersion,
        session: Option<&str>,
    ) -> Result<Arc<McpConnection>, PeerError> {
        let Some(Ok(http)) = &self.http else { return self.connection().await };
        if session.is_none() && !version.is_stateless() {
            return self.connection().await;
        }
        if let Some(session) = session
            && let Some(known) = self.in_session(session).await
        {
            return Ok(known);
        }
        let session = session.map(handshake::session_header).transpose();
        let session = session.map_err(|fail| fail.into_peer(&self.at))?;
        let hub = MessageRouter::new(self.changes.clone());
        let link = StreamableHttp { http: Arc::clone(http), version, session, hub: Arc::clone(&hub) };
        let link = McpTransport::Http(Arc::new(link));
        let connection =
            McpConnection::new(&self.at, (version, ServerDescription::default()), link, &hub, &self.options)
                .adopted();
        let connection = Arc::new(connection);
        if !version.is_stateless() {
            let mut adopted = self.adopted.lock();
            adopted.retain(|known| known.strong_count() > 0);
            adopted.push(Arc::downgrade(&connection));
        }
        let _ = standing_streams::begin_session_stream(&connection);
        Ok(connection)
    }

    /// The connection of that session, if there is one. All calls of a session share a connection, because a
    /// message on the session's own stream may be for any of them.
    async fn in_session(&self, session: &str) -> Option<Arc<McpConnection>> {
        let is_it = |connection: &Arc<McpConnection>| {
            connection.session() == Some(session) && connection.closed().is_none()
        };
        let now = self.now.lock().await.connection.clone();
        if let Some(first) = now.filter(is_it) {
            return Some(first);
        }
        if let Some(other) = self.more.lock().await.iter().find(|connection| is_it(connection)) {
            return Some(Arc::clone(other));
        }
        self.adopted.lock().iter().filter_map(Weak::upgrade).find(is_it)
    }

    /// Removes a connection that is no longer usable.
    pub(super) async fn forget(&self, connection: &Arc<McpConnection>) {
        let mut now = self.now.lock().await;
        if now.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            now.connection = None;
            self.listening.lock().take();
        }
        drop(now);
        self.more.lock().await.retain(|other| !Arc::ptr_eq(other, connection));
    }

    /// Sends a request. If the server has ended the session, retries once in a new one.
    pub(super) async fn request(&self, request: ClientRequest<'_>) -> Result<Value, PeerError> {
        let mut again = true;
        loop {
            let connection = self.connection().await?;
            match connection.request(request.clone()).await {
                Ok(result) => return Ok(result),
                Err(McpRequestError::SessionLost) if again => {
                    again = false;
                    self.forget(&connection).await;
                }
                Err(fail) => return Err(fail.into_peer(&self.at)),
            }
        }
    }

    /// Sets the lowest level of log lines. A session gets a request for it; stateless requests carry the
    /// level themselves.
    pub(super) async fn want_logs(&self, level: Level) -> Result<(), PeerError> {
        self.options.log_level.set(level);
        let connection = self.now.lock().await.connection.clone();
        let Some(connection) = connection.filter(|connection| connection.closed().is_none()) else {
            return Ok(());
        };
        if connection.version.is_stateless() || !connection.about.capabilities.has_logging() {
            return Ok(());
        }
        let told = connection.request(ClientRequest::SetLogLevel(level)).await;
        told.map(drop).map_err(|fail| fail.into_peer(&self.at))
    }

    /// The current tools.
    pub(super) async fn list_tools(&self) -> Result<Vec<Arc<McpTool>>, PeerError> {
        let mut again = true;
        loop {
            let connection = self.connection().await?;
            let changes = *self.changes.borrow();
            match tools::list(&connection).await {
                Ok(listed) => {
                    self.seen.store(changes, Ordering::Release);
                    *self.tools.lock() = Some((changes, listed.clone()));
                    return Ok(listed);
                }
                Err(McpRequestError::SessionLost) if again => {
                    again = false;
                    self.forget(&connection).await;
                }
                Err(fail) => return Err(fail.into_peer(&self.at)),
            }
        }
    }

    /// A tool by its name, from the last list, or from a new list of this connection.
    pub(super) async fn tool(
        &self,
        connection: &McpConnection,
        name: &str,
    ) -> Result<Arc<McpTool>, McpRequestError> {
        let find = |tools: &[Arc<McpTool>]| tools.iter().find(|tool| tool.offer.name == name).cloned();
        let changes = *self.changes.borrow();
        let known =
            self.tools.lock().as_ref().filter(|(then, _)| *then == changes).map(|(_, tools)| find(tools));
        if let Some(Some(tool)) = known {
            return Ok(tool);
        }
        let listed = tools::list(connection).await?;
        let found = find(&listed).ok_or_else(|| {
            let names: Vec<&str> = listed.iter().map(|tool| tool.offer.name.as_str()).take(20).collect();
            PeerError::Refused(format!("{} has no tool {name:?}; it has {}", self.at, names.join(", ")))
        });
        *self.tools.lock() = Some((changes, listed));
        Ok(found?)
    }

    pub(super) fn forget_tools(&self) {
        self.tools.lock().take();
    }

    /// Returns when the tools may have changed since they were last listed, or since this last returned.
    pub(super) async fn changed(&self) {
        let mut changes = self.changes.subscribe();
        loop {
            let count = *changes.borrow_and_update();
            if self.seen.swap(count, Ordering::AcqRel) != count {
                return;
            }
            let connected = match self.connection().await {
                Ok(connection) => {
                    let mut listening = self.listening.lock();
                    if listening.is_none() {
                        *listening = standing_streams::subscribe(&connection);
                    }
                    true
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot wait for tool changes: no connection");
                    false
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                // A program is not started only to wait for its changes.
                () = tokio::time::sleep(LOOK_AGAIN), if !connected && matches!(self.location, PeerLocation::Url(_)) => {}
            }
        }
    }

    pub(super) fn name(&self) -> Option<String> {
        self.name.lock().clone()
    }

    /// A signal that fires when the peer is closed.
    pub(super) fn closing(&self) -> CloseSignal {
        CloseSignal(self.closing.lock().subscribe())
    }

    pub(super) async fn close(&self) {
        let first = self.now.lock().await.connection.take();
        let connections = std::mem::take(&mut *self.more.lock().await).into_iter().chain(first);
        self.listening.lock().take();
        // A session with running calls is left to the process that resumes them.
        let idle_or_not: Vec<_> =
            connections.map(|connection| (connection.hub.calls() == 0, connection)).collect();
        *self.closing.lock() = watch::Sender::new(());
        let each = idle_or_not.into_iter().map(|(idle, connection)| async move {
            if idle || matches!(connection.link, McpTransport::Wire(_)) {
                connection.end().await;
            }
            connection.hub.close(&McpRequestError::cut(format!("the connection to {} was closed", self.at)));
        });
        futures_util::future::join_all(each).await;
    }

    /// Retains the full params of a question while it is open.
    pub(super) fn remember_question(&self, id: &str, params: &Value) {
        let mut asked = self.asked.lock();
        if asked.len() < MAX_ASKED {
            asked.insert(id.to_owned(), params.clone());
        }
    }

    /// Drops the params of questions that are no longer open.
    pub(super) fn forget_questions<'a>(&self, ids: impl IntoIterator<Item = &'a str>) {
        let mut asked = self.asked.lock();
        for id in ids {
            asked.remove(id);
        }
    }

    /// The full params of an open question.
    pub(super) fn wording(&self, id: &str) -> Option<Value> {
        self.asked.lock().get(id).cloned()
    }
}

/// Fires when the peer is closed.
pub(super) struct CloseSignal(watch::Receiver<()>);

impl CloseSignal {
    pub(super) async fn closed(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
