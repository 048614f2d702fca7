//! `nuncio task cancel`: cancels a task, and shows its state afterwards.

use clap::Args;

use super::operator::{self, TenantTaskFlags};
use crate::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
};

#[derive(Args)]
pub(crate) struct Flags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    #[command(flatten)]
    operator: TenantTaskFlags,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

pub(super) async fn run(flags: Flags) -> Result<(), CliError> {
    if flags.operator.tenant.is_some() {
        operator::refuse_agent(flags.agent.agent_name())?;
        return operator::cancel(&flags.operator, flags.agent.output.format, &flags.task).await;
    }
    let connection = flags.agent.resolve()?;
    connection.record_task(&flags.task, None, None);
    connection.bounded(cancel(&connection, &flags.task)).await
}

async fn cancel(connection: &AgentConnection, task: &str) -> Result<(), CliError> {
    let client = connection.client().await?;
    let canceled = client.cancel(task).await.map_err(|error| connection.failed(error))?;
    super::get::print(connection, &canceled, false)
}
