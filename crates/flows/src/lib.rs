//! What agents and people share and build on: the memory bank, SPARC workflows, the batch engine, plans
//! and the registry.
//!
//! All of it stands on the engine: what is kept is kept in its store, who may do what is decided by its guard, and
//! work that takes time is a task like any other. It is offered on the surface, as tools, resources and prompts;
//! so it is reached over MCP, and by the command line through that.

pub mod batch;
pub mod memory;
pub mod plan;
pub mod registry;
pub mod resource;
mod retry;
pub mod sparc;
pub mod tasks;

use std::sync::Arc;

use nuncio_engine::{Agent, Engine, surface::SchemaError};

use crate::{
    batch::{BatchEngine, BatchOptions},
    memory::{MemoryBank, MemoryOptions},
    plan::{PlanEngine, PlanOptions},
    registry::{Registry, RegistryOptions},
    sparc::{SparcEngine, SparcModel, SparcOptions},
};

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct FlowsOptions {
    /// The memory bank.
    pub memory: MemoryOptions,
    /// SPARC workflows.
    pub sparc: SparcOptions,
    /// The batch engine.
    pub batch: BatchOptions,
    /// The registry.
    pub registry: RegistryOptions,
    /// Plans.
    pub plan: PlanOptions,
    /// Hosts of `mcp://{host}/{type}/…`, which stands for `{type}://…`.
    pub alias_hosts: Vec<String>,
}

impl Default for FlowsOptions {
    fn default() -> Self {
        Self {
            memory: MemoryOptions::default(),
            sparc: SparcOptions::default(),
            batch: BatchOptions::default(),
            registry: RegistryOptions::default(),
            plan: PlanOptions::default(),
            alias_hosts: vec!["nuncio".into(), "claude-20x".into()],
        }
    }
}

/// Everything that is shared, before the engine starts and after.
pub struct Flows {
    options: FlowsOptions,
    sparc: Arc<SparcEngine>,
    batch: Arc<BatchEngine>,
    registry: Arc<Registry>,
    plans: PlanEngine,
}

impl Flows {
    /// With these options.
    pub fn new(options: FlowsOptions) -> Self {
        let registry = Arc::new(Registry::new(options.registry.clone()));
        let mut plan = options.plan.clone();
        plan.model = plan.model.or_else(|| options.sparc.model.as_ref().map(SparcModel::options));
        Self {
            sparc: Arc::new(SparcEngine::new(options.sparc.clone())),
            batch: Arc::new(BatchEngine::new(options.batch.clone())),
            plans: PlanEngine::new(plan, Arc::clone(&registry)),
            registry,
            options,
        }
    }

    /// The agents that belong to it.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        let (sparc, batch) = (self.sparc.agents(), self.batch.agents());
        sparc.into_iter().chain(batch).chain(self.plans.agents()).collect()
    }

    /// Says that callers of this server have to show a token.
    pub fn require_tokens(&self) {
        self.registry.require_tokens();
    }

    /// Offers everything on the surface of an engine that has started, and begins what goes on in the background
    /// until the engine stops.
    pub fn install(&self, engine: &Engine) -> Result<(), SchemaError> {
        let surface = engine.catalog().surface();
        surface.set_aliases(&self.options.alias_hosts, &["sparc", "memory", "batchtools", "a2a"]);
        let bank = MemoryBank::new(engine.clone(), self.options.memory.clone());
        memory::install(&bank, surface)?;
        self.sparc.install(engine, surface)?;
        self.batch.install(engine, &bank, surface)?;
        self.registry.install(engine, surface)?;
        self.plans.install(engine, surface)?;
        tasks::install(engine, surface)
    }
}
