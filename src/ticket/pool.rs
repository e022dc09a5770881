//! What blocking calls need, to be used again: in a steady state no call allocates.

use crate::sync::{Arc, Mutex};
use std::collections::VecDeque;

/// More idle things than this are freed.
const MOST: usize = 256;

/// Idle things. Whoever finds the pool in use by another thread does without it.
#[derive(Debug)]
pub(crate) struct Pool<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> Pool<T> {
    pub(crate) fn new() -> Pool<T> {
        Pool(Mutex::new(VecDeque::new()))
    }

    /// One that nobody else knows, and that `renew` has made ready, if there is one.
    pub(crate) fn take(&self, renew: impl FnOnce(&mut T)) -> Option<Arc<T>> {
        // The one that has lain here longest: the background thread may not have let go of a
        // younger one yet.
        let mut thing = self.0.try_lock()?.pop_front()?;
        match Arc::get_mut(&mut thing) {
            Some(unshared) => {
                renew(unshared);
                Some(thing)
            }
            None => {
                self.put(thing);
                None
            }
        }
    }

    /// Gives one back.
    pub(crate) fn put(&self, thing: Arc<T>) {
        if let Some(mut free) = self.0.try_lock()
            && free.len() < MOST
        {
            free.push_back(thing);
        }
    }
}
