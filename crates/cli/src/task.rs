//! `nuncio task …`: commands on existing tasks.

mod cancel;
mod delete;
mod get;
mod list;
mod operator;
mod subscribe;

use clap::Subcommand;

use super::{error::CliError, output::Format};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show a task
    Get(get::Flags),
    /// List tasks, most recent status change first
    List(list::Flags),
    /// Cancel a task
    Cancel(cancel::Flags),
    /// Delete an ended task of any tenant, as the operator
    Delete(delete::Flags),
    /// Follow a task's events
    Subscribe(subscribe::Flags),
}

impl Command {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Get(flags) => flags.agent.output.format,
            Self::List(flags) => flags.agent.output.format,
            Self::Cancel(flags) => flags.agent.output.format,
            Self::Delete(flags) => flags.format,
            Self::Subscribe(flags) => flags.agent.output.format,
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Get(flags) => get::run(flags).await,
            Self::List(flags) => list::run(flags).await,
            Self::Cancel(flags) => cancel::run(flags).await,
            Self::Delete(flags) => delete::run(flags).await,
            Self::Subscribe(flags) => subscribe::run(flags).await,
        }
    }
}
