//! Batches as text: one batch, its operations, and the list.

use serde_json::{Value, json};

use crate::{
    error::CliError,
    program,
    server_connection::ServerConnection,
    table::{Table, age, cell, figure, millis},
    text::TextOutput,
};

/// Operations per request.
const PAGE: usize = 1000;
/// The most failures shown as text.
const FAILURES: usize = 20;

/// How many operations of a batch are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchStatusCounts {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// `None`: not known yet.
    pub(super) total: Option<u64>,
}

impl BatchStatusCounts {
    pub(super) fn of(status: &Value) -> Self {
        let count = |name: &str| status["counts"][name].as_u64();
        let sure = |name: &str| count(name).unwrap_or(0);
        let total = count("total");
        Self { succeeded: sure("succeeded"), failed: sure("failed"), skipped: sure("skipped"), total }
    }

    /// Operations that have ended, in any state.
    pub(super) fn done(self) -> u64 {
        self.succeeded + self.failed + self.skipped
    }
}

pub(super) fn id(batch: &Value) -> &str {
    batch["batchId"].as_str().unwrap_or_default()
}

pub(super) fn is_over(status: &Value) -> bool {
    matches!(status["status"].as_str(), Some("completed" | "failed" | "canceled" | "rejected"))
}

/// Whether all operations succeeded.
pub(super) fn succeeded(status: &Value) -> bool {
    let BatchStatusCounts { failed, skipped, .. } = BatchStatusCounts::of(status);
    status["status"] == "completed" && failed == 0 && skipped == 0
}

pub(super) async fn status(
    shared: &ServerConnection,
    batch: &str,
    with_operations: bool,
) -> Result<(), CliError> {
    let mut status = shared.call("batch_status", json!({ "batchId": batch })).await?;
    if with_operations {
        status["operations"] = operations(shared, batch).await?.into();
    }
    shared.print(&status, |status| {
        let mut text = TextOutput::default();
        head(&mut text, status);
        if let Some(operations) = status["operations"].as_array() {
            text.gap();
            text.0.push_str(&operation_table(operations));
        }
        text.0
    })
}

/// All operations of a batch, page by page.
async fn operations(shared: &ServerConnection, batch: &str) -> Result<Vec<Value>, CliError> {
    let mut arguments = json!({ "batchId": batch, "operations": true, "limit": PAGE });
    let mut all = vec![];
    loop {
        let mut page = shared.call_with_retry("batch_status", &arguments).await?;
        if let Value::Array(some) = page["operations"].take() {
            all.extend(some);
        }
        match page["nextOffset"].as_u64() {
            Some(next) => arguments["offset"] = next.into(),
            None => return Ok(all),
        }
    }
}

fn operation_table(operations: &[Value]) -> String {
    let mut table = Table::new(&["ID", "TYPE", "STATUS", "TRIES ", "TIME ", "ERROR"]);
    for operation in operations {
        table.row([
            cell(&operation["id"]),
            cell(&operation["type"]),
            cell(&operation["status"]),
            cell(&operation["attempts"]),
            millis(&operation["durationMs"]),
            operation.get("error").map(cell).unwrap_or_default(),
        ]);
    }
    table.show()
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
    let found = shared.call("batch_list", arguments).await?;
    shared.print(&found, |found| {
        let mut table = Table::new(&[
            "BATCH",
            "STATUS",
            "DONE ",
            "TOTAL ",
            "SUCCEEDED ",
            "FAILED ",
            "SKIPPED ",
            "CHANGED",
        ]);
        for batch in found["batches"].as_array().into_iter().flatten() {
            table.row([
                cell(&batch["batchId"]),
                if batch["waiting"].is_string() { "waiting".into() } else { cell(&batch["status"]) },
                whole(&batch["done"]),
                whole(&batch["total"]),
                cell(&batch["counts"]["succeeded"]),
                cell(&batch["counts"]["failed"]),
                cell(&batch["counts"]["skipped"]),
                age(&batch["changed"]),
            ]);
        }
        if table.is_empty() {
            return "There are no batches.\n".to_owned();
        }
        let mut text = TextOutput(table.show());
        text.gap();
        text.field("Total", &cell(&found["total"]));
        if let Some(next) = found["nextPageToken"].as_str() {
            let flags = shared.flags();
            text.field(
                "Next",
                &format!("{} batch list{flags} --limit {limit} --page-token {next}", program()),
            );
        }
        text.0
    })
}

/// A count that arrives as a floating-point number.
fn whole(value: &Value) -> String {
    value.as_f64().map_or_else(|| cell(value), |number| format!("{number:.0}"))
}

/// The lines that every text about a batch starts with.
pub(super) fn head(text: &mut TextOutput, status: &Value) {
    text.field("Batch", id(status));
    let paused = if status["paused"] == true { " (paused)" } else { "" };
    text.field("Status", &format!("{}{paused}", cell(&status["status"])));
    if let Some(why) = status["waiting"].as_str() {
        text.field("Waiting", why);
    }
    if let Some(words) = status["message"].as_str() {
        text.field("Message", words);
    }
    if status["counts"].is_object() {
        let counts = BatchStatusCounts::of(status);
        let total = counts.total.map_or("an unknown number".to_owned(), |total| total.to_string());
        text.field("Done", &format!("{} of {total}", counts.done()));
        text.field("Failed", &counts.failed.to_string());
        text.field("Skipped", &counts.skipped.to_string());
    }
    let metrics = &status["metrics"];
    for (label, member, shown) in [
        ("Time", "wallMs", millis as fn(&Value) -> String),
        ("Concurrency", "concurrency", figure),
        ("Speed-up", "speedup", figure),
        ("Peak", "peakConcurrency", cell),
    ] {
        if let Some(value) = metrics.get(member).filter(|value| !value.is_null()) {
            text.field(label, &shown(value));
        }
    }
}

/// The failed operations, and why.
pub(super) async fn failures(
    shared: &ServerConnection,
    text: &mut TextOutput,
    status: &Value,
) -> Result<(), CliError> {
    if BatchStatusCounts::of(status).failed == 0 {
        return Ok(());
    }
    let operations = operations(shared, id(status)).await?;
    let failed: Vec<&Value> = operations.iter().filter(|operation| operation["status"] == "failed").collect();
    let mut table = Table::new(&["FAILED", "TYPE", "ERROR"]);
    for operation in failed.iter().take(FAILURES) {
        table.row([cell(&operation["id"]), cell(&operation["type"]), cell(&operation["error"])]);
    }
    text.gap();
    text.0.push_str(&table.show());
    if failed.len() > FAILURES {
        text.gap();
        text.field(
            "All",
            &format!("{} batch status {}{} --operations", program(), id(status), shared.flags()),
        );
    }
    Ok(())
}
