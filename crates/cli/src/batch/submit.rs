//! `nuncio batch submit`: a batch from a file.

use std::{io::Read as _, process::ExitCode};

use clap::Args;
use nuncio_flows::batch::api::BatchSubmitAnswer;
use serde_json::{Value, json};

use super::{show, watch};
use crate::{error::CliError, program, server_connection::ServerConnection, text::TextOutput};

#[derive(Args)]
pub(super) struct BatchSubmitFlags {
    /// A file with the batch, or - for the standard input: JSON, either a list of operations or an object
    /// with them and options
    #[arg(value_name = "FILE")]
    file: String,
    /// Follow the batch to its end; the exit code is 1 unless all operations succeeded
    #[arg(long)]
    watch: bool,
}

impl BatchSubmitFlags {
    /// The arguments of the tool call.
    pub(super) fn read(&self) -> Result<Value, CliError> {
        let mut content = String::new();
        let (read, name) = match &*self.file {
            "-" => (std::io::stdin().read_to_string(&mut content), "the standard input"),
            path => (std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut content)), path),
        };
        read.map_err(|error| CliError::Usage(format!("cannot read {name}: {error}")))?;
        match serde_json::from_str(&content) {
            Ok(Value::Array(operations)) => Ok(json!({ "operations": operations })),
            Ok(batch @ Value::Object(_)) => Ok(batch),
            Ok(_) => {
                Err(CliError::Usage(format!("{name}: expected a list of operations, or an object with them")))
            }
            Err(error) => Err(CliError::Usage(format!("{name} is not JSON: {error}"))),
        }
    }

    pub(super) async fn run(self, shared: &ServerConnection, asked: Value) -> Result<ExitCode, CliError> {
        let submitted = shared.call_typed::<BatchSubmitAnswer>("batch_submit", &asked).await?;
        let batch = &submitted.value.batch_id;
        if self.watch {
            shared.remark(&format!("batch {batch}"));
            return watch::run(shared, batch).await;
        }
        shared.print_typed(&submitted, |submitted| {
            let mut text = TextOutput::default();
            show::begin(&mut text, batch, &submitted.status, false, submitted.waiting.as_deref());
            text.field("Follow", &format!("{} batch watch {batch}{}", program(), shared.flags()));
            text.0
        })?;
        if shared.is_own() {
            shared.remark("no server runs: the batch goes on when one is started, or while it is watched");
        }
        Ok(ExitCode::SUCCESS)
    }
}
