//! Counts of what a client did.

use crate::sync::{AtomicU64, Ordering};

/// Lists the counters once: what is read, and the board that it is read from, follow the list.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counts since the client was opened, and three readings of now (`*_now`).
        ///
        /// Kept by the background thread: what a caller decides by itself (a cancel) is counted a
        /// moment later.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])+ pub $name: u64,)+
        }

        /// The counters as the background thread last published them. No lock: a reader may see
        /// some of one turn's counts and not yet others.
        #[derive(Debug)]
        pub(crate) struct Board {
            $($name: AtomicU64,)+
        }

        impl Board {
            pub(crate) fn new() -> Board {
                Board { $($name: AtomicU64::new(0),)+ }
            }

            pub(crate) fn publish(&self, counters: &Stats) {
                $(self.$name.store(counters.$name, Ordering::Relaxed);)+
            }

            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Acquires that were granted.
    acquired,
    /// Acquires that the server ended: the wait was over.
    timed_out,
    /// Acquires that the server refused: at capacity.
    /// Also those that were cancelled, or ran out of time, before they were tried again.
    busy,
    /// Acquires whose deadline came before a byte was sent.
    not_sent,
    /// Acquires that were cancelled before a byte was sent.
    cancelled,
    /// Acquires whose outcome is unknown.
    indeterminate,
    /// Releases that the server confirmed.
    released,
    /// Releases of a token that held nothing (any more).
    not_held,
    /// Releases without an answer.
    unconfirmed,
    /// Grants that could not be handed over and whose release was enqueued.
    compensations,
    /// Grants that could not be handed over when the release lane was full.
    compensations_dropped,
    /// Grants that came too late for somebody: after their deadline or with too little of their
    /// lease left, or for a caller who had cancelled, freed the ticket or closed the client.
    late_grants,
    /// Connections that were made.
    connects,
    /// Connections that could not be made.
    connects_failed,
    /// Connections that ended.
    connections_closed,
    /// Acquires that wait unsent.
    queued_now,
    /// Acquires that were sent and not answered.
    in_flight_now,
    /// Connections that are open.
    connections_now,
}
