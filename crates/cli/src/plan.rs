//! `nuncio plan …`: work for many agents, as one durable task.

mod make;
mod run;
mod show;
mod source;
mod view;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use nuncio_flows::plan::PlanDrawing;

use super::{error::CliError, server_connection::ServerFlags};

#[derive(Args)]
pub(crate) struct PlanFlags {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a plan from a request, to review and edit before running it
    Make(make::PlanMakeFlags),
    /// Check a plan; the exit code is 1 if it is invalid
    Check {
        /// The plan file, or - for the standard input
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// Draw a plan from a file, or one that runs or ran
    Show {
        /// The plan file (- for the standard input), or the id of a plan that runs or ran
        #[arg(value_name = "FILE|ID")]
        plan: String,
        /// The format
        #[arg(long = "format", value_name = "FORMAT", default_value = "text")]
        drawing: DrawingFormat,
    },
    /// Run a plan, or make one from a request and run it; the exit code is 1 unless it completes
    Run(run::PlanRunFlags),
    /// List plans that run or ran, newest first
    List {
        /// The maximum number to list
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        /// The page to show: the page token that the previous page printed
        #[arg(long, value_name = "TOKEN")]
        page_token: Option<String>,
    },
    /// Cancel a plan, and all tasks that it has called
    Cancel {
        /// The plan
        #[arg(value_name = "ID")]
        plan: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DrawingFormat {
    /// Text
    Text,
    /// A Mermaid flowchart
    Mermaid,
    /// An SVG image
    Svg,
}

impl DrawingFormat {
    fn drawing(self) -> PlanDrawing {
        match self {
            Self::Text => PlanDrawing::Text,
            Self::Mermaid => PlanDrawing::Mermaid,
            Self::Svg => PlanDrawing::Svg,
        }
    }
}

impl PlanFlags {
    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        let server = self.server;
        let done = match self.command {
            Command::Make(make) => {
                let make = make.read()?;
                if !make.is_a_task() {
                    return server.run_to_read(async |shared| make.run(shared).await).await;
                }
                return server.run_with_server(async |shared| make.run(shared).await).await;
            }
            Command::Check { file } => {
                let file = source::file(&file)?;
                return server.run_to_read(async |shared| show::check(shared, &file).await).await;
            }
            Command::Show { plan, drawing } => {
                let plan = source::file_or_id(&plan)?;
                server.run_to_read(async |shared| show::drawing(shared, &plan, drawing.drawing()).await).await
            }
            Command::Run(run) => {
                let wanted = run.read()?;
                if matches!(wanted, run::PlanRunCommand::Attach(_)) {
                    return server.run_to_read(async |shared| wanted.run(shared).await).await;
                }
                return server.run_with_server(async |shared| wanted.run(shared).await).await;
            }
            Command::List { limit, page_token } => {
                server
                    .run_to_read(async |shared| show::list(shared, limit, page_token.as_deref()).await)
                    .await
            }
            Command::Cancel { plan } => {
                server.run_to_read(async |shared| show::cancel(shared, &plan).await).await
            }
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
