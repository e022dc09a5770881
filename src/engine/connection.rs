//! What the engine knows of one connection.

use super::api::{Class, ConnId};
use super::slab::Id;
use crate::clock::{Mono, Now};
use crate::input::Lease;
use crate::reason::{Reason, ReasonKind};
use crate::wire::{Block, ClientFrame, Decoder, FromServer};
use std::time::Duration;

/// How long the handshake may take, and the first probe after it.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// CON-5: with a probe unanswered for this long, no acquire is written.
const SUSPECT: Duration = Duration::from_secs(1);
/// CON-5: with a probe unanswered for this long, the connection is closed.
const SILENT: Duration = Duration::from_secs(5);
/// CLO-1: how long a closed connection is still read for grants.
pub(super) const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Phase {
    /// Resolving and connecting.
    Dialing,
    /// Connected, with a secret: the server's challenge is awaited.
    Challenge { nonce: Block },
    /// The proof was given: the server's is awaited.
    Proving { expected: Block },
    /// The first probe is on its way.
    Probing,
    /// For acquires and releases.
    Ready,
    /// The writing side is shut down; read for grants alone.
    Lingering { until: Mono },
}

/// A frame in the send buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutFrame {
    /// The offset behind its last byte.
    pub(super) end: usize,
    pub(super) what: OutWhat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutWhat {
    Handshake,
    Probe,
    Acquire(Id),
    Release(Id),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    /// When it was due; a full socket counts as silence too.
    pub(super) since: Mono,
    /// Its owner and the instant before its send, once it is in the send buffer.
    pub(super) sent: Option<(u64, Now)>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) endpoint: u16,
    /// Its place among the connections to the serving node; `None` until it is needed for one.
    pub(super) place: Option<usize>,
    pub(super) phase: Phase,
    /// When the phase began.
    pub(super) since: Mono,
    /// `None` while frames are taken out of it. In a box, so that this costs no copy.
    pub(super) decoder: Option<Box<Decoder<FromServer>>>,

    /// The bytes to send next, the frames that they are, and whether the first was begun before.
    pub(super) out: Vec<u8>,
    pub(super) frames: Vec<OutFrame>,
    pub(super) begun: bool,
    /// The socket is full.
    pub(super) blocked: bool,
    /// A send failed: what arrived before is read, then the connection ends.
    pub(super) broken: Option<Reason>,

    /// A drain was asked for: nothing more is written until it is done.
    pub(super) draining: bool,
    /// The acquires that the drain decides about, and the reason if they have no answer.
    pub(super) due: Vec<(Id, Reason)>,
    /// The releases that it decides about.
    pub(super) due_releases: Vec<Id>,

    /// Possibly sent acquires without an answer.
    pub(super) acquires: usize,
    /// Releases without an answer.
    pub(super) releases: usize,
    pub(super) probe: Option<Probe>,
    /// When the server was last heard.
    pub(super) heard: Mono,
    /// GR-2: the latest sending that the server answered.
    pub(super) proof: Now,
    /// When proof was last new, or last asked for.
    fresh: Mono,
    /// How many of the acquires have leases of 1, 2 and 3 s; longer ones are probed for alike.
    short_leases: [usize; 3],
}

impl Connection {
    pub(super) fn new(id: ConnId, endpoint: u16, place: Option<usize>, now: Now) -> Connection {
        Connection {
            id,
            endpoint,
            place,
            phase: Phase::Dialing,
            since: now.mono,
            decoder: Some(Box::default()),
            out: Vec::new(),
            frames: Vec::new(),
            begun: false,
            blocked: false,
            broken: None,
            draining: false,
            due: Vec::new(),
            due_releases: Vec::new(),
            acquires: 0,
            releases: 0,
            probe: None,
            heard: now.mono,
            proof: Now::default(),
            fresh: now.mono,
            short_leases: [0; 3],
        }
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Mono) {
        self.phase = phase;
        self.since = now;
    }

