//! The set of configured agents: built before the engine starts, watched while it runs, and updated when the
//! configuration changes.
//!
//! An update is applied as a whole or not at all, in one change of the catalog. An agent whose table is
//! unchanged stays the same instance, with its connections and processes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use nuncio_engine::{Agent, Engine, Profile, catalog::CatalogError};
use tokio::{sync::Mutex, task::JoinHandle};

use crate::configured::{self, AgentSpec, BuiltAgent, ManagedAgent, SpecError};

/// The configured agents.
#[derive(Clone)]
pub struct Fleet(Arc<FleetInner>);

struct FleetInner {
    members: Mutex<FleetMembers>,
    engine: OnceLock<Engine>,
    /// Whether the first table's agent is the default agent, also after an update.
    first_is_default: AtomicBool,
}

#[derive(Default)]
struct FleetMembers {
    by_name: BTreeMap<String, FleetMember>,
    /// Replaced agents that are closed when their calls have ended.
    retiring: Vec<(Arc<dyn ManagedAgent>, JoinHandle<()>)>,
    /// The server is stopping: no more updates.
    closed: bool,
}

/// One agent, and the table that it was built from.
struct FleetMember {
    spec: AgentSpec,
    agent: Arc<dyn Agent>,
    managed: Option<Arc<dyn ManagedAgent>>,
    watcher: Option<JoinHandle<()>>,
}

/// Why an update was rejected. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A table is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The catalog rejected the change.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// The changes of an update, by agent name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetChanges {
    /// New agents.
    pub added: Vec<String>,
    /// Agents whose tables have changed.
    pub replaced: Vec<String>,
    /// Agents whose tables were removed.
    pub removed: Vec<String>,
    /// The new default agent, if it is another one.
    pub default: Option<String>,
}

impl FleetChanges {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.replaced.is_empty() && self.removed.is_empty() && self.default.is_none()
    }
}

impl fmt::Display for FleetChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (what, names) in
            [("added", &self.added), ("replaced", &self.replaced), ("removed", &self.removed)]
        {
            if !names.is_empty() {
                write!(f, "{between}{what} {}", names.join(", "))?;
                between = "; ";
            }
        }
        if let Some(name) = &self.default {
            write!(f, "{between}the root is {name}")?;
            between = "; ";
        }
        if between.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

impl Fleet {
    /// Builds all agents that are served. Starts no process yet.
    pub fn new(specs: Vec<AgentSpec>) -> Result<Self, SpecError> {
        let mut members = FleetMembers::default();
        for spec in unique(specs)?.into_iter().filter(|spec| spec.serve) {
            members.by_name.insert(spec.name.clone(), FleetMember::new(spec)?);
        }
        Ok(Self(Arc::new(FleetInner {
            members: Mutex::new(members),
            engine: OnceLock::new(),
            first_is_default: AtomicBool::new(false),
        })))
    }

    /// Makes the agent of the first table the default one at every update, as it was at the start.
    pub fn set_first_as_default(&self) {
        self.0.first_is_default.store(true, Ordering::Relaxed);
    }

    /// The agents, for the catalog of an engine that has not started yet.
    pub fn agents(&self) -> Vec<Arc<dyn Agent>> {
        // Nothing else holds the lock before the start.
        let Ok(members) = self.0.members.try_lock() else { return vec![] };
        members.by_name.values().map(|member| Arc::clone(&member.agent)).collect()
    }

    /// Starts watching the agents. To be called once.
    pub async fn start(&self, engine: &Engine) {
        if self.0.engine.set(engine.clone()).is_err() {
            return;
        }
        let mut members = self.0.members.lock().await;
        for member in members.by_name.values_mut() {
            self.watch(member);
        }
        warn_about_tools(engine, &members);
    }

    /// Replaces the configured agents by those of these tables. On error nothing has changed.
    pub async fn apply(&self, specs: Vec<AgentSpec>) -> Result<FleetChanges, FleetError> {
        let mut specs = unique(specs)?;
        let mut members = self.0.members.lock().await;
        let mut applied = FleetChanges::default();
        if members.closed {
            return Ok(applied);
        }
        if let Some(engine) = self.0.engine.get() {
            for spec in &specs {
                engine.redactor().learn(&spec.known);
            }
        }
        specs.retain(|spec| spec.serve);
        let mut made = vec![];
        for spec in &specs {
            match members.by_name.get(&spec.name) {
                Some(member) if member.spec == *spec => continue,
                Some(_) => applied.replaced.push(spec.name.clone()),
                None => {
                    self.is_free(spec)?;
                    applied.added.push(spec.name.clone());
                }
            }
            made.push(FleetMember::new(spec.clone())?);
        }
        let gone = members.by_name.keys().filter(|name| !specs.iter().any(|spec| spec.name == **name));
        applied.removed = gone.cloned().collect();
        applied.default = self.other_default(&specs);
        if applied.default.is_none() {
            self.may_go(&members, &applied.removed)?;
        }
        if let Some(engine) = self.0.engine.get() {
            let put = made.iter().map(|member| Arc::clone(&member.agent)).collect();
            engine.catalog().change_with_default(put, &applied.removed, applied.default.as_deref())?;
        }
        let names = applied.replaced.iter().chain(&applied.removed);
        let old: Vec<FleetMember> = names.filter_map(|name| members.by_name.remove(name)).collect();
        members.retiring.retain(|(_, retires)| !retires.is_finished());
        members.retiring.extend(old.into_iter().filter_map(FleetMember::retire));
        for mut member in made {
            self.watch(&mut member);
            members.by_name.insert(member.spec.name.clone(), member);
        }
        if let Some(engine) = self.0.engine.get() {
            warn_about_tools(engine, &members);
        }
        Ok(applied)
    }

