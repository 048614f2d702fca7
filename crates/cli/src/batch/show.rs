//! Batches as text: one batch, its operations, and the list.

use nuncio_flows::batch::api::{
    BatchCounts, BatchListAnswer, BatchListRequest, BatchStatusAnswer, BatchStatusRequest, OperationAnswer,
    OperationStatus,
};
use serde_json::Value;

use crate::{
    error::CliError,
    program,
    server_connection::ServerConnection,
    table::{Table, age, cell, figure, millis},
    text::TextOutput,
    typed_answer::TypedAnswer,
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
    pub(super) fn of(status: &BatchStatusAnswer) -> Self {
        let BatchCounts { total, succeeded, failed, skipped } = status.counts;
        let [succeeded, failed, skipped] = [succeeded, failed, skipped].map(Option::unwrap_or_default);
        Self { succeeded, failed, skipped, total }
    }

    /// Operations that have ended, in any state.
    pub(super) fn done(self) -> u64 {
        self.succeeded + self.failed + self.skipped
    }
}

pub(super) fn is_over(status: &BatchStatusAnswer) -> bool {
    matches!(status.status.as_str(), "completed" | "failed" | "canceled" | "rejected")
}

/// Whether all operations succeeded.
pub(super) fn succeeded(status: &BatchStatusAnswer) -> bool {
    let BatchStatusCounts { failed, skipped, .. } = BatchStatusCounts::of(status);
    status.status == "completed" && failed == 0 && skipped == 0
}

pub(super) async fn status(
    shared: &ServerConnection,
    batch: &str,
    with_operations: bool,
) -> Result<(), CliError> {
    let mut status = shared.call_typed::<BatchStatusAnswer>("batch_status", &status_of(batch)).await?;
    if with_operations {
        let (json, operations) = operations(shared, batch).await?;
        status.json["operations"] = json.into();
        status.value.operations = Some(operations);
    }
    shared.print_typed(&status, |status| {
        let mut text = TextOutput::default();
        head(&mut text, status);
        if let Some(operations) = &status.operations {
            text.gap();
            text.0.push_str(&operation_table(operations));
        }
        text.0
    })
}

/// The request for the status of a batch, without its operations.
pub(super) fn status_of(batch: &str) -> BatchStatusRequest {
    BatchStatusRequest { batch_id: batch.to_owned(), operations: None, offset: None, limit: None }
}

/// All operations of a batch, page by page: as they were sent, and as they are read.
async fn operations(
    shared: &ServerConnection,
    batch: &str,
) -> Result<(Vec<Value>, Vec<OperationAnswer>), CliError> {
    let mut request = BatchStatusRequest { operations: Some(true), limit: Some(PAGE), ..status_of(batch) };
    let (mut json, mut all) = (vec![], vec![]);
    loop {
        let mut page: TypedAnswer<BatchStatusAnswer> =
            shared.call_typed_with_retry("batch_status", &request).await?;
        if let Value::Array(some) = page.json["operations"].take() {
            json.extend(some);
        }
        all.extend(page.value.operations.unwrap_or_default());
        request.offset = page.value.next_offset.map(|next| next as usize);
        if request.offset.is_none() {
            return Ok((json, all));
        }
    }
}

fn operation_table(operations: &[OperationAnswer]) -> String {
    let mut table = Table::new(&["ID", "TYPE", "STATUS", "TRIES ", "TIME ", "ERROR"]);
    for operation in operations {
        table.row([
            operation.id.clone(),
            operation.kind.clone(),
            cell(&operation.status),
            cell(&operation.attempts),
            millis(&operation.duration_ms),
            operation.error.clone().unwrap_or_default(),
        ]);
    }
    table.show()
}

