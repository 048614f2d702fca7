//! `nuncio memory list`: the namespaces, or the keys of one, page by page.

use clap::Args;
use nuncio_flows::memory::api::{MemoryListAnswer, MemoryListRequest};
use serde_json::Value;

use crate::{
    error::CliError,
    output, program,
    server_connection::{ServerConnection, quoted},
    table::{Table, age, bytes, seconds},
    text::TextOutput,
    typed_answer::TypedAnswer,
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
        let page = self.page(shared, self.after.clone(), self.limit).await?;
        if shared.is_json() {
            return output::json_text(&page.json.to_string());
        }
        let page = page.value;
        let mut text = TextOutput(self.show(&page));
        if let Some(stats) = &page.stats {
            text.gap();
            text.field("Total", &stats.total.to_string());
            text.field("Size", &bytes(&stats.size));
            text.field("Oldest", &age(&stats.oldest_entry));
        }
        if let Some(next) = &page.next {
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
            let page = self.page(shared, after, PAGE).await?;
            if shared.is_json() {
                for item in items(&page.json) {
                    output::json_text(&item.to_string())?;
                }
            } else {
                output::text(&self.show(&page.value))?;
            }
            after = page.value.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn page(
        &self,
        shared: &ServerConnection,
        after: Option<String>,
        limit: usize,
    ) -> Result<TypedAnswer<MemoryListAnswer>, CliError> {
        let request = MemoryListRequest {
            namespace: self.namespace.clone(),
            prefix: Some(self.prefix.clone()).filter(|prefix| !prefix.is_empty()),
            after,
            limit,
        };
        shared.call_typed_with_retry("memory_list", &request).await
    }

    fn show(&self, page: &MemoryListAnswer) -> String {
        if self.namespace.is_none() {
            let mut table = Table::new(&["NAMESPACE"]);
            for name in page.namespaces.iter().flatten() {
                table.row([name.clone()]);
            }
            return if table.is_empty() { "There are no namespaces.\n".to_owned() } else { table.show() };
        }
        let mut table = Table::new(&["KEY", "SIZE ", "CREATED", "ACCESSED", "TTL"]);
        for entry in page.keys.iter().flatten() {
            table.row([
                entry.key.clone(),
                bytes(&entry.size),
                age(&entry.created),
                age(&entry.accessed),
                seconds(&entry.ttl),
            ]);
        }
        if table.is_empty() { "There are no such keys.\n".to_owned() } else { table.show() }
    }
}

/// The items of a page as they were sent.
fn items(page: &Value) -> &[Value] {
    let list = page.get("keys").or_else(|| page.get("namespaces")).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}
