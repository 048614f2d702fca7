//! `nuncio task …`: commands on existing tasks.

mod authorize;
mod cancel;
mod delete;
pub(crate) mod download;
mod events;
mod get;
mod list;
mod operator;
mod push_config;
mod rows;
mod show;
mod subscribe;

use clap::Subcommand;

pub(crate) use self::events::log_line;
use super::{error::CliError, output::Format};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show a task as its agent shows it
    Get(get::Flags),
    /// Show all that a Nuncio server knows of a task: who called it, its runs, steps, questions and subtasks
    Show(show::Flags),
    /// Show the events of a task, and follow them
    Events(events::TaskEventFlags),
    /// Show the log lines of a task's agent, and follow them
    Log(events::TaskLogFlags),
    /// List tasks, most recent status change first
    List(list::Flags),
    /// Cancel a task
    Cancel(cancel::Flags),
    /// Complete the authorization that a task of any tenant waits for, as the operator
    Authorize(authorize::Flags),
    /// Delete an ended task of any tenant, as the operator
    Delete(delete::Flags),
    /// Follow a task's events
    Subscribe(subscribe::Flags),
    /// Save the artifacts of a task as files
    Download(download::Flags),
    /// Manage where the updates of a task are sent
    #[command(subcommand)]
    PushConfig(push_config::PushConfigCommand),
}

impl Command {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Get(flags) => flags.agent.output.format,
            Self::Show(flags) => flags.server.agent.output.format,
            Self::Events(flags) => flags.follow.server.agent.output.format,
            Self::Log(flags) => flags.follow.server.agent.output.format,
            Self::List(flags) => flags.agent.output.format,
            Self::Cancel(flags) => flags.agent.output.format,
            Self::Authorize(flags) => flags.format,
            Self::Delete(flags) => flags.format,
            Self::Subscribe(flags) => flags.agent.output.format,
            Self::Download(flags) => flags.agent.output.format,
            Self::PushConfig(command) => command.agent().output.format,
        }
    }

    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Get(flags) => get::run(flags).await,
            Self::Show(flags) => show::run(flags).await,
            Self::Events(flags) => flags.run().await,
            Self::Log(flags) => flags.run().await,
            Self::List(flags) => list::run(flags).await,
            Self::Cancel(flags) => cancel::run(flags).await,
            Self::Authorize(flags) => authorize::run(flags).await,
            Self::Delete(flags) => delete::run(flags).await,
            Self::Subscribe(flags) => subscribe::run(flags).await,
            Self::Download(flags) => download::run(flags).await,
            Self::PushConfig(command) => command.run().await,
        }
    }
}
