//! Retries inside a step: an error because the store is unavailable, the server is busy or the caller is
//! rate-limited is retried for a while, so that a short outage is not journaled as the permanent result of a step.

use std::time::Duration;

use nuncio_engine::{AgentError, StepContext};
use nuncio_outbound::Backoff;

/// The total wait before a transient error is returned.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// The first backoff, and the longest one; a wait that the error requests may be longer.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// An error that may be transient.
pub(crate) trait RetryableError {
    /// The wait before a retry; `None`: the error is permanent.
    fn retry_after(&self) -> Option<Duration>;
}

impl RetryableError for nuncio_engine::Error {
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } | Self::TooFast { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

/// Retries the work until it succeeds, fails permanently, or the total wait is used up. The outer error ends
/// the task.
pub(crate) async fn retry_step<T, E: RetryableError, W>(
    step: &StepContext,
    work: impl FnMut() -> W,
) -> Result<Result<T, E>, AgentError>
where
    W: Future<Output = Result<T, E>>,
{
    waiting(|wait| step.sleep(wait), work).await
}

async fn waiting<T, E: RetryableError, S, W>(
    mut sleep: impl FnMut(Duration) -> S,
    mut work: impl FnMut() -> W,
) -> Result<Result<T, E>, AgentError>
where
    S: Future<Output = Result<(), AgentError>>,
    W: Future<Output = Result<T, E>>,
{
    let (mut left, mut backoff) = (PATIENCE, Backoff::unlimited(FIRST_BACKOFF, LONGEST_BACKOFF));
    loop {
        let error = match work().await {
            Ok(done) => return Ok(Ok(done)),
            Err(error) => error,
        };
        let Some(asked) = error.retry_after() else { return Ok(Err(error)) };
        let wait = asked.max(backoff.take_pause(None));
        let Some(rest) = left.checked_sub(wait) else { return Ok(Err(error)) };
        sleep(wait).await?;
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use nuncio_engine::{Error, store::StoreError};

    use super::*;

    /// The result of work that fails this many times, and the wait before each retry.
    async fn after(
        failures: usize,
        fail: impl Fn() -> Error,
    ) -> (Result<Result<usize, Error>, AgentError>, Vec<Duration>) {
        let (mut tries, mut waits) = (0, vec![]);
        let done = waiting(
            |wait| {
                waits.push(wait);
                ready(Ok(()))
            },
            || {
                tries += 1;
                ready(if tries <= failures { Err(fail()) } else { Ok(tries) })
            },
        )
        .await;
        (done, waits)
    }

    #[tokio::test]
    async fn what_passes_is_waited_for() {
        let (done, waits) = after(3, || StoreError::Unavailable("restarting".into()).into()).await;
        assert!(matches!(done, Ok(Ok(4))), "{done:?}");
        assert_eq!(waits, [Duration::from_secs(2); 3]);
        let soon = || Error::TooFast { why: "rate.sparc".into(), retry_after: Duration::from_millis(1) };
        let (done, waits) = after(9, soon).await;
        assert!(matches!(done, Ok(Ok(10))), "{done:?}");
        assert_eq!(waits[..2], [Duration::from_millis(100), Duration::from_millis(200)]);
        assert_eq!(waits[8], Duration::from_secs(10));
    }

    #[tokio::test]
    async fn what_does_not_pass_is_the_answer_at_once() {
        let (done, waits) = after(1, || StoreError::Broken("a page is lost".into()).into()).await;
        assert!(matches!(done, Ok(Err(Error::Internal(_)))) && waits.is_empty(), "{done:?} {waits:?}");
        let late = || Error::TooFast { why: "rate.sparc".into(), retry_after: PATIENCE * 2 };
        let (done, waits) = after(1, late).await;
        assert!(matches!(done, Ok(Err(Error::TooFast { .. }))) && waits.is_empty(), "{done:?} {waits:?}");
    }

    #[tokio::test]
    async fn patience_ends() {
        let (done, waits) = after(usize::MAX, || StoreError::Full("no room".into()).into()).await;
        assert!(matches!(done, Ok(Err(Error::Busy { .. }))), "{done:?}");
        assert_eq!(waits.iter().sum::<Duration>(), PATIENCE);
    }

    #[tokio::test]
    async fn a_task_that_is_to_end_does_not_wait() {
        let full = || ready(Err::<(), Error>(StoreError::Full(String::new()).into()));
        let gone = waiting(|_| ready(Err(AgentError::Canceled)), full).await;
        assert!(matches!(gone, Err(AgentError::Canceled)), "{gone:?}");
    }
}
