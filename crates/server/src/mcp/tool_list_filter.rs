//! The tools that `tools/list` shows, chosen by group and by agent.
//!
//! A filter hides and does not forbid: the command line, and programs that know a tool's name, call it all the same.
//! What a caller may use is decided by its scopes alone (`tool_access`).

use std::{collections::BTreeSet, fmt, str::FromStr};

use nuncio_engine::{
    Catalog, Profile,
    surface::{ToolGroup, ToolProfile},
};

use crate::similar_name::similar_name;

const ALL: &str = "all";
const NONE: &str = "none";
/// The prefix of one agent's name.
const AGENT: &str = "agent:";

/// Which tools a list shows: groups, and single agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolListFilter {
    groups: BTreeSet<ToolGroup>,
    agents: BTreeSet<String>,
}

/// Why a filter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolListFilterError {
    /// It is empty.
    #[error("expected at least one of: {}", known())]
    Empty,
    /// A word that stands for a whole filter stands beside others.
    #[error("{0:?} stands alone: leave out the other names, or {0:?}")]
    NotAlone(String),
    /// There is no such group.
    #[error("there is no group of tools {name:?}{}; there are: {}", meant(similar.as_deref()), known())]
    NoGroup {
        /// The name that was given.
        name: String,
        /// A group or word that is similar to it.
        similar: Option<String>,
    },
    /// No such agent is served.
    #[error("there is no agent {name:?}{}", meant(similar.as_deref()))]
    NoAgent {
        /// The name that was given.
        name: String,
        /// An agent whose name is similar.
        similar: Option<String>,
    },
}

/// Everything that a filter may name.
fn known() -> String {
    format!("{}, {AGENT}NAME, {ALL}, {NONE}", ToolGroup::ALL.map(ToolGroup::name).join(", "))
}

fn meant(similar: Option<&str>) -> String {
    similar.map(|similar| format!(" (is {similar:?} meant?)")).unwrap_or_default()
}

impl Default for ToolListFilter {
    /// What a client of an editor needs: the agents, and the tools for their tasks.
    fn default() -> Self {
        Self { groups: BTreeSet::from([ToolGroup::Agents, ToolGroup::Tasks]), agents: BTreeSet::new() }
    }
}

impl ToolListFilter {
    /// Every group.
    pub fn all() -> Self {
        Self { groups: ToolGroup::ALL.into(), agents: BTreeSet::new() }
    }

    /// No group. Tools that belong to none are listed all the same.
    pub fn none() -> Self {
        Self { groups: BTreeSet::new(), agents: BTreeSet::new() }
    }

    /// Checks that the agents which it names are served.
    pub fn check(&self, catalog: &Catalog) -> Result<(), ToolListFilterError> {
        let Some(name) = self.agents.iter().find(|name| catalog.get(name).is_err()) else { return Ok(()) };
        let served: Vec<_> = catalog.iter().collect();
        let similar = similar_name(name, served.iter().map(|agent| agent.profile.name.as_str()));
        Err(ToolListFilterError::NoAgent { name: name.clone(), similar: similar.map(str::to_owned) })
    }

    /// Whether the tool is listed. A tool of no group was added by the embedding program and always is.
    pub(super) fn lists_tool(&self, tool: &ToolProfile) -> bool {
        tool.group.is_none_or(|group| self.groups.contains(&group))
    }

    /// Whether the agent is listed as a tool.
    pub(super) fn lists_agent(&self, agent: &Profile) -> bool {
        self.groups.contains(&agent.tool_group) || self.agents.contains(&agent.name)
    }
}

impl FromStr for ToolListFilter {
    type Err = ToolListFilterError;

