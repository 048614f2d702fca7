//! Workflows as text: one workflow, its history, and the list.

use serde_json::{Value, json};

use super::PHASES;
use crate::{
    error::CliError,
    program,
    server_connection::{ServerConnection, quoted},
    table::{Table, age, bytes, cell},
    text::TextOutput,
};

pub(super) async fn start(
    shared: &ServerConnection,
    goal: &str,
    context: Option<&str>,
) -> Result<(), CliError> {
    let mut arguments = json!({ "goal": goal });
    if let Some(context) = context {
        arguments["contextId"] = context.into();
    }
    let started = shared.call("sparc_start", arguments).await?;
    shared.print(&started, |started| {
        let id = cell(&started["contextId"]);
        let phase = cell(&started["currentPhase"]);
        let mut text = TextOutput::default();
        text.field("Workflow", &id);
        text.field("Phase", &phase);
        text.field("Brief", &format!("{} sparc template {phase}{}", program(), shared.flags()));
        text.field("Next", &format!("{} sparc submit {id}{} FILE", program(), shared.flags()));
        text.0
    })
}

pub(super) async fn list(
    shared: &ServerConnection,
    limit: usize,
    after: Option<&str>,
) -> Result<(), CliError> {
    let mut arguments = json!({ "limit": limit });
    if let Some(after) = after {
        arguments["after"] = after.into();
    }
    let found = shared.call("sparc_list", arguments).await?;
    shared.print(&found, |found| {
        let mut table = Table::new(&["WORKFLOW", "PHASE", "STATUS", "STARTED", "GOAL"]);
        for workflow in found["workflows"].as_array().into_iter().flatten() {
            let status = if workflow["done"] == true { "done".to_owned() } else { cell(&workflow["status"]) };
            table.row([
                cell(&workflow["contextId"]),
                cell(&workflow["currentPhase"]),
                status,
                age(&workflow["startTime"]),
                cell(&workflow["goal"]),
            ]);
        }
        if table.is_empty() {
            return "There are no workflows.\n".to_owned();
        }
        let mut text = TextOutput(table.show());
        if let Some(next) = found["next"].as_str() {
            text.gap();
            text.field(
                "Next",
                &format!("{} sparc list{} --after {}", program(), shared.flags(), quoted(next)),
            );
        }
        text.0
    })
}

pub(super) async fn workflow(shared: &ServerConnection, context: &str) -> Result<(), CliError> {
    let found = shared.call("sparc_status", json!({ "contextId": context })).await?;
    print(shared, &found)
}

/// Prints a whole workflow.
pub(super) fn print(shared: &ServerConnection, workflow: &Value) -> Result<(), CliError> {
    shared.print(workflow, |workflow| {
        let metadata = &workflow["metadata"];
        let mut text = TextOutput::default();
        text.field("Workflow", &cell(&workflow["contextId"]));
        if let Some(goal) = metadata["goal"].as_str() {
            text.field("Goal", goal);
        }
        let done = if workflow["done"] == true { " (all phases have passed)" } else { "" };
        text.field("Phase", &format!("{}{done}", cell(&workflow["currentPhase"])));
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
            gate_words(phase),
        ]);
    }
    table.show()
}

/// What blocks a phase, if anything does.
fn gate_words(phase: &Value) -> String {
    let problems = problems(&phase["gate"]);
    let mut words: Vec<String> = phase["reason"].as_str().map(str::to_owned).into_iter().collect();
    match problems.as_slice() {
        [] => {}
        [one] => words.push(one.clone()),
        [first, more @ ..] => words.push(format!("{first} (and {} more)", more.len())),
    }
    words.join("; ")
}

fn artifact_table(artifacts: &[Value]) -> String {
    let mut table = Table::new(&["ARTIFACT", "VERSION ", "SIZE ", "PASSED", "CREATED"]);
    for artifact in artifacts {
        table.row([
            cell(&artifact["uri"]),
            cell(&artifact["version"]),
            bytes(&artifact["size"]),
            cell(&artifact["passed"]),
            age(&artifact["created"]),
        ]);
    }
    table.show()
}

/// The violations that a gate found.
pub(super) fn problems(gate: &Value) -> Vec<String> {
    let words = |violation: &Value| match violation["path"].as_str() {
        None | Some("") => cell(&violation["message"]),
        Some(path) => format!("{path}: {}", cell(&violation["message"])),
    };
    gate["violations"].as_array().into_iter().flatten().map(words).collect()
}

/// The number of passed phases.
pub(super) fn passed(workflow: &Value) -> u64 {
    PHASES.iter().filter(|phase| workflow["phases"][**phase]["status"] == "passed").count() as u64
}

pub(super) async fn history(shared: &ServerConnection, context: &str) -> Result<(), CliError> {
    let mut arguments = json!({ "contextId": context });
    let mut whole = shared.call_with_retry("sparc_history", &arguments).await?;
    // All pages; the server bounds how much that can be.
    while let Some(next) = whole["next"].as_u64() {
        arguments["after"] = next.into();
        let mut page = shared.call_with_retry("sparc_history", &arguments).await?;
        whole["next"] = page["next"].take();
        if let (Some(entries), Value::Array(more)) = (whole["entries"].as_array_mut(), page["entries"].take())
        {
            entries.extend(more);
        }
    }
    shared.print(&whole, |whole| {
        let mut table = Table::new(&["N ", "WHEN", "WHO", "WHAT", "PHASE", "VERSION ", "OUTCOME", "DETAIL"]);
        for entry in whole["entries"].as_array().into_iter().flatten() {
            let who = &entry["who"];
            table.row([
                cell(&entry["n"]),
                age(&entry["when"]),
                cell(who.get("agent").filter(|agent| !agent.is_null()).unwrap_or(&who["caller"])),
                cell(&entry["what"]),
                cell(&entry["phase"]),
                cell(&entry["version"]),
                cell(&entry["outcome"]),
                cell(&entry["detail"]),
            ]);
        }
        table.show()
    })
}
