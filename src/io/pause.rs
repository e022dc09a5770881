//! A moment for the callers before the thread goes to sleep.
//!
//! Whoever was just told how an acquire ended often asks for the next thing at once. To sleep, and
//! be woken for it, costs both of them system calls; on one processor it is enough to let the
//! caller run first. Measured with client and server on one core: a tenth less time for a pair of
//! calls, and a fifth less processor time.
//!
//! But where the processor is wanted by others, who gives it up waits for all of them: beside one
//! busy process every call took sixty times as long. So a moment that took long is the last for
//! some time.

use super::commands::Commands;
use super::sys;
use crate::clock::Mono;
use std::thread;
use std::time::Duration;

/// How often the processor is offered before a sleep.
const OFFERS: u32 = 2;

/// An offer that took longer was taken by somebody else: the system gives a busy process some
/// milliseconds, and a caller needs some microseconds.
const LONG: Duration = Duration::from_millis(1);

/// The time without offers after one that took long …
const SHY: Duration = Duration::from_secs(1);

/// … and the longest such time: it doubles as long as each first offer takes long again.
const SHYEST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Somebody was told something since the last offer.
    hopeful: bool,
    /// The last offer was worth it.
    worth_it: bool,
    /// No offers before this.
    not_before: Mono,
    /// The last time without offers; zero once one was good.
    shy: Duration,
}

impl Pause {
    /// Somebody is told something, and may ask for something else.
    pub(super) fn hope(&mut self) {
        self.hopeful = true;
    }

    /// Offers the processor to the callers. Whether they have asked for something. Never twice in a
    /// row: callers whose every request ends at once must not keep the thread from its sockets.
    pub(super) fn is_worth_it(&mut self, commands: &Commands) -> bool {
        let again = std::mem::take(&mut self.worth_it);
        if !std::mem::take(&mut self.hopeful) || again {
            return false;
        }
        let start = sys::mono();
        if start < self.not_before {
            return false;
        }
        let asked = (0..OFFERS).any(|_| {
            thread::yield_now();
            commands.has_waiting()
        });
        self.offered(start, sys::mono());
        self.worth_it = asked;
        asked
    }

    fn offered(&mut self, start: Mono, end: Mono) {
        if end.since(start) < LONG {
            self.shy = Duration::ZERO;
            return;
        }
        self.shy = (self.shy * 2).clamp(SHY, SHYEST);
        self.not_before = end + self.shy;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::io::commands::{Command, PATIENTLY};

    #[test]
    fn callers_who_always_ask_do_not_keep_the_thread_from_its_sockets() {
        let (waker, _receiver) = crate::io::waker::pair().unwrap();
        let commands = Commands::new(waker, 1);
        let mut pause = Pause::default();
        pause.hope();
        assert!(!pause.is_worth_it(&commands), "nobody has asked");
        commands.push(Command::Shutdown(Mono(1)), PATIENTLY).unwrap();
        assert!(!pause.is_worth_it(&commands), "nobody was told anything");
        for _ in 0..3 {
            // A processor that is wanted by others puts an end to this, for a while.
            pause.not_before = Mono(0);
            pause.hope();
            assert!(pause.is_worth_it(&commands));
            pause.not_before = Mono(0);
            pause.hope();
            assert!(!pause.is_worth_it(&commands));
        }
    }

    #[test]
    fn an_offer_that_took_long_is_the_last_for_longer_and_longer() {
        let second = Duration::from_secs(1);
        let mut pause = Pause::default();
        let mut now = Mono(5);
        let mut offer = |takes: Duration, shy: Duration| {
            let start = now.max(pause.not_before);
            now = start + takes;
            pause.offered(start, now);
            assert_eq!(pause.not_before.since(now), shy);
        };
        offer(LONG / 2, Duration::ZERO);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            offer(LONG, second * seconds);
        }
        offer(LONG / 2, Duration::ZERO);
        offer(LONG, second);
    }
}
