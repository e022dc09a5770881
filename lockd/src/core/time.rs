//! Moments on the boot clock, which counts suspended time too and is never set.

use std::time::Duration;

/// A moment: nanoseconds on the boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The moment `nanos` nanoseconds after boot.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `seconds` after this one.
    #[must_use]
    pub const fn after_seconds(self, seconds: u8) -> Time {
        Time(self.0.saturating_add(seconds as u64 * 1_000_000_000))
    }

    /// The moment `seconds` before this one.
    #[must_use]
    pub const fn before_seconds(self, seconds: u8) -> Time {
        Time(self.0.saturating_sub(seconds as u64 * 1_000_000_000))
    }

    /// The moment `duration` after this one.
    #[must_use]
    pub fn after(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }

    /// How long ago `earlier` was; zero if it is still to come.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
