//! The retry schedule of webhook deliveries.

use std::time::Duration;

/// Exponential backoff with jitter, up to a total.
#[derive(Debug, Clone)]
pub struct RetrySchedule {
    /// The delay after the first failure.
    pub first: Duration,
    /// The factor by which each delay exceeds the one before.
    pub factor: u32,
    /// The longest delay.
    pub longest: Duration,
    /// The share of a delay that is random, half of it to either side: 0.5 turns 10 s into 7.5 to 12.5 s.
    pub jitter: f64,
    /// A delivery is given up when the delays between its attempts add up to this. Only those delays count, not
    /// the time that the server was down or that the event waited behind another.
    pub give_up_after: Duration,
}

impl Default for RetrySchedule {
    /// 1, 2, 4 … 2048 seconds, then every hour, for a day: 36 attempts.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            factor: 2,
            longest: Duration::from_secs(60 * 60),
            jitter: 0.5,
            give_up_after: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl RetrySchedule {
    /// The delay after that many failures in a row; `None` after the last attempt. A receiver that asks for more
    /// time (`Retry-After`) gets it, within limits.
    pub fn wait(&self, failures: u32, asked: Option<Duration>, chance: f64) -> Option<Duration> {
        let mut waited = Duration::ZERO;
        for (failure, wait) in (1..).zip(self.waits()) {
            if waited >= self.give_up_after {
                break;
            }
            if failure >= failures {
                let wait = wait.mul_f64((1.0 + self.jitter * (chance - 0.5)).max(0.0));
                return Some(wait.max(asked.unwrap_or_default().min(self.give_up_after)));
            }
            waited += wait;
        }
        None
    }

    /// The delays without jitter. Never zero, so that they eventually reach `give_up_after`.
    fn waits(&self) -> impl Iterator<Item = Duration> {
        let first = self.first.clamp(Duration::from_millis(1), self.longest.max(Duration::from_millis(1)));
        let longest = self.longest.max(first);
        std::iter::successors(Some(first), move |wait| Some((*wait * self.factor.max(1)).min(longest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(wait: Option<Duration>) -> Option<f64> {
        wait.map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn waits_double_up_to_an_hour_for_a_day() {
        let schedule = RetrySchedule::default();
        let waits: Vec<f64> =
            (1..).map_while(|failures| seconds(schedule.wait(failures, None, 0.5))).collect();
        assert_eq!(waits[..5], [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(waits[11..13], [2048.0, 3600.0]);
        assert_eq!(waits.len(), 35);
        let total: f64 = waits.iter().sum();
        assert!((24.0..25.0).contains(&(total / 3600.0)), "{total}");
        assert_eq!(schedule.wait(1_000_000, None, 0.5), None);
    }

    #[test]
    fn chance_spreads_a_wait_to_both_sides() {
        let schedule = RetrySchedule::default();
        assert_eq!(seconds(schedule.wait(4, None, 0.0)), Some(6.0));
        assert_eq!(seconds(schedule.wait(4, None, 1.0)), Some(10.0));
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_but_not_for_less_or_for_ever() {
        let schedule = RetrySchedule::default();
        let asked = |asked: u64| seconds(schedule.wait(4, Some(Duration::from_secs(asked)), 0.5));
        assert_eq!(asked(1), Some(8.0));
        assert_eq!(asked(120), Some(120.0));
        assert_eq!(asked(u64::MAX), Some(86_400.0));
    }

    #[test]
    fn odd_settings_still_end() {
        let never = RetrySchedule { give_up_after: Duration::ZERO, ..RetrySchedule::default() };
        assert_eq!(never.wait(1, None, 0.5), None);
        let (first, longest, give_up_after) = (Duration::ZERO, Duration::ZERO, Duration::from_millis(50));
        let zero = RetrySchedule { first, factor: 0, longest, give_up_after, ..RetrySchedule::default() };
        assert_eq!(zero.wait(50, None, 0.5), Some(Duration::from_millis(1)));
        assert_eq!(zero.wait(51, None, 0.5), None);
    }
}
