//! What all calls of a peer share: the connection, which is made when it is first needed and anew when it is lost, and
//! the tools as they were last listed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nuncio_engine::Level;
use nuncio_wire::mcp::Version;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{
    connection::{About, Connection, Link},
    exchange::AbortOnDrop,
    fail::Fail,
    greet,
    http::{Http, place},
    hub::Hub,
    listen,
    options::McpOptions,
    pipe,
    streamable::Streamable,
    tools::{self, Tool},
};
use crate::peer::{PeerError, Place};

/// A program that lived shorter is started again after a wait that grows.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// How often a server that could not be reached is tried by whoever waits for changes.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Questions whose whole wording is kept for whoever wants it.
const MAX_ASKED: usize = 1000;

/// What all calls of a peer share.
pub(super) struct Shared {
    place: Place,
    pub(super) at: String,
    options: Arc<McpOptions>,
    /// Of a place that is an address.
    http: Option<Result<Arc<Http>, PeerError>>,
    now: tokio::sync::Mutex<Now>,
    name: Mutex<Option<String>>,
    /// The tools, and how many changes were known when they were listed.
    tools: Mutex<Option<(u64, Vec<Arc<Tool>>)>>,
    changes: watch::Sender<u64>,
    /// How many changes whoever asks has seen.
    seen: AtomicU64,
    listening: Mutex<Option<AbortOnDrop>>,
    /// Replaced when the peer is closed, which ends what waits for it.
    closing: Mutex<watch::Sender<()>>,
    asked: Mutex<HashMap<String, Value>>,
}

#[derive(Default)]
struct Now {
    connection: Option<Arc<Connection>>,
    /// When the program was last started, and how often it died soon after.
    started: Option<Instant>,
    deaths: u32,
}

impl Shared {
    pub(super) fn new(place_of: Place, options: McpOptions) -> Self {
        let options = Arc::new(options);
        let (at, http) = match &place_of {
            Place::Url(url) => (place(url), Some(Http::new(url, &options).map(Arc::new))),
            Place::Command(program) => (program.command.first().cloned().unwrap_or_default(), None),
        };
        Self {
            place: place_of,
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
        }
    }

    /// The connection, which is made now if there is none.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, PeerError> {
        let mut now = self.now.lock().await;
        if let Some(connection) = &now.connection {
            if connection.closed().is_none() {
                return Ok(Arc::clone(connection));
            }
            now.connection = None;
        }
        let made = match (&self.place, &self.http) {
            (Place::Command(program), _) => {
                if let Some(started) = now.started {
                    now.deaths = if started.elapsed() < SHORT_LIFE { now.deaths + 1 } else { 0 };
                    if now.deaths > 0 {
                        tokio::time::sleep(self.options.backoff(now.deaths)).await;
                    }
                }
                now.started = Some(Instant::now());
                pipe::start(program, &self.at, &self.options, &self.changes).await
            }
            (Place::Url(_), Some(Ok(http))) => greet::greet(http, &self.changes).await,
            (Place::Url(_), Some(Err(error))) => Err(error.clone().into()),
            (Place::Url(_), None) => Err(PeerError::Unsupported("there is no HTTP client".into()).into()),
        };
        let connection = Arc::new(made.map_err(|fail| fail.into_peer(&self.at))?);
        listen::stand(&connection);
        let info = &connection.about.info;
        let name = [&info["title"], &info["name"]].into_iter().find_map(Value::as_str).map(str::to_owned);
        *lock(&self.name) = name;
        if lock(&self.tools).take().is_some() {
            // It is another one now, perhaps.
            self.changes.send_modify(|count| *count += 1);
        }
        now.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// A connection in the session that a call was made in, wherever that was.
    pub(super) async fn back(
        &self,
        version: Version,
        session: Option<&str>,
    ) -> Result<Arc<Connection>, PeerError> {
        let Some(Ok(http)) = &self.http else { return self.connection().await };
        if session.is_none() && !version.is_stateless() {
            return self.connection().await;
        }
        let session = session.map(greet::session_header).transpose();
        let session = session.map_err(|fail| fail.into_peer(&self.at))?;
        let hub = Hub::new(self.changes.clone());
        let link = Streamable { http: Arc::clone(http), version, session, hub: Arc::clone(&hub) };
        let link = Link::Http(Arc::new(link));
        let connection =
            Connection::new(&self.at, (version, About::default()), link, &hub, &self.options).adopted();
        listen::stand(&connection);
        Ok(Arc::new(connection))
    }

