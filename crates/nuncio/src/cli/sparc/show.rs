//! Workflows for people: one, its history, and all of them.

use serde_json::{Value, json};

use super::PHASES;
use crate::cli::{
    error::CliError,
    output, program,
    shared::Shared,
    table::{Table, age, bytes, cell},
    text::Text,
};

pub(super) async fn start(shared: &Shared, goal: &str, context: Option<&str>) -> Result<(), CliError> {
    let mut arguments = json!({ "goal": goal });
    if let Some(context) = context {
        arguments["contextId"] = context.into();
    }
    let started = shared.call("sparc_start", arguments).await?;
    shared.print(&started, |started| {
        let id = cell(&started["contextId"]);
        let phase = cell(&started["currentPhase"]);
        let mut text = Text::default();
        text.field("Workflow", &id);
        text.field("Phase", &phase);
        text.field("Brief", &format!("{} sparc template {phase}{}", program(), shared.flags()));
        text.field("Next", &format!("{} sparc submit {id}{} FILE", program(), shared.flags()));
        text.0
    })
}

pub(super) async fn list(shared: &Shared, limit: usize) -> Result<(), CliError> {
    let found = shared.call("sparc_list", json!({ "limit": limit })).await?;
    shared.print(&found, |found| {
        let mut table = Table::new(&["WORKFLOW", "PHASE", "STATUS", "STARTED", "GOAL"]);
        for workflow in found["workflows"].as_array().into_iter().flatten() {
            table.row([
                cell(&workflow["contextId"]),
                cell(&workflow["currentPhase"]),
                cell(&workflow["status"]),
                age(&workflow["startTime"]),
                cell(&workflow["goal"]),
            ]);
        }
        if table.is_empty() { "There are no workflows.\n".to_owned() } else { table.show() }
    })
}

pub(super) async fn workflow(shared: &Shared, context: &str) -> Result<(), CliError> {
    let found = shared.call("sparc_status", json!({ "contextId": context })).await?;
    print(shared, &found)
}

/// Prints a whole workflow.
pub(super) fn print(shared: &Shared, workflow: &Value) -> Result<(), CliError> {
    shared.print(workflow, |workflow| {
        let metadata = &workflow["metadata"];
        let mut text = Text::default();
        text.field("Workflow", &cell(&workflow["contextId"]));
        if let Some(goal) = metadata["goal"].as_str() {
            text.field("Goal", goal);
        }
        text.field("Phase", &cell(&workflow["currentPhase"]));
        text.field("Started", &age(&metadata["startTime"]));
        text.gap();
        text.0.push_str(&phases(workflow));
        let artifacts = workflow["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
        if !artifacts.is_empty() {
            text.gap();
            text.0.push_str(&artifact_table(artifacts));
        }
        text.0
    })
}

fn phases(workflow: &Value) -> String {
    let mut table = Table::new(&["PHASE", "STATUS", "ATTEMPTS ", "PASSED", "GATE"]);
    for name in PHASES {
        let phase = &workflow["phases"][name];
        table.row([
            name.to_owned(),
            cell(&phase["status"]),
            cell(&phase["attempts"]),
            age(&phase["passedAt"]),
            problems(&phase["gate"]).join("; "),
        ]);
    }
    table.show()
}

fn artifact_table(artifacts: &[Value]) -> String {
    let mut table = Table::new(&["ARTIFACT", "VERSION ", "SIZE ", "PASSED", "CREATED"]);
    for artifact in artifacts {
        table.row([
            cell(artifact.get("uri").unwrap_or(&artifact["phase"])),
            cell(&artifact["version"]),
            bytes(&artifact["size"]),
            cell(&artifact["passed"]),
            age(&artifact["created"]),
        ]);
    }
    table.show()
}

/// What a gate found wrong.
pub(super) fn problems(gate: &Value) -> Vec<String> {
    let list = ["problems", "failures", "errors"].into_iter().find_map(|name| gate[name].as_array());
    let words = |problem: &Value| match problem {
        Value::Object(_) => {
            let place = problem["path"].as_str().or(problem["at"].as_str()).unwrap_or_default();
            let what = cell(problem.get("message").unwrap_or(&problem["what"]));
            if place.is_empty() { what } else { format!("{place}: {what}") }
        }
        other => cell(other),
    };
    list.into_iter().flatten().map(words).collect()
}

/// How many phases have passed.
pub(super) fn passed(workflow: &Value) -> u64 {
    PHASES.iter().filter(|phase| workflow["phases"][**phase]["status"] == "passed").count() as u64
}

pub(super) async fn history(shared: &Shared, context: &str) -> Result<(), CliError> {
    let found = shared.call("sparc_history", json!({ "contextId": context })).await?;
    if shared.is_json() {
        return output::json_text(&found.to_string());
    }
    let entries = found["entries"].as_array().or(found["history"].as_array());
    let mut table = Table::new(&["N ", "WHEN", "WHO", "WHAT", "PHASE", "VERSION ", "OUTCOME", "DETAIL"]);
    for entry in entries.into_iter().flatten() {
        let by = &entry["by"];
        let who = by.get("agent").filter(|agent| !agent.is_null()).or(by.get("caller")).unwrap_or(by);
        table.row([
            cell(&entry["n"]),
            age(&entry["at"]),
            cell(who),
            cell(&entry["what"]),
            cell(&entry["phase"]),
            cell(&entry["version"]),
            cell(&entry["outcome"]),
            cell(&entry["detail"]),
        ]);
    }
    output::text(&table.show())
}
