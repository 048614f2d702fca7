//! Waiting for what passes: a store that is away for a moment, or a rate that is used up, must not become what the
//! journal keeps as the result of a step.

use std::time::Duration;

use nuncio_engine::{AgentError, Error, StepContext, TaskContext};

use super::operation::OperationFailure;

/// The wait before the second try; each further one doubles it.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two tries.
const LONGEST: Duration = Duration::from_secs(30);
/// How long the batch's own records are tried in all, before the batch fails.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often an operation is tried within one attempt.
const TRIES: u32 = 5;
/// The longest wait within one attempt: what takes longer is left to the operation's own retries.
const SHORT: Duration = Duration::from_secs(5);

/// Tries until it is done, or fails of something that lasts. For what the batch itself keeps: a batch whose operations
/// are done does not fail because nobody could note it at once.
pub(crate) async fn retry_while_busy<T, F: Future<Output = Result<T, Error>>>(
    cx: &TaskContext,
    mut work: impl FnMut() -> F,
) -> Result<T, AgentError> {
    let (mut doubled, mut waited) = (FIRST, Duration::ZERO);
    loop {
        let error = match work().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let (Error::Busy { retry_after, .. } | Error::TooFast { retry_after, .. }) = &error else {
            return Err(AgentError::failed(error));
        };
        if waited >= PATIENCE {
            return Err(AgentError::failed(error));
        }
        let pause = doubled.max(*retry_after).min(LONGEST);
        tracing::debug!(%error, ?pause, "a batch waits for its records");
        tokio::select! {
            () = cx.canceled() => return Err(AgentError::Canceled),
            () = tokio::time::sleep(pause) => {}
        }
        waited += pause;
        doubled *= 2;
    }
}

/// Tries what an operation does a few times, as long as it is only told to come again soon.
pub(crate) async fn retry_briefly<T, F: Future<Output = Result<T, OperationFailure>>>(
    step: &StepContext,
    mut work: impl FnMut() -> F,
) -> Result<Result<T, OperationFailure>, AgentError> {
    for _ in 1..TRIES {
        match work().await {
            Err(OperationFailure { again: Some(after), .. })
                if (1..=SHORT.as_millis() as u64).contains(&after) =>
            {
                step.sleep(Duration::from_millis(after)).await?;
            }
            done => return Ok(done),
        }
    }
    Ok(work().await)
}
