//! The tickets of a client that have a result, in the order in which they got it.

use super::slot::Slot;
use crate::io::sys::EventFd;
use crate::sync::{Arc, Mutex, Ordering};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;

// A slot's listing.
const ABSENT: u32 = 0;
const LISTED: u32 = 1;
/// Fetched, or its ticket was dropped: it does not come (again).
const GONE: u32 = 2;

/// Stale entries that may stay in the queue before it is cleaned.
const SLACK: usize = 64;

/// A queue with one descriptor that is readable while the queue is not empty.
pub(crate) struct Completions(Mutex<Inner>);

struct Inner {
    queue: VecDeque<Arc<Slot>>,
    /// Entries of `queue` whose ticket is still there.
    live: usize,
    event: Option<EventFd>,
}

impl Completions {
    pub(crate) fn new() -> Completions {
        Completions(Mutex::new(Inner { queue: VecDeque::new(), live: 0, event: None }))
    }

    /// Adds a slot that has a result; a second time does nothing.
    pub(super) fn add(&self, slot: &Arc<Slot>) {
        let mut inner = self.0.lock();
        if slot.listing.load(Ordering::Relaxed) != ABSENT {
            return;
        }
        slot.listing.store(LISTED, Ordering::Relaxed);
        inner.queue.push_back(slot.clone());
        inner.live += 1;
        if inner.live == 1
            && let Some(event) = &inner.event
        {
            event.signal();
        }
    }

    /// The next slot's tag. Each slot once.
    pub(crate) fn next(&self) -> Option<u64> {
        let mut inner = self.0.lock();
        while let Some(slot) = inner.queue.pop_front() {
            if slot.listing.load(Ordering::Relaxed) == LISTED {
                slot.listing.store(GONE, Ordering::Relaxed);
                inner.one_less();
                return Some(slot.tag());
            }
        }
        None
    }

    /// The slot's ticket is dropped: it must not come any more.
    pub(super) fn forget(&self, slot: &Slot) {
        let mut inner = self.0.lock();
        if slot.listing.load(Ordering::Relaxed) == LISTED {
            slot.listing.store(GONE, Ordering::Relaxed);
            inner.one_less();
            // Only what a program never fetches piles up here.
            if inner.queue.len() > SLACK + 2 * inner.live {
                inner.queue.retain(|slot| slot.listing.load(Ordering::Relaxed) == LISTED);
            }
        }
        slot.listing.store(GONE, Ordering::Relaxed);
    }

    /// The descriptor, made at the first call.
    pub(crate) fn fd(&self) -> io::Result<RawFd> {
        let mut inner = self.0.lock();
        if let Some(event) = &inner.event {
            return Ok(event.number());
        }
        let made = EventFd::new()?;
        if inner.live > 0 {
            made.signal();
        }
        Ok(inner.event.insert(made).number())
    }
}

impl Inner {
    fn one_less(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            // Also ends the cycle from a queued slot to its queue.
            self.queue.clear();
            if let Some(event) = &self.event {
                event.clear();
            }
        }
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}