pub(super) async fn list(
    shared: &ServerConnection,
    limit: usize,
    page: Option<&str>,
) -> Result<(), CliError> {
    let request =
        BatchListRequest { status: None, page_size: Some(limit), page_token: page.map(str::to_owned) };
    let found = shared.call_typed::<BatchListAnswer>("batch_list", &request).await?;
    shared.print_typed(&found, |found| {
        let mut table = Table::new(&[
            "BATCH",
            "STATUS",
            "DONE ",
            "TOTAL ",
            "SUCCEEDED ",
            "FAILED ",
            "SKIPPED ",
            "CHANGED",
        ])
        .whole(&["BATCH"])
        .optional(&["SKIPPED", "SUCCEEDED", "TOTAL", "CHANGED"]);
        for batch in &found.batches {
            table.row([
                batch.batch_id.clone(),
                if batch.waiting.is_some() { "waiting".into() } else { batch.status.clone() },
                whole(batch.done),
                whole(batch.total),
                cell(&batch.counts.succeeded),
                cell(&batch.counts.failed),
                cell(&batch.counts.skipped),
                age(&batch.changed),
            ]);
        }
        if table.is_empty() {
            return "There are no batches.\n".to_owned();
        }
        let mut text = TextOutput(table.show());
        text.gap();
        text.field("Total", &found.total.to_string());
        if let Some(next) = &found.next_page_token {
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
fn whole(count: Option<f64>) -> String {
    count.map_or_else(|| cell(&count), |number| format!("{number:.0}"))
}

/// The lines that every text about a batch starts with.
pub(super) fn begin(text: &mut TextOutput, batch: &str, status: &str, paused: bool, waiting: Option<&str>) {
    text.field("Batch", batch);
    text.field("Status", &format!("{status}{}", if paused { " (paused)" } else { "" }));
    if let Some(why) = waiting {
        text.field("Waiting", why);
        text.field("At once", &format!("{} batch config --set resourceMonitoring=false", program()));
    }
}

/// The lines about the status of a batch.
pub(super) fn head(text: &mut TextOutput, status: &BatchStatusAnswer) {
    begin(text, &status.batch_id, &status.status, status.paused, status.waiting.as_deref());
    if let Some(words) = &status.message {
        text.field("Message", words);
    }
    let counts = BatchStatusCounts::of(status);
    let total = counts.total.map_or("an unknown number".to_owned(), |total| total.to_string());
    text.field("Done", &format!("{} of {total}", counts.done()));
    text.field("Failed", &counts.failed.to_string());
    text.field("Skipped", &counts.skipped.to_string());
    let Some(metrics) = &status.metrics else { return };
    for (label, shown) in [
        ("Time", metrics.wall_ms.map(|ms| millis(&ms))),
        ("Concurrency", metrics.concurrency.map(|number| figure(&number))),
        ("Speed-up", metrics.speedup.map(|number| figure(&number))),
        ("Peak", metrics.peak_concurrency.map(|number| cell(&number))),
    ] {
        if let Some(shown) = shown {
            text.field(label, &shown);
        }
    }
}

/// The failed operations, and why.
pub(super) async fn failures(
    shared: &ServerConnection,
    text: &mut TextOutput,
    status: &BatchStatusAnswer,
) -> Result<(), CliError> {
    if BatchStatusCounts::of(status).failed == 0 {
        return Ok(());
    }
    let (_, operations) = operations(shared, &status.batch_id).await?;
    let failed: Vec<&OperationAnswer> =
        operations.iter().filter(|operation| operation.status == OperationStatus::Failed).collect();
    let mut table = Table::new(&["FAILED", "TYPE", "ERROR"]);
    for operation in failed.iter().take(FAILURES) {
        table.row([operation.id.clone(), operation.kind.clone(), cell(&operation.error)]);
    }
    text.gap();
    text.0.push_str(&table.show());
    if failed.len() > FAILURES {
        let (batch, flags) = (&status.batch_id, shared.flags());
        text.gap();
        text.field("All", &format!("{} batch status {batch}{flags} --operations", program()));
    }
    Ok(())
}
