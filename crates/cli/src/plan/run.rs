//! `nuncio plan run`: runs a plan to its end, or to a question that the user does not answer. The plan is a
//! task: it continues when the command ends, and `--attach` reattaches to it.

use std::{collections::HashSet, process::ExitCode};

use clap::Args;
use nuncio_client::mcp::{ToolStart, ToolTaskQuestion, ToolTaskStatus};
use serde_json::{Value, json};

use super::{
    show,
    source::{self, PlanSource},
    view::PlanDisplay,
};
use crate::{
    error::CliError,
    output::{self, note},
    program,
    server_connection::ServerConnection,
    sparc::answer,
    task_follower::TaskFollower,
    text::TextOutput,
};

#[derive(Args)]
pub(super) struct PlanRunFlags {
    /// The plan file (- for the standard input), or a request in words
    #[arg(value_name = "FILE|REQUEST", required_unless_present = "attach")]
    plan: Option<String>,
    /// Reattach to a running plan, and answer its questions
    #[arg(long, value_name = "ID", conflicts_with = "plan")]
    attach: Option<String>,
    /// The agent that makes the plan from a request. Default: built-in rules
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["model", "attach"])]
    by: Option<String>,
    /// Have the configured model make the plan from a request
    #[arg(long, conflicts_with = "attach")]
    model: bool,
    /// Start the plan and exit without waiting
    #[arg(long, conflicts_with = "attach")]
    detach: bool,
}

pub(super) enum PlanRunRequest {
    Begin { arguments: Value, detach: bool },
    Attach(String),
}

impl PlanRunFlags {
    pub(super) fn read(self) -> Result<PlanRunRequest, CliError> {
        if let Some(task) = self.attach {
            return Ok(PlanRunRequest::Attach(task));
        }
        let arguments = match source::file_or_request(self.plan.as_deref().unwrap_or_default())? {
            PlanSource::File(_) if self.by.is_some() || self.model => {
                return Err(CliError::Usage(
                    "--by and --model make a plan: give a request, not a plan".into(),
                ));
            }
            PlanSource::File(file) => json!({ "plan": file }),
            PlanSource::Request(request) | PlanSource::Id(request) => {
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
        Ok(PlanRunRequest::Begin { arguments, detach: self.detach })
    }
}

impl PlanRunRequest {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<ExitCode, CliError> {
        let (task, detach) = match self {
            Self::Attach(task) => (task, false),
            Self::Begin { arguments, detach } => {
                match shared.start("plan_run", arguments).await? {
                    ToolStart::Task(task) => (task.id, detach),
                    // It ended at once and has no task to follow.
                    ToolStart::Done(called) => {
                        shared.print(&json!({ "text": called.text }), |_| format!("{}\n", called.text))?;
                        return Ok(ExitCode::SUCCESS);
                    }
                }
            }
        };
        shared.record_task_command(&task, attach(shared, &task));
        if detach {
            return detached(shared, &task);
        }
        follow(shared, &task).await
    }
}

/// The command that reattaches to the plan.
fn attach(shared: &ServerConnection, task: &str) -> String {
    format!("{} plan run --attach {task}{}", program(), shared.flags())
}

fn detached(shared: &ServerConnection, task: &str) -> Result<ExitCode, CliError> {
    shared.print(&json!({ "planId": task }), |_| {
        let mut text = TextOutput::default();
        text.field("Plan", task);
        text.field("Follow", &attach(shared, task));
        text.0
    })?;
    if shared.is_own() {
        shared.remark("no server runs: the plan goes on when one is started");
    }
    Ok(ExitCode::SUCCESS)
}

async fn follow(shared: &ServerConnection, task: &str) -> Result<ExitCode, CliError> {
    let mut view = PlanDisplay::new(shared.is_json());
    let mut told = HashSet::new();
    let mut follower = TaskFollower::of_task(shared, task, vec![]);
    loop {
        // In this order: once the task has ended, the plan's result is there.
        let seen = follower.next_change().await?.map_or(ToolTaskStatus::Working, |seen| seen.status);
        let status = shared.poll_tool("plan_status", &json!({ "planId": task })).await?;
        view.update_status(&status);
        match seen {
            ToolTaskStatus::Working => {
                print_new_results(shared, task, &status, &view, &mut told).await?;
            }
            ToolTaskStatus::Asks(questions) => {
                print_new_results(shared, task, &status, &view, &mut told).await?;
                view.hide();
                let goes_on = answer::is_attended(shared) && answer::answer(shared, task, &questions).await?;
                if !goes_on {
                    return waits(shared, task, &questions);
                }
                follower.record_answered(answer::answerable(&questions));
                view.show();
            }
            ToolTaskStatus::Completed(_) => {
                drop(view);
                show::ended(shared, &status)?;
                return Ok(ExitCode::SUCCESS);
            }
            ToolTaskStatus::Failed(why) => {
                drop(view);
                show::ended(shared, &status)?;
                // Reported already, if there is a plan with that message.
                if status["message"].is_null() {
                    note(&format!("warning: the plan was not completed: {why}"));
                }
                return Ok(ExitCode::FAILURE);
            }
            ToolTaskStatus::Cancelled => {
                drop(view);
                show::ended(shared, &status)?;
                note("warning: the plan was canceled");
                return Ok(ExitCode::FAILURE);
            }
        }
    }
}

/// Prints the results of tasks that completed since the last change.
async fn print_new_results(
    shared: &ServerConnection,
    task: &str,
    status: &Value,
    view: &PlanDisplay,
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
    let seen = shared.poll_tool("plan_status", &json!({ "planId": task, "results": wanted })).await?;
    for (id, part) in &fresh {
        if let Some(text) = seen["results"][id].as_str().filter(|text| !text.trim().is_empty()) {
            view.print_task_result(id, part["agent"].as_str().unwrap_or_default(), text);
        }
    }
    Ok(())
}

/// The user does not answer: prints the questions, and how to reattach.
fn waits(
    shared: &ServerConnection,
    task: &str,
    questions: &[ToolTaskQuestion],
) -> Result<ExitCode, CliError> {
    let asked = |question: &ToolTaskQuestion| json!({ "key": question.key, "method": question.method, "params": question.params });
    let questions: Vec<Value> = questions.iter().map(asked).collect();
    let document = json!({ "planId": task, "state": "input-required", "questions": questions });
    if shared.is_json() {
        output::json_text(&document.to_string())?;
    } else {
        let mut text = TextOutput::default();
        text.field("Plan", task);
        text.field("State", "input-required");
        text.block("Question", &serde_json::to_string_pretty(&document["questions"]).unwrap_or_default());
        text.field("Resume", &attach(shared, task));
        output::text(&text.0)?;
    }
    note("warning: the plan waits for an answer");
    // The plan is not completed: a command that depends on it must not run.
    Ok(ExitCode::FAILURE)
}
