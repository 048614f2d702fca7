//! `nuncio task get`: the current state of a task, or, with `--wait`, its state when it has ended or asks a
//! question.

use clap::Args;
use nuncio_client::a2a::{A2aResponse, WaitOptions};
use nuncio_wire::a2a::TaskView;

use super::{
    download::SaveFlags,
    operator::{self, TenantTaskFlags},
};
use crate::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    follow::{WaitNotes, show_settled},
    output,
    text::TextOutput,
};

#[derive(Args)]
pub(crate) struct Flags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    /// Wait until the task has ended or asks a question
    #[arg(long, visible_alias = "watch")]
    wait: bool,
    /// The maximum number of history messages to show
    #[arg(long, env = "A2ACLI_HISTORY", value_name = "N")]
    history: Option<usize>,
    #[command(flatten)]
    operator: TenantTaskFlags,
    #[command(flatten)]
    files: SaveFlags,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

pub(super) async fn run(flags: Flags) -> Result<(), CliError> {
    if flags.operator.tenant.is_some() {
        operator::refuse_agent(flags.agent.agent_name())?;
        if flags.files.save.is_some() {
            return Err(CliError::Usage(
                "--save is for your own tasks, not for those of a tenant".to_owned(),
            ));
        }
        return operator::get(&flags.operator, flags.agent.output.format, &flags.task).await;
    }
    let Flags { task, wait, history, agent, files, .. } = flags;
    let connection = agent.resolve()?;
    connection.record_task(&task, None, None);
    connection.bounded(get(&connection, &task, wait, history, &files)).await
}

async fn get(
    connection: &AgentConnection,
    task: &str,
    wait: bool,
    history: Option<usize>,
    files: &SaveFlags,
) -> Result<(), CliError> {
    let client = connection.client().await?;
    let found = if wait {
        let patience = WaitOptions { history, ..connection.wait_options() };
        let mut notes = WaitNotes::new(connection, task);
        client.wait_until_idle(task, patience, |event| notes.event(event)).await
    } else {
        client.get(task, history).await
    };
    let found = found.map_err(|error| connection.failed(error))?;
    print(connection, &found, history.is_some())?;
    files.save_all(connection, &found.value.artifacts)
}

/// Prints a task, and the notes about it.
pub(super) fn print(
    connection: &AgentConnection,
    task: &A2aResponse<TaskView>,
    history: bool,
) -> Result<(), CliError> {
    if connection.output.is_json() {
        output::json(&task.json)?;
    } else {
        let mut text = TextOutput::default();
        text.task(&task.value, connection.output.verbose, history);
        output::text(&text.0)?;
    }
    show_settled(connection, &task.value)
}
