//! `nuncio plan run`: a plan from its start to its end, or to a question that nobody here answers. The work is a task:
//! it goes on when the command ends, and `--attach` comes back to it.

use std::{collections::HashSet, process::ExitCode, time::Duration};

use clap::Args;
use nuncio_client::mcp::{Outcome, Question, TaskStatus};
use serde_json::{Value, json};

use super::{
    show,
    source::{self, Source},
    view::View,
};
use crate::cli::{
    error::CliError,
    output::{self, note},
    program,
    shared::Shared,
    sparc::answer,
    text::Text,
};

/// The longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(super) struct Run {
    /// The plan's file (- reads the standard input), or a request in words
    #[arg(value_name = "FILE|REQUEST", required_unless_present = "attach")]
    plan: Option<String>,
    /// Go on looking at a plan that runs, and answer what it asks
    #[arg(long, value_name = "ID", conflicts_with = "plan")]
    attach: Option<String>,
    /// The agent that makes the plan of a request. Default: rules do
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["model", "attach"])]
    by: Option<String>,
    /// Have the plan of a request made by the configured model
    #[arg(long, conflicts_with = "attach")]
    model: bool,
    /// Do not wait for anything
    #[arg(long, conflicts_with = "attach")]
    detach: bool,
}

/// What is to be done.
pub(super) enum Wanted {
    Begin { arguments: Value, detach: bool },
    Attach(String),
}

impl Run {
    pub(super) fn read(self) -> Result<Wanted, CliError> {
        if let Some(task) = self.attach {
            return Ok(Wanted::Attach(task));
        }
        let arguments = match source::file_or_request(self.plan.as_deref().unwrap_or_default())? {
            Source::File(_) if self.by.is_some() || self.model => {
                return Err(CliError::Usage(
                    "--by and --model make a plan: give a request, not a plan".into(),
                ));
            }
            Source::File(file) => json!({ "plan": file }),
            Source::Request(request) | Source::Id(request) => {
                let mut arguments = json!({ "request": request });
                if let Some(by) = self.by {
                    arguments["by"] = by.into();
                }
                if self.model {
                    arguments["model"] = true.into();
                }
                arguments
            }
        };
        Ok(Wanted::Begin { arguments, detach: self.detach })
    }
}

impl Wanted {
    pub(super) async fn run(self, shared: &Shared) -> Result<ExitCode, CliError> {
        let (task, detach) = match self {
            Self::Attach(task) => (task, false),
            Self::Begin { arguments, detach } => {
                let started = shared.tools().start("plan_run", arguments).await;
                match started.map_err(|error| shared.failed(error))? {
                    Outcome::Task(task) => (task.id, detach),
                    // It was over at once, and has no task to ask for.
                    Outcome::Done(called) => {
                        shared.print(&json!({ "text": called.text }), |_| format!("{}\n", called.text))?;
                        return Ok(ExitCode::SUCCESS);
                    }
                }
            }
        };
        shared.saw_with(&task, attach(shared, &task));
        if detach {
            return detached(shared, &task);
        }
        follow(shared, &task).await
    }
}

/// The command that goes on from here.
fn attach(shared: &Shared, task: &str) -> String {
    format!("{} plan run --attach {task}{}", program(), shared.flags())
}

fn detached(shared: &Shared, task: &str) -> Result<ExitCode, CliError> {
    shared.print(&json!({ "planId": task }), |_| {
        let mut text = Text::default();
        text.field("Plan", task);
        text.field("Follow", &attach(shared, task));
        text.0
    })?;
    if shared.is_own() {
        shared.remark("no server runs: the plan goes on when one is started");
    }
    Ok(ExitCode::SUCCESS)
}

async fn follow(shared: &Shared, task: &str) -> Result<ExitCode, CliError> {
    let mut view = View::new(shared.is_json());
    let mut told = HashSet::new();
    loop {
        // Looked at in this order: what the plan came to is there when it is over.
        let seen = shared.task(task).await?;
        let status = shared.look("plan_status", &json!({ "planId": task })).await?;
        view.at(&status);
        match seen.status {
            TaskStatus::Working => {
                tell(shared, task, &status, &view, &mut told).await?;
                tokio::time::sleep(seen.poll.min(PAUSE)).await;
            }
            TaskStatus::Asks(questions) => {
                tell(shared, task, &status, &view, &mut told).await?;
                view.hide();
                let goes_on = answer::is_attended(shared) && answer::answer(shared, task, &questions).await?;
                if !goes_on {
                    return waits(shared, task, &questions);
                }
                view.show();
            }
            TaskStatus::Completed(_) => {
                drop(view);
                show::ended(shared, &status)?;
                return Ok(ExitCode::SUCCESS);
            }
            TaskStatus::Failed(why) => {
                drop(view);
                show::ended(shared, &status)?;
                // Said already, where there is a plan that it is said of.
                if status["message"].is_null() {
                    note(&format!("warning: the plan was not completed: {why}"));
                }
                return Ok(ExitCode::FAILURE);
            }
            TaskStatus::Cancelled => {
                drop(view);
                show::ended(shared, &status)?;
                note("warning: the plan was canceled");
                return Ok(ExitCode::FAILURE);
            }
        }
    }
}

/// Shows what those tasks came to that are done since it was last looked.
async fn tell(
    shared: &Shared,
    task: &str,
    status: &Value,
    view: &View,
    told: &mut HashSet<String>,
) -> Result<(), CliError> {
    let parts = status["parts"].as_array().into_iter().flatten();
    let done = parts.filter(|part| part["state"] == "done" && view.is_seen());
    let fresh: Vec<(String, &Value)> = done
        .filter_map(|part| Some((part["task"].as_str()?.to_owned(), part)))
        .filter(|(id, _)| told.insert(id.clone()))
        .collect();
    if fresh.is_empty() {
        return Ok(());
    }
    let wanted: Vec<&str> = fresh.iter().map(|(id, _)| id.as_str()).collect();
    let seen = shared.look("plan_status", &json!({ "planId": task, "results": wanted })).await?;
    for (id, part) in &fresh {
        if let Some(text) = seen["results"][id].as_str().filter(|text| !text.trim().is_empty()) {
            view.came_to(id, part["agent"].as_str().unwrap_or_default(), text);
        }
    }
    Ok(())
}

/// Nobody here answers: what is asked is shown, and how to come back.
fn waits(shared: &Shared, task: &str, questions: &[Question]) -> Result<ExitCode, CliError> {
    let asked = |question: &Question| json!({ "key": question.key, "method": question.method, "params": question.params });
    let questions: Vec<Value> = questions.iter().map(asked).collect();
    let document = json!({ "planId": task, "state": "input-required", "questions": questions });
    if shared.is_json() {
        output::json_text(&document.to_string())?;
    } else {
        let mut text = Text::default();
        text.field("Plan", task);
        text.field("State", "input-required");
        text.block("Question", &serde_json::to_string_pretty(&document["questions"]).unwrap_or_default());
        text.field("Resume", &attach(shared, task));
        output::text(&text.0)?;
    }
    note("warning: the plan waits for an answer");
    // It is not completed: whatever was to come after it must not.
    Ok(ExitCode::FAILURE)
}
