//! `nuncio memory clear`: deletes all entries of a namespace, after a confirmation.

use std::io::{IsTerminal as _, stdin};

use clap::Args;
use nuncio_flows::memory::api::{MemoryClearAnswer, MemoryClearRequest, MemoryListAnswer, MemoryListRequest};

use crate::{error::CliError, form, server_connection::ServerConnection, table, text::plain};

#[derive(Args)]
pub(super) struct MemoryClearFlags {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl MemoryClearFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<(), CliError> {
        let namespace = plain(&self.namespace);
        if !self.yes {
            if !stdin().is_terminal() {
                let why = format!("this deletes everything in {namespace}: confirm with --yes");
                return Err(CliError::Usage(why));
            }
            let request = MemoryListRequest {
                namespace: Some(self.namespace.clone()),
                prefix: None,
                after: None,
                limit: 1,
            };
            let page = shared.call_typed::<MemoryListAnswer>("memory_list", &request).await?.value;
            let total = page.stats.map_or(0, |stats| stats.total);
            let entries = table::count(total, "entry", "entries");
            let question = format!("Delete all {entries} of {namespace}? [y/N] ");
            if !form::ask_yes_no(&question).await? {
                shared.remark("nothing was deleted");
                return Ok(());
            }
        }
        let request = MemoryClearRequest { namespace: self.namespace, confirm: true };
        let cleared = shared.call_typed::<MemoryClearAnswer>("memory_clear", &request).await?;
        shared.print_typed(&cleared, |answer| {
            format!("{} of {namespace} forgotten.\n", table::count(answer.cleared, "entry", "entries"))
        })
    }
}
