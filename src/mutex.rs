//! A mutex whose sleepers are known to the kernel alone.
//!
//! parking_lot keeps every sleeping thread of the process in one table, under locks of that table's
//! own. A forked child gets the table as it was: with threads in it that the child has not got, on
//! stacks that its own threads get next, and perhaps with a lock that is held for ever. A client of
//! the child's own would meet all of it. A futex is nothing but its word: the kernel leaves the
//! parent's sleepers with the parent.
//!
//! So parking_lot's mutex is only ever tried here. Its `try_lock` is a compare-and-swap of its own
//! byte. Its unlock is another one, and comes to the table only if the byte says that a thread is
//! parked there, which only a thread says that is about to be: none is, without `lock` and the timed
//! tries. (Its deadlock detector, a feature of that crate for debugging, would have tables too.)

use crate::clock::Mono;
use crate::io::sys;
use crate::sync::{AtomicBool, Futex, Ordering};
#[cfg(all(loom, test))]
use models::word;
#[cfg(not(all(loom, test)))]
use parking_lot as word;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Looks at the lock before a thread sleeps: most are held for a few instructions.
const LOOKS: u32 = if cfg!(all(loom, test)) { 0 } else { 40 };

/// Mutual exclusion, without an order among those who wait. A panic under it does not poison it.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    value: word::Mutex<T>,
    sleepers: Sleepers,
}

/// The right to the value, until it is dropped.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    value: word::MutexGuard<'a, T>,
    /// Dropped after the value is free: fields are dropped in their order here.
    _free: Free<'a>,
}

#[derive(Debug)]
struct Sleepers {
    /// Somebody sleeps, or is about to.
    some: AtomicBool,
    futex: Futex,
}

#[derive(Debug)]
struct Free<'a>(&'a Sleepers);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        let sleepers = Sleepers { some: AtomicBool::new(false), futex: Futex::new() };
        Mutex { value: word::Mutex::new(value), sleepers }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let value = self.value.try_lock()?;
        Some(MutexGuard { value, _free: Free(&self.sleepers) })
    }

    /// Blocks until nobody holds it.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock().or_else(|| self.lock_until(Mono(u64::MAX))) {
                return guard;
            }
        }
    }

    /// Blocks until nobody holds it, but no longer than `time`. One that is free costs no look at the
    /// clock.
    pub(crate) fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock().or_else(|| self.lock_until(sys::mono() + time))
    }

    #[cold]
    fn lock_until(&self, limit: Mono) -> Option<MutexGuard<'_, T>> {
        for _ in 0..LOOKS {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            std::hint::spin_loop();
        }
        loop {
            let epoch = self.sleepers.futex.value();
            // The flag is only swapped. Whoever swaps it second knows what the first did before: the
            // holder that there is a sleeper to wake, or the sleeper that the value is free.
            self.sleepers.some.swap(true, Ordering::AcqRel);
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            if self.sleepers.futex.wait(epoch, 1, limit) {
                return self.try_lock();
            }
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl Drop for Free<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.some.swap(false, Ordering::AcqRel) {
            // All of them: the one that were chosen may be stopped.
            self.0.futex.wake(1);
        }
    }
}

#[cfg(all(loom, test))]
#[path = "mutex_models.rs"]
mod models;

#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "mutex_tests.rs"]
mod tests;
