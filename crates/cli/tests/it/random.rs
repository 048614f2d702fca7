//! Chance that can be had again: `NUNCIO_SEED`.

use std::time::{Duration, SystemTime};

/// The seed of this run, as it was given or as it happens. Say it, so that a failure can be repeated.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("NUNCIO_SEED").ok().map(|seed| seed.parse().unwrap());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    given.unwrap_or(now.subsec_nanos().into())
}

/// Numbers from a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }

    /// Some time, less than the most.
    pub(crate) fn moment(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as u64))
    }
}
