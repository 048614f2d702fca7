//! `nuncio sparc …`: workflows of five phases.

pub(super) mod answer;
mod run;
mod show;
mod submit;
mod template;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{error::CliError, server_connection::ServerFlags};

/// The phases, in their order.
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
    /// Start a workflow, whose artifacts are submitted by hand or by agents
    Start {
        /// What it is to achieve
        #[arg(value_name = "GOAL")]
        goal: String,
        /// Its id. Default: a new one
        #[arg(long, value_name = "ID")]
        context: Option<String>,
    },
    /// List workflows
    List {
        /// How many at most
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only workflows after this one
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
    /// Show where a workflow stands
    Show {
        /// The workflow
        #[arg(value_name = "ID")]
        context: String,
    },
    /// Show who did what
    History {
        /// The workflow
        #[arg(value_name = "ID")]
        context: String,
    },
    /// Submit the artifact of the current phase; the exit code is 1 if its gate refuses it
    Submit(submit::SparcSubmitFlags),
    /// Go back to an earlier phase
    Back {
        /// The workflow
        #[arg(value_name = "ID")]
        context: String,
        /// The phase
        #[arg(value_name = "PHASE", value_parser = PHASES)]
        phase: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Show what a phase asks for
    Template(template::SparcTemplateFlags),
    /// Have a workflow done by the role agents, and answer what they ask
    Run(run::SparcRunFlags),
    /// Go on with a workflow that `run` began, and answer what is asked
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
                server.run_with_server(async |shared| show::list(shared, limit, after.as_deref()).await).await
            }
            Command::Show { context } => {
                server.run_with_server(async |shared| show::workflow(shared, &context).await).await
            }
            Command::History { context } => {
                server.run_with_server(async |shared| show::history(shared, &context).await).await
            }
            Command::Submit(submit) => {
                let artifact = submit.read()?;
                return server.run_with_server(async |shared| submit.run(shared, artifact).await).await;
            }
            Command::Back { context, phase, reason } => {
                server
                    .run_with_server(async |shared| {
                        let arguments = json!({ "contextId": context, "to": phase, "reason": reason });
                        let back = shared.call("sparc_back", arguments).await?;
                        shared.print(&back, |_| format!("{context} is back at {phase}.\n"))
                    })
                    .await
            }
            Command::Template(template) => {
                server.run_with_server(async |shared| template.run(shared).await).await
            }
            Command::Run(run) => return server.run_with_server(async |shared| run.run(shared).await).await,
            Command::Follow(follow) => {
                return server.run_with_server(async |shared| follow.run(shared).await).await;
            }
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
