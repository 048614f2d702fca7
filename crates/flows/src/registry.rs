//! The registry of reachable agents and their health. Local agents are healthy while the engine runs. Remotes
//! that the operator configured, and local agents that proxy a remote one, are probed in the background; calls
//! to them count like probes. Agents are added and removed with the catalog.
//!
//! Nothing is persisted: a server that starts probes for itself. The published view is in `tools.rs`.

pub mod api;
mod health;
mod probe;
mod tools;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nuncio_engine::{
    Agent, Engine, Probe, Surface,
    clock::Timestamp,
    metric::{self, Gauge},
    surface::{SchemaError, SurfaceChange},
};
use nuncio_wire::a2a::card::{self, CardContext};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{Instant, timeout},
};

pub use self::{
    health::{Breaker, Health, ProbeSchedule, spread},
    probe::{NetworkProber, ProbeFindings, Prober, RegistryRemote, RemoteKind},
    tools::URI,
};

/// Maximum characters of an error that are retained.
const MAX_ERROR: usize = 300;
/// The shortest wait between two scans, whatever the clock reads; and the wait while no probe permit is free.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);
const WAIT_FOR_PLACE: Duration = Duration::from_millis(100);
/// A probe request within this time after the last probe gets that probe's result.
const FRESH: Duration = Duration::from_secs(1);

/// The registry options that an operator can set.
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    /// The remotes known beside the local agents.
    pub remotes: Vec<RegistryRemote>,
    /// The interval between two probes of one remote, ±20 %.
    pub interval: Duration,
    /// The time limit of one probe.
    pub timeout: Duration,
    /// Maximum concurrent probes.
    pub max_probes: usize,
    /// Consecutive failures that open a breaker.
    pub failures_to_open: u32,
    /// The longest pause of a breaker that stays open; the first pause is `interval`.
    pub longest_pause: Duration,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        Self {
            remotes: vec![],
            interval: Duration::from_secs(15),
            timeout: Duration::from_secs(5),
            max_probes: 8,
            failures_to_open: 3,
            longest_pause: Duration::from_secs(300),
        }
    }
}

/// The location of a registered agent or server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentLocation {
    /// An agent of this server.
    Local,
    /// A remote, reached by that protocol.
    Remote(RemoteKind),
}

impl AgentLocation {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote(kind) => kind.name(),
        }
    }
}

/// The current state of one agent or MCP server in the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct RegistryEntry {
    /// The name, unique in the registry.
    pub name: String,
    /// Its address, with secrets redacted; `None` where the caller may not see it.
    pub url: Option<String>,
    /// Whether it is local, or by which protocol it is reached.
    pub location: AgentLocation,
    /// Whether the last attempt to reach it succeeded.
    pub healthy: bool,
    /// Whether calls are worthwhile.
    pub breaker: Breaker,
    /// What it can do: the skills of an agent, or the capabilities of an MCP server.
    pub capabilities: Vec<String>,
    /// The time of the last successful attempt.
    pub last_seen: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// The duration of the last probe.
    pub latency: Option<Duration>,
    /// The agent card, from the last successful probe.
    pub card: Option<Value>,
    /// The name and version of an MCP server, from the last successful probe.
    pub server_info: Option<Value>,
}

/// The agents and MCP servers that this server knows, and their health.
pub struct Registry {
    options: RegistryOptions,
    prober: Arc<dyn Prober>,
    engine: OnceLock<Engine>,
    probe_permits: Semaphore,
    state: Mutex<RegistryState>,
    /// Notified when the health of an entry changes.
    news: watch::Sender<()>,
    /// Whether the cards of local agents require a token.
    bearer: AtomicBool,
}

#[derive(Default)]
struct RegistryState {
    /// The probed entries: remotes, and local agents with a probe.
    remotes: BTreeMap<String, ProbeRecord>,
    /// The generation of the catalog that was last synchronized.
    generation: Option<u64>,
    /// When due probes were last collected; it is also the time at which local agents were last seen.
    last_scan: Option<Timestamp>,
}

struct ProbeRecord {
    who: ProbeTarget,
    health: Health,
    found: ProbeFindings,
    latency: Option<Duration>,
    /// When the last probe ended.
    probed_at: Option<Timestamp>,
    /// The last probe: in progress as long as the sender exists.
    probe_in_progress: Option<watch::Receiver<()>>,
    up: UpGauge,
}

