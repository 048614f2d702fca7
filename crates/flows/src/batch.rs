//! The batch engine: runs many operations as one durable task.
//!
//! A batch is a task of the agent `batch`, so it is followed, canceled and listed like any other task. Each
//! operation is a journaled step in its own branch. All operations of this process share one concurrency cap,
//! which can be changed while they run. Measurements are stored per tenant and published under `batchtools://`,
//! together with the queue and the settings.
//!
//! File operations are confined to one folder per tenant. Memory and agent operations run as the caller that
//! submitted the batch, with that caller's permissions.

mod agent;
pub mod api;
mod attempt_slot;
mod content;
mod control;
mod dispatch;
pub mod files;
pub mod input;
mod load;
pub mod load_probe;
mod memory;
pub mod metrics;
mod operation;
mod report;
mod resources;
mod retry;
mod running_batch;
mod scheduler;
mod selection;
pub mod settings;
mod speedup;
mod task_operations;
mod tools;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Deref,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use nuncio_engine::{
    Agent, AgentError, Engine, Error, Surface, TaskContext, TaskId, access::HOME_TENANT, clock::Timestamp,
    surface::SchemaError,
};
use parking_lot::{Mutex, MutexGuard};

pub use self::{
    api::{BatchSettings, BatchThresholds},
    input::Strategy,
    load_probe::{HostLoadProbe, LoadProbe},
    scheduler::Priority,
};
use self::{
    input::{BatchInput, BatchOperation},
    metrics::OperationMeter,
    operation::BatchContext,
    retry::retry_while_busy,
    running_batch::RunningBatch,
    scheduler::BatchScheduler,
    settings::VersionedBatchSettings,
};
use crate::memory::MemoryBank;

/// The name of the agent that runs every batch.
pub const AGENT: &str = "batch";
/// The name of the batch engine in grants.
pub const NAME: &str = "batchtools";
/// The resource with performance measurements.
pub const METRICS_URI: &str = "batchtools://metrics/performance";
/// The resource with the batches that have not ended.
pub const QUEUE_URI: &str = "batchtools://queue/status";
/// The resource with the batch engine's settings.
pub const SETTINGS_URI: &str = "batchtools://config/settings";

/// Maximum message ids of authorized batches that are remembered until the batch begins. When the set is full it
/// is cleared, and the agent authorizes those batches a second time.
const LET_THROUGH: usize = 10_000;

/// The batch options that an operator can set.
#[derive(Debug, Clone)]
pub struct BatchOptions {
    /// The folder for file operations of callers without a tenant. `None`: such operations are refused.
    pub files_dir: Option<PathBuf>,
    /// The folders for file operations of other tenants, by tenant name.
    pub tenant_files: BTreeMap<String, PathBuf>,
    /// The settings that apply until `batch_configure` changes them.
    pub settings: BatchSettings,
    /// Maximum operations in one batch.
    pub operations_per_batch: usize,
    /// Maximum bytes of one batch request.
    pub batch_bytes: usize,
    /// Maximum bytes of a file that is read, copied, hashed or searched.
    pub file_bytes: u64,
    /// Maximum bytes of one content that is processed in chunks.
    pub content_bytes: usize,
    /// Maximum bytes of one operation's output. A larger output is truncated or omitted, and marked so.
    pub operation_output_bytes: usize,
    /// Maximum bytes of all outputs of one batch together. Later outputs are omitted, and marked so.
    pub batch_output_bytes: usize,
    /// The longest time that a batch waits for a busy machine; after that it begins with one operation at a time.
    pub load_wait: Duration,
    /// The longest time that a batch may run, pauses included.
    pub time_limit: Duration,
    /// The interval at which changes made on other nodes are polled.
    pub poll: Duration,
    /// Measures how busy the machine is. `None`: the host is measured through `/proc`.
    pub probe: Option<Arc<dyn LoadProbe>>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            files_dir: None,
            tenant_files: BTreeMap::new(),
            settings: BatchSettings::default(),
            operations_per_batch: 10_000,
            batch_bytes: 16 * 1024 * 1024,
            file_bytes: 64 * 1024 * 1024,
            content_bytes: 64 * 1024 * 1024,
            operation_output_bytes: 64 * 1024,
            batch_output_bytes: 16 * 1024 * 1024,
            load_wait: Duration::from_secs(120),
            time_limit: Duration::from_secs(30 * 24 * 3600),
            poll: Duration::from_secs(3),
            probe: None,
        }
    }
}

