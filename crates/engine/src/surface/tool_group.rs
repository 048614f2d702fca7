//! The groups of tools, by which an operator chooses what a list of tools shows.

/// A group of tools. A tool that a program registers without one belongs to no group and is always listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolGroup {
    /// The agents, each of which is a tool.
    Agents,
    /// Tools that send, read, answer and cancel tasks.
    Tasks,
    /// What is known of agents and other servers, and the open streams.
    Registry,
    /// The memory bank.
    Memory,
    /// The batch engine, with its agent.
    Batch,
    /// Plans, with the agent that runs them.
    Plan,
    /// SPARC workflows, with the agents of their phases.
    Sparc,
}

impl ToolGroup {
    /// All groups.
    pub const ALL: [Self; 7] =
        [Self::Agents, Self::Tasks, Self::Registry, Self::Memory, Self::Batch, Self::Plan, Self::Sparc];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Tasks => "tasks",
            Self::Registry => "registry",
            Self::Memory => "memory",
            Self::Batch => "batch",
            Self::Plan => "plan",
            Self::Sparc => "sparc",
        }
    }

    /// The group of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}
