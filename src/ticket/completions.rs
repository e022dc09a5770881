//! The tickets of a client that have a result, in the order in which they got it.
//!
//! Nobody waits long for the queue's lock, because the system may have stopped whoever holds it
//! (HOST-6). A slot's listing is decided by compare-and-swap, so that a dropped ticket never comes,
//! lock or no lock; and what cannot be listed now, the background thread lists a little later.

use super::once::Once;
use super::slot::Slot;
use crate::io::sys::EventFd;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

// A slot's listing.
pub(super) const ABSENT: u32 = 0;
const LISTED: u32 = 1;
/// Fetched, or its ticket was dropped: it does not come (again).
const GONE: u32 = 2;

/// Stale entries that may stay in the queue before it is cleaned.
const SLACK: usize = 64;

/// How long a caller waits for the lock, which is held for a few instructions: only a holder that
/// the system has stopped makes anybody wait.
/// In a model nobody is stopped, and every try that may fail is one that fails at once.
pub(super) const BRIEFLY: Duration =
    Duration::from_millis(if cfg!(all(loom, test)) { 0 } else { 10 });

/// A queue with one descriptor that is readable while the queue is not empty.
pub(crate) struct Completions {
    inner: Mutex<Inner>,
    /// Listed slots whose tickets were dropped, and that `live` still counts.
    dropped: AtomicUsize,
    /// Told with the lock held.
    event: Once<EventFd>,
}

struct Inner {
    queue: VecDeque<Arc<Slot>>,
    /// Entries of `queue` whose ticket is still there, and those of `dropped`.
    live: usize,
}

impl Completions {
    pub(crate) fn new() -> Completions {
        Completions {
            inner: Mutex::new(Inner { queue: VecDeque::new(), live: 0 }),
            dropped: AtomicUsize::new(0),
            event: Once::new(),
        }
    }

    /// Adds a slot that has a result; a second time does nothing. False: the lock could not be had
    /// in time, and somebody has to try again.
    pub(super) fn add(&self, slot: &Arc<Slot>, patience: Duration) -> bool {
        let added = self.with(patience, |inner| {
            if !slot.list(ABSENT, LISTED) {
                return;
            }
            inner.queue.push_back(slot.clone());
            inner.live += 1;
            if inner.live == 1
                && let Some(event) = self.event.get()
            {
                event.signal();
            }
        });
        added.is_some()
    }

    /// The next slot's tag. Each slot once. None, too, if the lock could not be had in time: the
    /// descriptor stays readable.
    pub(crate) fn next(&self) -> Option<u64> {
        self.with(BRIEFLY, |inner| {
            while let Some(slot) = inner.queue.pop_front() {
                if slot.list(LISTED, GONE) {
                    self.count_off(inner, 1);
                    return Some(slot.tag());
                }
            }
            None
        })?
    }

    /// The slot's ticket is dropped: it does not come any more, even if the lock cannot be had.
    pub(super) fn forget(&self, slot: &Slot) {
        if slot.list(ABSENT, GONE) || !slot.list(LISTED, GONE) {
            return;
        }
        self.dropped.fetch_add(1, Ordering::AcqRel);
        // If the lock cannot be had, whoever has it counts it off.
        self.with(BRIEFLY, |_| ());
    }

    /// The descriptor, made at the first call.
    pub(crate) fn fd(&self) -> io::Result<RawFd> {
        if let Some(event) = self.event.get() {
            return Ok(event.number());
        }
        let made = self.with(BRIEFLY, |inner| {
            let event = self.event.get_or_make(EventFd::new)?;
            if inner.live > 0 {
                event.signal();
            }
            Ok(event.number())
        });
        made.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Does something with the lock held, and what others could not do meanwhile. None: the lock
    /// could not be had in time.
    fn with<T>(&self, patience: Duration, run: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        let later = || (!patience.is_zero()).then(|| self.inner.try_lock_for(patience))?;
        let mut inner = self.inner.try_lock().or_else(later)?;
        let result = run(&mut inner);
        drop(inner);
        // A read-modify-write, not a load: whoever adds to it after this finds the lock free.
        while self.dropped.fetch_add(0, Ordering::AcqRel) > 0
            && let Some(mut inner) = self.inner.try_lock()
        {
            let count = self.dropped.swap(0, Ordering::AcqRel);
            self.count_off(&mut inner, count);
        }
        Some(result)
    }

    fn count_off(&self, inner: &mut Inner, count: usize) {
        inner.live -= count;
        if inner.live == 0 {
            // Also ends the cycle from a queued slot to its queue.
            inner.queue.clear();
            if let Some(event) = self.event.get() {
                event.clear();
            }
        } else if inner.queue.len() > SLACK + 2 * inner.live {
            // Only what a program never fetches piles up here.
            inner.queue.retain(|slot| slot.is_listing(LISTED));
        }
    }

    /// Does what a caller does that the system stops at the worst moment.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn stop_inside(&self, stopped: impl FnOnce()) {
        self.with(Duration::from_secs(1), |_| stopped()).expect("nobody else is stopped in it");
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}
