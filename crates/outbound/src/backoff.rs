//! The backoff between attempts to reach a peer, bounded by how long the peer may be unreachable.
//!
//! One value covers one outage after another: each begins with the first failed attempt after a success, and
//! has the whole limit.

use std::time::Duration;

use tokio::time::Instant;

/// The least time that an attempt gets, also the last one, which begins when the limit has passed.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(1);

/// The backoff between attempts to reach a peer, and the deadline of the current outage.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    limit: Duration,
    pause: Duration,
    /// When the current outage began.
    since: Option<Instant>,
}

impl Backoff {
    /// Pauses that double from `first` to `longest`, in an outage of at most `limit`.
    pub fn new(first: Duration, longest: Duration, limit: Duration) -> Self {
        Self { first, longest, limit, pause: first, since: None }
    }

    /// Pauses that double from `first` to `longest`, without a time limit: the caller counts its attempts.
    pub fn unlimited(first: Duration, longest: Duration) -> Self {
        Self::new(first, longest, Duration::MAX)
    }

    /// The pause before the next attempt, for a caller that counts its attempts. `wanted` is the time that the peer
    /// named.
    pub fn take_pause(&mut self, wanted: Option<Duration>) -> Duration {
        // A peer that names no time at all would be asked in a busy loop.
        let pause = wanted.map_or(self.pause, |wanted| wanted.max(self.first));
        self.pause = self.pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// The peer is reachable: the next outage has the whole limit.
    pub fn reset(&mut self) {
        (self.pause, self.since) = (self.first, None);
    }

    /// Records a failed attempt that began at that time. Returns the pause before the next one; `None`: the
    /// limit has passed. `wanted` is the time that the peer named. The pause ends with the limit at the
    /// latest, so that there is a last attempt.
    pub fn fail(&mut self, began: Instant, wanted: Option<Duration>) -> Option<Duration> {
        let since = *self.since.get_or_insert(began);
        let left = self.limit.checked_sub(since.elapsed()).filter(|left| !left.is_zero())?;
        Some(self.take_pause(wanted).min(left))
    }

    /// How long an attempt may take that begins now.
    pub fn attempt_limit(&self) -> Duration {
        self.limit.saturating_sub(self.lasted()).max(SHORTEST_ATTEMPT)
    }

    /// How long the current outage has lasted.
    pub fn lasted(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The pause that the next failed attempt leads to, unless the peer names another.
    pub fn next_pause(&self) -> Duration {
        self.pause
    }

    /// Another request has found that the peer has been unreachable for that long.
    pub fn record_outage(&mut self, lasted: Duration) {
        let began = Instant::now().checked_sub(lasted);
        self.since = self.since.into_iter().chain(began).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_and_the_last_one_ends_with_the_limit() {
        let mut backoff = Backoff::new(ms(100), ms(400), ms(1500));
        let mut pauses = vec![];
        while let Some(pause) = backoff.fail(Instant::now(), None) {
            pauses.push(pause);
            tokio::time::sleep(pause).await;
        }
        assert_eq!(pauses, [ms(100), ms(200), ms(400), ms(400), ms(400)]);
        assert_eq!((backoff.lasted(), backoff.attempt_limit()), (ms(1500), SHORTEST_ATTEMPT));
    }

    #[test]
    fn a_caller_that_counts_its_attempts_gets_pauses_without_end() {
        let mut backoff = Backoff::unlimited(ms(100), ms(350));
        let pauses: Vec<_> = (0..4).map(|_| backoff.take_pause(None)).collect();
        assert_eq!(pauses, [ms(100), ms(200), ms(350), ms(350)]);
        assert_eq!(backoff.take_pause(Some(ms(900))), ms(900));
        assert_eq!(backoff.take_pause(Some(Duration::ZERO)), ms(100));
        backoff.reset();
        assert_eq!(backoff.take_pause(None), ms(100));
    }

    #[tokio::test(start_paused = true)]
    async fn every_outage_has_the_whole_limit() {
        let mut backoff = Backoff::new(ms(100), ms(400), ms(1000));
        assert!(backoff.fail(Instant::now(), None).is_some());
        tokio::time::sleep(ms(2000)).await;
        assert_eq!(backoff.fail(Instant::now(), None), None);
        backoff.reset();
        assert_eq!(backoff.fail(Instant::now(), None), Some(ms(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_an_attempt_that_was_not_answered_counts() {
        let mut backoff = Backoff::new(ms(100), ms(400), ms(2000));
        let began = Instant::now();
        tokio::time::sleep(backoff.attempt_limit()).await;
        assert_eq!(backoff.fail(began, None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_names_a_time_gets_it_within_the_limit() {
        let mut backoff = Backoff::new(ms(100), ms(400), ms(2000));
        assert_eq!(backoff.fail(Instant::now(), Some(ms(700))), Some(ms(700)));
        assert_eq!(backoff.fail(Instant::now(), Some(Duration::MAX)), Some(ms(2000)));
        assert_eq!(backoff.fail(Instant::now(), Some(Duration::ZERO)), Some(ms(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_that_another_request_found_counts() {
        tokio::time::sleep(ms(5000)).await;
        let mut backoff = Backoff::new(ms(100), ms(400), ms(2000));
        backoff.record_outage(ms(1500));
        assert_eq!((backoff.lasted(), backoff.attempt_limit()), (ms(1500), SHORTEST_ATTEMPT));
        backoff.record_outage(ms(2500));
        assert_eq!(backoff.fail(Instant::now(), None), None);
    }
}
