//! `nuncio sparc submit`: submits an artifact to the gate of its phase.

use std::{io::Read as _, process::ExitCode};

use clap::Args;
use nuncio_flows::sparc::api::{SparcSubmitAnswer, SparcSubmitRequest};
use serde_json::Value;

use super::{PHASES, show};
use crate::{error::CliError, server_connection::ServerConnection, text::TextOutput};

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
        let phase = self.phase.map(|phase| phase.parse()).transpose().map_err(CliError::Usage)?;
        let request = SparcSubmitRequest { context_id: self.context, artifact, phase };
        let judged = shared.call_typed::<SparcSubmitAnswer>("sparc_submit", &request).await?;
        let passed = judged.value.passed;
        shared.print_typed(&judged, |judged| {
            let mut text = TextOutput::default();
            text.field("Phase", judged.phase.name());
            text.field("Version", &judged.version.to_string());
            text.field("Gate", if passed { "passed" } else { "refused" });
            for problem in show::problems(&judged.gate) {
                text.field("Problem", &problem);
            }
            if judged.current_phase != judged.phase {
                text.field("Next phase", judged.current_phase.name());
            }
            text.0
        })?;
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
