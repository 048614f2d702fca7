//! `nuncio memory search`: entries by key pattern, or by words in their values, best match first.

use clap::Args;
use serde_json::json;

use crate::{
    error::CliError,
    output, program,
    server_connection::{ServerConnection, quoted},
    table::{Table, cell, figure},
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
        let mut arguments = json!({ "namespace": self.namespace, "page": self.page, "limit": self.limit });
        match (&self.pattern, &self.text) {
            (Some(pattern), _) => arguments["pattern"] = pattern.as_str().into(),
            (None, Some(words)) => arguments["text"] = words.as_str().into(),
            (None, None) => {}
        }
        let found = shared.call("memory_search", arguments).await?;
        if shared.is_json() {
            return output::json_text(&found.to_string());
        }
        let mut table = Table::new(&["SCORE ", "KEY", "PREVIEW"]);
        for result in found["results"].as_array().into_iter().flatten() {
            table.row([figure(&result["score"]), cell(&result["key"]), cell(&result["preview"])]);
        }
        let mut text =
            TextOutput(if table.is_empty() { "Nothing was found.\n".to_owned() } else { table.show() });
        let total = found["pagination"]["total"].as_u64().unwrap_or(0);
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
