//! Rate limits per caller: token buckets.
//!
//! Each caller has one bucket per kind of resource, which refills at the rate. Every node has its own buckets.
//! Once per [`EXCHANGE`] the nodes that share a store publish what they used, and subtract what the others used
//! since the last exchange. A caller that spreads requests over N nodes may burst to N times the limit until
//! nodes have exchanged usage twice; after that the limit holds to within one exchange interval. A bucket never
//! goes further than one full bucket below zero.

use std::{collections::HashMap, str::FromStr, sync::Arc, time::Duration};

use crate::{
    access::{AccessKind, Caller},
    clock::Timestamp,
    error::Error,
    store::Store,
};
use parking_lot::Mutex;

/// How often nodes exchange their usage.
pub(crate) const EXCHANGE: Duration = Duration::from_secs(1);
/// The most buckets in memory. Beyond it the least recently used half is dropped; a caller whose bucket was
/// dropped gets a full one.
const BUCKETS: usize = 16_384;

/// A number of requests per unit of time; all of them may come at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    count: u32,
    within: Duration,
}

/// A rate that cannot be parsed.
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
    rates: Vec<(AccessKind, Rate)>,
    buckets: Mutex<RateBuckets>,
}

/// The buckets in two generations: those used recently, and those used before.
#[derive(Default)]
struct RateBuckets {
    lately: HashMap<RateKey, RateBucket>,
    before: HashMap<RateKey, RateBucket>,
}

/// The owner, and the kind of resource.
type RateKey = (String, AccessKind);

struct RateBucket {
    left: f64,
    at: Timestamp,
    /// Used on this node since the last exchange.
    used: u64,
    exchanged: Option<BucketExchange>,
}

/// The state of a bucket at an exchange.
struct BucketExchange {
    /// The counter shared by all nodes.
    total: u64,
    /// The tokens left, with the use that was not exchanged yet added back.
    left: f64,
    at: Timestamp,
}

impl RateBuckets {
    /// The bucket of that key, moved to the recent generation.
    fn using(&mut self, key: RateKey, new: impl FnOnce() -> RateBucket) -> &mut RateBucket {
        if !self.lately.contains_key(&key) {
            if self.lately.len() >= BUCKETS / 2 {
                self.before = std::mem::take(&mut self.lately);
            }
            if let Some(bucket) = self.before.remove(&key) {
                self.lately.insert(key.clone(), bucket);
            }
        }
        self.lately.entry(key).or_insert_with(new)
    }

    fn get_mut(&mut self, key: &RateKey) -> Option<&mut RateBucket> {
        self.lately.get_mut(key).or_else(|| self.before.get_mut(key))
    }
}

