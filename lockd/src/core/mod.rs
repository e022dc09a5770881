//! The lock table and its rules, without I/O and without a clock.
//!
//! Every call takes the moment at which it happens and gives its answers to an [`Answers`], in
//! the order in which they were decided. [`Core::next_deadline`] says when [`Core::advance`] has
//! something to do; calling it early, or again, does nothing.

mod admission;
mod authority;
mod deadlines;
mod histogram;
mod index;
mod inspect;
mod keys;
mod pages;
mod queues;
mod stats;
mod table;
mod time;
mod turn;

#[cfg(test)]
mod tests;

pub use authority::Journal;
pub(crate) use deadlines::{Deadlines, NEVER, Slots};
pub use histogram::{BOUNDS_MS, Histogram};
pub use inspect::Held;
pub use stats::{Refusals, Stats};
pub use time::Time;
pub use turn::Turn;

use admission::Admission;
use authority::Authority;
use lockclient::wire::ServerFrame;
use queues::{Waiter, Waiters};
use std::io;
use std::time::Duration;
use table::Table;

/// A connection, by the number that the caller gave it. Small numbers, used again once
/// [`Core::disconnect`] was called, keep the core small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// Where the core's answers go.
pub trait Answers {
    /// An answer to a request of `to`.
    fn answer(&mut self, to: ConnectionId, frame: ServerFrame<'_>);
}

/// The hard limits. Each is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Keys held.
    pub locks: usize,
    /// Waiters in all.
    pub waiters: usize,
    /// Waiters for one key.
    pub waiters_per_key: usize,
    /// Waiters of one connection.
    pub waiters_per_connection: usize,
}

/// The fields of an acquire. Its key has 1 to 128 bytes and its lease is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// How long it may wait, in seconds.
    pub wait: u8,
    /// How long the grant lasts, in seconds.
    pub lease: u8,
    /// Echoed in the answer.
    pub owner: u64,
    /// The lock's name.
    pub key: &'a [u8],
}

/// From so many locks on the table is larger than what caches hold that are worth the name.
const LARGE: u32 = 8192;

/// So many leases and waits that are over are ended at once: some milliseconds' work. Others wait for
/// their turn no longer than that, however many end together.
const ENDS: usize = 4096;

/// The error code of a node that may not serve.
pub(crate) const NOT_ACTIVE: ServerFrame<'static> = ServerFrame::Error { code: b"not_active" };

/// The lock table and its rules.
#[derive(Debug)]
pub struct Core {
    table: Table,
    waiters: Waiters,
    lease_ends: Deadlines,
    wait_ends: Deadlines,
    admission: Admission,
    authority: Authority,
    limits: Limits,
    /// Until when this node may not serve.
    inactive_until: Option<Time>,
    stats: Stats,
    refusals: Refusals,
}

impl Core {
    /// An empty table whose first token is `first_token` and whose last is `last_token`, and that
    /// remembers nothing across a restart.
    pub fn new(limits: Limits, first_token: u64, last_token: u64) -> Core {
        Core::with_authority(limits, Authority::volatile(first_token, last_token))
    }

    /// An empty table whose first token is `first_token`, and that grants what `journal` allows.
    pub fn with_journal(limits: Limits, first_token: u64, journal: Box<dyn Journal>) -> Core {
        Core::with_authority(limits, Authority::durable(first_token, journal))
    }

    fn with_authority(limits: Limits, authority: Authority) -> Core {
        Core {
            table: Table::new(),
            waiters: Waiters::default(),
            lease_ends: Deadlines::default(),
            wait_ends: Deadlines::default(),
            admission: Admission::new(limits.locks, limits.waiters),
            authority,
            limits,
            inactive_until: None,
            stats: Stats::default(),
            refusals: Refusals::default(),
        }
    }

    /// Grants nothing before `until`, and says so to acquires and probes.
    pub fn quarantine(&mut self, until: Time) {
        self.inactive_until = Some(until);
    }

    /// Grants nothing any more, and records for how long the next start must not either: until
    /// the last lease has ended, or what is left of a quarantine.
    ///
    /// # Errors
    /// The record could not be made durable. The next start will take this stop for a crash.
    pub fn stop(&mut self, now: Time) -> io::Result<()> {
        let leases = (0..self.table.slots())
            .map(|slot| self.table.get(slot))
            .filter(|lock| lock.token != 0)
            .map(|lock| lock.lease_end);
        let last = leases.chain(self.inactive_until).max();
        self.authority.stop(last.map_or(Duration::ZERO, |last| last.since(now)))
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        Stats {
            held: self.table.len(),
            waiters: self.waiters.len(),
            admitting: self.admission.is_open(),
            active: self.inactive_until.is_none() && !self.authority.is_spent(),
            ..self.stats
        }
    }

    /// Whether new acquires are let in.
    pub fn is_admitting(&self) -> bool {
        self.admission.is_open()
    }

