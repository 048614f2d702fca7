//! A running server: the order of startup and shutdown.
//!
//! The store opens first, because its lock decides whether this process may use the data folder. Then the
//! engine resumes the tasks that an earlier process left, and then the server listens. Shutdown goes in
//! reverse order, all of it within `Options::stop_within`. A task that was not handed back by then is resumed
//! after the next start, as after a crash.

use std::{
    fmt::{self, Write as _},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use nuncio_agents::{
    Fleet,
    configured::{AgentKind, AgentSpec},
};
use nuncio_client::model::{Model, ModelOptions};
use nuncio_engine::{Engine, EngineParts, Sampler, clock::SystemClock, store::Store};
use nuncio_outbound::{AddressPolicy, Outbound, OutboundOptions};
use nuncio_server::{
    Server, ServerOptions, ServerTls, push::HttpWebhookSender, signature::SigningSecret,
    webhook_keys::WebhookKeys,
};
use tokio::{
    io::{AsyncBufRead, AsyncWrite},
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

use crate::{
    Nuncio, StartError, StoreLocation,
    data_dir::{self, PublishedServer},
    descriptors,
    otlp::{self, SpanExporter},
    security::{self, ServerExposure},
    socket::Socket,
};

/// A running server. Dropping it starts a shutdown without waiting for it: call [`RunningServer::stop`].
pub struct RunningServer {
    engine: Engine,
    fleet: Fleet,
    options: ServerOptions,
    address: SocketAddr,
    public_url: Option<String>,
    data: PathBuf,
    published: PublishedServer,
    shutdown: watch::Sender<bool>,
    server: JoinHandle<()>,
    outbox: JoinHandle<()>,
    exporter: Option<SpanExporter>,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerEnd {
    /// All running tasks were handed back to the store.
    Stopped,
    /// A second signal arrived: the process must exit now. Running tasks are resumed after the next start.
    AtOnce,
}

pub(crate) async fn start(mut nuncio: Nuncio) -> Result<RunningServer, StartError> {
    let address = nuncio.address()?;
    let reach = ServerExposure {
        address,
        server: &nuncio.server,
        has_socket: nuncio.socket.is_some(),
        has_client_ca: nuncio.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
        data: &nuncio.data,
    };
    let secured = nuncio.server.authenticator.is_some() || nuncio.security.requires_auth(&reach)?;
    nuncio.server.tls = nuncio.tls.take().map(ServerTls::load).transpose()?;
    if secured && nuncio.server.tls.is_none() {
        warn_without_tls(address, nuncio.server.public_url.as_deref());
    }
    descriptors::bound_connections(&mut nuncio.server.limits);
    if !secured && nuncio.server.cors_origins.iter().any(|origin| origin == "*") {
        return Err(StartError::Security(
            "cors.origins = \"*\" would let every web page act as the operator, since callers show no tokens: \
             name the origins, or set auth = \"on\""
                .into(),
        ));
    }
    nuncio.options.access.audit = nuncio.security.audit_level(secured, nuncio.options.access.audit);
    let fleet = Fleet::new(nuncio.configured.clone())?;
    if nuncio.first_configured().is_some() {
        fleet.set_first_as_default();
    }
    for spec in &nuncio.configured {
        nuncio.options.access.redactor.learn(&spec.known);
    }
    report_undescribed_agents(&nuncio.configured);
    let flows = nuncio.shared_services()?;
    let catalog = nuncio.catalog(&fleet, flows.as_ref())?;
    nuncio.server.mcp.tools.check(&catalog)?;
    let data = nuncio.data.clone();
    data_dir::make(&data)?;
    data_dir::warn_if_open(&data);
    let (store, secrets) = open(&nuncio).await?;
    let (tracer, exporter) = otlp::start(&nuncio.otlp).map_err(StartError::System)?.unzip();
    let keys = WebhookKeys::new(secrets.webhooks);
    let sender = Arc::new(webhook_sender(&nuncio, &keys)?.traced(tracer.clone()));
    nuncio.server.webhook_keys = Some(Arc::clone(&keys));
    nuncio.server.mcp.secret = secrets.states.reveal().into_bytes();

    let mut parts = EngineParts::new(store, catalog);
    parts.options = nuncio.options.clone();
    parts.tracer = tracer;
    let check = Arc::clone(&sender);
    parts.check_webhook = Box::new(move |hook| check.check_config(hook).map_err(|error| error.to_string()));
    parts.sampler = nuncio.model.as_ref().map(own_model).transpose()?;
    let engine = Engine::start(parts).await?;
    keys.attach(&engine);
    if let Some(flows) = &flows {
        if secured {
            flows.require_tokens();
        }
        if let Err(error) = flows.install(&engine) {
            engine.stop().await;
            return Err(StartError::System(format!("a schema of the shared tools cannot be used: {error}")));
        }
    }

    if let Err(error) = security::install(&nuncio.security, secured, &engine, &mut nuncio.server) {
        engine.stop().await;
        return Err(error);
    }
    fleet.start(&engine).await;
    match listen(nuncio, &engine, &fleet, address, sender).await {
        Ok(running) => Ok(RunningServer { exporter, ..running }),
        Err(error) => {
            engine.stop().await;
            fleet.close().await;
            Err(error)
        }
    }
}

/// Names the agents without a description of their own. An MCP server and a remote agent bring theirs.
fn report_undescribed_agents(configured: &[AgentSpec]) {
    let is_undescribed = |spec: &&AgentSpec| {
        let brings_one = matches!(spec.kind, AgentKind::Mcp(_) | AgentKind::A2a(_));
        spec.serve && spec.description.is_none() && !brings_one
    };
    let names: Vec<&str> = configured.iter().filter(is_undescribed).map(|spec| spec.name.as_str()).collect();
    if !names.is_empty() {
        tracing::info!(
            agents = names.join(", "),
            "agents without a description: models choose tools, and clients choose agents, by it; set description in \
             [[agent]]"
        );
    }
}

/// The model that answers when a caller has none.
fn own_model(options: &ModelOptions) -> Result<Arc<dyn Sampler>, StartError> {
    if options.key.is_none() && options.url.is_none() && options.provider.needs_key() {
        let name = options.provider.name();
        return Err(StartError::Model(format!(
            "{name} answers nobody without a key: set model.key-variable"
        )));
    }
    match Model::new(options) {
        Ok(model) => Ok(Arc::new(model)),
        Err(error) => Err(StartError::Model(error.to_string())),
    }
}

/// The signing secrets: those of the data folder, or those that all nodes share.
struct NodeSecrets {
    webhooks: SigningSecret,
    states: SigningSecret,
}

/// Opens the store and reads the signing secrets.
async fn open(nuncio: &Nuncio) -> Result<(Arc<dyn Store>, NodeSecrets), StartError> {
    let own = NodeSecrets {
        webhooks: data_dir::webhook_secret(&nuncio.data)?,
        states: data_dir::state_secret(&nuncio.data)?,
    };
    let place = nuncio.store.clone().unwrap_or_else(|| StoreLocation::Sqlite(nuncio.data.clone()));
    let store: Arc<dyn Store> = place.open().await?;
    let secrets = NodeSecrets {
        webhooks: node_secret(&*store, data_dir::WEBHOOK_SECRET, own.webhooks).await?,
        states: node_secret(&*store, data_dir::STATE_SECRET, own.states).await?,
    };
    Ok((store, secrets))
}

/// The secret of this name: the one that the first node created, if the store is shared by nodes, else this node's
/// own.
async fn node_secret(store: &dyn Store, name: &str, own: SigningSecret) -> Result<SigningSecret, StartError> {
    match store.shared_secret(name, &own.reveal()).await.map_err(nuncio_engine::Error::from)? {
        None => Ok(own),
        Some(shared) => SigningSecret::parse(&shared)
            .map_err(|error| StartError::System(format!("the shared secret {name:?} is damaged: {error}"))),
    }
}

/// Builds the sender of webhook deliveries.
fn webhook_sender(nuncio: &Nuncio, keys: &Arc<WebhookKeys>) -> Result<HttpWebhookSender, StartError> {
    let policy = AddressPolicy { allow_private: nuncio.allow_private_webhooks };
    let outbound = Outbound::new(OutboundOptions { policy, ..OutboundOptions::default() })?;
    let sender = HttpWebhookSender::with_keys(outbound, Arc::clone(keys), Arc::new(SystemClock));
    Ok(sender.https_only(nuncio.https_only_webhooks))
}

async fn listen(
    nuncio: Nuncio,
    engine: &Engine,
    fleet: &Fleet,
    address: SocketAddr,
    sender: Arc<HttpWebhookSender>,
) -> Result<RunningServer, StartError> {
    let listener =
        TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })?;
    let address = listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
    let socket = nuncio.socket.as_deref().map(Socket::bind).transpose()?;
    let tls = nuncio.server.tls.clone();
    let published = PublishedServer {
        url: local_url(address, tls.is_some()),
        pid: std::process::id(),
        admin_token: data_dir::admin_token()?,
        certificate: tls.as_ref().map(|tls| tls.fingerprint()),
    };
    published.write(&nuncio.data)?;

    let outbox = engine.new_outbox(sender, nuncio.outbox.clone());
    let outbox = tokio::spawn(outbox.run(engine.closing()));

    let options = server_options(&nuncio, address, &published);
    let kept = options.clone();
    let public_url = options.public_url.clone();
    let (shutdown, mut told) = watch::channel(false);
    let server = Server::new(engine.clone(), options);
    let published_certificates = publish_certificates(tls, published.clone(), nuncio.data.clone());
    let server = tokio::spawn(async move {
        let stop = async move { drop(told.wait_for(|stop| *stop).await) };
        let (socket, _removed_at_the_end) = socket.map(Socket::split).unzip();
        tokio::select! {
            ended = server.run_with_socket(listener, socket, stop) => if let Err(error) = ended {
                tracing::error!(%error, "the server broke off");
            },
            () = published_certificates => {}
        }
    });
    let (engine, fleet, data) = (engine.clone(), fleet.clone(), nuncio.data);
    Ok(RunningServer {
        engine,
        fleet,
        options: kept,
        address,
        public_url,
        data,
        published,
        shutdown,
        server,
        outbox,
        exporter: None,
    })
}

/// Writes `server.json` again whenever the server has another certificate. Never ends.
async fn publish_certificates(tls: Option<Arc<ServerTls>>, mut published: PublishedServer, data: PathBuf) {
    let Some(tls) = tls else { return std::future::pending().await };
    loop {
        let known = published.certificate.clone().unwrap_or_default();
        published.certificate = Some(tls.wait_for_other_certificate(&known).await);
        if let Err(error) = published.write(&data) {
            tracing::warn!(%error, "commands on this machine do not know the server's new certificate");
        }
    }
}

/// The given options, with the host names under which this address is reached.
fn server_options(nuncio: &Nuncio, address: SocketAddr, published: &PublishedServer) -> ServerOptions {
    let mut options = nuncio.server.clone();
    options.admin_token = Some(published.admin_token.clone());
    if !address.ip().is_loopback() {
        if !address.ip().is_unspecified() {
            options.allowed_hosts.push(match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        } else if options.public_url.is_none() && options.allowed_hosts.is_empty() {
            // The server listens on all addresses and has no public name: any Host may be right, but cards
            // must name one.
            options.any_host = true;
            options.public_url = Some(published.url.clone());
            tracing::warn!("cards name {}: set --public-url to what clients use", published.url);
        }
    }
    options
}

/// Warns at startup that tokens travel unencrypted.
fn warn_without_tls(address: SocketAddr, public_url: Option<&str>) {
    let encrypted = public_url.is_some_and(|url| url.starts_with("https://"));
    if !address.ip().is_loopback() && !encrypted {
        tracing::warn!(
            "tokens travel to {address} without TLS, where others can read them: give the server a certificate \
             (tls-cert and tls-key, docs/tls.md), or put a proxy that has one before it and name its https address \
             in public-url (docs/hardening.md)"
        );
    }
}

/// The address as a URL that works on this machine.
fn local_url(address: SocketAddr, over_tls: bool) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if over_tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

impl RunningServer {
    /// The address that the server listens on.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL for programs on this machine.
    pub fn url(&self) -> &str {
        &self.published.url
    }

    /// The URL that callers use: the public one, where there is one.
    pub fn base_url(&self) -> &str {
        self.public_url.as_deref().unwrap_or(&self.published.url).trim_end_matches('/')
    }

    /// The contents of `server.json` in the data folder.
    pub fn published(&self) -> &PublishedServer {
        &self.published
    }

    /// The engine, for calls without a transport.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The agents built from configuration. [`Fleet::apply`] changes them.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Serves MCP to one client over a pair of pipes, beside the HTTP clients, until the client closes its
    /// end.
    pub async fn serve_pipe(
        &self,
        input: impl AsyncBufRead + Unpin,
        output: impl AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<()> {
        nuncio_server::serve_pipe(self.engine.clone(), &self.options, input, output).await
    }

    /// The server's addresses and folders, as text for people.
    pub fn places(&self) -> impl fmt::Display {
        let base = self.base_url();
        let default = self.engine.catalog().default_agent().map(|agent| agent.profile.name.clone());
        let mut agents = String::new();
        for agent in self.engine.catalog().iter() {
            let name = &agent.profile.name;
            let mark = if Some(name) == default.as_ref() { " (default)" } else { "" };
            let comma = if agents.is_empty() { "" } else { ", " };
            let _ = write!(agents, "{comma}{name}{mark}");
        }
        let access = match self.options.authenticator {
            Some(_) => "Access:   by token: nuncio token create --name NAME\n",
            None => "",
        };
        let console = match self.options.console {
            true => format!("Console:  {base}/console/\n"),
            false => String::new(),
        };
        let data = std::path::absolute(&self.data).unwrap_or_else(|_| self.data.clone());
        format!(
            "Agents:   {agents}\nCard:     {base}/.well-known/agent-card.json\nEndpoint: {base}/\n\
             MCP:      {base}/mcp\n{console}Health:   {base}/healthz\n{access}Data:     {}\n",
            data.display()
        )
    }

    /// Waits for Ctrl-C or SIGTERM, then stops. A second signal does not wait for the shutdown to finish.
    pub async fn until(self, mut signals: ShutdownSignals) -> ServerEnd {
        signals.next().await;
        tracing::info!("stopping; another Ctrl-C ends at once");
        tokio::select! {
            () = self.stop() => ServerEnd::Stopped,
            () = signals.next() => ServerEnd::AtOnce,
        }
    }

    /// Accepts no new work, ends streams with their cursor, answers open requests, and hands running tasks
    /// back to the store.
    pub async fn stop(self) {
        let within = self.engine.options().stop_within;
        self.shutdown.send_replace(true);
        self.engine.begin_stop();
        let stopped = tokio::time::timeout(within, async {
            // Both have received the shutdown signal; the store closes after the last of them.
            let _ = tokio::join!(self.server, self.outbox);
            self.engine.stop().await;
            self.fleet.close().await;
            if let Some(exporter) = self.exporter {
                exporter.stop().await;
            }
        });
        if stopped.await.is_err() {
            tracing::warn!("not everything was handed back in time; it is taken up after the next start");
        }
        self.published.remove(&self.data);
    }
}

/// The signals that ask a process to exit. Once this value exists they no longer kill the process, so create
/// it before the server's address is published.
pub struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// Starts to listen for Ctrl-C and SIGTERM.
    pub fn new() -> Result<Self, StartError> {
        let listen = |kind| {
            signal(kind).map_err(|error| StartError::System(format!("cannot listen for signals: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
