//! Patience inside a step: what fails because the store is away, too much is going on or the caller was too fast is
//! tried again for a while, so that a short outage does not become the result of a step, which is kept for good.

use std::time::Duration;

use nuncio_engine::{AgentError, StepContext};

/// How long is waited in all before a passing error is taken for the answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// The first wait, and the longest that is chosen here; a wait that the error asks for may be longer.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// An error that may pass.
pub(crate) trait RetryableError {
    /// When it is worth another try; `None`: it does not pass by waiting.
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

/// Does something until it is done, fails for good, or the patience is over. The outer error is the task's end.
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
    let (mut left, (mut pause, longest)) = (PATIENCE, WAITS);
    loop {
        let error = match work().await {
            Ok(done) => return Ok(Ok(done)),
            Err(error) => error,
        };
        let Some(asked) = error.retry_after() else { return Ok(Err(error)) };
        let wait = asked.max(pause);
        let Some(rest) = left.checked_sub(wait) else { return Ok(Err(error)) };
        sleep(wait).await?;
        (left, pause) = (rest, (pause * 2).min(longest));
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use nuncio_engine::{Error, store::StoreError};

    use super::*;

    /// What came of work that fails like this so many times, and how long was waited each time.
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
