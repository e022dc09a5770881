//! The answer to one question that a caller puts to the background thread and waits for.

use crate::clock::Mono;
use crate::sync::{Condvar, Mutex};

/// A value that is given once.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    value: Mutex<Option<T>>,
    given: Condvar,
}

impl<T: Copy> Reply<T> {
    pub(crate) fn new() -> Reply<T> {
        Reply { value: Mutex::new(None), given: Condvar::new() }
    }

    /// Makes a reply that nobody else knows ready for another question.
    pub(crate) fn renew(&mut self) {
        *self.value.get_mut() = None;
    }

    /// The background thread: the answer. The first one counts.
    pub(crate) fn give(&self, value: T) {
        self.value.lock().get_or_insert(value);
        self.given.notify_all();
    }

    /// Blocks until there is an answer, at most until `limit`.
    pub(crate) fn wait(&self, limit: Mono, clock: impl Fn() -> Mono) -> Option<T> {
        let mut value = self.value.lock();
        loop {
            if value.is_some() {
                return *value;
            }
            let now = clock();
            if now >= limit {
                return None;
            }
            self.given.wait_for(&mut value, limit.since(now));
        }
    }
}
