//! The background thread's table: which slot a request id means, and which grants lie untaken.

use super::condvar::Wakes;
use super::reply::{Reply, Word};
use super::slot::Slot;
use crate::clock::Mono;
use crate::engine::{AcquireOutcome, Deadlines, Gate, RequestId, Table};
use crate::sync::Arc;
use crate::wire::Key;
use std::collections::VecDeque;
use std::time::Duration;

/// How long the thread waits for a completion queue that somebody else uses: long enough for
/// whoever only does what is to be done there, and at most once in a [`Desk::tell`].
const MOMENT: Duration = Duration::from_millis(if cfg!(all(loom, test)) { 0 } else { 1 });

/// A token that is to be released, because its grant could not be handed over.
#[derive(Debug, Clone, Copy)]
pub struct Reclaim {
    /// The lock.
    pub key: Key,
    /// The grant's token.
    pub token: u64,
}

/// The table.
#[derive(Debug, Default)]
pub struct Desk {
    table: Table<Arc<Slot>>,
    /// Grants that were untaken when last looked at.
    grants: Deadlines<Arc<Slot>>,
    /// How many entries `grants` had after it was last cleaned.
    kept: usize,
    /// Slots whose waiters are to be told.
    told: Vec<Arc<Slot>>,
    /// Slots whose completion queue could not be had: somebody was stopped in it.
    unlisted: VecDeque<Arc<Slot>>,
    wakes: Wakes,
}

impl Desk {
    /// An empty table.
    pub fn new() -> Desk {
        Desk::default()
    }

    /// The engine has taken a slot's acquire.
    pub fn admit(&mut self, id: RequestId, slot: Arc<Slot>) {
        slot.set_id(id);
        self.table.insert(id.pack(), slot);
    }

    /// The slot's caller gave it up. The id to withdraw, if the engine still knows it.
    pub fn withdraw(&mut self, slot: &Arc<Slot>) -> Option<RequestId> {
        self.see_to(slot);
        let id = slot.id()?;
        self.remove(id).map(|_| id)
    }

    /// The engine has ended an acquire. A grant that its caller no longer wants comes back.
    pub fn complete(&mut self, id: RequestId, outcome: AcquireOutcome) -> Option<Reclaim> {
        let slot = self.remove(id)?;
        let key = slot.call().key;
        if slot.decide(outcome) {
            if matches!(outcome, AcquireOutcome::Granted(_)) {
                self.watch(slot.clone());
            }
            self.told.push(slot);
            return None;
        }
        self.see_to(&slot);
        match outcome {
            AcquireOutcome::Granted(grant) => Some(Reclaim { key, token: grant.token }),
            _ => None,
        }
    }

    /// The engine has had `B` for an acquire, and tries it again.
    pub fn retry(&mut self, id: RequestId) {
        let sleeping = self.find(id).filter(|slot| slot.retry()).cloned();
        self.told.extend(sleeping);
    }

    /// The next grant whose deadline has passed before somebody took it (DL-7).
    pub fn lapsed(&mut self, now: Mono) -> Option<Reclaim> {
        #[cfg(canary)]
        if crate::canary!(acquired_was_read_and_taken_in_time) {
            return None;
        }
        while let Some(slot) = self.grants.pop_due(now) {
            if let Some(token) = slot.lapse() {
                return Some(Reclaim { key: slot.call().key, token });
            }
        }
        None
    }

    /// The client is closed: the next grant that nobody has taken.
    pub fn recall(&mut self) -> Option<Reclaim> {
        while let Some(slot) = self.grants.pop() {
            if let Some(token) = slot.recall() {
                return Some(Reclaim { key: slot.call().key, token });
            }
        }
        None
    }

    /// When [`Desk::lapsed`] is next wanted.
    pub fn next_timeout(&mut self) -> Option<Mono> {
        self.grants.next(|slot| slot.is_untaken_grant())
    }

    /// Answers a question, but for the caller's wake, which comes with the next [`Desk::tell`].
    pub(crate) fn reply<T: Word>(&mut self, reply: &Reply<T>, value: T) {
        if let Some(given) = reply.set(value) {
            self.wakes.add(given);
        }
    }

    /// Whether [`Desk::tell`] has anybody to tell.
    pub fn has_news(&self) -> bool {
        !self.told.is_empty()
    }

    /// Tells everybody whose acquire has ended since the last call. Takes no lock of the desk's.
    pub fn tell(&mut self) {
        // In order: behind what could not be listed before.
        self.list(MOMENT);
        for slot in self.told.drain(..) {
            slot.gather(&mut self.wakes);
            if !self.unlisted.is_empty() || !Slot::enlist(&slot, MOMENT) {
                self.unlisted.push_back(slot);
            }
        }
        self.wakes.notify();
    }

    /// Whether [`Desk::tell`] is to be tried again soon: a completion queue could not be had.
    pub fn is_behind(&self) -> bool {
        !self.unlisted.is_empty()
    }

    /// Lists what could not be listed, however long that takes: the thread has nothing else to do
    /// any more, and nobody waits for it.
    pub fn list_the_rest(&mut self) {
        while self.is_behind() {
            self.list(Duration::from_secs(1));
        }
    }

    fn list(&mut self, patience: Duration) {
        while let Some(slot) = self.unlisted.front()
            && Slot::enlist(slot, patience)
        {
            self.unlisted.pop_front();
        }
    }

    /// A slot's caller has decided it, and announces it. But that may not have found its completion
    /// queue free, or may have been stopped before it came there.
    pub fn see_to(&mut self, slot: &Arc<Slot>) {
        if slot.is_to_list() {
            self.unlisted.push_back(slot.clone());
        }
    }

    /// The background thread ends before the engine knew of a slot.
    pub fn refuse(&mut self, slot: Arc<Slot>) {
        slot.abandon();
        self.told.push(slot);
    }

    /// The background thread ends: so does everything that is still here.
    pub fn abandon(&mut self) {
        for slot in self.table.drain() {
            slot.abandon();
            self.told.push(slot);
        }
        self.tell();
    }

    fn remove(&mut self, id: RequestId) -> Option<Arc<Slot>> {
        self.table.remove(id.pack())
    }

    fn find(&self, id: RequestId) -> Option<&Arc<Slot>> {
        self.table.get(id.pack())
    }

    fn watch(&mut self, slot: Arc<Slot>) {
        // Whoever takes a grant says nothing here: they are cleaned when they have doubled.
        if self.grants.compact(self.kept, |slot| slot.is_untaken_grant()) {
            self.kept = self.grants.len();
        }
        // One that is taken exactly at its deadline counts.
        self.grants.push(slot.call().deadline + Duration::from_nanos(1), slot);
    }
}

impl Gate for Desk {
    fn claim(&mut self, id: RequestId, end: Mono) -> bool {
        self.find(id).is_some_and(|slot| slot.claim(end))
    }

    fn unclaim(&mut self, id: RequestId) {
        let sleeping = self.find(id).filter(|slot| slot.unclaim()).cloned();
        self.told.extend(sleeping);
    }
}
