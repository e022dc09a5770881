//! What a slot tells its caller.

use crate::engine::Grant;
use crate::reason::Reason;
use std::time::Duration;

/// How an acquire ended, other than in a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Definite: the server said so.
    TimedOut,
    /// Definite: the server is at capacity, or was the last time that it was asked.
    Busy,
    /// Definite: the deadline came before a byte was sent. No reason: the caller's own timed wait
    /// ended it, and the client's last connection error is the reason.
    NotSent(Option<Reason>),
    /// Definite: given up before a byte was sent.
    Cancelled,
    /// Unknown.
    Indeterminate(Reason),
    /// Definite: every endpoint's last attempt failed authentication.
    Auth(Reason),
    /// Definite: no owners are left.
    OwnerExhausted,
    /// Definite: the background thread ended before a byte was sent.
    ThreadEnded,
}

/// What taking a result gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// There is no result yet.
    Pending,
    /// It was taken before.
    Before,
    /// The lock is held.
    Granted {
        /// The grant.
        grant: Grant,
        /// What provably remains of its lease, at least 1 ms.
        remaining: Duration,
    },
    /// A grant that may not be handed over: its token is to be released, the outcome is unknown.
    GivenBack {
        /// The token to release.
        token: u64,
        /// Why.
        reason: Reason,
    },
    /// Anything else.
    Ended(Ending),
}

/// What cancelling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// There was a result already, and it stands.
    Decided,
    /// The acquire was given up: the engine is to be told.
    Withdrawn,
    /// An untaken grant was given up: its token is to be released.
    GivenBack {
        /// The token to release.
        token: u64,
    },
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// There is a result.
    Decided,
    /// The caller's own time limit made one, and the engine is to be told.
    Overdue,
    /// The wait was to be as short as this, and no result was seen.
    Paused,
}
