//! The server builder: the entry point for programs that bring their own agents.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    sync::Arc,
};

use nuncio_agents::{
    Fleet,
    configured::{AgentKind, AgentSpec, remote},
    fleet,
};
use nuncio_client::model::ModelOptions;
use nuncio_engine::{Agent, Catalog, Options, Surface, outbox::OutboxOptions};
use nuncio_flows::{
    Flows, FlowsOptions,
    registry::{RegistryRemote, RemoteKind},
};
use nuncio_server::{ServerOptions, TlsOptions};
use nuncio_store::StoreLocation;

use crate::{
    OtlpOptions, RunningServer, SecurityOptions, ServerEnd, ShutdownSignals, StartError, running_server,
};

/// A server that has not started yet.
///
/// By default it listens on `127.0.0.1:8080` and stores its tasks in `./nuncio-data`.
pub struct Nuncio {
    pub(crate) agents: Vec<Arc<dyn Agent>>,
    pub(crate) configured: Vec<AgentSpec>,
    pub(crate) default_agent: Option<String>,
    pub(crate) listen: String,
    pub(crate) allow_remote: bool,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) data: PathBuf,
    pub(crate) store: Option<StoreLocation>,
    pub(crate) allow_private_webhooks: bool,
    pub(crate) https_only_webhooks: bool,
    pub(crate) options: Options,
    pub(crate) outbox: OutboxOptions,
    pub(crate) server: ServerOptions,
    pub(crate) surface: Arc<Surface>,
    pub(crate) flows: Option<FlowsOptions>,
    pub(crate) security: SecurityOptions,
    pub(crate) otlp: OtlpOptions,
    pub(crate) model: Option<ModelOptions>,
}

impl Default for Nuncio {
    fn default() -> Self {
        Self::new()
    }
}

impl Nuncio {
    /// Creates a server without agents.
    pub fn new() -> Self {
        Self {
            agents: vec![],
            configured: vec![],
            default_agent: None,
            listen: "127.0.0.1:8080".into(),
            allow_remote: false,
            socket: None,
            tls: None,
            data: "nuncio-data".into(),
            store: None,
            allow_private_webhooks: false,
            https_only_webhooks: false,
            options: Options::default(),
            outbox: OutboxOptions::default(),
            server: ServerOptions::default(),
            surface: Arc::default(),
            flows: None,
            security: SecurityOptions::default(),
            otlp: OtlpOptions::default(),
            model: None,
        }
    }

    /// Adds an agent. The first one is the default agent, served at the root path.
    #[must_use]
    pub fn agent(self, agent: impl Agent) -> Self {
        self.agents([Arc::new(agent) as Arc<dyn Agent>])
    }

    /// Adds agents in order.
    #[must_use]
    pub fn agents(mut self, agents: impl IntoIterator<Item = Arc<dyn Agent>>) -> Self {
        self.agents.extend(agents);
        self
    }

    /// Adds agents that are built from configuration: programs, endpoints, models, remote agents. They can be
    /// changed while the server runs, see [`RunningServer::fleet`].
    #[must_use]
    pub fn configured(mut self, specs: impl IntoIterator<Item = AgentSpec>) -> Self {
        self.configured.extend(specs);
        self
    }

    /// Serves the tools, resources and prompts of this surface over MCP, beside the agents. The surface may
    /// change while the server runs.
    #[must_use]
    pub fn surface(mut self, surface: Arc<Surface>) -> Self {
        self.surface = surface;
        self
    }

    /// Adds the shared services: the memory bank, SPARC workflows, the batch engine and the registry, with
    /// their agents.
    #[must_use]
    pub fn flows(mut self, options: FlowsOptions) -> Self {
        self.flows = Some(options);
        self
    }

    /// Sets the server's own model. It answers an agent's sampling request when the caller has no model.
    #[must_use]
    pub fn model(mut self, options: ModelOptions) -> Self {
        self.model = Some(options);
        self
    }

    /// Sets the default agent, served at the root path.
    #[must_use]
    pub fn default_agent(mut self, name: impl Into<String>) -> Self {
        self.default_agent = Some(name.into());
        self
    }

    /// Sets the address to listen on; port 0 picks a free port.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Allows addresses that other machines can reach. Callers must authenticate there.
    #[must_use]
    pub fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// Also listens on a Unix socket, for a proxy or another program on this machine. The kernel reports the
    /// user of the peer: processes of the server's own user need no token there.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Encrypts the connections of the address that the server listens on. Those of the Unix socket are not.
    #[must_use]
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Sets the data folder. One server at a time holds it.
    #[must_use]
    pub fn data(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data = dir.into();
        self
    }

    /// Stores the tasks in a folder of their own.
    #[must_use]
    pub fn store_dir(self, dir: impl Into<PathBuf>) -> Self {
        self.store(StoreLocation::Sqlite(dir.into()))
    }

    /// Stores the tasks elsewhere than in the data folder.
    #[must_use]
    pub fn store(mut self, place: StoreLocation) -> Self {
        self.store = Some(place);
        self
    }

