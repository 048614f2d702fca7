//! `nuncio plan run`: runs a plan to its end, or to a question that the user does not answer. The plan is a
//! task: it continues when the command ends, and `--attach` reattaches to it.

use std::{collections::HashSet, process::ExitCode};

use clap::Args;
use nuncio_client::mcp::{ToolStart, ToolTaskQuestion, ToolTaskStatus};
use nuncio_flows::plan::{
    SubtaskState, SubtaskStatus,
    api::{PlanRunRequest, PlanStatusAnswer, PlanStatusRequest},
};
use serde_json::json;

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
    task_follower::TaskFollower,
    task_questions,
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

pub(super) enum PlanRunCommand {
    Begin { request: Box<PlanRunRequest>, detach: bool },
    Attach(String),
}

impl PlanRunFlags {
    pub(super) fn read(self) -> Result<PlanRunCommand, CliError> {
        if let Some(task) = self.attach {
            return Ok(PlanRunCommand::Attach(task));
        }
        let request = match source::file_or_request(self.plan.as_deref().unwrap_or_default())? {
            PlanSource::File(_) if self.by.is_some() || self.model => {
                return Err(CliError::Usage(
                    "--by and --model make a plan: give a request, not a plan".into(),
                ));
            }
            PlanSource::File(file) => PlanRunRequest { plan: Some(file.into()), ..PlanRunRequest::default() },
            PlanSource::Request(request) | PlanSource::Id(request) => PlanRunRequest {
                plan: None,
                request: Some(request),
                by: self.by,
                model: self.model.then_some(true),
            },
        };
        Ok(PlanRunCommand::Begin { request: Box::new(request), detach: self.detach })
    }
}

impl PlanRunCommand {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<ExitCode, CliError> {
        let (task, detach) = match self {
            Self::Attach(task) => (task, false),
            Self::Begin { request, detach } => {
                match shared.start("plan_run", shared.arguments(&request)?).await? {
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
        let request = PlanStatusRequest { plan_id: task.to_owned(), results: None };
        let status = shared.poll_typed::<PlanStatusAnswer>("plan_status", &request).await?;
        view.update_status(&status.value);
        match seen {
            ToolTaskStatus::Working => {
                print_new_results(shared, &status.value, &view, &mut told).await?;
            }
            ToolTaskStatus::Asks(questions) => {
                print_new_results(shared, &status.value, &view, &mut told).await?;
                view.hide();
                let goes_on = task_questions::is_attended(shared)
                    && task_questions::answer(shared, task, &questions).await?;
                if !goes_on {
                    return waits(shared, task, &questions);
                }
                follower.record_answered(task_questions::answerable(&questions));
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
                if status.value.message.is_none() {
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
    status: &PlanStatusAnswer,
    view: &PlanDisplay,
    told: &mut HashSet<String>,
) -> Result<(), CliError> {
    if !view.is_seen() {
        return Ok(());
    }
    let done = status.parts.iter().filter(|part| part.state == SubtaskState::Done);
    let fresh: Vec<&SubtaskStatus> = done.filter(|part| told.insert(part.id.clone())).collect();
    if fresh.is_empty() {
        return Ok(());
    }
    let wanted = fresh.iter().map(|part| part.id.clone()).collect();
    let request = PlanStatusRequest { plan_id: status.plan_id.clone(), results: Some(wanted) };
    let seen = shared.poll_typed::<PlanStatusAnswer>("plan_status", &request).await?.value;
    let results = seen.results.unwrap_or_default();
    for part in fresh {
        if let Some(text) = results.get(&part.id).filter(|text| !text.trim().is_empty()) {
            view.print_task_result(&part.id, part.agent.as_deref().unwrap_or_default(), text);
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
    let questions = task_questions::documents(questions);
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
