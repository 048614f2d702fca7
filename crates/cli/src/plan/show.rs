//! `nuncio plan check|show|list|cancel`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::source::PlanSource;
use crate::{
    error::CliError,
    output,
    server_connection::ServerConnection,
    table::{Table, age, cell, count, millis},
    text::{TextOutput, plain},
};

pub(super) async fn check(shared: &ServerConnection, file: &str) -> Result<ExitCode, CliError> {
    let checked = shared.call("plan_check", json!({ "plan": file })).await?;
    let valid = checked["valid"] == true;
    shared.print(&checked, |checked| {
        let mut text = TextOutput::default();
        if valid {
            let tasks = checked["tasks"].as_u64().unwrap_or(0);
            text.field("Valid", &count(tasks, "task", "tasks"));
            text.field("Order", &names(&checked["order"], ", "));
            text.field("Longest way", &names(&checked["longestWay"], " -> "));
            return text.0;
        }
        let problems = checked["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
        text.field("Invalid", &count(problems.len() as u64, "problem", "problems"));
        for problem in problems {
            let at = match problem["task"].as_str() {
                Some(task) => format!("task {task}, {}", cell(&problem["key"])),
                None => cell(&problem["key"]),
            };
            text.field(&format!("- {at}"), &cell(&problem["why"]));
        }
        text.0
    })?;
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn names(list: &Value, between: &str) -> String {
    list.as_array().into_iter().flatten().map(cell).collect::<Vec<_>>().join(between)
}

pub(super) async fn drawing(
    shared: &ServerConnection,
    plan: &PlanSource,
    format: &str,
) -> Result<(), CliError> {
    let arguments = match plan {
        PlanSource::Id(id) => json!({ "planId": id, "format": format }),
        PlanSource::File(file) | PlanSource::Request(file) => json!({ "plan": file, "format": format }),
    };
    let drawn = shared.call("plan_show", arguments).await?;
    shared.print(&drawn, |drawn| plain(&cell(&drawn["drawing"])))
}

pub(super) async fn list(
    shared: &ServerConnection,
    limit: usize,
    page: Option<&str>,
) -> Result<(), CliError> {
    let mut arguments = json!({ "pageSize": limit });
    if let Some(page) = page {
        arguments["pageToken"] = page.into();
    }
    let found = shared.call("plan_list", arguments).await?;
    shared.print(&found, |found| {
        let mut table = Table::new(&["PLAN", "STATE", "OVER ", "TASKS ", "CHANGED", "NAME"]);
        for plan in found["plans"].as_array().into_iter().flatten() {
            table.row([
                cell(&plan["planId"]),
                cell(&plan["state"]),
                cell(&plan["over"]),
                cell(&plan["total"]),
                age(&plan["updatedAt"]),
                cell(&plan["name"]),
            ]);
        }
        let mut text = TextOutput(if table.is_empty() { String::new() } else { table.show() });
        text.gap();
        text.field("Total", &cell(&found["total"]));
        if let Some(next) = found["nextPageToken"].as_str() {
            text.field("Next page", &format!("--page-token {next}"));
        }
        text.0
    })
}

pub(super) async fn cancel(shared: &ServerConnection, plan: &str) -> Result<(), CliError> {
    let canceled = shared.call("plan_cancel", json!({ "planId": plan })).await?;
    shared.print(&canceled, |canceled| {
        let mut text = TextOutput::default();
        text.field("Plan", &cell(&canceled["planId"]));
        text.field("State", &cell(&canceled["state"]));
        text.0
    })
}

/// Prints the result of a plan: its subtasks with their agents, and the whole.
pub(super) fn ended(shared: &ServerConnection, status: &Value) -> Result<(), CliError> {
    if shared.is_json() {
        return output::json_text(&status.to_string());
    }
    let mut text = TextOutput::default();
    text.field("Plan", &cell(&status["planId"]));
    text.field("State", &cell(&status["state"]));
    if let Some(message) = status["message"].as_str() {
        text.field("Message", message);
    }
    let mut table = Table::new(&["TASK", "STATE", "AGENT", "TRIES ", "TIME ", "WHY"]);
    for part in status["parts"].as_array().into_iter().flatten() {
        table.row([
            cell(&part["task"]),
            cell(&part["state"]),
            agent(part),
            cell(&part["attempts"]),
            millis(&part["durationMs"]),
            part["why"].as_str().unwrap_or_default().to_owned(),
        ]);
    }
    if !table.is_empty() {
        text.gap();
        text.0.push_str(&table.show());
        text.gap();
    }
    if let Some(result) = status["result"].as_str() {
        text.block("Result", result);
    }
    output::text(&text.0)
}

/// The agent that completed the subtask, and those that did not.
fn agent(part: &Value) -> String {
    let instead: Vec<String> =
        part["reroutedFrom"].as_array().into_iter().flatten().map(|one| cell(&one["agent"])).collect();
    match instead.is_empty() {
        true => cell(&part["agent"]),
        false => format!("{} (not {})", cell(&part["agent"]), instead.join(", ")),
    }
}
