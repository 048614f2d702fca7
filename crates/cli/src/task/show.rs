//! `nuncio task show`: all that a Nuncio server knows of a task, for a caller or for the operator.

mod questions;

use clap::Args;
use nuncio_engine::access::tenant_of;
use serde_json::{Value, json};

use self::questions::{ShownQuestion, questions_of};
use super::operator::{TenantTaskFlags, data_flag};
use crate::{
    connection::{AgentConnection, AgentFlags},
    console_client::{ConsoleClient, ConsoleClientError},
    error::CliError,
    output, program,
    table::{Table, age, cell, millis, time_since},
    text::TextOutput,
};

/// Events of a page, the most that the console API has.
const PAGE: usize = 1000;
/// Bytes of an event's data.
const PREVIEW: usize = 16 * 1024;
/// Characters of a step's result and of an answer that are shown as text.
const SHORT: usize = 200;

#[derive(Args)]
pub(crate) struct Flags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    #[command(flatten)]
    pub(crate) server: TaskServerFlags,
}

/// The flags of commands that read a task from a Nuncio server.
#[derive(Args)]
pub(crate) struct TaskServerFlags {
    #[command(flatten)]
    operator: TenantTaskFlags,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

/// A task on a server.
pub(super) struct ServerTask<'a> {
    pub(super) id: String,
    pub(super) connection: &'a AgentConnection,
    pub(super) console: &'a ConsoleClient,
    /// The flags that name the server, for suggested commands; with a leading space.
    pub(super) flags: String,
    /// What `GET /tasks/{id}` of the console API answers.
    pub(super) details: Value,
}

