//! Instants of the two clocks that decide things here. Reading them is the I/O layer's business.

use std::ops::Add;
use std::time::Duration;

/// A point on the monotonic clock: deadlines and timers. Nanoseconds since an arbitrary origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub u64);

/// A point on the boot clock, which also runs while the machine is suspended: what is left of a
/// lease. Nanoseconds since an arbitrary origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Boot(pub u64);

/// Both clocks, read at about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// The monotonic clock.
    pub mono: Mono,
    /// The boot clock.
    pub boot: Boot,
}

impl Mono {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, time: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Boot {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Boot) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