    /// A connection is of no use any more.
    pub(super) async fn forget(&self, connection: &Arc<Connection>) {
        let mut now = self.now.lock().await;
        if now.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            now.connection = None;
            lock(&self.listening).take();
        }
    }

    /// Sends a request. A session that the server has ended is begun anew, once.
    pub(super) async fn request(&self, method: &str, params: &Value) -> Result<Value, PeerError> {
        let mut again = true;
        loop {
            let connection = self.connection().await?;
            match connection.request(method, params.clone()).await {
                Ok(result) => return Ok(result),
                Err(Fail::SessionLost) if again => {
                    again = false;
                    self.forget(&connection).await;
                }
                Err(fail) => return Err(fail.into_peer(&self.at)),
            }
        }
    }

    /// From now on log lines are wanted from that level on. A session is told; any other request says it itself.
    pub(super) async fn want_logs(&self, level: Level) -> Result<(), PeerError> {
        self.options.log_level.set(level);
        let connection = self.now.lock().await.connection.clone();
        let Some(connection) = connection.filter(|connection| connection.closed().is_none()) else {
            return Ok(());
        };
        if connection.version.is_stateless() || !connection.about.capabilities["logging"].is_object() {
            return Ok(());
        }
        let told = connection.request("logging/setLevel", json!({ "level": level })).await;
        told.map(drop).map_err(|fail| fail.into_peer(&self.at))
    }

    /// The tools as they are now.
    pub(super) async fn list_tools(&self) -> Result<Vec<Arc<Tool>>, PeerError> {
        let mut again = true;
        loop {
            let connection = self.connection().await?;
            let changes = *self.changes.borrow();
            match tools::list(&connection).await {
                Ok(listed) => {
                    self.seen.store(changes, Ordering::Release);
                    *lock(&self.tools) = Some((changes, listed.clone()));
                    return Ok(listed);
                }
                Err(Fail::SessionLost) if again => {
                    again = false;
                    self.forget(&connection).await;
                }
                Err(fail) => return Err(fail.into_peer(&self.at)),
            }
        }
    }

    /// A tool by its name, as it was last listed, or as the connection lists it now.
    pub(super) async fn tool(&self, connection: &Connection, name: &str) -> Result<Arc<Tool>, Fail> {
        let find = |tools: &[Arc<Tool>]| tools.iter().find(|tool| tool.offer.name == name).cloned();
        let changes = *self.changes.borrow();
        let known =
            lock(&self.tools).as_ref().filter(|(then, _)| *then == changes).map(|(_, tools)| find(tools));
        if let Some(Some(tool)) = known {
            return Ok(tool);
        }
        let listed = tools::list(connection).await?;
        let found = find(&listed).ok_or_else(|| {
            let names: Vec<&str> = listed.iter().map(|tool| tool.offer.name.as_str()).take(20).collect();
            PeerError::Refused(format!("{} has no tool {name:?}; it has {}", self.at, names.join(", ")))
        });
        *lock(&self.tools) = Some((changes, listed));
        Ok(found?)
    }

    pub(super) fn forget_tools(&self) {
        lock(&self.tools).take();
    }

    /// Returns when what is offered may have changed since it was last listed, or since this last returned.
    pub(super) async fn changed(&self) {
        let mut changes = self.changes.subscribe();
        loop {
            let count = *changes.borrow_and_update();
            if self.seen.swap(count, Ordering::AcqRel) != count {
                return;
            }
            let connected = match self.connection().await {
                Ok(connection) => {
                    let mut listening = lock(&self.listening);
                    if listening.is_none() {
                        *listening = listen::subscribe(&connection);
                    }
                    true
                }
                Err(error) => {
                    tracing::debug!(%error, "it cannot tell of changes");
                    false
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                // A program is not started for the sake of being listened to.
                () = tokio::time::sleep(LOOK_AGAIN), if !connected && matches!(self.place, Place::Url(_)) => {}
            }
        }
    }

    pub(super) fn name(&self) -> Option<String> {
        lock(&self.name).clone()
    }

    /// What ends when the peer is closed.
    pub(super) fn closing(&self) -> Closing {
        Closing(lock(&self.closing).subscribe())
    }

    pub(super) async fn close(&self) {
        let connection = self.now.lock().await.connection.take();
        lock(&self.listening).take();
        // A session in which calls go on is left to whoever takes them up again.
        let busy = connection.as_ref().is_some_and(|connection| connection.hub.is_busy());
        *lock(&self.closing) = watch::Sender::new(());
        let Some(connection) = connection else { return };
        match &connection.link {
            Link::Http(http) if !busy => http.end().await,
            Link::Http(_) => {}
            Link::Wire(wire) => wire.stop().await,
        }
        connection.hub.close(&Fail::cut(format!("the connection to {} was closed", self.at)));
    }

    /// A question was put: its whole wording is kept while it is open.
    pub(super) fn asks(&self, id: &str, params: &Value) {
        let mut asked = lock(&self.asked);
        if asked.len() < MAX_ASKED {
            asked.insert(id.to_owned(), params.clone());
        }
    }

    /// Questions are not open any more.
    pub(super) fn settled<'a>(&self, ids: impl IntoIterator<Item = &'a str>) {
        let mut asked = lock(&self.asked);
        for id in ids {
            asked.remove(id);
        }
    }

    /// The whole wording of a question that is open.
    pub(super) fn wording(&self, id: &str) -> Option<Value> {
        lock(&self.asked).get(id).cloned()
    }
}

/// Ends when the peer is closed.
pub(super) struct Closing(watch::Receiver<()>);

impl Closing {
    pub(super) async fn closed(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
