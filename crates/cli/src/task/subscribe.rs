//! `nuncio task subscribe`: follows a task, from a cursor or from now. Without `--stream` it waits, and shows
//! the final state of the task.

use clap::Args;
use nuncio_client::a2a::{A2aClientError, WaitOptions};

use crate::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    follow::{self, FollowUntil, WaitNotes},
    output::note,
};

#[derive(Args)]
pub(crate) struct Flags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    /// Start after this event, even if the task has ended; 0 starts at the beginning
    #[arg(long, value_name = "CURSOR", requires = "stream")]
    after: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

pub(super) async fn run(flags: Flags) -> Result<(), CliError> {
    let connection = flags.agent.resolve()?;
    connection.record_task(&flags.task, None, flags.after.as_deref());
    connection.bounded(subscribe(&connection, &flags.task, flags.after.as_deref())).await
}

async fn subscribe(connection: &AgentConnection, task: &str, after: Option<&str>) -> Result<(), CliError> {
    let client = connection.client().await?;
    if connection.output.stream {
        if !client.streams() {
            let why = "the agent does not stream: `task get --wait` waits for the task".to_owned();
            return Err(connection.failed(A2aClientError::Unsupported(why)));
        }
        if after.is_some() && !client.has_cursors() {
            note(
                "warning: the agent's card does not say that its events have cursors: --after may do nothing",
            );
        }
        let events = client.subscribe(task, after).await.map_err(|error| connection.failed(error))?;
        return follow::show(connection, &client, events, FollowUntil::History).await;
    }
    let patience = WaitOptions { poll: connection.poll_interval, ..WaitOptions::default() };
    let mut notes = WaitNotes::new(connection, task);
    let settled = client.wait_until_idle(task, patience, |event| notes.event(event)).await;
    super::get::print(connection, &settled.map_err(|error| connection.failed(error))?, false)
}
