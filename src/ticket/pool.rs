//! What blocking calls need, to be used again: in a steady state no call allocates.

use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use std::collections::VecDeque;

/// In so many parts, each with a lock of its own: a thread that is stopped while it holds one must
/// not make the others allocate.
const PARTS: usize = if cfg!(all(loom, test)) { 1 } else { 8 };

/// More idle things than this are freed.
const MOST: usize = 256;

/// Idle things. Whoever finds all of the pool in use by other threads does without it.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    parts: [Part<T>; PARTS],
    /// Where to look next. Both go around, so that the pool as a whole is first in, first out.
    next_take: AtomicUsize,
    next_put: AtomicUsize,
}

/// On a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Part<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> Pool<T> {
    pub(crate) fn new() -> Pool<T> {
        Pool {
            parts: std::array::from_fn(|_| Part(Mutex::new(VecDeque::new()))),
            next_take: AtomicUsize::new(0),
            next_put: AtomicUsize::new(0),
        }
    }

    /// The parts, beginning with the next.
    fn parts(&self, next: &AtomicUsize) -> impl Iterator<Item = &Mutex<VecDeque<Arc<T>>>> {
        let first = next.fetch_add(1, Ordering::Relaxed);
        (0..PARTS).map(move |at| &self.parts[first.wrapping_add(at) % PARTS].0)
    }

    /// One that nobody else knows, and that `renew` has made ready, if there is one.
    pub(crate) fn take(&self, renew: impl FnOnce(&mut T)) -> Option<Arc<T>> {
        let mut thing = self.parts(&self.next_take).find_map(|part| {
            // The one that has lain here longest: the background thread may not have let go of a
            // younger one yet.
            let mut free = part.try_lock()?;
            Arc::get_mut(free.front_mut()?)?;
            free.pop_front()
        })?;
        renew(Arc::get_mut(&mut thing)?);
        Some(thing)
    }

    /// Gives one back.
    pub(crate) fn put(&self, thing: Arc<T>) {
        for part in self.parts(&self.next_put) {
            if let Some(mut free) = part.try_lock()
                && free.len() < MOST / PARTS
            {
                return free.push_back(thing);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_stopped_in_it_does_not_make_others_allocate() {
        let pool = Pool::new();
        for number in 0..2 * PARTS {
            pool.put(Arc::new(number));
        }
        let stopped = pool.parts[0].0.lock();
        for _ in 0..10 * PARTS {
            let idle = pool.take(|_| ()).expect("the other parts have some");
            pool.put(idle);
        }
        drop(stopped);
        assert_eq!(pool.parts.iter().map(|part| part.0.lock().len()).sum::<usize>(), 2 * PARTS);
    }

    #[test]
    fn one_that_is_still_known_does_not_hide_the_others() {
        let pool = Pool::new();
        let things = [0; 3].map(Arc::new);
        for thing in &things {
            pool.put(thing.clone());
        }
        assert!(pool.take(|_| ()).is_none());
        let [_kept, free, _kept_too] = things;
        drop(free);
        assert!(pool.take(|_| ()).is_some());
    }

    #[test]
    fn it_keeps_so_many_and_no_more() {
        let pool = Pool::new();
        for number in 0..2 * MOST {
            pool.put(Arc::new(number));
        }
        let kept = std::iter::from_fn(|| pool.take(|_| ())).count();
        assert_eq!(kept, MOST);
    }
}
