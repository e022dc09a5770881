//! What a grant rests on: a token that was never issued, and a lease that would be waited for
//! after a crash. Both are allowed durably before they are used, or no grant is made.

use std::fmt;
use std::io;
use std::time::Duration;

/// The last token there is: the counter stops before it would overflow.
const END: u64 = u64::MAX - 1;

/// Keeps what must survive a crash.
pub trait Journal: fmt::Debug + Send {
    /// Durably allows more: tokens above `issued`, and leases of up to `lease` seconds (0: none
    /// is running). Returns the last token that may be issued.
    ///
    /// # Errors
    /// It could not be made durable. Nothing may be granted any more.
    fn reserve(&mut self, issued: u64, lease: u8) -> io::Result<u64>;

    /// Durably records a clean stop: no token above `issued` was issued, and nothing may be
    /// granted for `remaining` from the next start on.
    ///
    /// # Errors
    /// It could not be made durable. The next start takes the stop for a crash.
    fn stop(&mut self, issued: u64, remaining: Duration) -> io::Result<()>;
}

/// Issues tokens that grow with every grant, and fails closed.
#[derive(Debug)]
pub(crate) struct Authority {
    next: u64,
    /// The last token that may be issued; below `next` when there is none.
    last: u64,
    /// The longest lease that may be granted, in seconds.
    longest: u8,
    /// Nothing will ever be granted again.
    spent: bool,
    journal: Option<Box<dyn Journal>>,
}

impl Authority {
    /// Issues from `first` (at least 1) to `last`, for any lease, and remembers nothing.
    pub(crate) fn volatile(first: u64, last: u64) -> Authority {
        let next = first.max(1);
        let last = last.min(END);
        Authority { next, last, longest: u8::MAX, spent: next > last, journal: None }
    }

    /// Issues from `first` (at least 1) on what the journal allows.
    pub(crate) fn durable(first: u64, journal: Box<dyn Journal>) -> Authority {
        let next = first.max(1);
        Authority { next, last: 0, longest: 0, spent: next > END, journal: Some(journal) }
    }

    /// Makes sure that a grant with this lease may be made. If not, none ever will be.
    pub(crate) fn allow(&mut self, lease: u8) -> bool {
        if (self.next > self.last || lease > self.longest) && !self.spent {
            self.reserve(self.longest.max(lease));
        }
        !self.spent
    }

    /// The token of a grant that was just allowed.
    pub(crate) fn issue(&mut self) -> u64 {
        debug_assert!(self.next <= self.last && !self.spent);
        let token = self.next;
        self.next += 1;
        #[cfg(canary)]
        if lockclient::canary!(tokens_grow) && token % 64 == 0 {
            self.next = token;
        }
        self.spent |= self.next > END || (self.journal.is_none() && self.next > self.last);
        token
    }

    /// No lease is running any more, and none was granted since the start.
    pub(crate) fn settle(&mut self) {
        if self.journal.is_some() && !self.spent {
            self.reserve(0);
        }
    }

    /// Whether nothing will ever be granted again.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Records a clean stop: nothing is granted any more, and nothing may be for `remaining`.
    pub(crate) fn stop(&mut self, remaining: Duration) -> io::Result<()> {
        self.spent = true;
        match self.journal.take() {
            Some(mut journal) => journal.stop(self.next - 1, remaining),
            None => Ok(()),
        }
    }

