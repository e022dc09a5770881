//! An acquire, from the call to its end.

use super::api::{AcquireCall, ConnId};
use crate::clock::{Mono, Now};
use std::time::Duration;

/// The first and the longest backoff of `busy_retry`.
const BUSY_BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

#[derive(Debug)]
pub(super) struct Request {
    pub(super) call: AcquireCall,
    /// Its place in call order.
    pub(super) seq: u64,
    pub(super) owner: u64,
    /// How often it was answered `B` and is tried again.
    pub(super) retries: u32,
    pub(super) place: Place,
}

/// Where an acquire stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Unsent, in the queue.
    Queued,
    /// Unsent: a release of its key has to end first (SND-6).
    Parked,
    /// Unsent: answered `B`, to be tried again when its timer comes up.
    Backoff,
    /// Unsent: its caller has withdrawn it, and says so soon.
    Withdrawn,
    /// Possibly sent.
    Flight(Flight),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) conn: ConnId,
    /// Read before the send call.
    pub(super) sent: Now,
    /// DL-6: when it is given up without an answer.
    pub(super) end: Mono,
    /// Whether all its bytes were accepted.
    pub(super) whole: bool,
    /// Its caller knows its result; only the answer, or the connection's end, is waited for.
    pub(super) abandoned: bool,
}

impl Request {
    pub(super) fn is_try(&self) -> bool {
        self.call.wait.seconds() == 0
    }

    pub(super) fn flight(&self) -> Option<&Flight> {
        match &self.place {
            Place::Flight(flight) => Some(flight),
            _ => None,
        }
    }

    pub(super) fn is_on(&self, conn: ConnId) -> bool {
        self.flight().is_some_and(|flight| flight.conn == conn)
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.flight().is_some_and(|flight| flight.abandoned)
    }

    /// DL-3: the wait to put on the wire now, in whole seconds. `None`: nothing is left.
    pub(super) fn wire_wait(&self, now: Mono) -> Option<u8> {
        let left = self.call.deadline.since(now);
        if left.is_zero() {
            return None;
        }
        if self.is_try() {
            return Some(0);
        }
        // The deadline is `wait` whole seconds after the call, so this never exceeds `wait`
        // unless the clock went back, which a monotonic one does not.
        #[cfg(canary)]
        if crate::canary!(wire_wait_is_what_is_left) {
            return Some(self.call.wait.seconds());
        }
        let seconds = left.as_nanos().div_ceil(1_000_000_000);
        Some(u8::try_from(seconds).unwrap_or(u8::MAX).min(self.call.wait.seconds()))
    }

    /// DL-6: when it is given up if it is sent now with this wait.
    pub(super) fn end(&self, now: Mono, wire_wait: u8, grace: Option<Duration>) -> Mono {
        let answered = now + Duration::from_secs(u64::from(wire_wait));
        match grace {
            Some(grace) => self.call.deadline.max(answered) + grace,
            None => self.call.deadline,
        }
    }

    /// The longest time before the next try after `B`.
    pub(super) fn busy_backoff(&self) -> Duration {
        let (least, most) = BUSY_BACKOFF;
        least.saturating_mul(1 << self.retries.min(16)).min(most)
    }
}
