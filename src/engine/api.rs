//! What goes into the engine and what comes out of it.

pub use crate::stats::Stats as Counters;

use crate::clock::{Boot, Mono};
use crate::input::{Lease, Wait, WorkBudget};
use crate::reason::Reason;
use crate::wire::Key;
use std::time::Duration;

/// Names an acquire while the engine knows it. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl RequestId {
    /// A small number that no other live request has: an index for the caller's own table.
    pub fn slot(self) -> usize {
        self.index as usize
    }

    /// As one word.
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The reverse of [`RequestId::pack`].
    pub fn unpack(word: u64) -> RequestId {
        RequestId { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Names a release while the engine knows it. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReleaseId(pub u64);

/// Names a connection. Never reused, so that a late event cannot be taken for another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// The engine's settings, checked by whoever made them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The endpoints' normalized text, `host:port` (IPv6 hosts in brackets) or `unix:/path`, in
    /// dialling order.
    pub endpoints: Vec<String>,
    /// The shared secret, 16..=256 bytes.
    pub secret: Option<Vec<u8>>,
    /// Connections to the serving node, 1..=64.
    pub connections: usize,
    /// The time limit of a dial, resolving its name included.
    pub connect_timeout: Duration,
    /// DL-6.
    pub response_grace: Duration,
    /// DL-6: end at the deadline exactly.
    pub strict_deadline: bool,
    /// GR-4.
    pub enforce_budget: bool,
    /// Retry `B` inside the same deadline.
    pub busy_retry: bool,
    /// GR-2: the server's answers leave in the order in which they were decided.
    pub ordered_answers: bool,
    /// CON-5: how often an idle connection is probed.
    pub idle_probe: Duration,
    /// REL-4: places in the lane of compensating releases.
    pub lane: usize,
    /// The first owner; tests start near the end.
    pub first_owner: u64,
    /// Seeds backoff jitter.
    pub seed: u64,
    /// Whether log events are wanted.
    pub log: bool,
}

/// What kind of caller an acquire has: what may share a connection (CON-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Wait 0.
    Try,
    /// A blocking wait.
    Blocking,
    /// May be cut short: a ticket, or a call with a strict deadline.
    Ticket,
}

/// An acquire, as the engine takes it.
#[derive(Debug, Clone)]
pub struct AcquireCall {
    /// The lock.
    pub key: Key,
    /// As asked for.
    pub wait: Wait,
    /// As asked for.
    pub lease: Lease,
    /// As asked for.
    pub budget: WorkBudget,
    /// DL-1, DL-2: computed once, by the caller, at the start of the call.
    pub deadline: Mono,
    /// What it may share a connection with.
    pub class: Class,
}

/// Who asked for a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseKind {
    /// Somebody waits for the outcome; it is reported.
    Awaited,
    /// A grant's holder gave it up without waiting: its place was taken with the grant.
    Guard,
    /// A grant that could not be handed over: takes a place of the lane.
    Compensation,
}

/// A release, as the engine takes it.
#[derive(Debug, Clone)]
pub struct ReleaseCall {
    /// The lock.
    pub key: Key,
    /// The grant's token.
    pub token: u64,
    /// Who asked.
    pub kind: ReleaseKind,
    /// REL-1: five seconds from the call.
    pub deadline: Mono,
}

/// A grant on its way to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token.
    pub token: u64,
    /// The correlation id, for logs.
    pub owner: u64,
    /// GR-2: the lease began no earlier than this.
    pub proof: Boot,
}

/// What became of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// Granted. Deliver by the deadline or give it back with [`super::Engine::reclaim`].
    Granted(Grant),
    /// Definite: the server said so.
    TimedOut,
    /// Definite: the server is at capacity, or was the last time that it was asked.
    Busy,
    /// Definite: the deadline came before a byte was sent.
    NotSent(Reason),
    /// Definite: the client was closed before a byte was sent.
    Cancelled,
    /// Unknown: a byte may have been sent, and there is no answer that counts.
    Indeterminate(Reason),
    /// Definite, unsent: every endpoint's last attempt failed authentication.
    Auth(Reason),
    /// Definite, unsent: there are no owners left.
    OwnerExhausted,
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// `R`.
    Released,
    /// `N`; after a retry the first try may have worked.
    NotHeld {
        /// Whether it had been sent before.
        retried: bool,
    },
    /// No answer: unknown.
    Unconfirmed(Reason),
    /// Definite, unsent: every endpoint's last attempt failed authentication.
    Auth(Reason),
    /// Definite, unsent: there are no owners left.
    OwnerExhausted,
}

/// What the engine wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Connect to an endpoint; answer with [`super::Engine::dialed`].
    Dial {
        /// The new connection's name.
        conn: ConnId,
        /// The endpoint's place in the settings.
        endpoint: u16,
    },
    /// Deregister, shut down, close. The engine has forgotten the connection (or the dial).
    Close {
        /// Which.
        conn: ConnId,
    },
    /// Shut down the writing side; go on reading.
    HalfClose {
        /// Which.
        conn: ConnId,
    },
    /// Read until it would block, hand over what comes, then call [`super::Engine::drained`].
    Drain {
        /// Which.
        conn: ConnId,
    },
    /// An acquire has ended; its id is free.
    Acquire {
        /// Which.
        id: RequestId,
        /// How.
        outcome: AcquireOutcome,
    },
    /// An awaited release has ended; its id is free.
    Release {
        /// Which.
        id: ReleaseId,
        /// How.
        outcome: ReleaseOutcome,
    },
    /// The server answered `B` and the acquire is to be retried: it is unsent again.
    Unclaim {
        /// Which.
        id: RequestId,
    },
    /// Something that a log may want.
    Log(Event),
}

/// How a send ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendResult {
    /// The kernel took this many bytes of the batch; fewer than all, or none, if it is full.
    Accepted(usize),
    /// The send failed; the kernel took none of the batch's bytes.
    Failed(Reason),
}

/// The caller's side of the moment at which a request may leave.
///
/// A request can be withdrawn by its caller at any time, on another thread. The gate is where
/// that race is decided: a request that was claimed counts as possibly sent.
pub trait Gate {
    /// The first byte of this request may leave now, and it will be waited for until `end` (DL-6).
    /// False: it was withdrawn; nothing of it may be sent.
    fn claim(&mut self, id: RequestId, end: Mono) -> bool;

    /// No byte of it was accepted after all.
    fn unclaim(&mut self, id: RequestId);
}

/// Something that a log may want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection is ready for acquires.
    Ready {
        /// The endpoint.
        endpoint: u16,
    },
    /// A connection or a dial has ended.
    Lost {
        /// Why and where.
        reason: Reason,
    },
    /// The leader hint changed.
    Hint {
        /// The endpoint, or none.
        endpoint: Option<u16>,
    },
    /// A grant could not be handed over, and its release was enqueued.
    Compensated {
        /// Its token.
        token: u64,
    },
    /// A grant could not be handed over, and the lane was full: its lease's end is the safety net.
    CompensationDropped {
        /// Its token.
        token: u64,
    },
    /// A release was not confirmed: the lease's end is the safety net.
    Unconfirmed {
        /// Its token.
        token: u64,
    },
}
