//! Slots of blocking calls, to be used again: in a steady state no call allocates.

use super::slot::Slot;
use crate::engine::AcquireCall;
use crate::sync::{Arc, Mutex};
use std::collections::VecDeque;

/// More idle slots than this are freed.
const MOST: usize = 256;

/// Idle slots. Whoever finds the pool in use by another thread does without it.
#[derive(Debug)]
pub(crate) struct Pool(Mutex<VecDeque<Arc<Slot>>>);

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool(Mutex::new(VecDeque::new()))
    }

    /// A slot for one acquire.
    pub(crate) fn take(&self, call: AcquireCall, enforce_budget: bool) -> Arc<Slot> {
        // The one that has lain here longest: the background thread may not have let go of a
        // younger one yet, and a slot is used again only when nobody else knows it.
        let idle = self.0.try_lock().and_then(|mut free| free.pop_front());
        if let Some(mut slot) = idle {
            if let Some(unshared) = Arc::get_mut(&mut slot) {
                unshared.renew(call, enforce_budget);
                return slot;
            }
            self.put(slot);
        }
        Arc::new(Slot::new(call, enforce_budget))
    }

    /// Gives back a slot whose result was taken.
    pub(crate) fn put(&self, slot: Arc<Slot>) {
        if let Some(mut free) = self.0.try_lock()
            && free.len() < MOST
        {
            free.push_back(slot);
        }
    }
}
