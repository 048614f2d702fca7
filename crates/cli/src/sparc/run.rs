//! `nuncio sparc run` and `nuncio sparc follow`: a workflow run by the role agents, to its end or to a
//! question that the user does not answer. The workflow is a task: it continues when the command ends.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args;
use nuncio_client::mcp::{ToolStart, ToolTaskQuestion, ToolTaskStatus};
use nuncio_engine::surface::expand;
use nuncio_flows::sparc::api::{SparcRunRequest, SparcStatusRequest, WorkflowAnswer};
use serde_json::{Map, Value, json};

use super::show;
use crate::{
    error::CliError,
    output::{self, note},
    program,
    progress::ProgressDisplay,
    server_connection::{ServerConnection, quoted},
    task_follower::TaskFollower,
    task_questions,
    text::{TextOutput, plain},
    typed_answer::TypedAnswer,
};

#[derive(Args)]
pub(super) struct SparcRunFlags {
    /// The goal of the workflow
    #[arg(value_name = "GOAL")]
    goal: String,
    /// The workflow's id, to create it or to continue an existing one. Default: a new one
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    /// Start the workflow and exit without waiting
    #[arg(long)]
    detach: bool,
}

impl SparcRunFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<ExitCode, CliError> {
        // The id is chosen here, so that the workflow can be read from the beginning.
        let context = self.context.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let request = SparcRunRequest { context_id: Some(context.clone()), goal: self.goal };
        let task = match shared.start("sparc_run", shared.arguments(&request)?).await? {
            ToolStart::Task(task) => task.id,
            // It ended at once.
            ToolStart::Done(_) => {
                show::workflow(shared, &context).await?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        shared.record_task(&task);
        if self.detach {
            return detached(shared, &task, &context);
        }
        follow(shared, &task, &context, None).await
    }
}

#[derive(Args)]
pub(super) struct SparcFollowFlags {
    /// The task, as printed by `run`
    #[arg(value_name = "TASK")]
    task: String,
    /// The workflow that the task works on
    #[arg(long, value_name = "ID")]
    context: String,
    /// The answer to its question: a JSON object that matches the question's schema
    #[arg(long, value_name = "JSON", value_parser = object)]
    answer: Option<Map<String, Value>>,
}

impl SparcFollowFlags {
    pub(super) async fn run(self, shared: &ServerConnection) -> Result<ExitCode, CliError> {
        shared.record_task(&self.task);
        follow(shared, &self.task, &self.context, self.answer).await
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

fn detached(shared: &ServerConnection, task: &str, context: &str) -> Result<ExitCode, CliError> {
    let started = json!({ "taskId": task, "contextId": context });
    shared.print(&started, |_| {
        let mut text = TextOutput::default();
        text.field("Workflow", context);
        text.field("Task", task);
        text.field("Follow", &follow_command(shared, task, context));
        text.0
    })?;
    if shared.is_own() {
        shared.remark("no server runs: the workflow goes on when one is started");
    }
    Ok(ExitCode::SUCCESS)
}

/// The command that continues from here.
fn follow_command(shared: &ServerConnection, task: &str, context: &str) -> String {
    format!("{} sparc follow {task} --context {}{}", program(), quoted(context), shared.flags())
}

async fn follow(
    shared: &ServerConnection,
    task: &str,
    context: &str,
    mut given: Option<Map<String, Value>>,
) -> Result<ExitCode, CliError> {
    let mut progress = ProgressDisplay::new(shared.is_json());
    // The workflow changes with its task, and by hand.
    let mut follower = TaskFollower::of_task(shared, task, vec![workflow_uri(context)]);
    let mut message = None;
    loop {
        let seen = match follower.next_change().await? {
            Some(seen) => {
                message = seen.message;
                seen.status
            }
            None => ToolTaskStatus::Working,
        };
        // The workflow may not exist yet.
        let request = SparcStatusRequest { context_id: context.to_owned() };
        let workflow = shared.poll_typed::<WorkflowAnswer>("sparc_status", &request).await.ok();
        let phase = workflow.as_ref().map_or("starting", |workflow| workflow.value.current_phase.name());
        let passed = workflow.as_ref().map_or(0, |workflow| show::passed(&workflow.value));
        let said = message.as_deref().map(|said| format!(": {}", plain(said).replace('\n', " ")));
        let words = format!("phases passed, at {phase}{}", said.unwrap_or_default());
        progress.update_progress(passed, Some(5), &words);
        match seen {
            ToolTaskStatus::Working => {}
            ToolTaskStatus::Asks(questions) if given.is_some() => {
                let content = given.take().unwrap_or_default();
                let answered = task_questions::submit_answer(shared, task, &questions, content).await?;
                follower.record_answered([answered]);
            }
            ToolTaskStatus::Asks(questions) => {
                progress.hide();
                let goes_on = task_questions::is_attended(shared)
                    && task_questions::answer(shared, task, &questions).await?;
                if !goes_on {
                    return waits(shared, task, context, &questions);
                }
                follower.record_answered(task_questions::answerable(&questions));
                progress.show();
            }
            ToolTaskStatus::Completed(called) => {
                drop(progress);
                end(shared, workflow.as_ref(), called.structured)?;
                return Ok(ExitCode::SUCCESS);
            }
            ToolTaskStatus::Failed(why) => {
                drop(progress);
                end(
                    shared,
                    workflow.as_ref(),
                    Some(json!({ "taskId": task, "status": "failed", "reason": why })),
                )?;
                note(&format!("warning: the workflow's task failed: {why}"));
                return Ok(ExitCode::FAILURE);
            }
            ToolTaskStatus::Cancelled => {
                drop(progress);
                end(shared, workflow.as_ref(), Some(json!({ "taskId": task, "status": "cancelled" })))?;
                note("warning: the workflow's task was canceled");
                return Ok(ExitCode::FAILURE);
            }
        }
    }
}

/// The resource that changes with the workflow.
fn workflow_uri(context: &str) -> String {
    let values = BTreeMap::from([("contextId".to_owned(), context.to_owned())]);
    expand("sparc://workflow/{contextId}", &values)
}

/// Prints the workflow if it exists, else the result of its task.
fn end(
    shared: &ServerConnection,
    workflow: Option<&TypedAnswer<WorkflowAnswer>>,
    otherwise: Option<Value>,
) -> Result<(), CliError> {
    if let Some(workflow) = workflow {
        return show::print(shared, workflow);
    }
    shared.print(&otherwise.unwrap_or_default(), |came| format!("{came}\n"))
}

/// The user does not answer: prints the questions, and how to answer them, as after `nuncio send`.
fn waits(
    shared: &ServerConnection,
    task: &str,
    context: &str,
    questions: &[ToolTaskQuestion],
) -> Result<ExitCode, CliError> {
    let document = json!({
        "taskId": task,
        "contextId": context,
        "status": "input_required",
        "questions": task_questions::documents(questions),
    });
    if shared.is_json() {
        output::json_text(&document.to_string())?;
    } else {
        let mut text = TextOutput::default();
        text.field("Workflow", context);
        text.field("Task", task);
        text.field("State", "input-required");
        text.block("Question", &serde_json::to_string_pretty(&document["questions"]).unwrap_or_default());
        text.field("Resume", &format!("{} --answer '<answer>'", follow_command(shared, task, context)));
        output::text(&text.0)?;
    }
    note("warning: the task waits for an answer");
    Ok(ExitCode::SUCCESS)
}
