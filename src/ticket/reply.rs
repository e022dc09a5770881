//! The answer to one question that a caller puts to the background thread and waits for.

use super::condvar::Condvar;
use crate::clock::Mono;
use crate::reason::Reason;
use crate::sync::Mutex;

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
    inner: Mutex<Inner<T>>,
    given: Condvar,
}

#[derive(Debug)]
struct Inner<T> {
    value: Option<T>,
    /// Somebody sleeps, or is about to.
    waiting: bool,
}

impl<T: Copy> Reply<T> {
    pub(crate) fn new(given: Condvar) -> Reply<T> {
        Reply { inner: Mutex::new(Inner { value: None, waiting: false }), given }
    }

    /// Makes a reply that nobody else knows ready for another question.
    pub(crate) fn renew(&mut self) {
        *self.inner.get_mut() = Inner { value: None, waiting: false };
    }

    /// The background thread: the answer. The first one counts. What is to be notified, if
    /// somebody sleeps.
    pub(crate) fn set(&self, value: T) -> Option<&Condvar> {
        let mut inner = self.inner.lock();
        inner.value.get_or_insert(value);
        inner.waiting.then_some(&self.given)
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
            let mut inner = self.inner.lock();
            if inner.value.is_some() {
                return inner.value;
            }
            inner.waiting = true;
            drop(inner);
            if self.given.wait_until(epoch, limit) {
                // An answer that came with the last moment counts.
                return self.inner.lock().value;
            }
        }
    }
}
