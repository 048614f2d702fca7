//! Plans: work that is cut into subtasks for fitting agents, done in parallel where it can be, and put together again.
//!
//! A plan is a file (`file.rs`), checked as a whole (`check.rs`) before anything begins. It is made by hand, by rules or
//! by a model (`make.rs`), drawn (`graph.rs`, `draw.rs`), and run by the agent `orchestrator` as a durable task: every
//! subtask is a task of its own, called from a branch of its own, so that nothing that was finished is done again.

mod agent_choice;
mod check;
mod drawing;
mod file;
mod graph;
mod make;
mod orchestrator;
mod poll_slice;
mod reference;
mod schemas;
mod status;
mod subtask_permits;
mod synthesis;
mod tools;

use std::{sync::Arc, time::Duration};

use nuncio_client::model::ModelOptions;
use nuncio_engine::{Agent, Engine, Surface, surface::SchemaError};

pub use self::{
    check::{PROBLEMS, PlanProblem, PlanProblems, Roster},
    drawing::{PlanDrawing, draw},
    file::{Plan, PlanBudget, PlanRetry, PlanTarget, PlanTask, PlanTaskInput, Synthesis, format_duration},
    graph::{PlanGraph, PlanPredecessors},
    make::{PlanDraft, PlanMakeError, PlanMatch, UnmatchedPart, make},
    status::{PlanStatus, SubtaskState, SubtaskStatus, UnavailableAgent},
};
use crate::registry::Registry;

/// The agent that runs plans.
pub const AGENT: &str = "orchestrator";
/// The artifact that holds a plan and what became of its subtasks, as it happens.
pub const PLAN: &str = "plan";
/// The artifact that holds what a plan came to.
pub const RESULT: &str = "result";
/// What the artifact of a subtask is called, before its id.
pub const PART: &str = "task:";

/// What an operator may set. Every limit has a name and a default.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Subtasks of one plan.
    pub tasks_per_plan: usize,
    /// Subtasks of all plans of one tenant that are begun at once on a node, at each depth of plans within plans.
    pub subtasks_per_tenant: usize,
    /// Plans around a plan: one whose subtask is a plan is around that one.
    pub plans_around: usize,
    /// Bytes of a plan as it is given.
    pub plan_bytes: usize,
    /// Bytes of the input of one subtask, with what its references stand for.
    pub input_bytes: usize,
    /// Tries of one subtask with one agent.
    pub attempts_per_task: u32,
    /// Further tries in one plan, where its budget says nothing.
    pub retries_per_plan: u32,
    /// Agents or skills that one subtask may fall back to.
    pub fallbacks_per_task: usize,
    /// The longest wait before another try.
    pub longest_backoff: Duration,
    /// How long a plan may be at work, where its budget says nothing.
    pub time_limit: Duration,
    /// How well an agent has to fit a part of a request (0 to 1) before a plan gives the part to it.
    pub fit: f64,
    /// The model that makes plans and puts parts together, where a plan asks for one and its caller has none.
    pub model: Option<ModelOptions>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            tasks_per_plan: 1_000,
            subtasks_per_tenant: 1_000,
            plans_around: 3,
            plan_bytes: 1024 * 1024,
            input_bytes: 1024 * 1024,
            attempts_per_task: 20,
            retries_per_plan: 100,
            fallbacks_per_task: 16,
            longest_backoff: Duration::from_secs(300),
            time_limit: Duration::from_secs(7 * 24 * 3600),
            fit: 0.15,
            model: None,
        }
    }
}

/// Plans, and the agent that runs them.
pub struct PlanEngine {
    core: Arc<PlanCore>,
}

pub(crate) struct PlanCore {
    pub(crate) options: PlanOptions,
    pub(crate) registry: Arc<Registry>,
    pub(crate) turns: subtask_permits::SubtaskPermits,
}

impl PlanEngine {
    /// With these options; who is well is looked up in that registry.
    pub fn new(options: PlanOptions, registry: Arc<Registry>) -> Self {
        let turns = subtask_permits::SubtaskPermits::new(options.subtasks_per_tenant);
        Self { core: Arc::new(PlanCore { options, registry, turns }) }
    }

    /// The agents that belong to it.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        vec![Arc::new(orchestrator::Orchestrator { core: Arc::clone(&self.core) })]
    }

    /// Offers the tools on a surface.
    pub fn install(&self, engine: &Engine, surface: &Surface) -> Result<(), SchemaError> {
        tools::install(&self.core, engine, surface)
    }
}
