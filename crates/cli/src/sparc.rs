//! `nuncio sparc …`: workflows of five phases.

mod run;
mod show;
mod submit;
mod template;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{error::CliError, server_connection::ServerFlags};

/// The phases, in order.
pub(super) const PHASES: [&str; 5] =
    ["specification", "pseudocode", "architecture", "refinement", "completion"];

#[derive(Args)]
pub(crate) struct SparcFlags {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a workflow; people or agents submit its artifacts
    Start {
        /// The goal of the workflow
        #[arg(value_name = "GOAL")]
        goal: String,
        /// The workflow's id. Default: a new one
        #[arg(long, value_name = "ID")]
        context: Option<String>,
    },
    /// List workflows
    List {
        /// The maximum number to list
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only workflows after this one
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
    /// Show the state of a workflow
    Show {
        /// The workflow
        #[arg(value_name = "ID")]
        context: String,
    },
    /// Show the history of a workflow: who did what
    History {
        /// The workflow
        #[arg(value_name = "ID")]
        context: String,
    },
    /// Submit the artifact of the current phase; the exit code is 1 if the gate refuses it
    Submit(submit::SparcSubmitFlags),
    /// Go back to an earlier phase
    Back {
        /// The workflow
        #[arg(value_name = "ID")]
        context: String,
        /// The phase
        #[arg(value_name = "PHASE", value_parser = PHASES)]
        phase: String,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Show what a phase requires
    Template(template::SparcTemplateFlags),
    /// Have the role agents run a workflow, and answer their questions
    Run(run::SparcRunFlags),
    /// Continue to follow a workflow that `run` started, and answer its questions
    Follow(run::SparcFollowFlags),
}

impl SparcFlags {
    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        let server = self.server;
        let done = match self.command {
            Command::Start { goal, context } => {
                server
                    .run_with_server(async |shared| show::start(shared, &goal, context.as_deref()).await)
                    .await
            }
            Command::List { limit, after } => {
                server.run_to_read(async |shared| show::list(shared, limit, after.as_deref()).await).await
            }
            Command::Show { context } => {
                server.run_to_read(async |shared| show::workflow(shared, &context).await).await
            }
            Command::History { context } => {
                server.run_to_read(async |shared| show::history(shared, &context).await).await
            }
            Command::Submit(submit) => {
                let artifact = submit.read()?;
                return server.run_to_read(async |shared| submit.run(shared, artifact).await).await;
            }
            Command::Back { context, phase, reason } => {
                server
                    .run_to_read(async |shared| {
                        let arguments = json!({ "contextId": context, "to": phase, "reason": reason });
                        let back = shared.call("sparc_back", arguments).await?;
                        shared.print(&back, |_| format!("{context} is back at {phase}.\n"))
                    })
                    .await
            }
            Command::Template(template) => {
                server.run_to_read(async |shared| template.run(shared).await).await
            }
            Command::Run(run) => return server.run_with_server(async |shared| run.run(shared).await).await,
            Command::Follow(follow) => {
                return server.run_to_read(async |shared| follow.run(shared).await).await;
            }
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
