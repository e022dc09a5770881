//! What happened, as the ones who know it say it: the sockets, the servers, the callers.

use crate::faults::Kind;
use lockclient::ReasonKind;
use lockclient::engine::Class;
use std::hash::{Hash, Hasher};

/// Which answer it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// `A`.
    Acquired,
    /// `T`.
    TimedOut,
    /// `B`.
    Busy,
    /// `R`.
    Released,
    /// `N`.
    NotHeld,
}

/// What a call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the product documents each")]
pub(crate) enum Outcome {
    Acquired,
    TimedOut,
    Busy,
    NotSent,
    Cancelled,
    Indeterminate(ReasonKind),
    Auth,
    OwnerExhausted,
    Ended,
}

/// Who decided how an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Decider {
    /// The engine, with an answer or without.
    Engine,
    /// The caller, by cancelling.
    Cancel,
    /// The caller, by its own time limit.
    Limit,
    /// Time: nobody took the grant by its deadline.
    Lapse,
}

/// What an awaited release returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the product documents each")]
pub(crate) enum ReleaseEnd {
    Released,
    NotHeld { retried: bool },
    Unconfirmed,
    Auth,
    OwnerExhausted,
}

/// One thing that happened. Bytes count when the kernel has accepted them, answers when the
/// client's thread has read their last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields say what they are; times are nanoseconds")]
pub(crate) enum Record {
    /// A client was opened.
    Open { client: u16, strict: bool, enforce: bool, first_owner: u64 },
    /// A caller called.
    Call {
        call: u32,
        client: u16,
        key: u16,
        class: Class,
        wait: u8,
        lease: u8,
        budget: u8,
        deadline: u64,
    },
    /// The engine claimed a request.
    Claim { call: u32, mono: u64, boot: u64 },
    /// The engine put a claimed request's frame into a batch.
    Encode { call: u32, owner: u64, wait: u8, lease: u8, key: u16, len: u16, mono: u64 },
    /// A frame stood in a batch that nobody had claimed, or not as it had to.
    Stray { client: u16, link: u32, owner: u64, verbatim: bool },
    /// The engine took the claim back.
    Unclaim { call: u32 },
    /// The request was answered `B` and will be tried again under a fresh owner.
    Retry { call: u32 },
    /// The kernel accepted bytes `from..to` of the `len` of an acquire.
    AcquireBytes { call: u32, link: u32, owner: u64, from: u16, to: u16, len: u16 },
    /// The same, of a release or a probe (token 0).
    ReleaseBytes { client: u16, link: u32, owner: u64, token: u64, from: u16, to: u16, len: u16 },
    /// The server's grant log. `begins` and `lease_end`, of the lease, are true time.
    Grant { client: u16, owner: u64, key: u16, token: u64, begins: u64, lease_end: u64 },
    /// The server took a grant back of which no byte had left.
    Undo { token: u64 },
    /// The client has read an answer's last byte.
    Read { client: u16, link: u32, owner: u64, answer: Answer, token: u64, key: u16, mono: u64 },
    /// The client has read a frame, or bytes that are none, after which the connection must end.
    Fatal { link: u32 },
    /// It was decided that a call's outcome is unknown, by the client's own close of a connection in
    /// whose socket its answer lay unread.
    Overlooked { call: u32, answer: Answer, mono: u64 },
    /// It was decided how a call ends.
    Decide { call: u32, by: Decider, mono: u64 },
    /// A call returned.
    Return { call: u32, outcome: Outcome, mono: u64, boot: u64, late: u64 },
    /// What an acquired call returned with: what its caller was told of the lease, what the server
    /// knew of it then by its own clock, and the true time up to which the caller goes on believing
    /// in the lock.
    Hold { call: u32, token: u64, told: u64, left: u64, until: u64 },
    /// The server answered `T`.
    Refuse { client: u16, owner: u64 },
    /// A holder gave its lock up: from now on its token may be released. `handed` says that its
    /// client took the release.
    GiveUp { token: u64, mono: u64, handed: bool },
    /// The server answered a release, other than a probe: `R` or `N`.
    ReleaseServed { client: u16, owner: u64, freed: bool },
    /// An awaited release returned.
    ReleaseReturn { token: u64, end: ReleaseEnd },
    /// The client reads a connection for grants alone from now on.
    HalfClosed { link: u32 },
    /// The client began to release a grant that could not be handed over.
    Compensate { client: u16, token: u64 },
    /// It had no place to.
    CompensationDropped { client: u16, token: u64 },
    /// A server that leads alone was started: it knows of no lock that was held before.
    Restarted,
    /// A client has ended: nobody acts for it any more.
    ClientEnded { client: u16 },
    /// A fault.
    Fault { kind: Kind, on: u32, time: u64 },
    /// The faults are over, and what they hindered has had time.
    Quiet { client: u16, queued: u64, in_flight: u64 },
    /// The same, of the server.
    QuietServer { waiters: u64 },
    /// A new acquire after the faults were over.
    Fresh { client: u16, acquired: bool },
    /// A client that was closed without any fault has let its lane drain.
    Drained { client: u16, clean: bool },
    /// The run has had far more events than its calls can need.
    Restless { events: u64 },
    /// The client or the server has panicked.
    Panic,
    /// The run is over.
    End,
}

/// The hash of a log: two runs of one seed give the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogHash(u64);

impl LogHash {
    /// Adds a record.
    pub(crate) fn add(&mut self, t: u64, record: &Record) {
        self.write_u64(t);
        record.hash(self);
    }
}

impl Hasher for LogHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}
