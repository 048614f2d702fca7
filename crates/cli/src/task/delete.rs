//! `nuncio task delete`: deletes an ended task, for the operator.

use clap::Args;
use nuncio_engine::access::HOME_TENANT;

use super::operator::{self, TenantTaskFlags};
use crate::{error::CliError, output::Format};

#[derive(Args)]
pub(crate) struct Flags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    /// The tenant that owns the task
    #[arg(long, value_name = "TENANT", default_value = HOME_TENANT)]
    tenant: String,
    /// The data folder of the server. Default: the one that `nuncio serve` would use here
    #[arg(long, value_name = "DIR")]
    data: Option<std::path::PathBuf>,
    /// The output format
    #[arg(
        short = 'o',
        long = "output",
        env = "A2ACLI_OUTPUT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(super) format: Format,
}

pub(super) async fn run(flags: Flags) -> Result<(), CliError> {
    let Flags { task, tenant, data, format } = flags;
    operator::delete(&TenantTaskFlags { tenant: Some(tenant), data }, format, &task).await
}