/// The batch engine.
pub struct BatchEngine {
    core: Arc<BatchCore>,
}

impl BatchEngine {
    /// A batch engine with these options.
    pub fn new(options: BatchOptions) -> Self {
        let probe = options.probe.clone().unwrap_or_else(|| Arc::new(HostLoadProbe::default()));
        let known = VersionedBatchSettings {
            settings: options.settings.clone(),
            version: 0,
            changed_at: Default::default(),
        };
        let core = BatchCore {
            scheduler: BatchScheduler::new(options.settings.max_concurrency),
            probe,
            known: Mutex::new(known),
            loaded: tokio::sync::OnceCell::new(),
            meter: OperationMeter::default(),
            lives: Mutex::default(),
            admitting: tokio::sync::Mutex::default(),
            let_through: Mutex::default(),
            since: std::sync::OnceLock::new(),
            options,
        };
        Self { core: Arc::new(core) }
    }

    /// The agents of the batch engine.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        vec![Arc::new(agent::BatchAgent { core: Arc::clone(&self.core) })]
    }

    /// Registers the tools and resources on a surface, and starts to poll for changes made on other nodes.
    pub fn install(
        self: &Arc<Self>,
        engine: &Engine,
        _bank: &Arc<MemoryBank>,
        surface: &Arc<Surface>,
    ) -> Result<(), SchemaError> {
        let _ = self.core.since.set(engine.clock().now());
        resources::install(&self.core, engine, surface);
        tools::install(&self.core, engine, surface)?;
        tokio::spawn(watch(Arc::clone(&self.core), engine.clone()));
        Ok(())
    }
}

/// The state that all batches of this process share.
pub(crate) struct BatchCore {
    options: BatchOptions,
    scheduler: Arc<BatchScheduler>,
    probe: Arc<dyn LoadProbe>,
    known: Mutex<VersionedBatchSettings>,
    loaded: tokio::sync::OnceCell<()>,
    meter: OperationMeter,
    lives: Mutex<HashMap<TaskId, Arc<RunningBatch>>>,
    admitting: tokio::sync::Mutex<()>,
    /// Message ids of batches that a tool of this process has authorized and that the agent has not received yet.
    let_through: Mutex<HashSet<String>>,
    /// When this server started: the modification time of resources that were never changed.
    since: std::sync::OnceLock<Timestamp>,
}

impl BatchCore {
    /// Reads the settings for the first time.
    async fn load(&self, engine: &Engine) {
        let load = || async {
            self.refresh(engine).await.map_err(|error| {
                tracing::warn!(%error, "the batch settings could not be read; the last known ones stay in use");
            })
        };
        let _ = self.loaded.get_or_try_init(load).await;
    }

    /// Reads the settings again and applies them.
    async fn refresh(&self, engine: &Engine) -> Result<(), Error> {
        let known = settings::load(engine, &self.options.settings).await?;
        self.apply_settings(engine, &known);
        Ok(())
    }

    /// Applies these settings, unless newer ones are already in use.
    fn apply_settings(&self, engine: &Engine, known: &VersionedBatchSettings) {
        {
            let mut current = self.known();
            if known.version <= current.version {
                return;
            }
            *current = known.clone();
        }
        self.scheduler.set_cap(known.settings.max_concurrency);
        let surface = engine.catalog().surface();
        for uri in [SETTINGS_URI, QUEUE_URI, METRICS_URI] {
            surface.updated(uri);
        }
    }

