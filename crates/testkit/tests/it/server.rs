//! A whole server: the embedded store, the shared services, and agents that do always the same.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use nuncio_agents::EchoAgent;
use nuncio_engine::{
    Agent, AgentError, Catalog, Chunk, Engine, EngineParts, Options, Outcome, Profile, Surface, TaskContext,
    store::Store,
    surface::{HandlerReply, HandlerRequest, ToolOutput, ToolProfile, tool},
};
use nuncio_flows::{Flows, FlowsOptions};
use nuncio_server::{Server, ServerOptions};
use nuncio_store::{SqliteOptions, SqliteStore};
use nuncio_testkit::fault_injection::HookedStore;
use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{connection::Connection, until};

/// The events of a long stream.
pub(crate) const EVENTS: usize = 100;

pub(crate) struct TestServer {
    pub(crate) engine: Engine,
    address: SocketAddr,
    // Stopped before its folder is removed.
    runtime: Runtime,
    _folder: TempDir,
}

impl TestServer {
    pub(crate) fn start() -> Self {
        Self::on(|_| {}, |store| store)
    }

    /// A server that runs one task at a time: all others are queued, and claimed.
    pub(crate) fn queueing() -> Self {
        Self::on(|options| options.max_running = 1, |store| store)
    }

    /// A server on a store that counts.
    pub(crate) fn counting() -> (Self, Arc<HookedStore>) {
        let mut counting = None;
        let wrap = |store| {
            let store = HookedStore::counting(store);
            counting = Some(Arc::clone(&store));
            store as Arc<dyn Store>
        };
        let server = Self::on(|_| {}, wrap);
        (server, counting.unwrap())
    }

    fn on(set: impl FnOnce(&mut Options), wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        // One connection for point reads, so that its cache has seen every statement soon.
        let options = SqliteOptions { readers: 1, ..SqliteOptions::default() };
        let store = wrap(Arc::new(SqliteStore::open(folder.path(), options).unwrap()));
        let flows = Flows::new(FlowsOptions::default());
        let mut catalog = Catalog::default();
        for agent in
            [Arc::new(EchoAgent) as Arc<dyn Agent>, Arc::new(Talker)].into_iter().chain(flows.agents())
        {
            catalog.add(agent).unwrap();
        }
        catalog.set_default("echo").unwrap();
        let surface = Arc::new(Surface::default());
        let profile = ToolProfile::new("plain", "Returns the text.").input(json!({
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"],
        }));
        let plain = tool(profile, |request: HandlerRequest| async move {
            Ok(HandlerReply::Done(ToolOutput::text(request.text("text").unwrap_or_default())))
        });
        surface.add_tool(plain).unwrap();
        catalog.set_surface(surface);
        let mut options = Options::default();
        set(&mut options);
        let (engine, address) = runtime.block_on(async {
            let parts = EngineParts { options, ..EngineParts::new(store, catalog) };
            let engine = Engine::start(parts).await.unwrap();
            flows.install(&engine).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = Server::new(engine.clone(), ServerOptions::default());
            tokio::spawn(server.run(listener, std::future::pending()));
            (engine, address)
        });
        Self { engine, address, runtime, _folder: folder }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Waits until no task runs or is queued.
    pub(crate) fn wait_until_idle(&self) {
        until("the server is idle", || self.engine.load() == (0, 0));
    }

    pub(crate) fn block_on<T>(&self, run: impl AsyncFnOnce(&Engine) -> T) -> T {
        self.runtime.block_on(run(&self.engine))
    }
}

/// Emits as many pieces of one artifact as it is told, after its first commit.
struct Talker;

#[async_trait]
impl Agent for Talker {
    fn profile(&self) -> Profile {
        Profile::new("talker", "Emits events.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let events: usize = cx.text().parse().map_err(AgentError::failed)?;
        cx.step("begin", async |_| Ok(())).await?;
        for _ in 0..events {
            cx.artifact(Chunk::text("text", "a few words ")).await?;
        }
        Ok(Outcome::done())
    }
}