    /// Puts the client's proof into the send buffer.
    pub(super) fn begin_handshake(&mut self, nonce: Block, proof: &Block) {
        ClientFrame::Proof { nonce: &nonce, proof }.encode(&mut self.out);
        self.frames.push(OutFrame { end: self.out.len(), what: OutWhat::Handshake });
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    pub(super) fn is_lingering(&self) -> bool {
        matches!(self.phase, Phase::Lingering { .. })
    }

    /// Whether nothing is waited for on it.
    pub(super) fn is_idle(&self) -> bool {
        self.acquires == 0 && self.releases == 0 && !self.is_lingering()
    }

    /// Dialling, or in its first exchange.
    pub(super) fn is_opening(&self) -> bool {
        !self.is_ready() && !self.is_lingering()
    }

    /// Whether bytes may be written now.
    pub(super) fn is_open_for_writing(&self) -> bool {
        !self.blocked
            && !self.draining
            && self.broken.is_none()
            && !matches!(self.phase, Phase::Dialing | Phase::Lingering { .. })
    }

    /// Whether a part of this frame was accepted, and the rest is still to be sent.
    pub(super) fn is_writing(&self, what: OutWhat) -> bool {
        self.begun && self.frames.first().is_some_and(|frame| frame.what == what)
    }

    pub(super) fn is_suspect(&self, now: Mono) -> bool {
        self.probe.is_some_and(|probe| now.since(probe.since) > SUSPECT)
    }

    /// What the server has kept silent for too long, if it has.
    pub(super) fn silence(&self, now: Mono) -> Option<ReasonKind> {
        let (since, limit, kind) = match self.phase {
            Phase::Ready => (self.probe?.since, SILENT, ReasonKind::Silent),
            Phase::Challenge { .. } | Phase::Proving { .. } | Phase::Probing => {
                (self.since, HANDSHAKE, ReasonKind::HandshakeTimeout)
            }
            Phase::Dialing | Phase::Lingering { .. } => return None,
        };
        (since + limit <= now).then_some(kind)
    }

    /// An acquire with this lease goes out.
    pub(super) fn add_acquire(&mut self, lease: Lease, now: Mono) {
        if self.acquires == 0 {
            self.fresh = self.fresh.max(now);
        }
        self.acquires += 1;
        if let Some(count) = self.short_leases.get_mut(usize::from(lease.seconds() - 1)) {
            *count += 1;
        }
    }

    /// An acquire with this lease was answered, or is unsent again.
    pub(super) fn remove_acquire(&mut self, lease: Lease) {
        self.acquires -= 1;
        if let Some(count) = self.short_leases.get_mut(usize::from(lease.seconds() - 1)) {
            *count -= 1;
        }
    }

    /// GR-2: how often a connection with waiting acquires is probed: a quarter of their shortest
    /// lease, and every second at least. No lease is so short that this became less than 100 ms.
    fn proof_every(&self) -> Duration {
        match self.short_leases.iter().position(|count| *count > 0) {
            Some(at) => Duration::from_millis(250) * (at as u32 + 1),
            None => Duration::from_secs(1),
        }
    }

    /// A frame that was sent at `sent` has been answered.
    pub(super) fn answered(&mut self, sent: Now) {
        if sent.boot > self.proof.boot {
            self.proof = sent;
            self.fresh = self.fresh.max(sent.mono);
        }
    }

    /// When the next probe is due, while none is under way. `idle` is how often an idle connection
    /// is probed; `None`: there can be no probe any more.
    fn probe_at(&self, idle: Option<Duration>) -> Option<Mono> {
        let idle = self.heard + idle?;
        if self.acquires + self.releases == 0 {
            return Some(idle);
        }
        Some(idle.min(self.fresh + self.proof_every()))
    }

    pub(super) fn begin_probe(&mut self, now: Mono) {
        self.probe = Some(Probe { since: now, sent: None });
        self.fresh = self.fresh.max(now);
    }

    /// When something about this connection is due by itself.
    pub(super) fn timer(&self, connect: Duration, idle: Option<Duration>) -> Option<Mono> {
        if self.draining {
            return None;
        }
        match self.phase {
            Phase::Dialing => Some(self.since + connect),
            Phase::Challenge { .. } | Phase::Proving { .. } | Phase::Probing => {
                Some(self.since + HANDSHAKE)
            }
            Phase::Ready => match self.probe {
                Some(probe) => Some(probe.since + SILENT),
                None => self.probe_at(idle),
            },
            Phase::Lingering { until } => Some(until),
        }
    }
}

/// CON-6: the places, of `count` connections, that an acquire of this class may use.
pub(super) fn places(class: Class, count: usize) -> std::ops::Range<usize> {
    match (class, count) {
        (_, 0 | 1) => 0..1,
        (Class::Try | Class::Blocking, 2) => 0..1,
        (Class::Ticket, 2) => 1..2,
        (Class::Try, _) => 0..1,
        (Class::Blocking, _) => 1..2,
        (Class::Ticket, count) => 2..count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn con_6_classes_do_not_share_where_the_number_allows() {
        let of =
            |count| [Class::Try, Class::Blocking, Class::Ticket].map(|class| places(class, count));
        assert_eq!(of(1), [0..1, 0..1, 0..1]);
        assert_eq!(of(2), [0..1, 0..1, 1..2]);
        assert_eq!(of(3), [0..1, 1..2, 2..3]);
        assert_eq!(of(4), [0..1, 1..2, 2..4]);
        assert_eq!(of(9), [0..1, 1..2, 2..9]);
    }
}
