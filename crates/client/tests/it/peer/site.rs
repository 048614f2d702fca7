//! A Nuncio server as the other side: a real one on a real store, with an agent that does what it is told.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Catalog, Chunk, Engine, EngineParts, Outcome, Profile, TaskContext, question::Answer,
};
use nuncio_server::{Server, ServerOptions};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use url::Url;

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    folder: Arc<TempDir>,
    streaming: bool,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::open(Arc::new(tempfile::tempdir().unwrap()), "127.0.0.1:0".parse().unwrap(), true).await
    }

    pub(crate) async fn without_streams() -> Self {
        Self::open(Arc::new(tempfile::tempdir().unwrap()), "127.0.0.1:0".parse().unwrap(), false).await
    }

    async fn open(folder: Arc<TempDir>, address: SocketAddr, streaming: bool) -> Self {
        let mut catalog = Catalog::default();
        catalog.add(Arc::new(Actor { streaming })).unwrap();
        catalog.add(Arc::new(Idle)).unwrap();
        let store = open_in(folder.path(), SqliteOptions::default()).await;
        let engine = Engine::start(EngineParts::new(store, catalog)).await.unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();

        let server = Server::new(engine.clone(), ServerOptions::default());
        let (stop, told) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let told = async { drop(told.await) };
            server.run(listener, told).await.unwrap();
        });
        Self { address, engine, folder, streaming, stop, server }
    }

    /// Stops, and gives back what it takes to start again at the same address on the same store.
    pub(crate) async fn stop(self) -> Stopped {
        let _ = self.stop.send(());
        self.server.await.unwrap();
        self.engine.stop().await;
        Stopped { folder: self.folder, address: self.address, streaming: self.streaming }
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }
}

pub(crate) struct Stopped {
    folder: Arc<TempDir>,
    address: SocketAddr,
    streaming: bool,
}

impl Stopped {
    pub(crate) async fn start(self) -> Site {
        Site::open(self.folder, self.address, self.streaming).await
    }
}

/// Does what the first word of the text says.
struct Actor {
    streaming: bool,
}

#[async_trait]
impl Agent for Actor {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new("actor", "Does what it is told.").example("count 3");
        profile.skills[0].tags = vec!["acting".into()];
        profile.streaming = self.streaming;
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let text = cx.text();
        let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match verb {
            "count" => {
                for n in 1..=rest.parse().unwrap_or(3) {
                    cx.progress(f64::from(n), None, format!("at {n}")).await?;
                    cx.artifact(Chunk::text("counted", format!("{n} "))).await?;
                    cx.step("pause", async |_| Ok(())).await?;
                }
                Ok(Outcome::said("counted"))
            }
            "ask" => {
                cx.artifact(Chunk::text("talk", "before ")).await?;
                let schema = json!({ "type": "object", "properties": { "name": { "type": "string" }, "age": { "type": "integer" } }, "required": ["name", "age"] });
                let answer = cx.ask("Who are you?", schema).await?;
                let words = match answer {
                    Answer::Accept(data) => format!("{} is {}", data["name"], data["age"]),
                    other => format!("{other:?}"),
                };
                cx.artifact(Chunk::text("talk", words).complete()).await?;
                Ok(Outcome::done())
            }
            "authorize" => match cx.authorize("Allow it.", "https://login.example/").await? {
                Answer::Accept(_) => Ok(Outcome::said("allowed")),
                _ => Ok(Outcome::rejected("not allowed")),
            },
            "wait" => {
                cx.progress(1.0, Some(2.0), "waiting").await?;
                cx.canceled().await;
                Ok(Outcome::canceled("stopped in the middle"))
            }
            "fail" => Ok(Outcome::failed(rest)),
            "reject" => Ok(Outcome::rejected(rest)),
            _ => {
                cx.artifact(Chunk::text("echo", text.clone()).complete()).await?;
                Ok(Outcome::done())
            }
        }
    }
}

struct Idle;

#[async_trait]
impl Agent for Idle {
    fn profile(&self) -> Profile {
        Profile::new("idle", "Does nothing.")
    }

    async fn run(&self, _: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::done())
    }
}
