//! `nuncio plan check|show|list|cancel`.

use std::process::ExitCode;

use nuncio_flows::plan::{
    PlanDrawing, SubtaskStatus,
    api::{
        PlanCancelAnswer, PlanCancelRequest, PlanCheckAnswer, PlanCheckRequest, PlanListAnswer,
        PlanListRequest, PlanShowAnswer, PlanShowRequest, PlanStatusAnswer,
    },
};

use super::source::PlanSource;
use crate::{
    error::CliError,
    server_connection::ServerConnection,
    table::{Table, age, cell, count, millis},
    text::{TextOutput, plain},
    typed_answer::TypedAnswer,
};

pub(super) async fn check(shared: &ServerConnection, file: &str) -> Result<ExitCode, CliError> {
    let request = PlanCheckRequest { plan: file.into() };
    let checked = shared.call_typed::<PlanCheckAnswer>("plan_check", &request).await?;
    shared.print_typed(&checked, |checked| {
        let mut text = TextOutput::default();
        if checked.valid {
            let names =
                |ids: &Option<Vec<String>>, between: &str| ids.as_deref().unwrap_or_default().join(between);
            text.field("Valid", &count(checked.tasks.unwrap_or(0), "task", "tasks"));
            text.field("Order", &names(&checked.order, ", "));
            text.field("Longest way", &names(&checked.longest_way, " -> "));
            return text.0;
        }
        text.field("Invalid", &count(checked.problems.len() as u64, "problem", "problems"));
        for problem in &checked.problems {
            let at = match &problem.task {
                Some(task) => format!("task {task}, {}", problem.key),
                None => problem.key.clone(),
            };
            text.field(&format!("- {at}"), &problem.why);
        }
        text.0
    })?;
    Ok(if checked.value.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) async fn drawing(
    shared: &ServerConnection,
    plan: &PlanSource,
    format: PlanDrawing,
) -> Result<(), CliError> {
    let mut request = PlanShowRequest { format: Some(format), ..PlanShowRequest::default() };
    match plan {
        PlanSource::Id(id) => request.plan_id = Some(id.clone()),
        PlanSource::File(file) | PlanSource::Request(file) => request.plan = Some(file.as_str().into()),
    }
    let drawn = shared.call_typed::<PlanShowAnswer>("plan_show", &request).await?;
    shared.print_typed(&drawn, |drawn| plain(&drawn.drawing))
}

pub(super) async fn list(
    shared: &ServerConnection,
    limit: usize,
    page: Option<&str>,
) -> Result<(), CliError> {
    let request = PlanListRequest { page_size: Some(limit), page_token: page.map(str::to_owned) };
    let found = shared.call_typed::<PlanListAnswer>("plan_list", &request).await?;
    shared.print_typed(&found, |found| {
        let mut table = Table::new(&["PLAN", "STATE", "OVER ", "TASKS ", "CHANGED", "NAME"]).whole(&["PLAN"]);
        for plan in &found.plans {
            table.row([
                plan.plan_id.clone(),
                plan.state.clone(),
                cell(&plan.over),
                cell(&plan.total),
                age(&plan.updated_at),
                cell(&plan.name),
            ]);
        }
        let mut text = TextOutput(if table.is_empty() { String::new() } else { table.show() });
        text.gap();
        text.field("Total", &cell(&found.total));
        if let Some(next) = &found.next_page_token {
            text.field("Next page", &format!("--page-token {next}"));
        }
        text.0
    })
}

pub(super) async fn cancel(shared: &ServerConnection, plan: &str) -> Result<(), CliError> {
    let request = PlanCancelRequest { plan_id: plan.to_owned() };
    let canceled = shared.call_typed::<PlanCancelAnswer>("plan_cancel", &request).await?;
    shared.print_typed(&canceled, |canceled| {
        let mut text = TextOutput::default();
        text.field("Plan", &canceled.plan_id);
        text.field("State", &canceled.state);
        text.0
    })
}

/// Prints the result of a plan: its subtasks with their agents, and the whole.
pub(super) fn ended(
    shared: &ServerConnection,
    status: &TypedAnswer<PlanStatusAnswer>,
) -> Result<(), CliError> {
    shared.print_typed(status, |status| {
        let mut text = TextOutput::default();
        text.field("Plan", &status.plan_id);
        text.field("State", &status.state);
        if let Some(message) = &status.message {
            text.field("Message", message);
        }
        let mut table = Table::new(&["TASK", "STATE", "AGENT", "TRIES ", "TIME ", "WHY"]).whole(&["TASK"]);
        for part in &status.parts {
            table.row([
                part.id.clone(),
                part.state.name().to_owned(),
                agent(part),
                cell(&part.attempts),
                millis(&part.duration_ms),
                part.why.clone().unwrap_or_default(),
            ]);
        }
        if !table.is_empty() {
            text.gap();
            text.0.push_str(&table.show());
            text.gap();
        }
        if let Some(result) = &status.result {
            text.block("Result", result);
        }
        text.0
    })
}

/// The agent that completed the subtask, and those that did not.
fn agent(part: &SubtaskStatus) -> String {
    let instead: Vec<&str> = part.rerouted_from.iter().map(|one| one.agent.as_str()).collect();
    match instead.is_empty() {
        true => cell(&part.agent),
        false => format!("{} (not {})", cell(&part.agent), instead.join(", ")),
    }
}
