//! SPARC workflows: five phases, each of which ends at a gate.
//!
//! A workflow is a small state machine in the store (`workflow`, `store`, `workflows`). A phase passes when its
//! artifact passes the gate (`gate`, `command`); the content of an artifact is defined by its template
//! (`templates`). People and programs work on it through tools and resources, agents through their tasks
//! (`agents`); all use the same calls.

mod agents;
pub mod api;
mod command;
mod error;
mod forms;
mod gate;
mod model_prompt;
mod phase;
mod prompts;
mod resources;
mod store;
mod templates;
mod tools;
mod view;
mod workflow;
mod workflows;

use std::{ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use nuncio_engine::{Agent, Engine, Surface, access::HOME_TENANT, surface::SchemaError};
use tokio::sync::Semaphore;

pub use self::{
    api::Violation,
    command::{CommandReport, TestCommand},
    error::SparcError,
    gate::{GateVerdict, MAX_VIOLATIONS},
    phase::{SparcPhase, SparcRole},
    store::StoredWorkflow,
    templates::PhaseTemplate,
    workflow::{MAX_VERSIONS, PhaseStatus, Workflow, WorkflowAction, WorkflowRefusal},
    workflows::{MAX_CONTEXT_ID, MAX_PAGE, SubmissionResult, WorkflowActor, Workflows},
};

/// The SPARC options that an operator can set.
#[derive(Debug, Clone)]
pub struct SparcOptions {
    /// The command that decides whether refinement passes, with its arguments. Without one it cannot pass.
    pub test_command: Option<Vec<String>>,
    /// The working directory of the test command; `None`: the server's own.
    pub test_dir: Option<PathBuf>,
    /// Environment variables of the server that are passed to the test command, beside those that every program
    /// needs; a trailing `*` matches any suffix.
    pub test_env: Vec<String>,
    /// Environment variables that hold secrets of the server: never passed to the test command, whatever
    /// `test_env` matches.
    pub secret_env: Vec<String>,
    /// Tenants for whose workflows the test command runs; `*` stands for all.
    pub test_tenants: Vec<String>,
    /// The time limit of one run of the test command.
    pub test_timeout: Duration,
    /// Bytes of the test command's output that are retained, from the end.
    pub test_output: usize,
    /// Maximum concurrent test commands in this process, of all workflows; at least one. They share a working
    /// directory.
    pub test_commands: usize,
    /// Maximum bytes of an artifact.
    pub max_artifact: usize,
    /// Maximum entries of a workflow's history.
    pub max_history: u64,
    /// Maximum bytes of a goal, and of a reason.
    pub max_goal: usize,
}

impl Default for SparcOptions {
    fn default() -> Self {
        Self {
            test_command: None,
            test_dir: None,
            test_env: vec![],
            secret_env: vec![],
            test_tenants: vec![HOME_TENANT.to_owned()],
            test_timeout: Duration::from_secs(600),
            test_output: 64 * 1024,
            test_commands: 1,
            max_artifact: 1024 * 1024,
            max_history: 10_000,
            max_goal: 8 * 1024,
        }
    }
}

/// The options, and the state that all workflows of the process share.
pub(crate) struct SparcShared {
    options: SparcOptions,
    test_permits: Semaphore,
}

impl Deref for SparcShared {
    type Target = SparcOptions;

    fn deref(&self) -> &SparcOptions {
        &self.options
    }
}

/// SPARC workflows, with their agents, tools, resources and prompts.
pub struct SparcEngine {
    options: Arc<SparcShared>,
}

impl SparcEngine {
    /// A SPARC engine with these options.
    pub fn new(options: SparcOptions) -> Self {
        let test_places = Semaphore::new(options.test_commands.clamp(1, Semaphore::MAX_PERMITS));
        Self { options: Arc::new(SparcShared { options, test_permits: test_places }) }
    }

    /// The agents of SPARC workflows.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        agents::all(&self.options)
    }

    /// The workflows in an engine's store.
    pub fn workflows(&self, engine: &Engine) -> Workflows {
        Workflows::new(engine.clone(), Arc::clone(&self.options))
    }

    /// Registers the tools, resources and prompts on a surface.
    pub fn install(self: &Arc<Self>, engine: &Engine, surface: &Arc<Surface>) -> Result<(), SchemaError> {
        let workflows = self.workflows(engine);
        resources::install(&workflows, surface);
        prompts::install(surface);
        tools::install(&workflows, surface)
    }
}
