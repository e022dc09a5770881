//! The locks and atomics of what callers and the background thread share: parking_lot's and std's,
//! or those of loom or shuttle in their model checks.
//!
//! parking_lot, because its locks are not poisoned by a panic, can be tried for a bounded time,
//! and are understood by the thread sanitizer.

#[cfg(not(all(any(loom, shuttle), test)))]
mod real {
    pub(crate) use crate::io::sys::Futex;
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
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

    /// The checker's mutex with parking_lot's face. Time does not exist in a model: a timed try waits.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(checker::sync::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(Option<checker::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(checker::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }

        pub(crate) fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
            Some(self.lock())
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap()
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_deref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_deref_mut().unwrap()
        }
    }

    /// A futex made of what the checker knows. It wakes everybody, which a waiter has to bear anyway, and
    /// never times out.
    #[derive(Debug)]
    pub(crate) struct Futex {
        value: Mutex<u32>,
        changed: Condvar,
    }

    impl Futex {
        pub(crate) fn new() -> Futex {
            Futex { value: Mutex::new(0), changed: Condvar::new() }
        }

        pub(crate) fn value(&self) -> u32 {
            *self.value.lock()
        }

        pub(crate) fn wait(&self, seen: u32, _: u32, _: Mono) -> bool {
            let mut value = self.value.lock();
            if *value == seen {
                self.changed.wait(&mut value);
            }
            false
        }

        pub(crate) fn wake(&self, _: u32) {
            *self.value.lock() += 1;
            self.changed.notify_all();
        }
    }

    /// The checker's condition variable with parking_lot's face. A timed wait never times out: a model
    /// that needs a timer makes it a thread.
    #[derive(Debug)]
    pub(crate) struct Condvar(checker::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(checker::sync::Condvar::new())
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            let inner = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(inner).unwrap());
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            self.wait_for(guard, Duration::MAX);
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(all(any(loom, shuttle), test))]
pub(crate) use model::*;