    fn from_str(text: &str) -> Result<Self, ToolListFilterError> {
        let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let mut filter = Self::none();
        for name in &names {
            match *name {
                ALL if names.len() == 1 => return Ok(Self::all()),
                NONE if names.len() == 1 => return Ok(Self::none()),
                ALL | NONE => return Err(ToolListFilterError::NotAlone((*name).to_owned())),
                name => match (ToolGroup::parse(name), name.strip_prefix(AGENT)) {
                    (Some(group), _) => drop(filter.groups.insert(group)),
                    (None, Some(agent)) if !agent.is_empty() => {
                        filter.agents.insert(agent.to_owned());
                    }
                    (None, _) => return Err(no_group(name)),
                },
            }
        }
        if names.is_empty() { Err(ToolListFilterError::Empty) } else { Ok(filter) }
    }
}

fn no_group(name: &str) -> ToolListFilterError {
    let known = ToolGroup::ALL.iter().map(|group| group.name()).chain([ALL, NONE]);
    let similar = similar_name(name, known).map(str::to_owned);
    ToolListFilterError::NoGroup { name: name.to_owned(), similar }
}

impl fmt::Display for ToolListFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str(ALL);
        }
        let groups = self.groups.iter().map(|group| group.name().to_owned());
        let agents = self.agents.iter().map(|agent| format!("{AGENT}{agent}"));
        let names: Vec<String> = groups.chain(agents).collect();
        if names.is_empty() { f.write_str(NONE) } else { f.write_str(&names.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_as_it_is_written() {
        let check = |text: &str, written: &str| {
            let read: ToolListFilter = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read.to_string(), written);
            assert_eq!(written.parse(), Ok(read));
        };
        check("agents,tasks", "agents,tasks");
        check(" tasks , agents ", "agents,tasks");
        check("memory,agent:echo,agent:a,memory", "memory,agent:a,agent:echo");
        check("all", "all");
        check("none", "none");
        check("agents,tasks,registry,memory,batch,plan,sparc", "all");
        assert_eq!(ToolListFilter::default().to_string(), "agents,tasks");
    }

    #[test]
    fn a_filter_that_means_nothing_is_refused_with_what_there_is() {
        let check = |text: &str, words: &str| {
            let why = text.parse::<ToolListFilter>().map_err(|error| error.to_string());
            assert!(why.as_ref().is_err_and(|why| why.contains(words)), "{text}: {why:?}");
        };
        check(
            "memroy",
            "there is no group of tools \"memroy\" (is \"memory\" meant?); there are: agents, tasks,",
        );
        check("tasks,echo", "there is no group of tools \"echo\"");
        check("agent:", "there is no group of tools \"agent:\"");
        check("all,tasks", "\"all\" stands alone");
        check("tasks,none", "\"none\" stands alone");
        check(
            "",
            "expected at least one of: agents, tasks, registry, memory, batch, plan, sparc, agent:NAME, all, none",
        );
        check(",", "expected at least one of");
    }

    #[test]
    fn an_agent_is_listed_by_its_group_or_its_name() {
        let agent = |name: &str, group| Profile::new(name, "Works.").tool_group(group);
        let check = |text: &str, listed: [bool; 2]| {
            let filter: ToolListFilter = text.parse().unwrap_or_else(|error| panic!("{error}"));
            let found = [("writer", ToolGroup::Agents), ("batch", ToolGroup::Batch)]
                .map(|(name, group)| filter.lists_agent(&agent(name, group)));
            assert_eq!(found, listed, "{text}");
        };
        check("agents", [true, false]);
        check("batch", [false, true]);
        check("agent:writer", [true, false]);
        check("tasks,agent:batch", [false, true]);
        check("all", [true, true]);
        check("none", [false, false]);
    }

    #[test]
    fn a_tool_of_the_embedding_program_is_always_listed() {
        let own = ToolProfile::new("greet", "Greets.");
        let memory = ToolProfile::new("memory_get", "Reads.").group(ToolGroup::Memory);
        let (none, all) = (ToolListFilter::none(), ToolListFilter::all());
        assert_eq!((none.lists_tool(&own), none.lists_tool(&memory)), (true, false));
        assert_eq!((all.lists_tool(&own), all.lists_tool(&memory)), (true, true));
    }
}
