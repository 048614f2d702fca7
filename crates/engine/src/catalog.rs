//! The catalog of what this server provides: its agents, by name, and the surface (tools, resources,
//! prompts).

mod input;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    agent::{Agent, Profile},
    error::Error,
    surface::{CompiledSchema, SchemaError, Surface, SurfaceChange},
};
use parking_lot::RwLock;

/// The agents of a server, and its surface. Both may change while the engine runs: a run in progress keeps
/// the agent that it began with, the next run of the task gets the new one.
#[derive(Default)]
pub struct Catalog {
    agents: RwLock<AgentTable>,
    surface: Arc<Surface>,
}

#[derive(Default, Clone)]
struct AgentTable {
    by_name: BTreeMap<String, Arc<RegisteredAgent>>,
    default: Option<String>,
    /// The number of changes so far.
    generation: u64,
}

/// An agent with its profile, which is read once.
#[derive(Clone)]
pub struct RegisteredAgent {
    /// The agent's description of itself.
    pub profile: Arc<Profile>,
    /// The implementation that runs its tasks.
    pub agent: Arc<dyn Agent>,
    /// The compiled schema of structured input, if the agent has one.
    pub input: Option<Arc<CompiledSchema>>,
}

impl std::fmt::Debug for RegisteredAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the agent {:?}", self.profile.name)
    }
}

/// Why an agent could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The name is not valid in a URL.
    #[error("an agent's name is 1 to 64 letters, digits, '-' and '_', not {0:?}")]
    Name(String),
    /// Two agents have the same name.
    #[error("there are two agents named {0:?}")]
    Twice(String),
    /// The schema of its input cannot be used.
    #[error("the input schema of the agent {0:?} cannot be used: {1}")]
    Schema(String, SchemaError),
    /// The default agent is not registered.
    #[error("the default agent {0:?} is not registered; there are: {1}")]
    NoDefault(String, String),
}

impl AgentTable {
    fn no_default(&self, name: &str) -> CatalogError {
        let names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        CatalogError::NoDefault(name.into(), names.join(", "))
    }
}

impl RegisteredAgent {
    fn new(agent: Arc<dyn Agent>) -> Result<Self, CatalogError> {
        let profile = Arc::new(agent.profile());
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if profile.name.is_empty() || profile.name.len() > 64 || !profile.name.chars().all(legal) {
            return Err(CatalogError::Name(profile.name.clone()));
        }
        let input = profile.input_schema.as_ref().map(CompiledSchema::compile).transpose();
        let input = input.map_err(|error| CatalogError::Schema(profile.name.clone(), error))?.map(Arc::new);
        Ok(Self { profile, agent, input })
    }
}

impl Catalog {
    /// Adds an agent. The first one is the default until `set_default` names another.
    pub fn add(&mut self, agent: Arc<dyn Agent>) -> Result<(), CatalogError> {
        let registered = RegisteredAgent::new(agent)?;
        let name = registered.profile.name.clone();
        let mut agents = self.agents.write();
        if agents.by_name.contains_key(&name) {
            return Err(CatalogError::Twice(name));
        }
        agents.default.get_or_insert_with(|| name.clone());
        agents.by_name.insert(name, Arc::new(registered));
        Ok(())
    }

    /// Sets the agent that serves the root URL.
    pub fn set_default(&mut self, name: &str) -> Result<(), CatalogError> {
        let mut agents = self.agents.write();
        if !agents.by_name.contains_key(name) {
            return Err(agents.no_default(name));
        }
        agents.default = Some(name.into());
        Ok(())
    }

    /// Removes agents, and adds or replaces others, atomically. Then notifies subscribers of the list of
    /// tools. On an error nothing has changed.
    pub fn change(&self, put: Vec<Arc<dyn Agent>>, remove: &[String]) -> Result<(), CatalogError> {
        self.change_with_default(put, remove, None)
    }

    /// The same, and sets the agent that serves the root URL, if one is given.
    pub fn change_with_default(
        &self,
        put: Vec<Arc<dyn Agent>>,
        remove: &[String],
        default: Option<&str>,
    ) -> Result<(), CatalogError> {
        let put: Vec<RegisteredAgent> =
            put.into_iter().map(RegisteredAgent::new).collect::<Result<_, _>>()?;
        let mut agents = self.agents.write();
        let default = default.filter(|name| agents.default.as_deref() != Some(name));
        if put.is_empty() && remove.is_empty() && default.is_none() {
            return Ok(());
        }
        if let Some(name) = default {
            let is_kept = agents.by_name.contains_key(name) && !remove.iter().any(|removed| removed == name);
            if !is_kept && !put.iter().any(|registered| registered.profile.name == name) {
                return Err(agents.no_default(name));
            }
            agents.default = Some(name.to_owned());
        }
        for name in remove {
            agents.by_name.remove(name);
        }
        for registered in put {
            agents.by_name.insert(registered.profile.name.clone(), Arc::new(registered));
        }
        agents.generation += 1;
        drop(agents);
        self.surface.broadcast_change(SurfaceChange::Tools);
        Ok(())
    }

    /// The number of changes since the start. Caches derived from all agents are keyed by it.
    pub fn generation(&self) -> u64 {
        self.read().generation
    }

    /// Sets the tools, resources and prompts that are served beside the agents.
    pub fn set_surface(&mut self, surface: Arc<Surface>) {
        self.surface = surface;
    }

    /// The tools, resources and prompts beside the agents.
    pub fn surface(&self) -> &Arc<Surface> {
        &self.surface
    }

    /// The agent that serves the root URL.
    pub fn default_agent(&self) -> Option<Arc<RegisteredAgent>> {
        let agents = self.read();
        agents.default.as_ref().and_then(|name| agents.by_name.get(name)).cloned()
    }

    /// The agent of that name.
    pub fn get(&self, name: &str) -> Result<Arc<RegisteredAgent>, Error> {
        self.read().by_name.get(name).cloned().ok_or_else(|| Error::NoSuchAgent(name.into()))
    }

    /// All agents as of now, by name.
    pub fn iter(&self) -> impl Iterator<Item = Arc<RegisteredAgent>> + use<> {
        self.read().by_name.values().cloned().collect::<Vec<_>>().into_iter()
    }

    fn read(&self) -> parking_lot::RwLockReadGuard<'_, AgentTable> {
        self.agents.read()
    }
}
