//! The health of an entry, derived from the latest attempts to reach it: a state machine that takes time and
//! randomness as arguments. It also schedules the next probe: at a fixed interval while the breaker is closed,
//! and with growing pauses once it is open. Every wait has a jitter of ±20 %, so that many remotes are not
//! probed in step.

use std::time::Duration;

use nuncio_engine::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A circuit breaker: whether calls are worthwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Breaker {
    /// Calls are worthwhile.
    Closed,
    /// Calls are not worthwhile: too many consecutive failures.
    Open,
    /// A probe is under way that decides between the two.
    HalfOpen,
}

impl Breaker {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// The probe interval and the breaker's thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeSchedule {
    /// The interval between probes; also the first pause of an open breaker.
    pub interval: Duration,
    /// Consecutive failures that open the breaker.
    pub failures: u32,
    /// The longest pause of an open breaker.
    pub longest_pause: Duration,
}

/// The health of one registry entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Whether the last attempt succeeded.
    pub healthy: bool,
    /// Whether calls are worthwhile.
    pub breaker: Breaker,
    /// The time of the last successful attempt.
    pub last_seen: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When the next probe is due.
    pub due: Timestamp,
    /// Consecutive failures.
    failures: u32,
    /// Consecutive openings of the breaker.
    opened: u32,
}

impl Health {
    /// An entry whose health is not known yet, to be probed from `due` on.
    pub fn unknown(due: Timestamp) -> Self {
        Self {
            healthy: false,
            breaker: Breaker::Closed,
            last_seen: None,
            last_error: None,
            due,
            failures: 0,
            opened: 0,
        }
    }

    /// Records the start of a probe. No other one is due before `until`.
    pub fn probing(&mut self, until: Timestamp) {
        self.due = until;
        if self.breaker == Breaker::Open {
            self.breaker = Breaker::HalfOpen;
        }
    }

    /// Records a successful attempt.
    pub fn record_success(&mut self, pace: &ProbeSchedule, now: Timestamp, chance: f64) {
        *self = Self {
            healthy: true,
            last_seen: Some(now),
            ..Self::unknown(now.after(spread(pace.interval, chance)))
        };
    }

    /// Records a failed attempt.
    pub fn record_failure(&mut self, pace: &ProbeSchedule, now: Timestamp, chance: f64, why: String) {
        self.healthy = false;
        self.last_error = Some(why);
        self.failures = self.failures.saturating_add(1);
        let opens = self.breaker == Breaker::HalfOpen || self.failures >= pace.failures;
        let wait = match self.breaker {
            // Calls that fail meanwhile must not postpone the probe that would detect a recovery.
            Breaker::Open => return,
            _ if opens => {
                self.breaker = Breaker::Open;
                self.opened = self.opened.saturating_add(1);
                pause(pace, self.opened)
            }
            _ => pace.interval,
        };
        self.due = now.after(spread(wait, chance));
    }

    /// The part of the state whose changes are published. The half-open state is not published.
    pub(super) fn published_state(&self) -> (bool, Breaker) {
        let breaker = if self.breaker == Breaker::HalfOpen { Breaker::Open } else { self.breaker };
        (self.healthy, breaker)
    }
}

/// The pause after that many consecutive openings: it doubles each time.
fn pause(pace: &ProbeSchedule, opened: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(opened.saturating_sub(1).min(16));
    pace.interval.saturating_mul(doubled).min(pace.longest_pause).max(pace.interval)
}

/// A wait with a jitter of ±20 %, from a random number from 0 to 1.
pub fn spread(wait: Duration, chance: f64) -> Duration {
    wait.mul_f64(0.8 + 0.4 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: ProbeSchedule = ProbeSchedule {
        interval: Duration::from_secs(15),
        failures: 3,
        longest_pause: Duration::from_secs(300),
    };

    fn wait(health: &Health, now: Timestamp) -> u64 {
        health.due.since(now).as_secs()
    }

    #[test]
    fn three_failures_open_the_breaker_and_one_good_probe_closes_it() {
        let now = Timestamp(1_000_000);
        let mut health = Health::unknown(now);
        health.record_success(&PACE, now, 0.5);
        assert_eq!((health.published_state(), wait(&health, now)), ((true, Breaker::Closed), 15));
        for _ in 0..2 {
            health.record_failure(&PACE, now, 0.5, "no".into());
            assert_eq!((health.published_state(), wait(&health, now)), ((false, Breaker::Closed), 15));
        }
        // From then on the pauses grow up to the longest one.
        for pause in [15, 30, 60, 120, 240, 300, 300] {
            health.record_failure(&PACE, now, 0.5, "no".into());
            assert_eq!((health.published_state(), wait(&health, now)), ((false, Breaker::Open), pause));
            // A failed call does not change that.
            health.record_failure(&PACE, now.after(Duration::from_secs(9)), 0.5, "no".into());
            assert_eq!((health.published_state(), wait(&health, now)), ((false, Breaker::Open), pause));
            health.probing(now);
            assert_eq!(health.breaker, Breaker::HalfOpen);
        }
        assert_eq!(health.last_seen, Some(now));
        health.record_success(&PACE, now, 0.5);
        assert_eq!((health.published_state(), health.last_error.clone()), ((true, Breaker::Closed), None));
        // Three failures are needed again.
        health.record_failure(&PACE, now, 0.5, "no".into());
        assert_eq!(health.breaker, Breaker::Closed);
    }

    #[test]
    fn a_wait_is_spread_by_a_fifth_to_both_sides() {
        let waits = [0.0, 0.25, 0.5, 0.75, 1.0].map(|chance| spread(PACE.interval, chance).as_millis());
        assert_eq!(waits, [12_000, 13_500, 15_000, 16_500, 18_000]);
    }
}
