//! The locks and atomics of what callers and the background thread share: our own mutex around
//! parking_lot's, and std's atomics, or those of loom or shuttle in their model checks.
//!
//! parking_lot, because its locks are not poisoned by a panic and are understood by the thread
//! sanitizer; around it, because its waiting threads are in a table of the whole process, which a
//! forked child would inherit (`mutex.rs`).

#[cfg(not(all(any(loom, shuttle), test)))]
mod real {
    pub(crate) use crate::io::sys::Futex;
    pub(crate) use crate::mutex::{Mutex, MutexGuard};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

#[cfg(not(all(any(loom, shuttle), test)))]
pub(crate) use real::*;

#[cfg(all(any(loom, shuttle), test))]
mod model {
    use crate::clock::Mono;
    #[cfg(loom)]
    use loom as checker;
    #[cfg(shuttle)]
    use shuttle as checker;

    pub(crate) use checker::sync::Arc;
    pub(crate) use checker::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    /// The checker's mutex with the face of ours. Time does not exist in a model: a timed try waits.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(checker::sync::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(checker::sync::MutexGuard<'a, T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(checker::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self.0.lock().unwrap())
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(MutexGuard)
        }

        pub(crate) fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
            Some(self.lock())
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }

    /// A futex made of what the checker knows. It wakes everybody, which a waiter has to bear anyway, and
    /// never times out.
    #[derive(Debug)]
    pub(crate) struct Futex {
        value: checker::sync::Mutex<u32>,
        changed: checker::sync::Condvar,
    }

    impl Futex {
        pub(crate) fn new() -> Futex {
            Futex { value: checker::sync::Mutex::new(0), changed: checker::sync::Condvar::new() }
        }

        pub(crate) fn value(&self) -> u32 {
            *self.value.lock().unwrap()
        }

        pub(crate) fn wait(&self, seen: u32, _: u32, _: Mono) -> bool {
            let value = self.value.lock().unwrap();
            if *value == seen {
                drop(self.changed.wait(value).unwrap());
            }
            false
        }

        pub(crate) fn wake(&self, _: u32) {
            *self.value.lock().unwrap() += 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(all(any(loom, shuttle), test))]
pub(crate) use model::*;
