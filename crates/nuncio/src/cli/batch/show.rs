//! Batches for people: one, its operations, and all of them.

use serde_json::{Value, json};

use crate::cli::{
    error::CliError,
    output,
    shared::Shared,
    table::{Table, age, cell, figure, millis},
    text::Text,
};

/// Failures that are told of in text.
const FAILURES: usize = 20;

/// How many operations of a batch stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Over, whichever way.
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) total: u64,
}

impl Counts {
    pub(super) fn of(status: &Value) -> Self {
        let counts = &status["counts"];
        let count = |name: &str| counts[name].as_u64().unwrap_or(0);
        let failed = count("failed");
        let done = count("succeeded") + failed + count("skipped") + count("canceled");
        Self { done, failed, total: count("total") }
    }
}

pub(super) fn id(batch: &Value) -> &str {
    batch["batchId"].as_str().unwrap_or_default()
}

pub(super) fn is_over(status: &Value) -> bool {
    matches!(status["state"].as_str(), Some("completed" | "failed" | "canceled" | "cancelled" | "rejected"))
}

pub(super) async fn status(shared: &Shared, batch: &str, operations: bool) -> Result<(), CliError> {
    let mut arguments = json!({ "batchId": batch });
    if operations {
        arguments["operations"] = true.into();
    }
    let status = shared.call("batch_status", arguments).await?;
    if shared.is_json() {
        return output::json_text(&status.to_string());
    }
    let mut text = Text::default();
    head(&mut text, &status);
    if operations {
        let mut table = Table::new(&["ID", "TYPE", "STATE", "TRIES ", "TIME ", "ERROR"]);
        for operation in status["operations"].as_array().into_iter().flatten() {
            table.row([
                cell(&operation["id"]),
                cell(&operation["type"]),
                cell(&operation["state"]),
                cell(&operation["attempts"]),
                millis(&operation["durationMs"]),
                cell(&operation["error"]),
            ]);
        }
        text.gap();
        text.0.push_str(&table.show());
    }
    output::text(&text.0)
}

pub(super) async fn list(shared: &Shared, limit: usize) -> Result<(), CliError> {
    let found = shared.call("batch_list", json!({ "limit": limit })).await?;
    shared.print(&found, |found| {
        let mut table = Table::new(&["BATCH", "STATE", "DONE ", "FAILED ", "TOTAL ", "STRATEGY", "STARTED"]);
        for batch in found["batches"].as_array().into_iter().flatten() {
            let counts = Counts::of(batch);
            table.row([
                cell(&batch["batchId"]),
                cell(&batch["state"]),
                counts.done.to_string(),
                counts.failed.to_string(),
                counts.total.to_string(),
                cell(&batch["strategy"]),
                age(&batch["startTime"]),
            ]);
        }
        if table.is_empty() { "There are no batches.\n".to_owned() } else { table.show() }
    })
}

/// What every word about a batch says first.
pub(super) fn head(text: &mut Text, status: &Value) {
    text.field("Batch", id(status));
    if let Some(task) = status["taskId"].as_str().filter(|task| *task != id(status)) {
        text.field("Task", task);
    }
    text.field("State", &cell(&status["state"]));
    if status["counts"].is_object() {
        let Counts { done, failed, total } = Counts::of(status);
        text.field("Done", &format!("{done} of {total}"));
        text.field("Failed", &failed.to_string());
    }
    for (label, member, shown) in [
        ("Wall time", "wallMs", millis as fn(&Value) -> String),
        ("Speed-up", "speedup", figure),
        ("Peak", "peakConcurrency", cell),
    ] {
        if let Some(value) = status.get(member).filter(|value| !value.is_null()) {
            text.field(label, &shown(value));
        }
    }
}

/// What failed, and why.
pub(super) fn failures(text: &mut Text, status: &Value) {
    let failed = status["failures"].as_array().map(Vec::as_slice).unwrap_or_default();
    if failed.is_empty() {
        return;
    }
    let mut table = Table::new(&["FAILED", "ERROR"]);
    for operation in failed.iter().take(FAILURES) {
        table.row([cell(&operation["id"]), cell(&operation["error"])]);
    }
    text.gap();
    text.0.push_str(&table.show());
}
