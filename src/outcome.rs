//! What became of a request.

use crate::clock::Boot;
use crate::input::{DEFAULT_LEASE, Lease};
use crate::io::sys;
use crate::reason::{Reason, ReasonKind};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A fencing token: hand it to what the lock protects, which refuses a smaller one than the
/// greatest it has seen. It is also the authority to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// A token that was stored as a number.
    #[must_use]
    pub const fn new(token: u64) -> Token {
        Token(token)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an acquire asks for. Checked by the call that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Acquire {
    pub(crate) wait: Duration,
    pub(crate) lease: Duration,
    pub(crate) budget: Duration,
}

impl Acquire {
    /// An acquire that may take `wait` (0..=255 s; 0 is one immediate attempt) and whose work under
    /// the lock needs `min_work_budget` (0..=250 s, at most the lease), with a lease of 30 s.
    ///
    /// A fraction of a second counts as a whole one.
    pub fn new(wait: Duration, min_work_budget: Duration) -> Acquire {
        Acquire { wait, lease: DEFAULT_LEASE, budget: min_work_budget }
    }

    /// The same with another lease, 1..=255 s.
    pub fn lease(self, lease: Duration) -> Acquire {
        Acquire { lease, ..self }
    }
}

/// A lock that was granted, as a value: nothing happens when it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub(crate) token: Token,
    pub(crate) owner: u64,
    pub(crate) lease: Lease,
    pub(crate) proof: Boot,
    pub(crate) at_delivery: Duration,
}

impl Grant {
    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The request's correlation id: for logs, and nothing else.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// What provably remains of the lease now: a lower bound, whatever the network did. Zero says
    /// that the lease may have ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.proven_remaining(sys::now().boot.since(self.proof))
    }

    /// What provably remained when the grant was handed over; at least 1 ms.
    #[must_use]
    pub fn remaining_at_delivery(&self) -> Duration {
        self.at_delivery
    }
}

/// Why a request ended without what it asked for: one sentence when displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    reason: Reason,
    endpoint: Option<Arc<str>>,
}

impl Failure {
    pub(crate) fn new(reason: Reason, endpoints: &[Arc<str>]) -> Failure {
        let endpoint = reason.endpoint.and_then(|at| endpoints.get(usize::from(at)).cloned());
        Failure { reason, endpoint }
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> ReasonKind {
        self.reason.kind
    }

    /// The endpoint where it happened, if it happened at one.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// The system's error number, if there was one.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        self.reason.os_error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.kind.text())?;
        if let Some(endpoint) = &self.endpoint {
            write!(f, " ({endpoint})")?;
        }
        if let Some(number) = self.reason.os_error {
            write!(f, ": {}", io::Error::from_raw_os_error(number))?;
        }
        Ok(())
    }
}

/// What became of an acquire. `T` is what a grant gives: a [`crate::Lock`] or a [`Grant`].
#[derive(Debug)]
#[must_use]
pub enum Outcome<T> {
    /// The lock is held.
    Acquired(T),
    /// Definite: the server said that the wait ended without a grant.
    TimedOut,
    /// Definite: the server is at capacity. With [`crate::Config::busy_retry`] it said so the last
    /// time that it was asked, and the acquire ended before it was asked again, whatever ended it.
    Busy,
    /// Definite: the deadline came before a byte was sent.
    NotSent(Failure),
    /// Definite: cancelled, or the client closed, before a byte was sent.
    Cancelled,
    /// Unknown: the server may have granted the lock. Do **not** enter the critical section.
    Indeterminate(Failure),
}

impl<T> Outcome<T> {
    /// Whether it is known that the lock is held, or that it is not: everything but
    /// [`Outcome::Indeterminate`].
    #[must_use]
    pub fn is_definite(&self) -> bool {
        !matches!(self, Outcome::Indeterminate(_))
    }

    /// The grant, if there is one.
    #[must_use]
    pub fn acquired(self) -> Option<T> {
        match self {
            Outcome::Acquired(grant) => Some(grant),
            _ => None,
        }
    }

    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Acquired(grant) => Outcome::Acquired(f(grant)),
            Outcome::TimedOut => Outcome::TimedOut,
            Outcome::Busy => Outcome::Busy,
            Outcome::NotSent(failure) => Outcome::NotSent(failure),
            Outcome::Cancelled => Outcome::Cancelled,
            Outcome::Indeterminate(failure) => Outcome::Indeterminate(failure),
        }
    }
}

/// What became of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Released {
    /// The server released the lock.
    Released,
    /// The token holds nothing: it was released before, its lease has ended, or it never was the
    /// current one.
    NotHeld {
        /// Whether the release had been sent before: then the first try may have worked.
        retried: bool,
    },
    /// Unknown: there was no answer. The lease's end is the safety net; the same token may be
    /// released again.
    Unconfirmed(Failure),
}

/// How a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Shutdown {
    /// Every release was answered.
    Clean,
    /// A release stayed unanswered: its lock is held until its lease ends, at the latest.
    Unconfirmed,
}