    /// Sets the URL that agent cards name, when clients reach the server by another address than it listens
    /// on.
    #[must_use]
    pub fn public_url(mut self, url: impl Into<String>) -> Self {
        self.server.public_url = Some(url.into());
        self
    }

    /// Also serves everything below this path, such as `/a2a`: for a proxy that passes the path on, and for clients
    /// that know it from another server.
    #[must_use]
    pub fn base_path(mut self, path: impl Into<String>) -> Self {
        self.server.base_path = Some(path.into());
        self
    }

    /// Allows webhooks to this machine and to private networks.
    #[must_use]
    pub fn allow_private_webhooks(mut self, allow: bool) -> Self {
        self.allow_private_webhooks = allow;
        self
    }

    /// Refuses webhooks without TLS.
    #[must_use]
    pub fn https_only_webhooks(mut self, only: bool) -> Self {
        self.https_only_webhooks = only;
        self
    }

    /// Sets the engine's options and limits.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets how webhooks are delivered: retries, timeouts and concurrency.
    #[must_use]
    pub fn outbox_options(mut self, options: OutboxOptions) -> Self {
        self.outbox = options;
        self
    }

    /// Sets the options and limits of the HTTP server.
    #[must_use]
    pub fn server_options(mut self, options: ServerOptions) -> Self {
        self.server = options;
        self
    }

    /// Sets how callers authenticate.
    #[must_use]
    pub fn security(mut self, options: SecurityOptions) -> Self {
        self.security = options;
        self
    }

    /// Sets where traces are exported to.
    #[must_use]
    pub fn otlp(mut self, options: OtlpOptions) -> Self {
        self.otlp = options;
        self
    }

    /// Starts the server and returns as soon as it accepts requests. It runs until [`RunningServer::stop`].
    pub async fn start(self) -> Result<RunningServer, StartError> {
        running_server::start(self).await
    }

    /// Starts the server, prints its addresses on the standard output, and serves until Ctrl-C or SIGTERM.
    /// Running tasks are then handed back to the store. A second Ctrl-C does not wait for that.
    pub async fn serve(self) -> Result<(), StartError> {
        use std::io::Write as _;
        let signals = ShutdownSignals::new()?;
        let running = self.start().await?;
        let _ = write!(std::io::stdout(), "{}", running.places());
        match running.until(signals).await {
            ServerEnd::Stopped | ServerEnd::AtOnce => Ok(()),
        }
    }

    /// The shared services, with the configured agents that are only listed.
    pub(crate) fn shared_services(&self) -> Result<Option<Flows>, StartError> {
        let Some(mut options) = self.flows.clone() else { return Ok(None) };
        for spec in self.configured.iter().filter(|spec| !spec.serve) {
            let kind = match &spec.kind {
                AgentKind::Mcp(_) => RemoteKind::Mcp,
                _ => RemoteKind::A2a,
            };
            let url = spec.remote_url().ok_or_else(|| spec.wrong("url", "is required"))?.clone();
            let (authorizer, tls) = (remote::authorizer(spec)?, remote::tls(spec)?);
            let (name, card_keys) = (spec.name.clone(), remote::card_keys(spec)?);
            options.registry.remotes.push(RegistryRemote { name, url, kind, authorizer, card_keys, tls });
        }
        Ok(Some(Flows::new(options)))
    }

    pub(crate) fn catalog(&self, fleet: &Fleet, flows: Option<&Flows>) -> Result<Catalog, StartError> {
        if self.agents.is_empty() && self.configured.is_empty() {
            return Err(StartError::NoAgents);
        }
        let mut catalog = Catalog::default();
        for agent in &self.agents {
            catalog.add(Arc::clone(agent))?;
        }
        for agent in flows.into_iter().flat_map(Flows::agents) {
            catalog.add(agent)?;
        }
        for spec in &self.configured {
            if let Ok(known) = catalog.get(&spec.name) {
                return Err(fleet::name_taken(spec, &known.profile).into());
            }
        }
        for agent in fleet.agents() {
            catalog.add(agent)?;
        }
        catalog.set_surface(Arc::clone(&self.surface));
        if let Some(name) = self.default_agent.as_ref().or(self.first_configured()) {
            catalog.set_default(name)?;
        }
        Ok(catalog)
    }

    /// The configured agent that is the default one because it is the first of all: the program brings no agent, and
    /// names no default.
    pub(crate) fn first_configured(&self) -> Option<&String> {
        let is_first = self.agents.is_empty() && self.default_agent.is_none();
        self.configured.iter().find(|spec| is_first && spec.serve).map(|spec| &spec.name)
    }

    /// The address to listen on, unless it needs `allow_remote` and does not have it.
    pub(crate) fn address(&self) -> Result<SocketAddr, StartError> {
        let found = self.listen.to_socket_addrs().ok().and_then(|mut found| found.next());
        let address = found.ok_or_else(|| StartError::Address(self.listen.clone()))?;
        if !address.ip().is_loopback() && !self.allow_remote {
            return Err(StartError::Remote(address));
        }
        Ok(address)
    }
}
