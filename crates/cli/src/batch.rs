//! `nuncio batch …`: many operations as one durable task.

mod config;
mod show;
mod submit;
mod watch;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use nuncio_flows::batch::api::{BatchChangeAnswer, BatchIdRequest, BatchSubmitAnswer};

use super::{error::CliError, program, server_connection::ServerFlags, text::TextOutput};

#[derive(Args)]
pub(crate) struct BatchFlags {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Submit a batch
    Submit(submit::BatchSubmitFlags),
    /// Show the state of a batch
    Status {
        /// The batch
        #[arg(value_name = "ID")]
        batch: String,
        /// Show every operation
        #[arg(long)]
        operations: bool,
    },
    /// Follow a batch to its end; the exit code is 1 unless all operations succeeded
    Watch {
        /// The batch
        #[arg(value_name = "ID")]
        batch: String,
    },
    /// List batches, newest first
    List {
        /// The maximum number to list
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        /// The page to show: the page token that the previous page printed
        #[arg(long, value_name = "TOKEN")]
        page_token: Option<String>,
    },
    /// Start no further operations of a batch
    Pause {
        /// The batch
        #[arg(value_name = "ID")]
        batch: String,
    },
    /// Continue a paused batch
    Resume {
        /// The batch
        #[arg(value_name = "ID")]
        batch: String,
    },
    /// Stop a batch
    Cancel {
        /// The batch
        #[arg(value_name = "ID")]
        batch: String,
    },
    /// Run the failed and skipped operations again, as a new batch
    Retry {
        /// The batch
        #[arg(value_name = "ID")]
        batch: String,
    },
    /// Show the settings, or change some
    Config(config::BatchConfigFlags),
    /// Show the measurements
    Metrics,
}

impl BatchFlags {
    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        let server = self.server;
        let done = match self.command {
            Command::Submit(submit) => {
                let asked = submit.read()?;
                return server.run_with_server(async |shared| submit.run(shared, asked).await).await;
            }
            Command::Watch { batch } => {
                return server.run_to_read(async |shared| watch::run(shared, &batch).await).await;
            }
            Command::Status { batch, operations } => {
                server.run_to_read(async |shared| show::status(shared, &batch, operations).await).await
            }
            Command::List { limit, page_token } => {
                server
                    .run_to_read(async |shared| show::list(shared, limit, page_token.as_deref()).await)
                    .await
            }
            Command::Pause { batch } => change(server, "batch_pause", batch).await,
            Command::Resume { batch } => change(server, "batch_resume", batch).await,
            Command::Cancel { batch } => change(server, "batch_cancel", batch).await,
            Command::Retry { batch } => retry(server, batch).await,
            Command::Config(config) => {
                let changes = config.changes()?;
                if changes.is_empty() {
                    server.run_to_read(async |shared| config::run(shared, changes).await).await
                } else {
                    server.run_with_server(async |shared| config::run(shared, changes).await).await
                }
            }
            Command::Metrics => server.run_to_read(async |shared| config::metrics(shared).await).await,
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// Calls a tool on a batch, and shows the state of the batch afterwards.
async fn change(server: ServerFlags, tool: &str, batch_id: String) -> Result<(), CliError> {
    server
        .run_to_read(async |shared| {
            let request = BatchIdRequest { batch_id };
            let changed = shared.call_typed::<BatchChangeAnswer>(tool, &request).await?;
            shared.print_typed(&changed, |changed| {
                let mut text = TextOutput::default();
                show::begin(&mut text, &changed.batch_id, &changed.status, changed.paused, None);
                text.0
            })
        })
        .await
}

/// Begins a new batch of what failed in another, and shows how to follow it.
async fn retry(server: ServerFlags, batch_id: String) -> Result<(), CliError> {
    server
        .run_to_read(async |shared| {
            let request = BatchIdRequest { batch_id };
            let begun = shared.call_typed::<BatchSubmitAnswer>("batch_retry", &request).await?;
            shared.print_typed(&begun, |begun| {
                let mut text = TextOutput::default();
                show::begin(&mut text, &begun.batch_id, &begun.status, false, begun.waiting.as_deref());
                let follow = format!("{} batch watch {}{}", program(), begun.batch_id, shared.flags());
                text.field("Follow", &follow);
                text.0
            })
        })
        .await
}
