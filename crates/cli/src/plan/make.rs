//! `nuncio plan make`: makes a plan file from a request.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::Args;
use nuncio_client::mcp::{ToolAnswer, ToolStart, ToolTaskStatus};
use serde_json::{Value, json};

use super::source;
use crate::{
    error::CliError,
    output::{self, note},
    program,
    progress::ProgressDisplay,
    server_connection::{ServerConnection, quoted},
    task_follower::TaskFollower,
    task_questions,
    text::plain,
};

#[derive(Args)]
pub(super) struct PlanMakeFlags {
    /// The request in words, or - for the standard input
    #[arg(value_name = "REQUEST")]
    request: String,
    /// The agent that makes the plan. Default: built-in rules
    #[arg(long, value_name = "AGENT", conflicts_with = "model")]
    by: Option<String>,
    /// Have the configured model make the plan
    #[arg(long)]
    model: bool,
    /// The file to write, which must not exist. Default: the standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

impl PlanMakeFlags {
    /// Whether an agent or a model makes the plan, in a task.
    pub(super) fn is_a_task(&self) -> bool {
        self.by.is_some() || self.model
    }

    pub(super) fn read(mut self) -> Result<Self, CliError> {
        if self.request == "-" {
            self.request = source::file("-")?;
        } else if std::path::Path::new(&self.request).exists() {
            let name = quoted(&self.request);
            let why = format!(
                "{name} is a file or a folder, not a request in words: {} plan make - <FILE reads a file",
                program()
            );
            return Err(CliError::Usage(why));
        }
        Ok(self)
    }

    pub(super) async fn run(self, shared: &ServerConnection) -> Result<ExitCode, CliError> {
        let made = match (&self.by, self.model) {
            (None, false) => shared.call("plan_make", json!({ "request": self.request })).await?,
            (Some(by), _) => by_other(shared, json!({ "request": self.request, "by": by })).await?,
            (None, true) => by_other(shared, json!({ "request": self.request, "model": true })).await?,
        };
        let file = made["file"].as_str().unwrap_or_default();
        let Some(path) = &self.to else {
            shared.print(&made, |_| plain(file))?;
            return Ok(ExitCode::SUCCESS);
        };
        let created = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
        let written = created.and_then(|mut out| out.write_all(file.as_bytes()));
        written.map_err(|error| CliError::Usage(format!("cannot write {}: {error}", path.display())))?;
        if shared.is_json() {
            output::json_text(&made.to_string())?;
        } else {
            let name = quoted(&path.display().to_string());
            note(&format!("wrote {name}; run it with: {} plan run {name}{}", program(), shared.flags()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Has an agent or a model make the plan, which may take time and ask questions.
async fn by_other(shared: &ServerConnection, arguments: Value) -> Result<Value, CliError> {
    let task = match shared.start("plan_make", arguments).await? {
        ToolStart::Task(task) => task.id,
        ToolStart::Done(called) => return document(called),
    };
    shared.record_task(&task);
    let mut progress = ProgressDisplay::new(shared.is_json());
    let mut follower = TaskFollower::of_task(shared, &task, vec![]);
    loop {
        let seen = follower.next_change().await?.map_or(ToolTaskStatus::Working, |seen| seen.status);
        progress.update_progress(0, None, "making the plan");
        match seen {
            ToolTaskStatus::Working => {}
            ToolTaskStatus::Asks(questions) => {
                progress.hide();
                if !task_questions::is_attended(shared)
                    || !task_questions::answer(shared, &task, &questions).await?
                {
                    return Err(CliError::Admin(format!(
                        "task {task} asks something: nuncio task get {task}"
                    )));
                }
                follower.record_answered(task_questions::answerable(&questions));
                progress.show();
            }
            ToolTaskStatus::Completed(called) => return document(called),
            ToolTaskStatus::Failed(why) => return Err(CliError::Admin(why)),
            ToolTaskStatus::Cancelled => return Err(CliError::Admin("the task was canceled".into())),
        }
    }
}

fn document(called: ToolAnswer) -> Result<Value, CliError> {
    let made = called.structured.filter(|made| made["file"].is_string());
    made.ok_or_else(|| CliError::Admin(format!("the server returned no plan file: {}", called.text)))
}
