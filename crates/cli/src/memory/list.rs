//! `nuncio memory list`: the namespaces, or the keys of one, page by page.

use clap::Args;
use serde_json::{Value, json};

use crate::{
    error::CliError,
    output, program,
    server_connection::{ServerConnection, quoted},
    table::{Table, age, bytes, cell, seconds},
    text::TextOutput,
};

/// Entries per request with `--all`.
const PAGE: usize = 1000;

#[derive(Args)]
pub(super) struct MemoryListFlags {
    /// The namespace. Default: list the namespaces
    #[arg(value_name = "NS")]
    namespace: Option<String>,
    /// Only names with this prefix
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// The maximum number to list
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "all")]
    limit: usize,
    /// Only names after this one
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
    /// List all; in JSON, one per line
    #[arg(long)]
    all: bool,
}

impl MemoryListFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<(), CliError> {
        if self.all {
            return self.run_all(shared).await;
        }
        let page = self.page(shared, self.after.as_deref(), self.limit).await?;
        if shared.is_json() {
            return output::json_text(&page.to_string());
        }
        let mut text = TextOutput(self.show(&page));
        if let Some(stats) = page.get("stats").filter(|stats| stats.is_object()) {
            text.gap();
            text.field("Total", &cell(&stats["total"]));
            text.field("Size", &bytes(&stats["size"]));
            text.field("Oldest", &age(&stats["oldestEntry"]));
        }
        if let Some(next) = next_of(&page) {
            let namespace =
                self.namespace.as_deref().map(|ns| format!(" {}", quoted(ns))).unwrap_or_default();
            let prefix = if self.prefix.is_empty() {
                String::new()
            } else {
                format!(" --prefix {}", quoted(&self.prefix))
            };
            let flags = shared.flags();
            text.gap();
            text.field(
                "Next",
                &format!("{} memory list{namespace}{flags}{prefix} --after {}", program(), quoted(next)),
            );
        }
        output::text(&text.0)
    }

    /// Prints every page as it arrives.
    async fn run_all(&self, shared: &ServerConnection) -> Result<(), CliError> {
        let mut after = self.after.clone();
        loop {
            let page = self.page(shared, after.as_deref(), PAGE).await?;
            if shared.is_json() {
                for item in items(&page) {
                    output::json_text(&item.to_string())?;
                }
            } else {
                output::text(&self.show(&page))?;
            }
            after = next_of(&page).map(str::to_owned);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn page(
        &self,
        shared: &ServerConnection,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Value, CliError> {
        let mut arguments = json!({ "limit": limit });
        if let Some(namespace) = &self.namespace {
            arguments["namespace"] = namespace.as_str().into();
        }
        if !self.prefix.is_empty() {
            arguments["prefix"] = self.prefix.as_str().into();
        }
        if let Some(after) = after {
            arguments["after"] = after.into();
        }
        shared.call_with_retry("memory_list", &arguments).await
    }

    fn show(&self, page: &Value) -> String {
        let items = items(page);
        if self.namespace.is_none() {
            let mut table = Table::new(&["NAMESPACE"]);
            for name in items {
                table.row([cell(name)]);
            }
            return if table.is_empty() { "There are no namespaces.\n".to_owned() } else { table.show() };
        }
        let mut table = Table::new(&["KEY", "SIZE ", "CREATED", "ACCESSED", "TTL"]);
        for entry in items {
            table.row([
                cell(&entry["key"]),
                bytes(&entry["size"]),
                age(&entry["created"]),
                age(&entry["accessed"]),
                seconds(&entry["ttl"]),
            ]);
        }
        if table.is_empty() { "There are no such keys.\n".to_owned() } else { table.show() }
    }
}

fn items(page: &Value) -> &[Value] {
    let list = page.get("keys").or_else(|| page.get("namespaces")).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn next_of(page: &Value) -> Option<&str> {
    page["next"].as_str()
}
