//! Condition variables that are notified in groups.
//!
//! The background thread reads many answers at once. With a condition variable of its own for each
//! caller every answer would cost a system call; here up to 32 condition variables share a futex,
//! each with a bit of its own, and one system call notifies any choice of them.

use crate::clock::Mono;
use crate::sync::{Arc, Futex, Mutex};

/// A condition variable. No lock belongs to it: whoever waits takes its epoch first, then looks at
/// what it waits for, and then waits for the epoch's end. A waiter may wake for nothing.
#[derive(Debug, Clone)]
pub(crate) struct Condvar {
    group: Arc<Futex>,
    /// This one's bit in its group. Of a [`Wakes`] entry: the bits of all that are meant.
    bits: u32,
}

/// The time between two notifications of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch(u32);

impl Condvar {
    /// One that shares with nobody.
    pub(crate) fn new() -> Condvar {
        Condvar { group: Arc::new(Futex::new()), bits: 1 }
    }

    /// The present epoch: a notification after this ends a wait for its end.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.group.value())
    }

    /// Blocks until this one is notified, unless its group was since `epoch`; at most until
    /// `limit`. True: until `limit`.
    pub(crate) fn wait_until(&self, epoch: Epoch, limit: Mono) -> bool {
        self.group.wait(epoch.0, self.bits, limit)
    }

    /// Wakes whoever waits, after what is waited for has changed.
    pub(crate) fn notify_all(&self) {
        self.group.wake(self.bits);
    }
}

/// Makes condition variables: those that are asked for one after the other share a group.
#[derive(Debug)]
pub(crate) struct Condvars(Mutex<Condvar>);

impl Condvars {
    pub(crate) fn new() -> Condvars {
        Condvars(Mutex::new(Condvar::new()))
    }

    /// Another one. It shares with nobody if another thread is just making one: that one may have
    /// been stopped at it (HOST-6).
    pub(crate) fn make(&self) -> Condvar {
        let Some(mut next) = self.0.try_lock() else { return Condvar::new() };
        let made = next.clone();
        match next.bits.checked_mul(2) {
            Some(bits) => next.bits = bits,
            None => *next = Condvar::new(),
        }
        made
    }
}

/// Condition variables that are to be notified, gathered so that each group is notified once.
#[derive(Debug, Default)]
pub(crate) struct Wakes(Vec<Condvar>);

impl Wakes {
    pub(crate) fn add(&mut self, condvar: &Condvar) {
        // From the last: neighbours are often answered together.
        let known = |other: &&mut Condvar| Arc::ptr_eq(&other.group, &condvar.group);
        match self.0.iter_mut().rev().find(known) {
            Some(other) => other.bits |= condvar.bits,
            None => self.0.push(condvar.clone()),
        }
    }

    /// Notifies them.
    pub(crate) fn notify(&mut self) {
        self.0.drain(..).for_each(|condvars| condvars.notify_all());
    }
}