impl Rates {
    pub(super) fn new(rates: &[(AccessKind, Rate)]) -> Self {
        Self { rates: rates.to_vec(), buckets: Mutex::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    fn of(&self, kind: AccessKind) -> Option<Rate> {
        self.rates.iter().find(|(limited, _)| *limited == kind).map(|(_, rate)| *rate)
    }

    /// Takes one token from the caller's bucket.
    pub(super) fn take(&self, caller: &Caller, kind: AccessKind, now: Timestamp) -> Result<(), Error> {
        let Some(rate) = self.of(kind) else { return Ok(()) };
        let mut buckets = self.buckets.lock();
        let full = || RateBucket { left: f64::from(rate.count), at: now, used: 0, exchanged: None };
        let bucket = buckets.using((caller.owner().to_owned(), kind), full);
        if bucket.fill(rate, now) >= 1.0 {
            bucket.left -= 1.0;
            bucket.used += 1;
            return Ok(());
        }
        let wait = ((1.0 - bucket.left) / rate.per_ms()).ceil();
        let why = format!("over the limit of {rate} per caller for {} (rate)", kind.name());
        Err(Error::too_fast(&format!("rate.{}", kind.name()), why, Duration::from_millis(wait as u64)))
    }

    /// Exchanges usage with the other nodes.
    pub(super) async fn share(&self, store: &Arc<dyn Store>, now: Timestamp) {
        let uses = self.take_uses();
        if uses.is_empty() {
            return;
        }
        let counters: Vec<(String, u64)> =
            uses.iter().map(|((owner, kind), used)| (format!("{} {owner}", kind.name()), *used)).collect();
        match store.knowledge().add_usage(&counters, now).await {
            Ok(totals) => self.learn(&uses, &totals, now),
            Err(error) => {
                tracing::warn!(%error, "could not exchange rate-limit usage with other nodes; retrying");
                let mut buckets = self.buckets.lock();
                for (key, used) in &uses {
                    if let Some(bucket) = buckets.get_mut(key) {
                        bucket.used += used;
                    }
                }
            }
        }
    }

    /// Takes the usage since the last exchange, of the buckets that were used.
    fn take_uses(&self) -> Vec<(RateKey, u64)> {
        let mut buckets = self.buckets.lock();
        let RateBuckets { lately, before } = &mut *buckets;
        let used = lately.iter_mut().chain(before).filter(|(_, bucket)| bucket.used > 0);
        used.map(|(key, bucket)| (key.clone(), std::mem::take(&mut bucket.used))).collect()
    }

    /// Subtracts what other nodes used, derived from the shared counters.
    fn learn(&self, uses: &[(RateKey, u64)], totals: &[u64], now: Timestamp) {
        let mut buckets = self.buckets.lock();
        for ((key, used), total) in uses.iter().zip(totals) {
            let (Some(rate), Some(bucket)) = (self.of(key.1), buckets.get_mut(key)) else { continue };
            let untold = bucket.used as f64;
            bucket.fill(rate, now);
            if let Some(before) = &bucket.exchanged {
                let elsewhere = total.saturating_sub(before.total).saturating_sub(*used);
                // The bucket also refilled for that use, even beyond its capacity: a caller that has not used
                // this node for an hour does not owe all that it did elsewhere.
                let filled = (now.0 - before.at.0).max(0) as f64 * rate.per_ms();
                let due = before.left + filled - *used as f64 - untold - elsewhere as f64;
                bucket.left = bucket.left.min(due.max(-f64::from(rate.count)));
            }
            bucket.exchanged = Some(BucketExchange { total: *total, left: bucket.left + untold, at: now });
        }
    }
}

impl RateBucket {
    /// Refills the bucket and returns its tokens: at most the rate's count, and at least minus that count.
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
        let rates = Rates::new(&[(AccessKind::Memory, "10/s".parse().unwrap())]);
        let (ada, bob) = (Caller::named("ada"), Caller::named("bob"));
        let take = |caller: &Caller, at: i64| rates.take(caller, AccessKind::Memory, Timestamp(at));
        for _ in 0..10 {
            take(&ada, 0).unwrap();
        }
        let Err(Error::TooFast { retry_after, .. }) = take(&ada, 0) else { panic!("an eleventh") };
        assert_eq!(retry_after, Duration::from_millis(100));
        take(&bob, 0).unwrap();
        assert!(take(&ada, 99).is_err());
        take(&ada, 100).unwrap();
        rates.take(&ada, AccessKind::Sparc, Timestamp(0)).unwrap();
        for _ in 0..10 {
            take(&ada, 1_000_000).unwrap();
        }
        assert!(take(&ada, 1_000_000).is_err(), "what was not used is not saved up");
    }

    #[test]
    fn there_are_only_so_many_buckets_and_those_in_use_stay() {
        let rates = Rates::new(&[(AccessKind::Memory, "2/h".parse().unwrap())]);
        let (now, ada) = (Timestamp(0), Caller::named("ada"));
        for n in 0..50_000 {
            rates.take(&Caller::named(format!("guest-{n}")), AccessKind::Memory, now).unwrap();
            if n % 1_000 == 0 {
                let allowed = rates.take(&ada, AccessKind::Memory, now).is_ok();
                assert_eq!(allowed, n < 2_000, "who comes often is not forgotten");
            }
        }
        let buckets = rates.buckets.lock();
        assert!(buckets.lately.len() + buckets.before.len() <= BUCKETS);
    }

    /// Runs one exchange in which the other nodes used `more`.
    fn exchange(rates: &Rates, elsewhere: &mut u64, more: u64, at: i64) -> usize {
        let uses = rates.take_uses();
        *elsewhere += more + uses.iter().map(|(_, used)| used).sum::<u64>();
        rates.learn(&uses, &vec![*elsewhere; uses.len()], Timestamp(at));
        uses.len()
    }

    #[test]
    fn only_what_changed_is_told_and_what_was_used_elsewhere_is_taken_out() {
        let rates = Rates::new(&[(AccessKind::Memory, "10/s".parse().unwrap())]);
        let ada = Caller::named("ada");
        let take = |at: i64| rates.take(&ada, AccessKind::Memory, Timestamp(at)).is_ok();
        let mut total = 0;
        assert!(take(0));
        assert_eq!(exchange(&rates, &mut total, 0, 0), 1);
        assert_eq!(exchange(&rates, &mut total, 0, 1_000), 0, "nothing was used");
        // Full again; then both nodes use it as fast as they can.
        assert!((0..10).all(|_| take(1_000)));
        assert_eq!(exchange(&rates, &mut total, 10, 2_000), 1);
        assert_eq!(
            (0..20).filter(|_| take(2_000)).count(),
            9,
            "both drew on the same since the first exchange"
        );
        assert_eq!(exchange(&rates, &mut total, 10, 2_000), 1);
        assert!(!take(2_900), "there is a debt");
        assert!(take(3_100), "which is worked off at the rate");
        exchange(&rates, &mut total, 0, 3_100);
        // An hour elsewhere at nearly the rate is no debt here.
        assert!(take(3_603_600));
        assert_eq!(exchange(&rates, &mut total, 35_000, 3_603_600), 1);
        assert!((0..9).all(|_| take(3_603_600)));
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