    /// Closes all connections and processes. The agents are unusable afterwards.
    pub async fn close(&self) {
        let (members, retiring) = {
            let mut members = self.0.members.lock().await;
            members.closed = true;
            (std::mem::take(&mut members.by_name), std::mem::take(&mut members.retiring))
        };
        for member in members.into_values() {
            member.close().await;
        }
        for (living, retires) in retiring.into_iter().filter(|(_, retires)| !retires.is_finished()) {
            retires.abort();
            living.close().await;
        }
    }

    /// A name belongs to one agent, and built-in agents take precedence.
    fn is_free(&self, spec: &AgentSpec) -> Result<(), SpecError> {
        match self.0.engine.get().map(|engine| engine.catalog().get(&spec.name)) {
            Some(Ok(known)) => Err(name_taken(spec, &known.profile)),
            _ => Ok(()),
        }
    }

    /// The agent of the first table, where that is to be the default one and is not yet.
    fn other_default(&self, specs: &[AgentSpec]) -> Option<String> {
        if !self.0.first_is_default.load(Ordering::Relaxed) {
            return None;
        }
        let first = specs.first()?;
        let default = self.0.engine.get()?.catalog().default_agent();
        default.is_none_or(|default| default.profile.name != first.name).then(|| first.name.clone())
    }

    /// The default agent cannot be removed: the server's root address would lead nowhere.
    fn may_go(&self, members: &FleetMembers, removed: &[String]) -> Result<(), SpecError> {
        let default = self.0.engine.get().and_then(|engine| engine.catalog().default_agent());
        let Some(default) = default.filter(|default| removed.contains(&default.profile.name)) else {
            return Ok(());
        };
        match members.by_name.get(&default.profile.name) {
            Some(member) if self.0.first_is_default.load(Ordering::Relaxed) => Err(member.spec.wrong(
                "name",
                "the server would be left without an agent at its root: restart it to serve the built-in ones instead",
            )),
            Some(member) => {
                Err(member.spec.wrong("name", "it is the default agent, which stays while the server runs"))
            }
            None => Ok(()),
        }
    }

    /// Updates the catalog whenever the agent's profile changes.
    fn watch(&self, member: &mut FleetMember) {
        let (Some(engine), Some(living)) = (self.0.engine.get(), &member.managed) else { return };
        let (engine, living, fleet) = (engine.clone(), Arc::clone(living), Arc::downgrade(&self.0));
        let name = member.spec.name.clone();
        member.watcher = Some(tokio::spawn(async move {
            loop {
                let agent = living.wait_for_update().await;
                let Some(fleet) = fleet.upgrade() else { return };
                // Under the lock, so that an agent that was replaced meanwhile does not return to the
                // catalog.
                let mut members = fleet.members.lock().await;
                let Some(member) = members.by_name.get_mut(&name) else { return };
                if !member.managed.as_ref().is_some_and(|own| Arc::ptr_eq(own, &living)) {
                    return;
                }
                match engine.catalog().change(vec![Arc::clone(&agent)], &[]) {
                    Ok(()) => {
                        member.agent = agent;
                        tracing::info!(agent = name, "the agent's profile has changed");
                    }
                    Err(error) => tracing::warn!(agent = name, %error, "its new profile was rejected"),
                }
            }
        }));
    }
}

impl FleetMember {
    fn new(spec: AgentSpec) -> Result<Self, SpecError> {
        let BuiltAgent { agent, managed: living } = configured::build_agent(&spec)?;
        Ok(Self { spec, agent, managed: living, watcher: None })
    }

    /// Stops watching the agent and closes it when its calls have ended.
    fn retire(self) -> Option<(Arc<dyn ManagedAgent>, JoinHandle<()>)> {
        if let Some(watcher) = self.watcher {
            watcher.abort();
        }
        let living = self.managed?;
        let retiring = Arc::clone(&living);
        Some((living, tokio::spawn(async move { retiring.retire().await })))
    }

    async fn close(self) {
        if let Some(watcher) = self.watcher {
            watcher.abort();
        }
        if let Some(living) = self.managed {
            living.close().await;
        }
    }
}

/// Logs each tool that a model is to have and that no agent offers. What an agent elsewhere offers is known only once it was
/// reached, so its skills are not checked.
fn warn_about_tools(engine: &Engine, members: &FleetMembers) {
    let is_elsewhere =
        |agent: &str| members.by_name.get(agent).is_some_and(|member| member.managed.is_some());
    for member in members.by_name.values() {
        let agent = &member.spec.name;
        for why in configured::unoffered_tools(engine.catalog(), &member.spec, is_elsewhere) {
            tracing::warn!(agent, "{why}; correct tools in its table, or add what it names");
        }
    }
}

/// Why a table cannot have the name of an agent that the server already has.
pub fn name_taken(spec: &AgentSpec, known: &Profile) -> SpecError {
    match known.demo {
        true => spec.wrong(
            "name",
            "it is the name of a built-in agent, which is served too: leave out --demo (builtin-agents), or restart \
             if the server was started without an agent of its own",
        ),
        false => spec.wrong("name", "the server already has an agent of that name"),
    }
}

/// The tables, if their names are unique.
fn unique(specs: Vec<AgentSpec>) -> Result<Vec<AgentSpec>, SpecError> {
    for (at, spec) in specs.iter().enumerate() {
        if specs[..at].iter().any(|other| other.name == spec.name) {
            return Err(spec.wrong("name", "there are two agents of that name"));
        }
    }
    Ok(specs)
}

#[cfg(test)]
mod tests;
