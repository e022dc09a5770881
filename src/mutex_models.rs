//! Every order of threads that want one mutex.

use super::Mutex;
use loom::sync::Arc;
use loom::thread;

/// parking_lot's mutex as far as it is used, made of what the checker knows. It never waits.
pub(super) mod word {
    use loom::sync::Mutex as Checked;
    use loom::sync::MutexGuard as CheckedGuard;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use std::ops::{Deref, DerefMut};

    #[derive(Debug)]
    pub(crate) struct Mutex<T> {
        locked: AtomicBool,
        value: Checked<T>,
    }

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        locked: &'a AtomicBool,
        value: Option<CheckedGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex { locked: AtomicBool::new(false), value: Checked::new(value) }
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            if self.locked.load(Ordering::Relaxed) {
                return None;
            }
            self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
            let value = self.value.try_lock().expect("two hold it at once");
            Some(MutexGuard { locked: &self.locked, value: Some(value) })
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.value.as_deref().unwrap()
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.value.as_deref_mut().unwrap()
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.locked.store(false, Ordering::Release);
        }
    }
}

/// Each of `others` threads and this one adds one under the mutex, `times` times. A thread that is
/// not woken never ends, which the checker reports.
fn all_get_it(others: usize, times: u32) {
    let mutex = Arc::new(Mutex::new(0));
    let add = move |mutex: &Mutex<u32>| (0..times).for_each(|_| *mutex.lock() += 1);
    let threads: Vec<_> = (0..others)
        .map(|_| {
            let mutex = mutex.clone();
            thread::spawn(move || add(&mutex))
        })
        .collect();
    add(&mutex);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*mutex.lock() as usize, (others + 1) * times as usize);
}

#[test]
fn two_threads_exclude_each_other_and_neither_sleeps_for_ever() {
    loom::model(|| all_get_it(1, 1));
}

/// What goes wrong with more threads or turns goes wrong with few switches between the threads; all
/// orders would take hours.
fn with_few_switches(others: usize, times: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || all_get_it(others, times));
}

#[test]
fn two_threads_get_it_again_and_again() {
    with_few_switches(1, 2);
}

#[test]
fn of_three_threads_none_is_left_asleep() {
    with_few_switches(2, 1);
}
