//! A server to test: the real engine on the real store, behind a real listener, with agents that do what the
//! message tells them.

use std::{
    net::SocketAddr,
    panic,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Answer as Answered, Catalog, Chunk, Engine, EngineParts, Level, Options, Outcome,
    Profile, Surface, TaskContext,
};
use nuncio_server::{Server, ServerOptions};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::socket::{Answer, Events, Socket, get, post, within};

/// What a site is made with.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) server: ServerOptions,
    pub(crate) store: SqliteOptions,
    pub(crate) folder: TempDir,
    /// Agents beside the three that every site has.
    pub(crate) agents: Vec<Arc<dyn Agent>>,
    pub(crate) surface: Arc<Surface>,
}

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    /// How often an agent was started.
    pub(crate) runs: Arc<AtomicUsize>,
    folder: TempDir,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Setup)) -> Self {
        watch_for_panics();
        let mut setup = Setup {
            options: Options::default(),
            server: ServerOptions::default(),
            store: SqliteOptions { readers: 2, ..SqliteOptions::default() },
            folder: tempfile::tempdir().unwrap(),
            agents: vec![],
            surface: Arc::default(),
        };
        change(&mut setup);
        let Setup { options, server, store, folder, agents, surface } = setup;
        let runs = Arc::new(AtomicUsize::new(0));
        let mut catalog = Catalog::default();
        for profile in profiles() {
            catalog.add(Arc::new(Actor { profile, runs: Arc::clone(&runs) })).unwrap();
        }
        for agent in agents {
            catalog.add(agent).unwrap();
        }
        catalog.set_default("actor").unwrap();
        catalog.set_surface(surface);
        let store = open_in(folder.path(), store).await;
        let engine =
            Engine::start(EngineParts { options, ..EngineParts::new(store, catalog) }).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, told) = oneshot::channel::<()>();
        let server = Server::new(engine.clone(), server);
        let server = tokio::spawn(async move {
            let told = async { drop(told.await) };
            server.run(listener, told).await.unwrap();
        });
        Self { address, engine, runs, folder, stop, server }
    }

    /// Asks the server to stop, and does not wait for it.
    pub(crate) fn begin_stop(self) -> Stopping {
        let _ = self.stop.send(());
        Stopping { engine: self.engine, server: self.server, folder: self.folder }
    }

    /// The folder that names its store.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) async fn socket(&self) -> Socket {
        Socket::connect(self.address).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut socket = self.socket().await;
        socket.send(request).await;
        socket.answer().await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(get(path, headers)).await
    }

    /// A call at the root, in the version named (`""`: none), and its whole response.
    pub(crate) async fn call(&self, version: &str, method: &str, params: Value) -> Value {
        self.call_at("/", version, method, params).await
    }

    pub(crate) async fn call_at(&self, path: &str, version: &str, method: &str, params: Value) -> Value {
        let answer = self.send(post(path, &version_header(version), request(method, &params))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// A call whose result is wanted.
    pub(crate) async fn result(&self, version: &str, method: &str, params: Value) -> Value {
        let mut answer = self.call(version, method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// A call that opens a stream.
    pub(crate) async fn stream(&self, version: &str, method: &str, params: Value) -> Events {
        self.stream_with(&version_header(version), method, params).await
    }

    pub(crate) async fn stream_with(&self, headers: &[(&str, &str)], method: &str, params: Value) -> Events {
        Events::open(self.socket().await, &post("/", headers, request(method, &params))).await
    }

    /// How many tasks there are.
    pub(crate) async fn total(&self) -> u64 {
        self.result("1.0", "ListTasks", json!({ "pageSize": 1 })).await["totalSize"].as_u64().unwrap()
    }

    /// Makes a task in 1.0 without waiting for its end.
    pub(crate) async fn begin(&self, text: &str) -> String {
        let params = json!({ "message": message(text), "configuration": { "returnImmediately": true } });
        let sent = self.result("1.0", "SendMessage", params).await;
        sent["task"]["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a task is in a state, by its name in 1.0 without the prefix.
    pub(crate) async fn until_state(&self, task: &str, state: &str) -> Value {
        let wanted = format!("TASK_STATE_{state}");
        within(&format!("{task} {state}"), async {
            loop {
                let got = self.result("1.0", "GetTask", json!({ "id": task })).await;
                if got["status"]["state"] == *wanted {
                    return got;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }
}

/// A site that has been asked to stop.
pub(crate) struct Stopping {
    pub(crate) engine: Engine,
    server: JoinHandle<()>,
    folder: TempDir,
}

impl Stopping {
    pub(crate) async fn finish(self) -> TempDir {
        within("the end of the server", self.server).await.unwrap();
        within("the end of the engine", self.engine.stop()).await;
        self.folder
    }

    /// Whether the server has ended.
    pub(crate) fn server_has_ended(&self) -> bool {
        self.server.is_finished()
    }
}

/// The body of a request.
pub(crate) fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

pub(crate) fn version_header(version: &str) -> Vec<(&'static str, &str)> {
    if version.is_empty() { vec![] } else { vec![("A2A-Version", version)] }
}

/// A message of 1.0 that says this.
pub(crate) fn message(text: &str) -> Value {
    json!({ "messageId": unique("m"), "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// A name that no other test has.
pub(crate) fn unique(kind: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{kind}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

// ------------------------------------------------------------------------------------------------ panics

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Panics so far that are not a test's own.
pub(crate) fn panics() -> usize {
    PANICS.load(Ordering::SeqCst)
}

fn watch_for_panics() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !info.location().is_some_and(|at| at.file().contains("tests/it/")) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            usual(info);
        }));
    });
}

// ------------------------------------------------------------------------------------------------ agents

/// One agent that offers everything, one that does not stream, one that sends no push notifications.
fn profiles() -> [Profile; 3] {
    let profile = |name: &str| Profile::new(name, "Does what the first word of the message says.");
    let (mut unstreamed, mut unpushed) = (profile("unstreamed"), profile("unpushed"));
    unstreamed.streaming = false;
    unpushed.push_notifications = false;
    [profile("actor"), unstreamed, unpushed]
}

/// Does what the first word of the message says, and echoes what it does not know.
struct Actor {
    profile: Profile,
    runs: Arc<AtomicUsize>,
}

#[async_trait]
impl Agent for Actor {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let text = cx.text();
        let (word, argument) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            // So many pieces of one artifact.
            "chunks" => {
                let count: u32 = argument.parse().map_err(AgentError::failed)?;
                for n in 0..count {
                    cx.artifact(Chunk::text("chunks", format!("piece {n} "))).await?;
                }
            }
            // At work until it is canceled.
            "wait" => {
                cx.canceled().await;
                return Err(AgentError::Canceled);
            }
            // At work, and talking about it where A2A does not hear it.
            "mutter" => loop {
                cx.log(Level::Debug, "still here").await?;
                tokio::select! {
                    () = cx.canceled() => return Err(AgentError::Canceled),
                    () = tokio::time::sleep(Duration::from_millis(10)) => {}
                }
            },
            // A question, and what became of it.
            "ask" => return Ok(Outcome::said(confirmed(&cx.ask("Really?", confirmation()).await?))),
            // A question after the other.
            "ask-twice" => {
                let first = confirmed(&cx.ask("First?", confirmation()).await?);
                let second = confirmed(&cx.ask("Second?", confirmation()).await?);
                return Ok(Outcome::said(format!("{first}, {second}")));
            }
            // Two questions at once.
            "ask-both" => {
                let (left, right) = (cx.branch("left"), cx.branch("right"));
                let (left, right) =
                    tokio::join!(left.ask("Left?", confirmation()), right.ask("Right?", confirmation()));
                return Ok(Outcome::said(format!("{}, {}", confirmed(&left?), confirmed(&right?))));
            }
            // An authorization that a person grants elsewhere, and what became of it.
            "authorize" => {
                let answer = cx.authorize("Log in, please.", "https://login.example/").await?;
                return Ok(Outcome::said(match answer {
                    Answered::Accept(_) => "authorized",
                    _ => "not authorized",
                }));
            }
            "fail" => return Ok(Outcome::failed(argument)),
            _ => cx.artifact(Chunk::parts("echo", cx.input().parts.clone()).complete()).await?,
        }
        Ok(Outcome::done())
    }
}

fn confirmation() -> Value {
    json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"] })
}

fn confirmed(answer: &Answered) -> &'static str {
    match answer.accepted::<Value>() {
        Some(data) if data["confirm"] == true => "yes",
        Some(_) => "no",
        None => "nothing",
    }
}
