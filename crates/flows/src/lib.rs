//! The features built on the engine: the memory bank, SPARC workflows, the batch engine, plans and the agent
//! registry.
//!
//! Each one uses the engine's store for its data, the engine's guard for authorization, and ordinary tasks for
//! long-running work. They are published on the surface as tools, resources and prompts, so they are reached
//! over MCP, and by the command line through MCP.

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
    sparc::{SparcEngine, SparcOptions},
};

/// The host of aliases by default.
const ALIAS_HOST: &str = "nuncio";
/// The former host, which is accepted wherever the default one is.
const FORMER_ALIAS_HOST: &str = "claude-20x";

/// The options that an operator can set, by feature.
#[derive(Debug, Clone)]
pub struct FlowsOptions {
    /// Options of the memory bank.
    pub memory: MemoryOptions,
    /// Options of SPARC workflows.
    pub sparc: SparcOptions,
    /// Options of the batch engine.
    pub batch: BatchOptions,
    /// Options of the agent registry.
    pub registry: RegistryOptions,
    /// Options of plans.
    pub plan: PlanOptions,
    /// Hosts for which `mcp://{host}/{type}/…` is an alias of `{type}://…`.
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
            alias_hosts: vec![ALIAS_HOST.into()],
        }
    }
}

/// All features, created before the engine starts and installed after.
pub struct Flows {
    options: FlowsOptions,
    sparc: Arc<SparcEngine>,
    batch: Arc<BatchEngine>,
    registry: Arc<Registry>,
    plans: PlanEngine,
}

impl Flows {
    /// All features with these options.
    pub fn new(options: FlowsOptions) -> Self {
        let registry = Arc::new(Registry::new(options.registry.clone()));
        Self {
            sparc: Arc::new(SparcEngine::new(options.sparc.clone())),
            batch: Arc::new(BatchEngine::new(options.batch.clone())),
            plans: PlanEngine::new(options.plan.clone(), Arc::clone(&registry)),
            registry,
            options,
        }
    }

    /// The agents of all features.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        let (sparc, batch) = (self.sparc.agents(), self.batch.agents());
        sparc.into_iter().chain(batch).chain(self.plans.agents()).collect()
    }

    /// Declares that this server requires a token from its callers.
    pub fn require_tokens(&self) {
        self.registry.require_tokens();
    }

    /// Registers every feature on the surface of a started engine, and starts the background work, which runs
    /// until the engine stops.
    pub fn install(&self, engine: &Engine) -> Result<(), SchemaError> {
        let surface = engine.catalog().surface();
        surface
            .set_aliases(&alias_hosts(&self.options.alias_hosts), &["sparc", "memory", "batchtools", "a2a"]);
        let bank = MemoryBank::new(engine.clone(), self.options.memory.clone());
        memory::install(&bank, surface)?;
        self.sparc.install(engine, surface)?;
        self.batch.install(engine, &bank, surface)?;
        self.registry.install(engine, surface)?;
        self.plans.install(engine, surface)?;
        tasks::install(engine, surface)
    }
}

/// The hosts of aliases: as configured, and the former one.
fn alias_hosts(configured: &[String]) -> Vec<String> {
    let mut hosts = configured.to_vec();
    let is_missing = !hosts.iter().any(|host| host == FORMER_ALIAS_HOST);
    if is_missing && hosts.iter().any(|host| host == ALIAS_HOST) {
        hosts.push(FORMER_ALIAS_HOST.to_owned());
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_former_host_is_accepted_beside_the_default_one() {
        let check = |configured: &[&str], expected: &[&str]| {
            let configured: Vec<String> = configured.iter().map(ToString::to_string).collect();
            assert_eq!(alias_hosts(&configured), expected);
        };
        check(&["nuncio"], &["nuncio", "claude-20x"]);
        check(&["claude-20x", "nuncio"], &["claude-20x", "nuncio"]);
        // Whoever names other hosts, or none, means these.
        check(&["here"], &["here"]);
        check(&[], &[]);
    }
}
