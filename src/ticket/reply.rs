//! The answer to one question that a caller puts to the background thread and waits for.
//!
//! One word and no lock: a caller that the system stops while it looks for its own answer must not
//! stop the background thread, and everybody else with it (HOST-6).

use super::condvar::Condvar;
use crate::clock::Mono;
use crate::engine::ReleaseOutcome;
use crate::outcome::Shutdown;
use crate::reason::Reason;
use crate::sync::{AtomicU64, Ordering};
use std::marker::PhantomData;

/// No answer yet.
const EMPTY: u64 = 0;
/// No answer yet, and somebody sleeps, or is about to.
const AWAITED: u64 = 1;

/// What an answer can be.
pub(crate) trait Word: Copy {
    /// As one word, neither 0 nor 1.
    fn pack(self) -> u64;
    /// The reverse.
    fn unpack(word: u64) -> Self;
}

/// The answer to the question whether a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// One does.
    Ready,
    /// Every endpoint's last attempt failed authentication, and none serves.
    Auth(Reason),
    /// The client was closed, or its thread has ended.
    Closed,
}

/// A value that is given once.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    word: AtomicU64,
    given: Condvar,
    answers: PhantomData<fn() -> T>,
}

impl<T: Word> Reply<T> {
    pub(crate) fn new(given: Condvar) -> Reply<T> {
        Reply { word: AtomicU64::new(EMPTY), given, answers: PhantomData }
    }

    /// Makes a reply that nobody else knows ready for another question.
    pub(crate) fn renew(&mut self) {
        self.word = AtomicU64::new(EMPTY);
    }

    /// The background thread: the answer. The first one counts. What is to be notified, if
    /// somebody sleeps.
    pub(crate) fn set(&self, value: T) -> Option<&Condvar> {
        let value = value.pack();
        let give = |now| (now <= AWAITED).then_some(value);
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, give);
        (before == Ok(AWAITED)).then_some(&self.given)
    }

    /// [`Reply::set`], and whoever waits is woken.
    pub(crate) fn give(&self, value: T) {
        if let Some(given) = self.set(value) {
            given.notify_all();
        }
    }

    /// Blocks until there is an answer, at most until `limit`.
    pub(crate) fn wait(&self, limit: Mono) -> Option<T> {
        loop {
            let epoch = self.given.epoch();
            // Whoever answers after this sees the mark, and ends the epoch.
            let marked =
                self.word.compare_exchange(EMPTY, AWAITED, Ordering::AcqRel, Ordering::Acquire);
            if let Err(word @ 2..) = marked {
                return Some(T::unpack(word));
            }
            if self.given.wait_until(epoch, limit) {
                // An answer that came with the last moment counts.
                let word = self.word.load(Ordering::Acquire);
                return (word > AWAITED).then(|| T::unpack(word));
            }
        }
    }
}

impl Word for bool {
    fn pack(self) -> u64 {
        2 + u64::from(self)
    }

    fn unpack(word: u64) -> bool {
        word == 3
    }
}

impl Word for Shutdown {
    fn pack(self) -> u64 {
        (self == Shutdown::Clean).pack()
    }

    fn unpack(word: u64) -> Shutdown {
        if bool::unpack(word) { Shutdown::Clean } else { Shutdown::Unconfirmed }
    }
}

/// Where the kind of an answer is in its word: a packed reason leaves these bits free.
const KIND: u32 = 28;

impl Word for Option<ReleaseOutcome> {
    fn pack(self) -> u64 {
        let (kind, reason) = match self {
            None => (1, 0),
            Some(ReleaseOutcome::Released) => (2, 0),
            Some(ReleaseOutcome::NotHeld { retried: false }) => (3, 0),
            Some(ReleaseOutcome::NotHeld { retried: true }) => (4, 0),
            Some(ReleaseOutcome::Auth(reason)) => (5, reason.pack()),
            Some(ReleaseOutcome::OwnerExhausted) => (6, 0),
            Some(ReleaseOutcome::Unconfirmed(reason)) => (7, reason.pack()),
        };
        kind << KIND | reason
    }

    fn unpack(word: u64) -> Option<ReleaseOutcome> {
        let kind = word >> KIND & 7;
        let reason = Reason::unpack(word & !(7 << KIND));
        Some(match kind {
            1 => return None,
            2 => ReleaseOutcome::Released,
            3 | 4 => ReleaseOutcome::NotHeld { retried: kind == 4 },
            5 => ReleaseOutcome::Auth(reason),
            6 => ReleaseOutcome::OwnerExhausted,
            _ => ReleaseOutcome::Unconfirmed(reason),
        })
    }
}

impl Word for Readiness {
    fn pack(self) -> u64 {
        let (kind, reason) = match self {
            Readiness::Ready => (1, 0),
            Readiness::Closed => (2, 0),
            Readiness::Auth(reason) => (3, reason.pack()),
        };
        kind << KIND | reason
    }

    fn unpack(word: u64) -> Readiness {
        match word >> KIND & 7 {
            1 => Readiness::Ready,
            2 => Readiness::Closed,
            _ => Readiness::Auth(Reason::unpack(word & !(7 << KIND))),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::reason::ReasonKind;

    impl Word for u64 {
        fn pack(self) -> u64 {
            self + 2
        }

        fn unpack(word: u64) -> u64 {
            word - 2
        }
    }

    #[test]
    fn an_answer_survives_packing() {
        fn survives<T: Word + PartialEq + std::fmt::Debug>(value: T) {
            assert!(value.pack() > AWAITED);
            assert_eq!(T::unpack(value.pack()), value);
        }
        [false, true].into_iter().for_each(survives);
        [Shutdown::Clean, Shutdown::Unconfirmed].into_iter().for_each(survives);
        [Readiness::Ready, Readiness::Closed].into_iter().for_each(survives);
        survives(None);
        survives(Some(ReleaseOutcome::Released));
        survives(Some(ReleaseOutcome::OwnerExhausted));
        for retried in [false, true] {
            survives(Some(ReleaseOutcome::NotHeld { retried }));
        }
        for kind in [ReasonKind::None, ReasonKind::ThreadEnded] {
            for endpoint in [None, Some(0), Some(u16::MAX)] {
                for os_error in [None, Some(libc::ECONNRESET), Some(-1)] {
                    let reason = Reason { kind, endpoint, os_error };
                    survives(Some(ReleaseOutcome::Unconfirmed(reason)));
                    survives(Some(ReleaseOutcome::Auth(reason)));
                    survives(Readiness::Auth(reason));
                }
            }
        }
    }
}
