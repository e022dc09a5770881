//! Counts of what a client did.

use crate::sync::{AtomicU64, Ordering};

/// Counts since the client was opened, and three readings of now (`*_now`).
///
/// Kept by the background thread: what a caller decides by itself (a cancel) is counted a moment
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Acquires that were granted.
    pub acquired: u64,
    /// Acquires that the server ended: the wait was over.
    pub timed_out: u64,
    /// Acquires that the server refused: at capacity.
    pub busy: u64,
    /// Acquires whose deadline came before a byte was sent.
    pub not_sent: u64,
    /// Acquires that were cancelled before a byte was sent.
    pub cancelled: u64,
    /// Acquires whose outcome is unknown.
    pub indeterminate: u64,
    /// Releases that the server confirmed.
    pub released: u64,
    /// Releases of a token that held nothing (any more).
    pub not_held: u64,
    /// Releases without an answer.
    pub unconfirmed: u64,
    /// Grants that could not be handed over and whose release was enqueued.
    pub compensations: u64,
    /// Grants that could not be handed over when the release lane was full.
    pub compensations_dropped: u64,
    /// Grants that came, or were to be taken, after their deadline.
    pub late_grants: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Connections that could not be made.
    pub connects_failed: u64,
    /// Connections that ended.
    pub connections_closed: u64,
    /// Acquires that wait unsent.
    pub queued_now: u64,
    /// Acquires that were sent and not answered.
    pub in_flight_now: u64,
    /// Connections that are open.
    pub connections_now: u64,
}

/// The counters as the background thread last published them. No lock: a reader may see some of
/// one turn's counts and not yet others.
#[derive(Debug)]
pub(crate) struct Board([AtomicU64; 18]);

impl Board {
    pub(crate) fn new() -> Board {
        Board(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn publish(&self, counters: &Stats) {
        let words = [
            counters.acquired,
            counters.timed_out,
            counters.busy,
            counters.not_sent,
            counters.cancelled,
            counters.indeterminate,
            counters.released,
            counters.not_held,
            counters.unconfirmed,
            counters.compensations,
            counters.compensations_dropped,
            counters.late_grants,
            counters.connects,
            counters.connects_failed,
            counters.connections_closed,
            counters.queued_now,
            counters.in_flight_now,
            counters.connections_now,
        ];
        for (place, word) in self.0.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Stats {
        let [
            acquired,
            timed_out,
            busy,
            not_sent,
            cancelled,
            indeterminate,
            released,
            not_held,
            unconfirmed,
            compensations,
            compensations_dropped,
            late_grants,
            connects,
            connects_failed,
            connections_closed,
            queued_now,
            in_flight_now,
            connections_now,
        ] = std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        Stats {
            acquired,
            timed_out,
            busy,
            not_sent,
            cancelled,
            indeterminate,
            released,
            not_held,
            unconfirmed,
            compensations,
            compensations_dropped,
            late_grants,
            connects,
            connects_failed,
            connections_closed,
            queued_now,
            in_flight_now,
            connections_now,
        }
    }
}
