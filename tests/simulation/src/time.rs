//! True time, and the clocks of machines that tell it a little wrong.

use lockclient::clock::{Boot, Mono, Now};

/// True time in nanoseconds since the start of the run. No machine can read it.
pub(crate) type Time = u64;

/// A microsecond.
pub(crate) const MICRO: Time = 1_000;
/// A millisecond.
pub(crate) const MILLI: Time = 1_000_000;
/// A second.
pub(crate) const SECOND: Time = 1_000_000_000;

/// A machine's clocks: the boot clock runs at a rate of its own; the monotonic clock does the
/// same, and stops while the machine is suspended.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    base: u64,
    /// How much faster than true time, in units of 2^-32.
    drift: i64,
    suspended: u64,
    /// The last time that it slept, on the boot clock: from, until.
    sleep: (u64, u64),
}

impl Clock {
    /// A clock that starts at `base` and runs `ppm` parts in a million too fast.
    pub(crate) fn new(base: u64, ppm: i64) -> Clock {
        Clock { base, drift: (ppm << 32) / 1_000_000, suspended: 0, sleep: (0, 0) }
    }

    fn drifted(&self, t: Time) -> u64 {
        t.wrapping_add_signed(((i128::from(t) * i128::from(self.drift)) >> 32) as i64)
    }

    /// The boot clock.
    pub(crate) fn boot(&self, t: Time) -> u64 {
        self.base + self.drifted(t)
    }

    /// The monotonic clock.
    pub(crate) fn mono(&self, t: Time) -> u64 {
        self.awake(self.boot(t))
    }

    /// What the monotonic clock reads when the boot clock reads `boot`.
    fn awake(&self, boot: u64) -> u64 {
        let (from, until) = self.sleep;
        if boot < until {
            return boot.min(from) + (until - from) - self.suspended;
        }
        boot - self.suspended
    }

    /// Both clocks.
    pub(crate) fn now(&self, t: Time) -> Now {
        let boot = self.boot(t);
        Now { mono: Mono(self.awake(boot)), boot: Boot(boot) }
    }

    /// The first true time at which the boot clock reads `boot` or more.
    pub(crate) fn when_boot(&self, boot: u64) -> Time {
        let mut t = boot.saturating_sub(self.base);
        // The drift is small: each step leaves a two-thousandth of the error.
        for _ in 0..4 {
            t = t.saturating_add_signed(boot.wrapping_sub(self.boot(t)).cast_signed());
        }
        while self.boot(t) < boot {
            t += 1;
        }
        while t > 0 && self.boot(t - 1) >= boot {
            t -= 1;
        }
        t
    }

    /// The first true time at which the monotonic clock reads `mono` or more.
    pub(crate) fn when_mono(&self, mono: u64) -> Time {
        self.when_boot(mono.saturating_add(self.suspended))
    }

    /// The machine sleeps from one reading of its boot clock to another.
    pub(crate) fn suspend(&mut self, from: u64, until: u64) {
        self.suspended += until - from;
        self.sleep = (from, until);
    }
}
