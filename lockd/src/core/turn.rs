//! Which moment counts for what in a turn of a server.
//!
//! A turn looks which connections have something to say, reads from them, ends what time has
//! ended, and writes. It may be kept anywhere for long, by its disk or by the system, and so it has
//! two moments. *What ends by itself* is what was over when it looked: a connection's own end that
//! came later is still unread, and a lock must not go to the dead. *What is granted* is granted at
//! the last reading: a lease counts from its grant, and a client's proof of what is left of it from
//! a sending that came before the grant, so that a lease which began before something was read
//! could end before its holder can know.

use super::time::Time;
use std::time::Duration;

/// After so long what a turn knows of its connections is old. A good disk syncs in less.
const STALE: Duration = Duration::from_millis(20);

/// The two moments of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    looked: Time,
    now: Time,
}

impl Turn {
    /// A turn that looked at its connections at `looked`, which is after it last waited, and has
    /// read nothing yet.
    pub const fn begin(looked: Time) -> Turn {
        Turn { looked, now: looked }
    }

    /// Something was read. `now` was taken after that.
    pub fn has_read(&mut self, now: Time) {
        #[cfg(canary)]
        if lockclient::canary!(leases_begin_after_their_requests) {
            return;
        }
        self.now = now;
    }

    /// Up to when leases and waits end by themselves, and connections are overdue.
    pub const fn looked(self) -> Time {
        self.looked
    }

    /// Whether it is so long since this turn looked that it should look again before it reads from
    /// another connection: a request for a key ends a lease that is over by now, and the lock would
    /// go to a waiter whose own end may lie unread.
    pub fn is_stale(self, now: Time) -> bool {
        now.since(self.looked) > STALE
    }

    /// When whatever this turn decides happens: not before anything that it has read.
    pub const fn now(self) -> Time {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_moves_what_is_granted_and_not_what_ends_by_itself() {
        let [looked, read, again] = [1, 2, 3].map(Time::from_nanos);
        let mut turn = Turn::begin(looked);
        assert_eq!((turn.looked(), turn.now()), (looked, looked));
        turn.has_read(read);
        assert_eq!((turn.looked(), turn.now()), (looked, read));
        turn.has_read(again);
        assert_eq!((turn.looked(), turn.now()), (looked, again));
    }

    #[test]
    fn what_was_seen_counts_for_20_ms() {
        let looked = Time::from_nanos(7);
        let mut turn = Turn::begin(looked);
        let later = looked.after(STALE);
        turn.has_read(later);
        assert!(!turn.is_stale(later));
        assert!(turn.is_stale(later.after(Duration::from_nanos(1))));
    }
}
