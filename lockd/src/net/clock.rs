//! The boot clock, and an alarm on it.
//!
//! Leases are about real time: a machine that slept for a minute comes back with a minute gone.
//! The monotonic clock, on which poll's time-outs run, would have stood still.

use crate::core::Time;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const NANOS: u64 = 1_000_000_000;

/// The moment now.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    Time::from_nanos(now.tv_sec as u64 * NANOS + now.tv_nsec as u64)
}

/// Makes the poll return at a moment.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
    set_to: Option<Time>,
}

impl Alarm {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Alarm { timer, set_to: None })
    }

    /// Sets the alarm. Costs nothing if it is set so already.
    pub(crate) fn set(&mut self, at: Time) -> io::Result<()> {
        if self.set_to == Some(at) {
            return Ok(());
        }
        // All zeros would stop the timer; the first nanosecond has long gone by.
        let nanos = at.as_nanos().clamp(1, i64::MAX as u64);
        let value = Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as _ };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
        self.set_to = Some(at);
        Ok(())
    }

    /// The alarm went off: it has to be set again even for the same moment.
    pub(crate) fn went_off(&mut self) {
        self.set_to = None;
    }
}