    fn known(&self) -> MutexGuard<'_, VersionedBatchSettings> {
        self.known.lock()
    }

    fn settings(&self) -> BatchSettings {
        self.known().settings.clone()
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<RunningBatch>>> {
        self.lives.lock()
    }

    /// The batch with that id, if it runs in this process.
    fn live(&self, id: TaskId) -> Option<Arc<RunningBatch>> {
        self.lives().get(&id).cloned()
    }

    /// A fresh message id that marks its sender as authorized. It is known only to this process and is valid once.
    fn let_through(&self, engine: &Engine) -> String {
        let id = engine.clock().new_id().to_string();
        let mut known = self.known_senders();
        // The ids of batches that another node picked up are never looked up here, so a full set is cleared.
        if known.len() >= LET_THROUGH {
            known.clear();
        }
        known.insert(id.clone());
        id
    }

    fn known_senders(&self) -> MutexGuard<'_, HashSet<String>> {
        self.let_through.lock()
    }

    /// Checks whether the tenant's queue has room for one more batch beside `there` others. A busy machine is
    /// not a reason to refuse: it only delays the batch (`load.rs`).
    fn check_queue(&self, input: &BatchInput, there: usize) -> Result<(), Error> {
        let BatchSettings { enabled, thresholds, optimization_strategies, .. } = self.settings();
        let later = |why: String| Err(Error::Busy { why, retry_after: Duration::from_secs(5) });
        if !enabled {
            return Err(Error::Invalid(
                "the batch engine is switched off (enabled: false): batch_configure switches it on".into(),
            ));
        }
        if !optimization_strategies.contains(&input.strategy) {
            return Err(Error::Invalid(format!(
                "strategy: {} is not among the optimizationStrategies of the settings",
                input.strategy.name()
            )));
        }
        match there as u64 >= thresholds.queue_size {
            true => later(format!(
                "no batch is taken: {there} batches wait or are at work, and the threshold queueSize is {}",
                thresholds.queue_size
            )),
            false => Ok(()),
        }
    }

    /// Registers a batch with the scheduler, paused if its record is paused.
    async fn register_running_batch(
        self: &Arc<Self>,
        cx: &TaskContext,
        common: &BatchContext,
        tenant: &str,
        operations: Arc<[BatchOperation]>,
    ) -> Result<RunningBatchGuard, AgentError> {
        let (engine, id) = (&common.engine, cx.task_id());
        let mut types = BTreeMap::new();
        for operation in &*operations {
            *types.entry(operation.r#type.to_owned()).or_default() += 1;
        }
        let known = |control: &mut control::Control| control.types.clone_from(&types);
        let control = retry_while_busy(cx, || control::change(engine, tenant, id, known)).await?;
        let paused = control.is_some_and(|control| control.paused);
        let own_cap = common.input.max_concurrency.unwrap_or(usize::MAX);
        let handle = self.scheduler.register_batch(id, tenant, own_cap, paused);
        let room = self.options.batch_output_bytes;
        let live = RunningBatch::new(id, tenant.to_owned(), engine.clock().now(), handle, operations, room);
        self.lives().insert(id, Arc::clone(&live));
        Ok(RunningBatchGuard { core: Arc::clone(self), live })
    }
}

/// Keeps a batch registered as running in this process until it is dropped.
struct RunningBatchGuard {
    core: Arc<BatchCore>,
    live: Arc<RunningBatch>,
}

impl Deref for RunningBatchGuard {
    type Target = Arc<RunningBatch>;

    fn deref(&self) -> &Arc<RunningBatch> {
        &self.live
    }
}

impl Drop for RunningBatchGuard {
    fn drop(&mut self) {
        let mut lives = self.core.lives();
        if lives.get(&self.live.id).is_some_and(|known| Arc::ptr_eq(known, &self.live)) {
            lives.remove(&self.live.id);
        }
    }
}

/// Samples the machine's load, and polls for changes made on other nodes, until the engine stops.
async fn watch(core: Arc<BatchCore>, engine: Engine) {
    let mut closing = engine.closing();
    core.load(&engine).await;
    let mut sampled = tokio::time::interval(Duration::from_secs(1));
    let mut looked = tokio::time::interval(core.options.poll);
    loop {
        tokio::select! {
            () = async { drop(closing.wait_for(|closing| *closing).await) } => return,
            _ = sampled.tick() => {
                core.probe.sample();
                core.follow_load();
            }
            _ = looked.tick() => poll_other_nodes(&core, &engine).await,
        }
    }
}

async fn poll_other_nodes(core: &BatchCore, engine: &Engine) {
    if let Err(error) = core.refresh(engine).await {
        tracing::debug!(%error, "the batch settings could not be read");
    }
    // Without a shared store there are no other nodes that could pause a batch.
    if !engine.is_shared() {
        return;
    }
    for id in core.scheduler.batches() {
        let Some(live) = core.live(id) else { continue };
        if let Ok(Some(control)) = control::read(engine, &live.tenant, id).await {
            core.scheduler.set_paused(id, control.value.paused);
        }
    }
}

/// Whether callers of that tenant may change the settings, which apply to all tenants.
fn may_configure(tenant: &str) -> bool {
    tenant == HOME_TENANT
}