    fn reserve(&mut self, longest: u8) {
        let Some(journal) = &mut self.journal else { return };
        match journal.reserve(self.next - 1, longest) {
            Ok(last) => {
                self.last = last.min(END);
                self.longest = longest;
                self.spent = self.next > self.last;
            }
            Err(error) => {
                tracing::error!(%error, "nothing is granted any more: it cannot be made durable");
                self.spent = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn issue_all(authority: &mut Authority) -> Vec<u64> {
        std::iter::from_fn(|| authority.allow(1).then(|| authority.issue())).collect()
    }

    #[test]
    fn the_first_token_is_never_0_and_they_grow_by_one() {
        assert_eq!(issue_all(&mut Authority::volatile(0, 3)), [1, 2, 3]);
    }

    #[test]
    fn it_stops_before_the_counter_would_overflow() {
        let mut authority = Authority::volatile(u64::MAX - 2, u64::MAX);
        assert_eq!(issue_all(&mut authority), [u64::MAX - 2, u64::MAX - 1]);
        assert!(authority.is_spent());
        assert!(Authority::volatile(u64::MAX, u64::MAX).is_spent());
        assert_eq!(issue_all(&mut Authority::volatile(5, 5)), [5], "the only one");
        let journal = Box::new(Recorder::default());
        assert!(Authority::durable(u64::MAX, journal).is_spent());
    }

    #[derive(Debug, Clone, Default)]
    struct Recorder {
        calls: Arc<Mutex<Vec<(u64, u8)>>>,
        stops: Arc<Mutex<Vec<(u64, Duration)>>>,
        fail: Arc<Mutex<bool>>,
    }

    impl Journal for Recorder {
        fn reserve(&mut self, issued: u64, lease: u8) -> io::Result<u64> {
            if *self.fail.lock().unwrap() {
                return Err(io::Error::other("no space"));
            }
            self.calls.lock().unwrap().push((issued, lease));
            Ok(issued / 10 * 10 + 10)
        }

        fn stop(&mut self, issued: u64, remaining: Duration) -> io::Result<()> {
            self.stops.lock().unwrap().push((issued, remaining));
            Ok(())
        }
    }

    #[test]
    fn tokens_and_longer_leases_are_reserved_before_they_are_used_and_only_then() {
        let recorder = Recorder::default();
        let mut authority = Authority::durable(1, Box::new(recorder.clone()));
        let mut expect = |lease, calls: &[(u64, u8)]| {
            assert!(authority.allow(lease));
            let token = authority.issue();
            assert_eq!(std::mem::take(&mut *recorder.calls.lock().unwrap()), calls);
            token
        };
        assert_eq!(expect(5, &[(0, 5)]), 1);
        assert_eq!(expect(5, &[]), 2);
        assert_eq!(expect(3, &[]), 3);
        assert_eq!(expect(9, &[(3, 9)]), 4);
        for token in 5..=10 {
            assert_eq!(expect(9, &[]), token);
        }
        assert_eq!(expect(1, &[(10, 9)]), 11);
    }

    #[test]
    fn after_a_failure_nothing_is_granted_even_if_it_would_work_again() {
        let recorder = Recorder::default();
        let mut authority = Authority::durable(1, Box::new(recorder.clone()));
        assert!(authority.allow(5));
        authority.issue();
        *recorder.fail.lock().unwrap() = true;
        assert!(authority.allow(5), "what was reserved may still be used");
        assert!(!authority.allow(6));
        *recorder.fail.lock().unwrap() = false;
        assert!(!authority.allow(5) && authority.is_spent());
        authority.settle();
        assert!(!authority.allow(5) && authority.is_spent());
        assert_eq!(*recorder.calls.lock().unwrap(), [(0, 5)]);
    }

    #[test]
    fn a_stop_records_the_last_token_and_is_the_end() {
        let recorder = Recorder::default();
        let mut authority = Authority::durable(4, Box::new(recorder.clone()));
        assert!(authority.allow(1));
        assert_eq!(authority.issue(), 4);
        authority.stop(Duration::from_secs(7)).unwrap();
        assert_eq!(*recorder.stops.lock().unwrap(), [(4, Duration::from_secs(7))]);
        assert!(!authority.allow(1) && authority.is_spent());
    }

    /// Allows tokens up to this one, whatever was issued.
    #[derive(Debug)]
    struct UpTo(u64);

    impl Journal for UpTo {
        fn reserve(&mut self, _: u64, _: u8) -> io::Result<u64> {
            Ok(self.0)
        }

        fn stop(&mut self, _: u64, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_journal_that_has_nothing_left_to_allow_ends_it() {
        let mut authority = Authority::durable(4, Box::new(UpTo(5)));
        assert_eq!(issue_all(&mut authority), [4, 5]);
        assert!(authority.is_spent());
    }

    #[test]
    fn a_journal_cannot_allow_more_than_there_is() {
        let mut authority = Authority::durable(u64::MAX - 1, Box::new(UpTo(u64::MAX)));
        assert_eq!(issue_all(&mut authority), [u64::MAX - 1], "the last one, and no other");
        assert!(authority.is_spent());
    }
}
