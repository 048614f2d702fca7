//! Retries for transient errors: a store that is briefly unavailable, or an exhausted rate limit, must not be
//! journaled as the result of a step.

use std::time::Duration;

use nuncio_engine::{AgentError, Error, StepContext, TaskContext};

use super::operation::OperationFailure;

/// The wait before the second attempt; it doubles before each further one.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(30);
/// The total time for which access to the batch's own records is retried before the batch fails.
const PATIENCE: Duration = Duration::from_secs(600);
/// Maximum calls within one attempt of an operation.
const TRIES: u32 = 5;
/// The longest wait within one attempt; a longer one is left to the operation's own retries.
const SHORT: Duration = Duration::from_secs(5);

/// Retries until the work succeeds or fails permanently. For the batch's own records: a batch whose operations
/// are done must not fail because its result could not be recorded at once.
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
        tracing::debug!(%error, ?pause, "the records of a batch are unavailable; retrying");
        tokio::select! {
            () = cx.canceled() => return Err(AgentError::Canceled),
            () = tokio::time::sleep(pause) => {}
        }
        waited += pause;
        doubled *= 2;
    }
}

/// Calls an operation's work a few times, as long as its error asks for a short wait before the next call.
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
