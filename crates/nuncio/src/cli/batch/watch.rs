//! `nuncio batch watch`: a batch while it is worked on, and how it ended. The server may go and come back meanwhile.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::show::{self, Counts};
use crate::cli::{error::CliError, output, progress::Progress, shared::Shared, text::Text};

/// How often a batch is asked for, from the first time on.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: &Shared, batch: &str) -> Result<ExitCode, CliError> {
    shared.saw(batch);
    let mut progress = Progress::new(shared.is_json());
    let (begun, mut pause, mut before) = (Instant::now(), OFTEN, None);
    let status = loop {
        let status = shared.look("batch_status", &json!({ "batchId": batch })).await?;
        let counts = Counts::of(&status);
        let first = *before.get_or_insert(counts.done());
        let rate = counts.done().saturating_sub(first) as f64 / begun.elapsed().as_secs_f64().max(0.001);
        progress.at(counts.done(), counts.total, &words(&status, counts, rate));
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
        let mut text = Text::default();
        show::head(&mut text, &status);
        show::failures(shared, &mut text, &status).await?;
        output::text(&text.0)?;
    }
    Ok(if show::succeeded(&status) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn words(status: &Value, counts: Counts, rate: f64) -> String {
    let failed = match counts.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = if rate > 0.0 { format!(", {rate:.1}/s") } else { String::new() };
    let paused = if status["paused"] == true { ", paused" } else { "" };
    format!("done{failed}{rate}{paused}")
}
