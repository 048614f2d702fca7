//! How somebody is, by what came of the last attempts to reach them: a state machine without time or chance of its
//! own. It also says when the next attempt is due: at an even pace while all is well or nearly, and at growing pauses
//! once the breaker is open. Every wait is spread by ±20 %, so that many remotes are not probed in step.

use std::time::Duration;

use nuncio_engine::clock::Timestamp;

/// Whether calls are worth trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// They are.
    Closed,
    /// They are not: it failed too often in a row.
    Open,
    /// One probe is under way that decides it.
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

/// How often somebody is probed, and when they are given up for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeSchedule {
    /// From probe to probe; also the first pause of an open breaker.
    pub interval: Duration,
    /// Failures in a row that open the breaker.
    pub failures: u32,
    /// The longest pause of an open breaker.
    pub longest_pause: Duration,
}

/// How somebody is.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Whether the last attempt was a good one.
    pub healthy: bool,
    /// Whether calls are worth trying.
    pub breaker: Breaker,
    /// The last good attempt.
    pub last_seen: Option<Timestamp>,
    /// Why the last attempt was not a good one.
    pub last_error: Option<String>,
    /// When to probe next.
    pub due: Timestamp,
    /// Failures in a row.
    failures: u32,
    /// Times in a row that the breaker opened.
    opened: u32,
}

impl Health {
    /// Somebody of whom nothing is known, to be probed from `due` on.
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

    /// A probe begins. Until it has ended no other one is due.
    pub fn probing(&mut self, until: Timestamp) {
        self.due = until;
        if self.breaker == Breaker::Open {
            self.breaker = Breaker::HalfOpen;
        }
    }

    /// An attempt was a good one.
    pub fn record_success(&mut self, pace: &ProbeSchedule, now: Timestamp, chance: f64) {
        *self = Self {
            healthy: true,
            last_seen: Some(now),
            ..Self::unknown(now.after(spread(pace.interval, chance)))
        };
    }

    /// An attempt was not.
    pub fn record_failure(&mut self, pace: &ProbeSchedule, now: Timestamp, chance: f64, why: String) {
        self.healthy = false;
        self.last_error = Some(why);
        self.failures = self.failures.saturating_add(1);
        let opens = self.breaker == Breaker::HalfOpen || self.failures >= pace.failures;
        let wait = match self.breaker {
            // Calls that fail meanwhile do not put off the probe that would find it well again.
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

    /// What others are told of when it changes. That a probe is under way is no news.
    pub(super) fn published_state(&self) -> (bool, Breaker) {
        let breaker = if self.breaker == Breaker::HalfOpen { Breaker::Open } else { self.breaker };
        (self.healthy, breaker)
    }
}

/// The pause of a breaker that has opened so many times in a row: twice as long each time.
fn pause(pace: &ProbeSchedule, opened: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(opened.saturating_sub(1).min(16));
    pace.interval.saturating_mul(doubled).min(pace.longest_pause).max(pace.interval)
}

/// A wait of ±20 %, by a chance of 0 to 1.
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
        // From then on the pauses grow up to a longest one.
        for pause in [15, 30, 60, 120, 240, 300, 300] {
            health.record_failure(&PACE, now, 0.5, "no".into());
            assert_eq!((health.published_state(), wait(&health, now)), ((false, Breaker::Open), pause));
            // A failed call changes nothing about it.
            health.record_failure(&PACE, now.after(Duration::from_secs(9)), 0.5, "no".into());
            assert_eq!((health.published_state(), wait(&health, now)), ((false, Breaker::Open), pause));
            health.probing(now);
            assert_eq!(health.breaker, Breaker::HalfOpen);
        }
        assert_eq!(health.last_seen, Some(now));
        health.record_success(&PACE, now, 0.5);
        assert_eq!((health.published_state(), health.last_error.clone()), ((true, Breaker::Closed), None));
        // And it takes three again.
        health.record_failure(&PACE, now, 0.5, "no".into());
        assert_eq!(health.breaker, Breaker::Closed);
    }

    #[test]
    fn a_wait_is_spread_by_a_fifth_to_both_sides() {
        let waits = [0.0, 0.25, 0.5, 0.75, 1.0].map(|chance| spread(PACE.interval, chance).as_millis());
        assert_eq!(waits, [12_000, 13_500, 15_000, 16_500, 18_000]);
    }
}
