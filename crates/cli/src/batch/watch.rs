//! `nuncio batch watch`: shows a batch while it runs, and its result. Survives a restart of the server.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::show::{self, BatchStatusCounts};
use crate::{
    error::CliError, output, progress::ProgressDisplay, server_connection::ServerConnection, text::TextOutput,
};

/// The first poll interval.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: &ServerConnection, batch: &str) -> Result<ExitCode, CliError> {
    shared.record_task(batch);
    let mut progress = ProgressDisplay::new(shared.is_json());
    let (begun, mut pause, mut before) = (Instant::now(), OFTEN, None);
    let status = loop {
        let status = shared.poll_tool("batch_status", &json!({ "batchId": batch })).await?;
        let counts = BatchStatusCounts::of(&status);
        let first = *before.get_or_insert(counts.done());
        let rate = counts.done().saturating_sub(first) as f64 / begun.elapsed().as_secs_f64().max(0.001);
        progress.update_progress(counts.done(), counts.total, &render_batch_progress(&status, counts, rate));
        if show::is_over(&status) {
            break status;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(SELDOM);
    };
    drop(progress);
    if shared.is_json() {
        output::json_text(&status.to_string())?;
    } else {
        let mut text = TextOutput::default();
        show::head(&mut text, &status);
        show::failures(shared, &mut text, &status).await?;
        output::text(&text.0)?;
    }
    Ok(if show::succeeded(&status) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render_batch_progress(status: &Value, counts: BatchStatusCounts, rate: f64) -> String {
    let failed = match counts.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = if rate > 0.0 { format!(", {rate:.1}/s") } else { String::new() };
    let paused = if status["paused"] == true { ", paused" } else { "" };
    format!("done{failed}{rate}{paused}")
}
