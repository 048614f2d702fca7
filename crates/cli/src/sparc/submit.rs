//! `nuncio sparc submit`: submits an artifact to the gate of its phase.

use std::{io::Read as _, process::ExitCode};

use clap::Args;
use serde_json::{Value, json};

use super::{PHASES, show};
use crate::{error::CliError, output, server_connection::ServerConnection, table::cell, text::TextOutput};

#[derive(Args)]
pub(super) struct SparcSubmitFlags {
    /// The workflow
    #[arg(value_name = "ID")]
    context: String,
    /// A file with the artifact, JSON as the template describes, or - for the standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// The phase that the artifact is for. Default: the current one
    #[arg(long, value_name = "PHASE", value_parser = PHASES)]
    phase: Option<String>,
}

impl SparcSubmitFlags {
    pub(super) fn read(&self) -> Result<Value, CliError> {
        let mut content = String::new();
        let (read, name) = match &*self.file {
            "-" => (std::io::stdin().read_to_string(&mut content), "the standard input"),
            path => (std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut content)), path),
        };
        read.map_err(|error| CliError::Usage(format!("cannot read {name}: {error}")))?;
        serde_json::from_str(&content)
            .map_err(|error| CliError::Usage(format!("{name} is not JSON: {error}")))
    }

    pub(super) async fn run(self, shared: &ServerConnection, artifact: Value) -> Result<ExitCode, CliError> {
        let mut arguments = json!({ "contextId": self.context, "artifact": artifact });
        if let Some(phase) = self.phase {
            arguments["phase"] = phase.into();
        }
        let judged = shared.call("sparc_submit", arguments).await?;
        let passed = judged["passed"].as_bool().unwrap_or(false);
        if shared.is_json() {
            output::json_text(&judged.to_string())?;
        } else {
            let mut text = TextOutput::default();
            let phase = cell(&judged["phase"]);
            text.field("Phase", &phase);
            text.field("Version", &cell(&judged["version"]));
            text.field("Gate", if passed { "passed" } else { "refused" });
            for problem in show::problems(&judged["gate"]) {
                text.field("Problem", &problem);
            }
            if let Some(next) = judged["currentPhase"].as_str().filter(|next| *next != phase) {
                text.field("Next phase", next);
            }
            output::text(&text.0)?;
        }
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
