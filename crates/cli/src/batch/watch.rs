//! `nuncio batch watch`: shows a batch while it runs, and its result. Survives a restart of the server.

use std::{process::ExitCode, time::Instant};

use nuncio_flows::batch::{QUEUE_URI, api::BatchStatusAnswer};

use super::show::{self, BatchStatusCounts};
use crate::{
    error::CliError, output, progress::ProgressDisplay, server_connection::ServerConnection,
    task_follower::TaskFollower, text::TextOutput,
};

pub(super) async fn run(shared: &ServerConnection, batch: &str) -> Result<ExitCode, CliError> {
    shared.record_task(batch);
    let mut progress = ProgressDisplay::new(shared.is_json());
    let (begun, mut before) = (Instant::now(), None);
    // The batch's task, and the queue: a batch that is paused has no event.
    let mut follower =
        TaskFollower::of_resources(shared, vec![format!("a2a://tasks/{batch}"), QUEUE_URI.to_owned()]);
    let status = loop {
        let status = shared.poll_typed::<BatchStatusAnswer>("batch_status", &show::status_of(batch)).await?;
        let counts = BatchStatusCounts::of(&status.value);
        let first = *before.get_or_insert(counts.done());
        let rate = counts.done().saturating_sub(first) as f64 / begun.elapsed().as_secs_f64().max(0.001);
        progress.update_progress(
            counts.done(),
            counts.total,
            &render_batch_progress(&status.value, counts, rate),
        );
        if show::is_over(&status.value) {
            break status;
        }
        follower.next_change().await?;
    };
    drop(progress);
    if shared.is_json() {
        output::json_text(&status.json.to_string())?;
    } else {
        let mut text = TextOutput::default();
        show::head(&mut text, &status.value);
        show::failures(shared, &mut text, &status.value).await?;
        output::text(&text.0)?;
    }
    Ok(if show::succeeded(&status.value) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render_batch_progress(status: &BatchStatusAnswer, counts: BatchStatusCounts, rate: f64) -> String {
    let failed = match counts.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = if rate > 0.0 { format!(", {rate:.1}/s") } else { String::new() };
    let paused = if status.paused { ", paused" } else { "" };
    format!("done{failed}{rate}{paused}")
}
