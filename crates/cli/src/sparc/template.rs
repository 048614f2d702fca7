//! `nuncio sparc template`: what a phase requires.

use clap::Args;
use serde_json::Value;

use super::PHASES;
use crate::{error::CliError, output, server_connection::ServerConnection, table::cell, text::TextOutput};

#[derive(Args)]
pub(super) struct SparcTemplateFlags {
    /// The phase
    #[arg(value_name = "PHASE", value_parser = PHASES)]
    phase: String,
    /// Print only a worked example, to start a file from
    #[arg(long)]
    example: bool,
}

impl SparcTemplateFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<(), CliError> {
        let template = shared.read(&format!("sparc://phase/{}/template", self.phase)).await?;
        if self.example {
            let example = &template["examples"][0];
            let artifact = example.get("artifact").unwrap_or(example);
            return match shared.is_json() {
                true => output::json_text(&artifact.to_string()),
                false => output::text(&format!("{}\n", pretty(artifact))),
            };
        }
        shared.print(&template, |template| {
            let mut text = TextOutput::default();
            text.field("Phase", &cell(&template["phase"]));
            text.gap();
            for (name, about) in template["template"].as_object().into_iter().flatten() {
                text.block(name, &render_value(about));
            }
            text.block("Guidelines", &render_value(&template["guidelines"]));
            text.block("Schema", &pretty(&template["validation"]));
            text.0
        })
    }
}

fn render_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().map(|item| format!("- {}", render_value(item))).collect::<Vec<_>>().join("\n")
        }
        other => pretty(other),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
