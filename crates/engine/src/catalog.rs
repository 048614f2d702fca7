//! What is served here: the agents, by name, and what a program offers beside them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    agent::{Agent, Profile},
    error::Error,
    surface::{Shape, ShapeError, Surface},
};

/// The agents of a server, fixed once the engine has started; and its surface, which may change.
#[derive(Default)]
pub struct Catalog {
    agents: BTreeMap<String, Registered>,
    default: Option<String>,
    surface: Arc<Surface>,
}

/// An agent with its profile, which is read once.
#[derive(Clone)]
pub struct Registered {
    /// How it presents itself.
    pub profile: Arc<Profile>,
    /// The agent.
    pub agent: Arc<dyn Agent>,
    /// What structured input has to satisfy, for protocols that call it as a tool.
    pub input: Option<Arc<Shape>>,
}

/// An agent could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The name would not survive in a URL.
    #[error("an agent's name is 1 to 64 letters, digits, '-' and '_', not {0:?}")]
    Name(String),
    /// Two agents of one name.
    #[error("there are two agents named {0:?}")]
    Twice(String),
    /// The schema of its input cannot be used.
    #[error("the input schema of the agent {0:?} cannot be used: {1}")]
    Schema(String, ShapeError),
    /// The default names nobody.
    #[error("the default agent {0:?} is not registered; there are: {1}")]
    NoDefault(String, String),
}

impl Catalog {
    /// Adds an agent. The first one is the default until another is named.
    pub fn add(&mut self, agent: Arc<dyn Agent>) -> Result<(), CatalogError> {
        let profile = Arc::new(agent.profile());
        let name = profile.name.clone();
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            return Err(CatalogError::Name(name));
        }
        if self.agents.contains_key(&name) {
            return Err(CatalogError::Twice(name));
        }
        let input = profile.input_schema.as_ref().map(Shape::compile).transpose();
        let input = input.map_err(|error| CatalogError::Schema(name.clone(), error))?.map(Arc::new);
        self.default.get_or_insert_with(|| name.clone());
        self.agents.insert(name, Registered { profile, agent, input });
        Ok(())
    }

    /// Names the agent that answers at the root.
    pub fn set_default(&mut self, name: &str) -> Result<(), CatalogError> {
        if !self.agents.contains_key(name) {
            return Err(CatalogError::NoDefault(name.into(), self.names().collect::<Vec<_>>().join(", ")));
        }
        self.default = Some(name.into());
        Ok(())
    }

    /// Offers what is on that surface beside the agents.
    pub fn set_surface(&mut self, surface: Arc<Surface>) {
        self.surface = surface;
    }

    /// The tools, resources and prompts beside the agents.
    pub fn surface(&self) -> &Arc<Surface> {
        &self.surface
    }

    /// The agent that answers at the root.
    pub fn default_agent(&self) -> Option<&Registered> {
        self.default.as_ref().and_then(|name| self.agents.get(name))
    }

    /// The agent of that name.
    pub fn get(&self, name: &str) -> Result<&Registered, Error> {
        self.agents.get(name).ok_or_else(|| Error::NoSuchAgent(name.into()))
    }

    /// All agents, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Registered> {
        self.agents.values()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }
}
