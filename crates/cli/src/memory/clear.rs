//! `nuncio memory clear`: deletes all entries of a namespace, after a confirmation.

use std::io::{IsTerminal as _, stdin};

use clap::Args;
use serde_json::json;

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
            let page = shared.call("memory_list", json!({ "namespace": self.namespace, "limit": 1 })).await?;
            let total = page["stats"]["total"].as_u64().unwrap_or(0);
            let entries = table::count(total, "entry", "entries");
            let question = format!("Delete all {entries} of {namespace}? [y/N] ");
            if !form::ask_yes_no(&question).await? {
                shared.remark("nothing was deleted");
                return Ok(());
            }
        }
        let cleared =
            shared.call("memory_clear", json!({ "namespace": self.namespace, "confirm": true })).await?;
        shared.print(&cleared, |cleared| {
            let count = cleared["cleared"].as_u64().unwrap_or(0);
            format!("{} of {namespace} forgotten.\n", table::count(count, "entry", "entries"))
        })
    }
}