/// Shows in the metrics whether a remote is up; NaN while that is not known, and once it is not watched any more.
struct UpGauge(Gauge);

impl UpGauge {
    fn new(name: &str) -> Self {
        let gauge = Self(metric::REMOTE_UP.gauge(&[name]));
        gauge.0.set(f64::NAN);
        gauge
    }

    fn set(&self, is_up: bool) {
        self.0.set(f64::from(u8::from(is_up)));
    }
}

impl Drop for UpGauge {
    fn drop(&mut self) {
        self.0.set(f64::NAN);
    }
}

/// A probe that is to be made. Dropping it releases the callers that wait for it.
struct PendingProbe {
    who: ProbeTarget,
    _done: watch::Sender<()>,
}

/// The target of a probe.
#[derive(Clone)]
enum ProbeTarget {
    /// A remote that the operator configured.
    Remote(RegistryRemote),
    /// An agent of this server that proxies a remote one.
    Agent { name: String, agent: Arc<dyn Agent>, probe: Arc<dyn Probe> },
}

impl ProbeTarget {
    fn name(&self) -> &str {
        match self {
            Self::Remote(remote) => &remote.name,
            Self::Agent { name, .. } => name,
        }
    }
}

impl RegistryState {
    /// Synchronizes with the catalog: a new agent is due at once, a removed one is dropped, and a replaced one
    /// starts over.
    fn sync_with_catalog(&mut self, engine: &Engine) {
        let catalog = engine.catalog();
        let generation = Some(catalog.generation());
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        let now = engine.clock().now();
        let is_there = |name: &str, known: &Arc<dyn Agent>| {
            catalog.get(name).is_ok_and(|registered| Arc::ptr_eq(&registered.agent, known))
        };
        self.remotes.retain(|name, watched| match &watched.who {
            ProbeTarget::Remote(_) => true,
            ProbeTarget::Agent { agent, .. } => is_there(name, agent),
        });
        for registered in catalog.iter() {
            let (name, agent) = (registered.profile.name.clone(), Arc::clone(&registered.agent));
            let known = self.remotes.get(&name).map(|watched| &watched.who);
            let Some(probe) = agent.probe().filter(|_| !matches!(known, Some(ProbeTarget::Agent { .. })))
            else {
                continue;
            };
            let who = ProbeTarget::Agent { name: name.clone(), agent, probe };
            // The old record first: it ends the series that the new one begins.
            self.remotes.remove(&name);
            self.remotes.insert(name, ProbeRecord::new(who, now));
        }
    }
}

impl Registry {
    /// A registry with these options that probes over the network.
    pub fn new(options: RegistryOptions) -> Self {
        let prober = Arc::new(NetworkProber::new(options.timeout));
        Self::with_prober(options, prober)
    }

    /// A registry that uses the given prober.
    pub fn with_prober(options: RegistryOptions, prober: Arc<dyn Prober>) -> Self {
        let probe_permits = Semaphore::new(options.max_probes.max(1));
        Self {
            options,
            prober,
            engine: OnceLock::new(),
            probe_permits,
            state: Mutex::default(),
            news: watch::Sender::new(()),
            bearer: AtomicBool::new(false),
        }
    }

    /// Declares that callers of this server need a token; the cards of local agents state it.
    pub fn require_tokens(&self) {
        self.bearer.store(true, Ordering::Relaxed);
    }

    /// Registers the tools and the resource on a surface, and probes until the engine stops.
    pub fn install(self: &Arc<Self>, engine: &Engine, surface: &Arc<Surface>) -> Result<(), SchemaError> {
        self.watch(engine);
        tools::install(self, engine, surface)?;
        tokio::spawn(Arc::clone(self).run());
        Ok(())
    }

    /// Adds the configured remotes, all due at once, and the agents of the engine. A remote with the name of a
    /// local agent is left out.
    pub fn watch(&self, engine: &Engine) {
        let engine = self.engine.get_or_init(|| engine.clone());
        let now = engine.clock().now();
        let mut state = self.state.lock();
        state.last_scan = Some(now);
        for remote in &self.options.remotes {
            if engine.catalog().get(&remote.name).is_ok() {
                tracing::error!(
                    name = remote.name,
                    "a remote has the name of an agent of this server and is ignored: rename it"
                );
                continue;
            }
            let watched = ProbeRecord::new(ProbeTarget::Remote(remote.clone()), now);
            state.remotes.insert(remote.name.clone(), watched);
        }
        state.sync_with_catalog(engine);
    }

