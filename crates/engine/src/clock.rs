//! The source of time, ids and randomness, injected so that tests control it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Milliseconds since 1970, UTC: the precision that every protocol here carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment `by` later.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The moment `by` earlier.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The duration from `now` until `self`; zero if that is past.
    pub fn since(self, now: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(now.0)).unwrap_or(0))
    }
}

/// The sources of time, ids and randomness that the engine uses.
pub trait Clock: Send + Sync + 'static {
    /// The wall-clock time.
    fn now(&self) -> Timestamp;
    /// A new id, ordered by time.
    fn new_id(&self) -> Uuid;
    /// A random number in `0.0..1.0`, for retry jitter.
    fn chance(&self) -> f64;
    /// Unpredictable bytes, for keys.
    fn random_bytes(&self) -> [u8; 32];
}

/// The system's clock and random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn chance(&self) -> f64 {
        // The random tail of a fresh v7 id.
        let (_, low) = Uuid::now_v7().as_u64_pair();
        (low & ((1 << 53) - 1)) as f64 / (1_u64 << 53) as f64
    }

    fn random_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        #[allow(clippy::expect_used, reason = "a key that can be guessed is worse than no server")]
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        bytes
    }
}