    /// Acquires answered `B` though admission let them in.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// How many acquires of a connection wait.
    pub fn waiters_of(&self, connection: ConnectionId) -> usize {
        self.waiters.of_connection(connection.0)
    }

    /// When [`Core::advance`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [self.lease_ends.next(), self.wait_ends.next(), self.inactive_until];
        deadlines.into_iter().flatten().min()
    }

    /// The key's hash, for [`Core::fetch`].
    pub(crate) fn hash(&self, key: &[u8]) -> u32 {
        self.table.hash(key)
    }

    /// Whether so much is held that [`Core::fetch`] is worth its while.
    pub(crate) fn is_large(&self) -> bool {
        self.table.slots() >= LARGE
    }

    /// Has the processor fetch what requests for the keys with these hashes will need. Where much
    /// is held, waiting for memory is most of what a request takes, and so the waits overlap.
    pub(crate) fn fetch(&self, hashes: &[u32]) {
        self.table.fetch(hashes);
    }

    /// An acquire of `from`.
    pub fn acquire(
        &mut self,
        from: ConnectionId,
        request: Acquire<'_>,
        now: Time,
        out: &mut impl Answers,
    ) {
        let Acquire { wait, owner, key, .. } = request;
        self.stats.acquires += 1;
        if !self.is_active(now) {
            self.stats.not_active += 1;
            return out.answer(from, NOT_ACTIVE);
        }
        let hash = self.table.hash(key);
        let slot = self.find(hash, key, now, out);
        if !self.admission.is_open() {
            self.stats.busy += 1;
            return out.answer(from, ServerFrame::Busy { owner, key });
        }
        let Some(slot) = slot else {
            if !self.authority.allow(request.lease) {
                self.stats.not_active += 1;
                return out.answer(from, NOT_ACTIVE);
            }
            let slot = self.table.insert(hash, key);
            self.stats.waits.record(Duration::ZERO);
            self.grant(slot, from, owner, request.lease, now, out);
            self.admission.update(self.table.len(), self.waiters.len());
            return;
        };
        if wait == 0 {
            self.stats.timeouts += 1;
            return out.answer(from, ServerFrame::TimedOut { owner, key });
        }
        let queue = &mut self.table.get_mut(slot).queue;
        if queue.len() >= self.limits.waiters_per_key
            || self.waiters.of_connection(from.0) >= self.limits.waiters_per_connection
        {
            self.stats.busy += 1;
            self.refusals.full_queue += 1;
            return out.answer(from, ServerFrame::Busy { owner, key });
        }
        let waiter = Waiter::new(from.0, slot, owner, (wait, request.lease), now);
        let number = self.waiters.join(queue, waiter);
        self.stats.queued += 1;
        let waiter = self.waiters.get(number);
        let (wait_end, arrival) = (waiter.wait_end, waiter.arrival);
        self.wait_ends.schedule(number, wait_end, arrival, &mut self.waiters);
        self.admission.update(self.table.len(), self.waiters.len());
    }

    /// A release of `from`. With token 0 it is a probe, which releases nothing.
    pub fn release(
        &mut self,
        from: ConnectionId,
        owner: u64,
        token: u64,
        key: &[u8],
        now: Time,
        out: &mut impl Answers,
    ) {
        let hash = self.table.hash(key);
        let slot = self.find(hash, key, now, out);
        if token == 0 {
            self.stats.probes += 1;
            if !self.is_active(now) {
                self.stats.not_active += 1;
                return out.answer(from, NOT_ACTIVE);
            }
        }
        match slot {
            Some(slot) if self.table.get(slot).token == token => {
                self.stats.released += 1;
                self.note_hold(slot, now);
                out.answer(from, ServerFrame::Released { owner, key });
                self.pass_on(hash, slot, now, out);
            }
            _ => {
                self.stats.not_held += 1;
                out.answer(from, ServerFrame::NotHeld { owner, key });
            }
        }
    }

    /// `connection` has ended: its waiters leave. What it holds stays held.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        while let Some(number) = self.waiters.first_of_connection(connection.0) {
            let slot = self.waiters.get(number).lock;
            self.waiters.leave(&mut self.table.get_mut(slot).queue, number);
            self.stats.abandoned += 1;
        }
        self.admission.update(self.table.len(), self.waiters.len());
    }

    /// Takes back a grant of which the client cannot have learnt.
    pub fn undo(&mut self, token: u64, key: &[u8], now: Time, out: &mut impl Answers) {
        let hash = self.table.hash(key);
        if let Some(slot) = self.find(hash, key, now, out)
            && self.table.get(slot).token == token
        {
            self.stats.undone += 1;
            self.pass_on(hash, slot, now, out);
        }
    }

    /// Ends leases and waits whose end has come. If there are very many [`Core::next_deadline`] is
    /// still over afterwards; whoever asks for a key meanwhile finds it as if all had been ended.
    pub fn advance(&mut self, now: Time, out: &mut impl Answers) {
        self.advance_in(Turn::begin(now), out);
    }

    /// As [`Core::advance`], in a turn that may have read since it looked at its connections.
    pub fn advance_in(&mut self, turn: Turn, out: &mut impl Answers) {
        let now = turn.now();
        self.is_active(now);
        let mut left = ENDS;
        while left > 0
            && let Some(due) = self.lease_ends.pop_due(turn.looked(), &mut self.table)
        {
            left -= 1;
            let lock = self.table.get(due.slot);
            if lock.token == 0 {
                continue;
            }
            if lock.token == due.stamp {
                self.stats.expired += 1;
                self.note_hold(due.slot, now);
                let hash = self.table.hash(self.table.key(due.slot));
                self.pass_on(hash, due.slot, now, out);
            } else {
                let (lease_end, token) = (lock.lease_end, lock.token);
                self.lease_ends.schedule(due.slot, lease_end, token, &mut self.table);
            }
        }
        while left > 0
            && let Some(due) = self.wait_ends.pop_due(turn.looked(), &mut self.waiters)
        {
            left -= 1;
            let waiter = self.waiters.get(due.slot);
            if waiter.arrival == 0 {
                continue;
            }
            if waiter.arrival == due.stamp {
                self.time_out(due.slot, out);
            } else {
                let (wait_end, arrival) = (waiter.wait_end, waiter.arrival);
                self.wait_ends.schedule(due.slot, wait_end, arrival, &mut self.waiters);
            }
        }
        self.admission.update(self.table.len(), self.waiters.len());
    }

    /// Whether this node may serve.
    fn is_active(&mut self, now: Time) -> bool {
        if self.inactive_until.is_some_and(|until| until <= now) {
            self.inactive_until = None;
            self.authority.settle();
        }
        self.inactive_until.is_none() && !self.authority.is_spent()
    }

    /// The key's slot if it is held, after ending a lease whose end has come.
    fn find(&mut self, hash: u32, key: &[u8], now: Time, out: &mut impl Answers) -> Option<u32> {
        let slot = self.table.find(hash, key)?;
        if self.table.get(slot).lease_end <= now {
            self.stats.expired += 1;
            self.note_hold(slot, now);
            if !self.pass_on(hash, slot, now, out) {
                return None;
            }
        }
        Some(slot)
    }

    /// The grant of a key has ended: its queue's head is granted, or the key becomes free.
    /// `hash` is the key's. Returns whether it is held again.
    fn pass_on(&mut self, hash: u32, slot: u32, now: Time, out: &mut impl Answers) -> bool {
        while let Some(number) = self.table.get(slot).queue.head() {
            if self.waiters.get(number).wait_end <= now {
                self.time_out(number, out);
                continue;
            }
            let waiter = self.waiters.leave(&mut self.table.get_mut(slot).queue, number);
            let to = ConnectionId(waiter.connection);
            if !self.authority.allow(waiter.lease) {
                self.stats.busy += 1;
                self.refusals.tokenless += 1;
                out.answer(
                    to,
                    ServerFrame::Busy { owner: waiter.owner, key: self.table.key(slot) },
                );
                continue;
            }
            self.stats.waits.record(now.since(waiter.since()));
            self.grant(slot, to, waiter.owner, waiter.lease, now, out);
            self.admission.update(self.table.len(), self.waiters.len());
            return true;
        }
        self.table.remove(hash, slot);
        self.admission.update(self.table.len(), self.waiters.len());
        false
    }

    /// Grants the lock in `slot`; the authority has allowed it.
    fn grant(
        &mut self,
        slot: u32,
        to: ConnectionId,
        owner: u64,
        lease: u8,
        now: Time,
        out: &mut impl Answers,
    ) {
        let token = self.authority.issue();
        let lease_end = now.after_seconds(lease);
        #[cfg(canary)]
        let lease_end = match lockclient::canary!(holders_never_overlap) {
            true => now.after_seconds(lease / 4),
            false => lease_end,
        };
        let lock = self.table.get_mut(slot);
        lock.token = token;
        lock.lease_end = lease_end;
        lock.lease = lease;
        self.lease_ends.schedule(slot, lease_end, token, &mut self.table);
        self.stats.grants += 1;
        out.answer(to, ServerFrame::Acquired { owner, token, key: self.table.key(slot) });
    }

    /// The grant of a key has ended other than by being undone.
    fn note_hold(&mut self, slot: u32, now: Time) {
        let lock = self.table.get(slot);
        // However late the end of the lease is noticed: it was not held beyond it.
        let end = lock.lease_end.min(now);
        self.stats.holds.record(end.since(lock.lease_end.before_seconds(lock.lease)));
    }

    /// A waiter's wait has ended.
    fn time_out(&mut self, number: u32, out: &mut impl Answers) {
        let slot = self.waiters.get(number).lock;
        let waiter = self.waiters.leave(&mut self.table.get_mut(slot).queue, number);
        self.stats.timeouts += 1;
        let key = self.table.key(slot);
        out.answer(
            ConnectionId(waiter.connection),
            ServerFrame::TimedOut { owner: waiter.owner, key },
        );
    }
}
