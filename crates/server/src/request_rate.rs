//! The token buckets for all HTTP requests of any method: one per caller, and one per tenant. The engine's own
//! rate limits count operations on tasks and knowledge; these also count requests that cost only a response:
//! handshakes, lists, pings, refused requests.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use nuncio_engine::{Caller, Error};
use parking_lot::Mutex;

/// The capacity of a bucket, in seconds of its rate.
const BURST: f64 = 2.0;
/// Maximum buckets in memory. Beyond it full ones are dropped, which changes nothing: a new bucket is full.
const MAX_BUCKETS: usize = 16_384;

/// The rate limits per caller and per tenant.
pub(crate) struct RequestRate {
    per_caller: f64,
    per_tenant: f64,
    buckets: Mutex<RequestBuckets>,
}

#[derive(Default)]
struct RequestBuckets {
    callers: HashMap<String, RequestBucket>,
    tenants: HashMap<String, RequestBucket>,
}

struct RequestBucket {
    left: f64,
    at: Instant,
}

impl RequestRate {
    /// Requests per second; 0 means no limit.
    pub(crate) fn new(per_caller: u32, per_tenant: u32) -> Self {
        let (per_caller, per_tenant) = (f64::from(per_caller), f64::from(per_tenant));
        Self { per_caller, per_tenant, buckets: Mutex::default() }
    }

    /// Takes a token for a request, or returns when there will be one.
    pub(crate) fn take(&self, caller: &Caller) -> Result<(), Error> {
        self.take_at(caller, Instant::now())
    }

    fn take_at(&self, caller: &Caller, now: Instant) -> Result<(), Error> {
        let RequestBuckets { callers, tenants } = &mut *self.buckets.lock();
        let of_tenant = wait(tenants, caller.tenant(), self.per_tenant, now);
        let of_caller = wait(callers, caller.owner(), self.per_caller, now);
        let (name, rate, wait) = match (of_caller, of_tenant) {
            (Some(wait), _) => ("http.requests-per-second", self.per_caller, wait),
            (None, Some(wait)) => ("http.requests-per-second-per-tenant", self.per_tenant, wait),
            (None, None) => {
                spend(tenants, caller.tenant());
                spend(callers, caller.owner());
                return Ok(());
            }
        };
        Err(Error::too_fast(name, format!("{name}: at most {rate} requests a second"), wait))
    }
}

/// Refills a bucket up to now; returns how long until it holds a token.
fn wait(
    buckets: &mut HashMap<String, RequestBucket>,
    name: &str,
    rate: f64,
    now: Instant,
) -> Option<Duration> {
    if rate == 0.0 {
        return None;
    }
    if !buckets.contains_key(name) {
        if buckets.len() >= MAX_BUCKETS {
            let is_short = |bucket: &RequestBucket| {
                bucket.left + now.duration_since(bucket.at).as_secs_f64() * rate < rate * BURST
            };
            buckets.retain(|_, bucket| is_short(bucket));
        }
        buckets.insert(name.to_owned(), RequestBucket { left: rate * BURST, at: now });
    }
    let bucket = buckets.get_mut(name)?;
    let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
    bucket.left = (bucket.left + passed * rate).min(rate * BURST);
    bucket.at = now;
    (bucket.left < 1.0).then(|| Duration::from_secs_f64((1.0 - bucket.left) / rate))
}

fn spend(buckets: &mut HashMap<String, RequestBucket>, name: &str) {
    if let Some(bucket) = buckets.get_mut(name) {
        bucket.left -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_and_its_tenant_have_each_a_bucket_and_others_do_not_wait_for_them() {
        let rate = RequestRate::new(10, 15);
        let start = Instant::now();
        let take = |owner: &str, at: Duration| rate.take_at(&Caller::named(owner.to_owned()), start + at);
        let now = Duration::ZERO;
        for _ in 0..20 {
            take("acme/ada", now).unwrap();
        }
        let refused = take("acme/ada", now).unwrap_err();
        let Error::TooFast { why, retry_after } = &refused else { panic!("{refused}") };
        assert!(why.starts_with("http.requests-per-second:"), "{why}");
        assert_eq!(*retry_after, Duration::from_millis(100));
        // Another caller of the tenant gets the tenant's remaining tokens, and one of another tenant a full
        // bucket.
        for _ in 0..10 {
            take("acme/bob", now).unwrap();
        }
        let refused = take("acme/bob", now).unwrap_err().to_string();
        assert!(refused.contains("per-tenant"), "{refused}");
        for _ in 0..20 {
            take("beta/eve", now).unwrap();
        }
        // It refills, up to its capacity.
        for _ in 0..20 {
            take("acme/ada", Duration::from_secs(60)).unwrap();
        }
        take("acme/ada", Duration::from_secs(60)).unwrap_err();
    }

    #[test]
    fn none_is_none() {
        let rate = RequestRate::new(0, 0);
        for _ in 0..100_000 {
            rate.take(&Caller::named("acme/ada")).unwrap();
        }
        assert!(rate.buckets.lock().callers.is_empty());
    }
}