    /// All entries, by name.
    pub fn agents(&self) -> Vec<RegistryEntry> {
        let Some(engine) = self.engine.get() else { return vec![] };
        let mut state = self.state.lock();
        state.sync_with_catalog(engine);
        let base = engine.catalog().surface().base_url();
        let bearer = self.bearer.load(Ordering::Relaxed);
        let local = engine.catalog().iter().map(|agent| {
            let profile = &agent.profile;
            let url = format!("{base}/agents/{}", profile.name);
            // A local agent that proxies a remote one has the health of that remote.
            let watched = state.remotes.get(&profile.name);
            let health = watched.map(|watched| &watched.health);
            RegistryEntry {
                name: profile.name.clone(),
                location: AgentLocation::Local,
                healthy: health.is_none_or(|health| health.healthy),
                breaker: health.map_or(Breaker::Closed, |health| health.breaker),
                capabilities: profile.skills.iter().map(|skill| skill.id.clone()).collect(),
                last_seen: health.map_or(state.last_scan, |health| health.last_seen),
                last_error: health.and_then(|health| health.last_error.clone()),
                latency: watched.and_then(|watched| watched.latency),
                card: Some(card::v1(profile, &CardContext { bearer, ..CardContext::new(url.clone()) })),
                server_info: None,
                url: Some(url),
            }
        });
        let remote = state.remotes.values().filter_map(|watched| watched.known(engine));
        let mut all: Vec<RegistryEntry> = local.chain(remote).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The entry with that name.
    pub fn agent(&self, name: &str) -> Option<RegistryEntry> {
        self.agents().into_iter().find(|known| known.name == name)
    }

    /// The healthy entries that have that capability.
    pub fn healthy(&self, skill: &str) -> Vec<RegistryEntry> {
        let able = |known: &RegistryEntry| known.healthy && known.capabilities.iter().any(|can| can == skill);
        self.agents().into_iter().filter(able).collect()
    }

    /// Why a call is not worthwhile now: the last attempt failed. `None`: no failure is known.
    pub fn down_reason(&self, name: &str) -> Option<String> {
        let engine = self.engine.get()?;
        let mut state = self.state.lock();
        state.sync_with_catalog(engine);
        let health = &state.remotes.get(name)?.health;
        let why = || health.last_error.clone().unwrap_or_else(|| "its breaker is open".into());
        let is_down = health.breaker != Breaker::Closed || (!health.healthy && health.last_error.is_some());
        is_down.then(why)
    }

    /// Why calls are suspended: the breaker is open.
    pub fn open_breaker_reason(&self, name: &str) -> Option<String> {
        let state = self.state.lock();
        let health = &state.remotes.get(name)?.health;
        let why = || health.last_error.clone().unwrap_or_else(|| "its breaker is open".into());
        (health.breaker != Breaker::Closed).then(why)
    }

    /// Subscribes to changes of health.
    pub fn subscribe_health(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Probes an entry now, and returns why a call is not worthwhile. `None`: the probe succeeded, or no entry
    /// of that name is ever probed.
    pub async fn probe_down_reason(self: &Arc<Self>, name: &str) -> Option<String> {
        // A recent probe is not enough: a call has failed since.
        self.probe_unless(name, Duration::ZERO).await?;
        self.down_reason(name)
    }

    /// When due probes were last collected.
    pub fn last_scan(&self) -> Option<Timestamp> {
        self.state.lock().last_scan
    }

    /// Reports the outcome of a call, which counts like a probe. Entries that are never probed are ignored.
    pub fn report(&self, name: &str, outcome: Result<(), &str>) {
        self.update_health(name, |watched, note| match outcome {
            Ok(()) => watched.health.record_success(note.pace, note.now, note.chance),
            Err(why) => watched.health.record_failure(note.pace, note.now, note.chance, note.why(why)),
        });
    }

    /// Probes an entry now, due or not, and returns its state. `None`: the name is unknown. At most one probe
    /// of an entry runs at a time; it is shared by all callers that request one meanwhile or shortly after, and
    /// continues when they disconnect.
    pub async fn probe(self: &Arc<Self>, name: &str) -> Option<RegistryEntry> {
        self.probe_unless(name, FRESH).await
    }

    /// Probes an entry, unless it was probed within that time.
    async fn probe_unless(self: &Arc<Self>, name: &str, fresh: Duration) -> Option<RegistryEntry> {
        let engine = self.engine.get()?;
        let now = engine.clock().now();
        let looking = {
            let mut state = self.state.lock();
            state.sync_with_catalog(engine);
            state.remotes.get_mut(name).and_then(|watched| match watched.under_way() {
                Some(looking) => Some(looking.clone()),
                None if watched.probed_at.is_some_and(|at| now.since(at) < fresh) => None,
                None => {
                    let (registry, due) = (Arc::clone(self), watched.begin(self.probing_until()));
                    tokio::spawn(async move { registry.attempt(&due).await });
                    watched.probe_in_progress.clone()
                }
            })
        };
        if let Some(mut looking) = looking {
            // Nothing is ever sent: the error means that the probe has ended.
            let _ = looking.changed().await;
        }
        self.agent(name)
    }

    /// Probes all entries that are due, and returns when all probes have ended.
    pub async fn round(&self) {
        let due = self.take_due(usize::MAX);
        futures_util::future::join_all(due.iter().map(|due| self.attempt(due))).await;
    }

    /// Probes entries as they become due, until the engine stops.
    async fn run(self: Arc<Self>) {
        let Some(engine) = self.engine.get() else { return };
        let mut closing = engine.closing();
        let mut changes = engine.catalog().surface().changes();
        let mut probes = JoinSet::new();
        loop {
            for due in self.take_due(self.probe_permits.available_permits()) {
                let registry = Arc::clone(&self);
                probes.spawn(async move { registry.attempt(&due).await });
            }
            let shortest =
                if self.probe_permits.available_permits() > 0 { SHORTEST_WAIT } else { WAIT_FOR_PLACE };
            let wait = self.next_due().since(engine.clock().now()).max(shortest);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // A probe has ended, so its permit is free for the next one.
                Some(_) = probes.join_next() => {}
                // A new agent is probed at once, without waiting for the next scan.
                () = agents_changed(&mut changes) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    /// The entries that are due, at most `most`; they count as being probed from now on.
    fn take_due(&self, most: usize) -> Vec<PendingProbe> {
        let Some(engine) = self.engine.get() else { return vec![] };
        let now = engine.clock().now();
        let mut state = self.state.lock();
        state.sync_with_catalog(engine);
        state.last_scan = Some(now);
        let mut due: Vec<&mut ProbeRecord> =
            state.remotes.values_mut().filter(|watched| watched.is_due(now)).collect();
        due.sort_by_key(|watched| watched.health.due);
        due.truncate(most);
        let until = self.probing_until();
        due.into_iter().map(|watched| watched.begin(until)).collect()
    }

    /// When an entry that is being probed becomes due again, if its probe ends without a result.
    fn probing_until(&self) -> Timestamp {
        let now = self.engine.get().map_or(Timestamp(0), |engine| engine.clock().now());
        now.after(self.options.timeout * 2)
    }

    /// The time of the next scan: when the next entry is due, but at least once per interval for the local agents.
    fn next_due(&self) -> Timestamp {
        let now = self.engine.get().map_or(Timestamp(0), |engine| engine.clock().now());
        let state = self.state.lock();
        let next = state.remotes.values().map(|watched| watched.health.due).min();
        let regular = now.after(self.options.interval);
        next.map_or(regular, |due| due.min(regular))
    }

    /// Probes an entry, and records the outcome.
    async fn attempt(&self, PendingProbe { who, .. }: &PendingProbe) {
        // The semaphore is never closed.
        let _place = self.probe_permits.acquire().await;
        let (started, patience) = (Instant::now(), self.options.timeout);
        let looking = async {
            match who {
                ProbeTarget::Remote(remote) => self.prober.probe(remote).await,
                // The capabilities of a local agent are in the catalog.
                ProbeTarget::Agent { probe, .. } => {
                    probe.check_reachable().await.map(|()| ProbeFindings::default())
                }
            }
        };
        let found = match timeout(patience, looking).await {
            Ok(found) => found,
            Err(_) => Err(format!("no answer within {} s", patience.as_secs_f32())),
        };
        let latency = started.elapsed();
        self.update_health(who.name(), |watched, note| {
            (watched.latency, watched.probed_at) = (Some(latency), Some(note.now));
            match found {
                Ok(found) => {
                    watched.found = found;
                    watched.health.record_success(note.pace, note.now, note.chance);
                }
                Err(why) => watched.health.record_failure(note.pace, note.now, note.chance, note.why(&why)),
            }
        });
    }

    /// Changes the record of an entry, and notifies subscribers if its published health has changed.
    fn update_health(&self, name: &str, change: impl FnOnce(&mut ProbeRecord, &HealthUpdate<'_>)) {
        let Some(engine) = self.engine.get() else { return };
        let RegistryOptions { interval, failures_to_open, longest_pause, .. } = self.options;
        let pace = ProbeSchedule { interval, failures: failures_to_open, longest_pause };
        let note =
            HealthUpdate { engine, pace: &pace, now: engine.clock().now(), chance: engine.clock().chance() };
        let mut state = self.state.lock();
        let Some(watched) = state.remotes.get_mut(name) else { return };
        let before = watched.health.published_state();
        let is_first = watched.health.last_seen.is_none() && watched.health.last_error.is_none();
        change(watched, &note);
        let after = watched.health.published_state();
        watched.up.set(watched.health.healthy);
        let why = watched.health.last_error.clone();
        drop(state);
        if before != after || is_first {
            log_health(name, after, why.as_deref());
        }
        if before == after {
            return;
        }
        self.news.send_replace(());
        engine.catalog().surface().updated(URI);
    }
}

/// Logs the health of a remote: after its first probe, and when it changes.
fn log_health(name: &str, (healthy, breaker): (bool, Breaker), why: Option<&str>) {
    if healthy {
        tracing::info!(name, "an agent or server can be reached");
        return;
    }
    let breaker = breaker.name();
    tracing::warn!(
        name,
        breaker,
        why,
        "an agent or server cannot be used: its tasks fail until it can; check its table in the configuration (program, \
         address, credentials), and that it runs"
    );
}

/// The context of a change of health.
struct HealthUpdate<'a> {
    engine: &'a Engine,
    pace: &'a ProbeSchedule,
    now: Timestamp,
    chance: f64,
}

impl HealthUpdate<'_> {
    /// A redacted and truncated error message.
    fn why(&self, error: &str) -> String {
        let redacted = self.engine.redactor().text(error);
        redacted.chars().take(MAX_ERROR).collect()
    }
}

/// Returns when agents may have been added or removed.
async fn agents_changed(changes: &mut tokio::sync::broadcast::Receiver<SurfaceChange>) {
    loop {
        match changes.recv().await {
            Ok(SurfaceChange::Tools) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // The surface exists as long as the engine.
            Err(tokio::sync::broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl ProbeRecord {
    fn new(who: ProbeTarget, due: Timestamp) -> Self {
        let (health, found, up) = (Health::unknown(due), ProbeFindings::default(), UpGauge::new(who.name()));
        Self { who, health, found, latency: None, probed_at: None, probe_in_progress: None, up }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.health.due <= now && self.under_way().is_none()
    }

    /// The probe in progress.
    fn under_way(&self) -> Option<&watch::Receiver<()>> {
        self.probe_in_progress.as_ref().filter(|looking| looking.has_changed().is_ok())
    }

    /// Begins a probe.
    fn begin(&mut self, until: Timestamp) -> PendingProbe {
        self.health.probing(until);
        let (looks, looking) = watch::channel(());
        self.probe_in_progress = Some(looking);
        PendingProbe { who: self.who.clone(), _done: looks }
    }

    /// The entry of a remote. A local agent is listed from the catalog instead.
    fn known(&self, engine: &Engine) -> Option<RegistryEntry> {
        let ProbeTarget::Remote(remote) = &self.who else { return None };
        Some(RegistryEntry {
            name: remote.name.clone(),
            url: Some(engine.redactor().text(remote.url.as_str()).into_owned()),
            location: AgentLocation::Remote(remote.kind),
            healthy: self.health.healthy,
            breaker: self.health.breaker,
            capabilities: self.found.capabilities.clone(),
            last_seen: self.health.last_seen,
            last_error: self.health.last_error.clone(),
            latency: self.latency,
            card: self.found.card.clone(),
            server_info: self.found.server_info.clone(),
        })
    }
}
