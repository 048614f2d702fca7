//! SPARC workflows: five phases, each of which ends at a gate.
//!
//! A workflow is a small state machine in the store (`workflow`, `store`, `workflows`); a phase passes when its artifact does
//! (`gate`, `command`), and what belongs into an artifact is said by its template (`templates`). People and programs
//! work on it through tools and resources, agents through their tasks (`agents`); all of them by the same calls.

mod agents;
mod command;
mod error;
mod forms;
mod gate;
mod model_prompt;
mod phase;
mod prompts;
mod resources;
mod schema;
mod store;
mod templates;
mod tools;
mod view;
mod workflow;
mod workflows;

use std::{ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use nuncio_client::model::ModelOptions;
use nuncio_engine::{Agent, Engine, Surface, access::HOME_TENANT, surface::SchemaError};
use tokio::sync::Semaphore;

pub use self::{
    command::{CommandReport, TestCommand},
    error::SparcError,
    gate::{GateVerdict, MAX_VIOLATIONS, Violation},
    phase::{SparcPhase, SparcRole},
    store::StoredWorkflow,
    templates::PhaseTemplate,
    workflow::{MAX_VERSIONS, PhaseStatus, Workflow, WorkflowRefusal},
    workflows::{MAX_CONTEXT_ID, MAX_PAGE, SubmissionResult, WorkflowActor, Workflows},
};

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct SparcOptions {
    /// The command that decides whether refinement has passed, with its arguments. Without one it cannot pass.
    pub test_command: Option<Vec<String>>,
    /// The folder that it runs in; `None`: the server's own.
    pub test_dir: Option<PathBuf>,
    /// Variables of the server's environment that it has beside those that every program needs; a `*` at the end
    /// stands for any ending.
    pub test_env: Vec<String>,
    /// Tenants whose workflows it runs for; `*` stands for all.
    pub test_tenants: Vec<String>,
    /// How long it may run.
    pub test_timeout: Duration,
    /// Bytes of its output that are kept, from the end.
    pub test_output: usize,
    /// How many of them run at once in this process, of all workflows; at least one. They share a folder.
    pub test_commands: usize,
    /// The model that is asked where the caller has none.
    pub model: Option<SparcModel>,
    /// Bytes of an artifact.
    pub max_artifact: usize,
    /// Entries of a workflow's history.
    pub max_history: u64,
    /// Bytes of a goal, and of a reason.
    pub max_goal: usize,
}

impl Default for SparcOptions {
    fn default() -> Self {
        Self {
            test_command: None,
            test_dir: None,
            test_env: vec![],
            test_tenants: vec![HOME_TENANT.to_owned()],
            test_timeout: Duration::from_secs(600),
            test_output: 64 * 1024,
            test_commands: 1,
            model: None,
            max_artifact: 1024 * 1024,
            max_history: 10_000,
            max_goal: 8 * 1024,
        }
    }
}

/// A language model at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparcModel {
    /// The address before `/chat/completions`.
    pub url: String,
    /// The model's name there.
    pub name: String,
    /// The environment variable that holds its key.
    pub key_variable: Option<String>,
}

/// The options, and what all workflows of the process share by them.
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

impl SparcModel {
    /// How it is asked. The key is looked up now.
    pub fn options(&self) -> ModelOptions {
        let key = self.key_variable.as_ref().and_then(|name| std::env::var(name).ok());
        ModelOptions { key, ..ModelOptions::new(&self.url, &self.name) }
    }
}

/// SPARC workflows: five phases, each of which ends at a gate.
pub struct SparcEngine {
    options: Arc<SparcShared>,
}

impl SparcEngine {
    /// With these options.
    pub fn new(options: SparcOptions) -> Self {
        let test_places = Semaphore::new(options.test_commands.clamp(1, Semaphore::MAX_PERMITS));
        Self { options: Arc::new(SparcShared { options, test_permits: test_places }) }
    }

    /// The agents that belong to it.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        agents::all(&self.options)
    }

    /// The workflows in an engine's store.
    pub fn workflows(&self, engine: &Engine) -> Workflows {
        Workflows::new(engine.clone(), Arc::clone(&self.options))
    }

    /// Offers it on a surface.
    pub fn install(self: &Arc<Self>, engine: &Engine, surface: &Arc<Surface>) -> Result<(), SchemaError> {
        let workflows = self.workflows(engine);
        resources::install(&workflows, surface);
        prompts::install(surface);
        tools::install(&workflows, surface)
    }
}
