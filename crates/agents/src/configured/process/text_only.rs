//! A program without the protocol: text in, text out, and the exit code decides.
//!
//! The whole run is one step, because the output may differ the next time. After a crash of this server it
//! runs again, and its artifact starts over.

use std::os::unix::process::ExitStatusExt as _;

use nuncio_engine::{AgentError, Chunk, Outcome, StepContext, TaskContext};
use serde::{Deserialize, Serialize};

use super::{
    super::spec::ProcessSpec,
    program::{AgentProcess, caller_variables, describe},
    slots::ProcessSlots,
};

/// The artifact with the program's output.
const OUTPUT: &str = "output";

/// The journaled result of a run.
#[derive(Debug, Serialize, Deserialize)]
enum TextRunResult {
    Well,
    Wrong(String),
}

pub(super) async fn run(
    spec: &ProcessSpec,
    places: &ProcessSlots,
    cx: &TaskContext,
) -> Result<Outcome, AgentError> {
    let went = cx.step("run", async |step| {
        let _place = places.acquire(cx).await?;
        let mut left = spec.restarts;
        loop {
            match once(spec, cx, &step).await? {
                // A program that was killed from outside has not reported a failure.
                (TextRunResult::Wrong(_), true) if left > 0 => left -= 1,
                (went, _) => return Ok(went),
            }
        }
    });
    match went.await? {
        TextRunResult::Well => Ok(Outcome::done()),
        TextRunResult::Wrong(why) => Err(AgentError::Failed(why)),
    }
}

/// The result of one run, and whether the program was killed before it had printed anything.
async fn once(
    spec: &ProcessSpec,
    cx: &TaskContext,
    step: &StepContext,
) -> Result<(TextRunResult, bool), AgentError> {
    let mut variables = vec![
        ("NUNCIO_TASK", cx.task_id().to_string()),
        ("NUNCIO_CONTEXT", cx.context_digest()),
        ("NUNCIO_KEY", step.idempotency_key()),
    ];
    variables.extend(caller_variables(spec, cx));
    let mut program = AgentProcess::start(spec, &variables)?;
    let stderr = std::sync::Arc::clone(&program.stderr);
    program.write(input(cx)).await;
    program.close_input();
    let mut printed = false;
    let print = async {
        while let Some(line) = program.next_line().await? {
            printed = true;
            step.artifact(Chunk::text(OUTPUT, line + "\n")).await?;
        }
        program.wait_for_exit().await.map_err(AgentError::failed)
    };
    let status = tokio::select! {
        biased;
        () = cx.canceled() => None,
        status = print => Some(status?),
        Err(error) = stderr.pump(cx) => return Err(error),
    };
    let Some(status) = status else {
        program.terminate();
        let grace = spec.grace.min(cx.engine().options().cancel_grace / 2);
        let _ = tokio::time::timeout(grace, program.wait()).await;
        return Err(AgentError::Canceled);
    };
    stderr.drain(cx).await?;
    if status.is_some_and(|status| status.success()) {
        if printed {
            step.artifact(Chunk::text(OUTPUT, "").complete()).await?;
        }
        return Ok((TextRunResult::Well, false));
    }
    let killed = status.is_some_and(|status| status.signal().is_some());
    Ok((
        TextRunResult::Wrong(format!("the program {}{}", describe(status), stderr.tail(cx))),
        killed && !printed,
    ))
}

/// The text, or the data as JSON if there is no text.
fn input(cx: &TaskContext) -> Vec<u8> {
    let text = cx.text();
    match cx.input().data() {
        Some(data) if text.is_empty() => format!("{data}\n").into_bytes(),
        _ => format!("{text}\n").into_bytes(),
    }
}
