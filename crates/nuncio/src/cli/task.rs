//! `nuncio task …`: what can be done with a task that is there.

mod cancel;
mod get;
mod list;
mod subscribe;

use clap::Subcommand;

use super::{connection::AgentFlags, error::CliError};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show a task
    Get(get::Flags),
    /// List tasks, newest status first
    List(list::Flags),
    /// Cancel a task
    Cancel(cancel::Flags),
    /// Follow a task's events
    Subscribe(subscribe::Flags),
}

impl Command {
    pub(crate) fn agent(&self) -> &AgentFlags {
        match self {
            Self::Get(flags) => &flags.agent,
            Self::List(flags) => &flags.agent,
            Self::Cancel(flags) => &flags.agent,
            Self::Subscribe(flags) => &flags.agent,
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Get(flags) => get::run(flags).await,
            Self::List(flags) => list::run(flags).await,
            Self::Cancel(flags) => cancel::run(flags).await,
            Self::Subscribe(flags) => subscribe::run(flags).await,
        }
    }
}
