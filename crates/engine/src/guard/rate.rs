//! How often a caller may do something.
//!
//! A bucket per caller and type: it holds what may come at once and fills at the rate. Where several nodes serve
//! one store each has its own buckets, and once in [`EXCHANGE`] they take out what was used elsewhere since the
//! exchange before. So a caller who spreads over N nodes gets at most N times the count at once, and until the
//! second exchange in which a node knows of it; from then on the rate, as closely as one exchange. A debt is at most
//! one count.

use std::{
    collections::HashMap,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    access::{Caller, Kind},
    clock::Timestamp,
    error::Error,
    store::Store,
};

/// How often nodes tell each other what was used.
pub(crate) const EXCHANGE: Duration = Duration::from_secs(1);
/// Buckets that are kept. Beyond it those that are full are forgotten: a new one would be full, too.
const BUCKETS: usize = 16_384;

/// So many in so much time, all of which may come at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    count: u32,
    within: Duration,
}

/// A rate that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rate: write a count and a unit of time, such as 100/s, 600/m or 10000/h")]
pub struct RateError(String);

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let wrong = || RateError(text.to_owned());
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let count = count.trim().parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        let seconds = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            _ => return Err(wrong()),
        };
        Ok(Self { count, within: Duration::from_secs(seconds) })
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.within.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

impl Rate {
    fn per_ms(&self) -> f64 {
        f64::from(self.count) / self.within.as_millis() as f64
    }
}

pub(super) struct Rates {
    rates: Vec<(Kind, Rate)>,
    buckets: Mutex<HashMap<(String, Kind), Bucket>>,
}

struct Bucket {
    left: f64,
    at: Timestamp,
    /// Used here since the last exchange.
    used: u64,
    /// What the counter that all nodes share stood at after it.
    shared: Option<u64>,
}

impl Rates {
    pub(super) fn new(rates: &[(Kind, Rate)]) -> Self {
        Self { rates: rates.to_vec(), buckets: Mutex::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    fn of(&self, kind: Kind) -> Option<Rate> {
        self.rates.iter().find(|(limited, _)| *limited == kind).map(|(_, rate)| *rate)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, Kind), Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one out of the caller's bucket.
    pub(super) fn take(&self, caller: &Caller, kind: Kind, now: Timestamp) -> Result<(), Error> {
        let Some(rate) = self.of(kind) else { return Ok(()) };
        let mut buckets = self.lock();
        if buckets.len() >= BUCKETS {
            buckets.retain(|(_, kind), bucket| {
                self.of(*kind).is_some_and(|rate| bucket.fill(rate, now) < f64::from(rate.count))
            });
        }
        let full = || Bucket { left: f64::from(rate.count), at: now, used: 0, shared: None };
        let bucket = buckets.entry((caller.owner().to_owned(), kind)).or_insert_with(full);
        if bucket.fill(rate, now) >= 1.0 {
            bucket.left -= 1.0;
            bucket.used += 1;
            return Ok(());
        }
        let wait = ((1.0 - bucket.left) / rate.per_ms()).ceil();
        Err(Error::TooFast {
            why: format!("{rate} is what one caller may do to {} (rate)", kind.name()),
            retry_after: Duration::from_millis(wait as u64),
        })
    }

    /// Exchanges what was used with the other nodes.
    pub(super) async fn share(&self, store: &Arc<dyn Store>, now: Timestamp) {
        let uses: Vec<((String, Kind), u64)> = self
            .lock()
            .iter_mut()
            .map(|(key, bucket)| (key.clone(), std::mem::take(&mut bucket.used)))
            .collect();
        if uses.is_empty() {
            return;
        }
        let counters: Vec<(String, u64)> =
            uses.iter().map(|((owner, kind), used)| (format!("{} {owner}", kind.name()), *used)).collect();
        match store.knowledge().add_usage(&counters, now).await {
            Ok(totals) => {
                let mut buckets = self.lock();
                for ((key, used), total) in uses.iter().zip(totals) {
                    let Some(bucket) = buckets.get_mut(key) else { continue };
                    if let Some(before) = bucket.shared {
                        let elsewhere = total.saturating_sub(before).saturating_sub(*used);
                        bucket.left -= elsewhere as f64;
                    }
                    bucket.shared = Some(total);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "what callers used could not be told to other nodes");
                let mut buckets = self.lock();
                for (key, used) in &uses {
                    if let Some(bucket) = buckets.get_mut(key) {
                        bucket.used += used;
                    }
                }
            }
        }
    }
}

impl Bucket {
    /// What there is now. Never more than the rate's count, and a debt of at most as much.
    fn fill(&mut self, rate: Rate, now: Timestamp) -> f64 {
        let passed = (now.0 - self.at.0).max(0) as f64;
        let most = f64::from(rate.count);
        self.left = (self.left + passed * rate.per_ms()).clamp(-most, most);
        self.at = now;
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_count_at_once_and_then_at_its_rate() {
        let rates = Rates::new(&[(Kind::Memory, "10/s".parse().unwrap())]);
        let (ada, bob) = (Caller::named("ada"), Caller::named("bob"));
        let take = |caller: &Caller, at: i64| rates.take(caller, Kind::Memory, Timestamp(at));
        for _ in 0..10 {
            take(&ada, 0).unwrap();
        }
        let Err(Error::TooFast { retry_after, .. }) = take(&ada, 0) else { panic!("an eleventh") };
        assert_eq!(retry_after, Duration::from_millis(100));
        take(&bob, 0).unwrap();
        assert!(take(&ada, 99).is_err());
        take(&ada, 100).unwrap();
        rates.take(&ada, Kind::Sparc, Timestamp(0)).unwrap();
        for _ in 0..10 {
            take(&ada, 1_000_000).unwrap();
        }
        assert!(take(&ada, 1_000_000).is_err(), "what was not used is not saved up");
    }

    #[test]
    fn a_rate_that_means_nothing_is_refused() {
        for text in ["", "10", "0/s", "x/s", "10/d", "-1/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["10/s", "600/m", "3/h"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
    }
}
