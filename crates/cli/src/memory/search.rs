//! `nuncio memory search`: entries by key pattern, or by words in their values, best match first.

use clap::Args;
use nuncio_flows::memory::api::{MemorySearchAnswer, MemorySearchRequest};

use crate::{
    error::CliError,
    output, program,
    server_connection::{ServerConnection, quoted},
    table::{Table, figure},
    text::TextOutput,
};

#[derive(Args)]
pub(super) struct MemorySearchFlags {
    /// The namespace
    #[arg(value_name = "NS")]
    namespace: String,
    /// A pattern for keys: * matches any characters, ? one character, [abc] one of these
    #[arg(value_name = "PATTERN", required_unless_present = "text", conflicts_with = "text")]
    pattern: Option<String>,
    /// Words that a value must contain, all of them
    #[arg(long, value_name = "WORDS")]
    text: Option<String>,
    /// The page, starting at 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// Entries per page
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
}

impl MemorySearchFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<(), CliError> {
        let request = MemorySearchRequest {
            namespace: self.namespace.clone(),
            pattern: self.pattern.clone(),
            // A pattern wins where both are given.
            text: self.text.clone().filter(|_| self.pattern.is_none()),
            page: self.page,
            limit: self.limit,
        };
        let found = shared.call_typed::<MemorySearchAnswer>("memory_search", &request).await?;
        if shared.is_json() {
            return output::json_text(&found.json.to_string());
        }
        let found = found.value;
        let mut table = Table::new(&["SCORE ", "KEY", "PREVIEW"]);
        for result in found.results {
            table.row([figure(&result.score), result.key, result.preview]);
        }
        let mut text =
            TextOutput(if table.is_empty() { "Nothing was found.\n".to_owned() } else { table.show() });
        let total = found.pagination.total;
        text.gap();
        text.field("Total", &total.to_string());
        if u64::from(self.page) * (self.limit as u64) < total {
            text.field("Next", &self.next(shared));
        }
        output::text(&text.0)
    }

    /// The command that shows the next page.
    fn next(&self, shared: &ServerConnection) -> String {
        let what = match (&self.pattern, &self.text) {
            (Some(pattern), _) => quoted(pattern),
            (None, words) => format!("--text {}", quoted(words.as_deref().unwrap_or_default())),
        };
        let (namespace, flags, page) = (quoted(&self.namespace), shared.flags(), self.page + 1);
        format!("{} memory search {namespace} {what}{flags} --page {page} --limit {}", program(), self.limit)
    }
}