impl TaskServerFlags {
    /// Runs the work with a task of the server, within `--timeout` and until Ctrl-C.
    pub(super) async fn run_with_task(
        self,
        id: String,
        work: impl AsyncFnOnce(ServerTask<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let TaskServerFlags { operator, agent } = self;
        if operator.tenant.is_some() {
            super::operator::refuse_agent(agent.agent_name())?;
        }
        let connection = agent.resolve()?;
        let reading = async {
            let (console, flags) = match &operator.tenant {
                Some(tenant) => (
                    ConsoleClient::of_folder(operator.data.clone())?,
                    format!(" --tenant {tenant}{}", data_flag(&operator)),
                ),
                None => (ConsoleClient::of_agent(&connection).await?, connection.target.flags.clone()),
            };
            let details: Value = console.get(&["tasks", &id], &[]).await?;
            let owner = details["row"]["owner"].as_str().unwrap_or_default();
            if operator.tenant.as_ref().is_some_and(|tenant| tenant_of(owner) != tenant) {
                return Err(console.failed(ConsoleClientError::Refused {
                    status: 404,
                    code: "not_found".to_owned(),
                    message: format!("Task not found: {id}"),
                    retry_after: None,
                    supplied: true,
                }));
            }
            work(ServerTask { id, connection: &connection, console: &console, flags, details }).await
        };
        connection.bounded(reading).await
    }
}

pub(super) async fn run(flags: Flags) -> Result<(), CliError> {
    let Flags { task, server } = flags;
    server.run_with_task(task, async |task| show(&task).await).await
}

async fn show(task: &ServerTask<'_>) -> Result<(), CliError> {
    let family: Value = task.console.get(&["tasks", &task.id, "family"], &[]).await?;
    let journal = journal_of(task).await?;
    let status = last_status(task).await?;
    let ended = is_over(&task.details);
    let questions = questions_of(task, ended).await?;
    if task.connection.output.is_json() {
        let questions: Vec<Value> = questions.iter().map(ShownQuestion::json).collect();
        let whole = json!({
            "task": task.details, "family": family, "journal": journal, "status": status, "questions": questions,
        });
        return output::json_text(&whole.to_string());
    }
    let mut text = TextOutput::default();
    show_head(&mut text, &task.details, reason(&status, &task.details, &questions).as_deref());
    show_family(&mut text, &family);
    show_journal(&mut text, &journal);
    questions::show(&mut text, &questions);
    text.gap();
    text.field("Events", &format!("{} task events {}{}", program(), task.id, task.flags));
    text.field("Log", &format!("{} task log {}{}", program(), task.id, task.flags));
    output::text(&text.0)
}

fn is_over(details: &Value) -> bool {
    matches!(
        details["row"]["state"].as_str(),
        Some("completed" | "failed" | "canceled" | "rejected" | "replied")
    )
}

/// The whole journal, page by page.
async fn journal_of(task: &ServerTask<'_>) -> Result<Value, CliError> {
    let path = ["tasks", &task.id, "journal"];
    let mut journal: Value = task.console.get(&path, &[]).await?;
    while let Some(after) = journal["next"].as_u64() {
        let mut page: Value = task.console.get(&path, &[("after", after.to_string())]).await?;
        let (Value::Array(more), Some(effects)) = (page["effects"].take(), journal["effects"].as_array_mut())
        else {
            break;
        };
        effects.extend(more);
        journal["next"] = page["next"].take();
    }
    Ok(journal)
}

/// The last event that changed the task's state; null if there is none among the last ones.
async fn last_status(task: &ServerTask<'_>) -> Result<Value, CliError> {
    let query = [
        ("kind", "status".to_owned()),
        ("before", i64::MAX.to_string()),
        ("limit", "1".to_owned()),
        ("preview", PREVIEW.to_string()),
    ];
    let mut page: Value = task.console.get(&["tasks", &task.id, "events"], &query).await?;
    Ok(page["events"].as_array_mut().and_then(Vec::pop).unwrap_or_default())
}

/// Why the task is in its state: what its agent said of it, or what it waits for.
fn reason(status: &Value, details: &Value, questions: &[ShownQuestion]) -> Option<String> {
    let open = questions.iter().find(|question| question.is_open());
    open.map(|question| format!("it asks: {}", question.text))
        .or_else(|| message_text(&status["data"]["message"]))
        .or_else(|| details["row"]["why"].as_str().map(str::to_owned))
}

fn show_head(text: &mut TextOutput, details: &Value, reason: Option<&str>) {
    let row = &details["row"];
    text.field("Task", &cell(&row["taskId"]));
    text.field("State", &cell(&row["state"]));
    if let Some(why) = reason {
        text.field("Reason", why);
    }
    let version = details["agentVersion"].as_str().map(|version| format!(" (version {version})"));
    text.field("Agent", &format!("{}{}", cell(&row["agent"]), version.unwrap_or_default()));
    text.field("Caller", &format!("{} over {}", cell(&row["owner"]), cell(&details["origin"]["dialect"])));
    text.field("Context", &cell(&row["contextId"]));
    if let Some(request) = row["firstText"].as_str() {
        text.field("Request", request);
    }
    let at = |value: &Value| format!("{} ({})", cell(value), age(value));
    text.field("Created", &at(&row["createdAt"]));
    text.field("Changed", &at(&row["statusAt"]));
    text.field("Ran", &millis(&details["ranMs"]));
    if let Some(node) = details["node"].as_str() {
        text.field("Node", node);
    }
    // Each claim of a node has the next number: also that of a run which committed nothing, and left no record.
    text.field("Runs", &cell(&details["epoch"]));
    text.field(
        "Size",
        &format!("{} events, {}", cell(&row["events"]), crate::table::bytes(&details["bytes"])),
    );
    if row["cancelRequested"] == true {
        text.field("Cancel", "requested");
    }
    if let Some(from) = details["forkedFrom"]["taskId"].as_str() {
        text.field("Fork of", &format!("{from}, event {}", cell(&details["forkedFrom"]["at"])));
    }
}

/// The texts of a message, joined.
fn message_text(message: &Value) -> Option<String> {
    let parts = message["parts"].as_array()?;
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn show_family(text: &mut TextOutput, family: &Value) {
    for caller in family["callers"].as_array().into_iter().flatten() {
        text.field("Called by", &format!("{} of {}", cell(&caller["taskId"]), cell(&caller["agent"])));
    }
    let called = family["called"].as_array().map(Vec::as_slice).unwrap_or_default();
    if called.is_empty() {
        return;
    }
    let mut table =
        Table::new(&["SUBTASK", "AGENT", "STATE", "AGE ", "REQUEST"]).whole(&["SUBTASK", "STATE", "AGE"]);
    for row in called {
        table.row([
            cell(&row["taskId"]),
            cell(&row["agent"]),
            cell(&row["state"]),
            time_since(&row["createdAt"]),
            cell(&row["firstText"]),
        ]);
    }
    text.gap();
    text.0.push_str(&table.optional(&["REQUEST", "AGE", "AGENT"]).show());
    if family["more"] == true {
        text.0.push_str("There are more.\n");
    }
}

fn show_journal(text: &mut TextOutput, journal: &Value) {
    let runs = journal["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !runs.is_empty() {
        let mut table =
            Table::new(&["RUN ", "NODE", "BEGAN", "TIME ", "END", "ATTEMPTS "]).whole(&["RUN", "END"]);
        for run in runs {
            table.row([
                cell(&run["epoch"]),
                cell(&run["node"]),
                cell(&run["beganAt"]),
                duration_between(&run["beganAt"], &run["endedAt"]),
                cell(&run["end"]),
                cell(&run["attempts"]),
            ]);
        }
        text.gap();
        text.0.push_str(&table.optional(&["NODE", "ATTEMPTS"]).show());
    }
    let effects = journal["effects"].as_array().map(Vec::as_slice).unwrap_or_default();
    if effects.is_empty() {
        return;
    }
    let mut table =
        Table::new(&["STEP", "KIND", "NAME", "BEGAN", "TIME ", "RESULT"]).whole(&["STEP", "KIND", "NAME"]);
    for effect in effects {
        table.row([
            cell(&effect["position"]),
            cell(&effect["kind"]),
            effect_name(effect),
            cell(&effect["beganAt"]),
            duration_between(&effect["beganAt"], &effect["endedAt"]),
            effect_result(effect),
        ]);
    }
    text.gap();
    text.0.push_str(&table.optional(&["BEGAN", "RESULT"]).show());
}

fn effect_name(effect: &Value) -> String {
    match effect["kind"].as_str() {
        Some("sleep") => format!("until {}", cell(&effect["until"])),
        Some("call" | "refused-call") => cell(&effect["agent"]),
        Some("question") => short(&cell(&effect["text"])),
        _ => cell(&effect["name"]),
    }
}

fn effect_result(effect: &Value) -> String {
    match effect["kind"].as_str() {
        Some("call") => format!("{} {}", cell(&effect["taskId"]), cell(&effect["state"])),
        Some("refused-call") => format!("refused: {}", cell(&effect["why"])),
        Some("step") => {
            let outcome = if effect["ok"] == true { "ok" } else { "failed" };
            match effect["result"].as_str() {
                Some(result) => format!("{outcome}: {}", short(result)),
                None => outcome.to_owned(),
            }
        }
        _ => String::new(),
    }
}

/// The beginning of a text, in one line.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The time between two timestamps; a dash where one is not known.
fn duration_between(from: &Value, until: &Value) -> String {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    match (time(from), time(until)) {
        (Some(from), Some(until)) => {
            millis(&until.as_millisecond().saturating_sub(from.as_millisecond()).max(0))
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_shown_by_kind() {
        let check = |effect: Value, name: &str, result: &str| {
            assert_eq!([effect_name(&effect), effect_result(&effect)], [name, result], "{effect}");
        };
        check(json!({ "kind": "step", "name": "sources", "ok": true }), "sources", "ok");
        check(
            json!({ "kind": "step", "name": "fetch", "ok": false, "result": "no\nroute" }),
            "fetch",
            "failed: no route",
        );
        check(
            json!({ "kind": "call", "agent": "helper", "taskId": "t", "state": "completed" }),
            "helper",
            "t completed",
        );
        check(json!({ "kind": "refused-call", "agent": "x", "why": "no" }), "x", "refused: no");
        check(json!({ "kind": "question", "text": "Which?" }), "Which?", "");
        assert_eq!(short(&"ä".repeat(SHORT + 1)), format!("{}…", "ä".repeat(SHORT)));
    }

    #[test]
    fn times_between_are_measured_or_a_dash() {
        let (from, until) = (json!("2026-11-18T05:13:50.000Z"), json!("2026-11-18T05:13:51.500Z"));
        assert_eq!(duration_between(&from, &until), "1.5 s");
        assert_eq!(duration_between(&until, &from), "0.00 ms");
        assert_eq!(duration_between(&from, &Value::Null), "-");
    }
}
