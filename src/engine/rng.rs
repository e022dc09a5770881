//! Jitter for backoff: splitmix64, seeded by the settings so that a simulation can repeat a run.

use std::time::Duration;

#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A time between half of `most` and `most`.
    pub(super) fn jitter(&mut self, most: Duration) -> Duration {
        let half = most / 2;
        let span = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        #[cfg(canary)]
        if crate::canary!(same_seed_same_log) {
            use std::hash::{BuildHasher, RandomState};
            return half + Duration::from_nanos(RandomState::new().hash_one(self.0) % span);
        }
        half + Duration::from_nanos(self.next() % span)
    }
}
