//! `nuncio batch watch`: shows a batch while it runs, and its result. Survives a restart of the server.

use std::{process::ExitCode, time::Instant};

use nuncio_flows::batch::{QUEUE_URI, api::BatchStatusAnswer};

use super::show::{self, BatchStatusCounts};
use crate::{
    error::CliError, output, program, progress::ProgressDisplay, server_connection::ServerConnection,
    task_follower::TaskFollower, text::TextOutput,
};

pub(super) async fn run(shared: &ServerConnection, batch: &str) -> Result<ExitCode, CliError> {
    shared.record_task(batch);
    let mut progress = ProgressDisplay::new(shared.is_json());
    let (begun, mut before) = (Instant::now(), None);
    let (mut waiting, mut most) = (None, None);
    // The batch's task, and the queue: a batch that is paused has no event.
    let mut follower =
        TaskFollower::of_resources(shared, vec![format!("a2a://tasks/{batch}"), QUEUE_URI.to_owned()]);
    let status = loop {
        let status = shared.poll_typed::<BatchStatusAnswer>("batch_status", &show::status_of(batch)).await?;
        let counts = furthest(most, BatchStatusCounts::of(&status.value));
        most = Some(counts);
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
        if status.value.waiting != waiting {
            waiting.clone_from(&status.value.waiting);
            if let Some(why) = &waiting {
                progress.announce(&why_it_waits(why));
            }
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

/// The counts that are shown: between its last operation and its result a batch reports none, and after a restart it
/// counts anew.
fn furthest(shown: Option<BatchStatusCounts>, reported: BatchStatusCounts) -> BatchStatusCounts {
    shown.filter(|shown| shown.done() > reported.done()).unwrap_or(reported)
}

/// Why no operation begins, and for how long that can be.
fn why_it_waits(why: &str) -> String {
    format!(
        "the batch waits: {why}. After batch.load-wait it begins with one operation at a time; `{} batch config --set \
         resourceMonitoring=false` begins it at once, and `{0} batch config` shows the thresholds",
        program()
    )
}

fn render_batch_progress(status: &BatchStatusAnswer, counts: BatchStatusCounts, rate: f64) -> String {
    let failed = match counts.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = if rate > 0.0 { format!(", {rate:.1}/s") } else { String::new() };
    let paused = if status.paused { ", paused" } else { "" };
    let waiting = if status.waiting.is_some() { ", waiting for the machine" } else { "" };
    format!("done{failed}{rate}{paused}{waiting}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_does_not_go_back() {
        let counts = |succeeded, total| BatchStatusCounts { succeeded, failed: 0, skipped: 0, total };
        let two = counts(2, Some(3));
        assert_eq!(furthest(None, two), two);
        assert_eq!(furthest(Some(two), counts(0, None)), two);
        assert_eq!(furthest(Some(two), counts(3, Some(3))), counts(3, Some(3)));
    }

    #[test]
    fn progress_says_why_nothing_moves() {
        let counts = BatchStatusCounts { succeeded: 0, failed: 0, skipped: 0, total: Some(3) };
        let waiting = BatchStatusAnswer { waiting: Some("busy".into()), ..BatchStatusAnswer::default() };
        assert_eq!(render_batch_progress(&waiting, counts, 0.0), "done, waiting for the machine");
        assert!(
            why_it_waits("95 % of memory is in use")
                .contains("waits: 95 % of memory is in use. After batch.load-wait")
        );
        assert!(why_it_waits("busy").contains("batch config --set resourceMonitoring=false"));
    }
}
