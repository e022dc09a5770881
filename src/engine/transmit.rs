//! What goes out: the one place where an unsent request becomes a possibly sent one.

use super::api::{AcquireOutcome, Class, ConnId, Gate, ReleaseOutcome, RequestId, SendResult};
use super::connection::{Connection, OutFrame, OutWhat, Phase, Probe, places};
use super::lane::ReleaseFlight;
use super::owners::Pending;
use super::request::{Flight, Place};
use super::{Effect, Engine, waits};
use crate::clock::Now;
use crate::reason::{Reason, ReasonKind};
use crate::wire::{ClientFrame, PROBE_KEY};

/// A batch is closed when it has this many bytes: more would not save another system call, and
/// frames that the socket does not take must be encoded again.
const BATCH: usize = 32 * 1024;

const CLASSES: [Class; 3] = [Class::Try, Class::Blocking, Class::Ticket];

impl Engine {
    /// Whether [`Engine::poll_transmit`] may have something: a look that costs less.
    pub fn may_transmit(&mut self) -> bool {
        let has_bytes = |conn: &Connection| {
            !conn.out.is_empty() || conn.probe.is_some_and(|probe| probe.sent.is_none())
        };
        self.queued > 0 || self.lane.has_unsent() || self.conns.iter().any(has_bytes)
    }

    /// The next connection that has bytes to send, with the bytes. Send them once, then call
    /// [`Engine::transmitted`]. `now` must be read before the send: it is what a grant's lease is
    /// measured from.
    pub fn poll_transmit(&mut self, now: Now, gate: &mut impl Gate) -> Option<(ConnId, &[u8])> {
        let carrier = self.carrier(now);
        // The one that carries releases first: an acquire may follow its key's release on it.
        let start = carrier.unwrap_or(0);
        let count = self.conns.len();
        let at = (0..count).map(|step| (start + step) % count).find(|at| {
            let at = *at;
            self.fill(at, carrier == Some(at), now, gate);
            let conn = &self.conns[at];
            conn.is_open_for_writing() && !conn.out.is_empty()
        })?;
        let conn = &self.conns[at];
        Some((conn.id, &conn.out))
    }

    /// How the send of the last [`Engine::poll_transmit`] ended.
    pub fn transmitted(&mut self, conn: ConnId, result: SendResult, gate: &mut impl Gate) {
        let Some(at) = self.index(conn) else { return };
        let accepted = match result {
            SendResult::Accepted(bytes) => bytes,
            SendResult::Failed(_) => 0,
        };
        let frames = std::mem::take(&mut self.conns[at].frames);
        let begun = self.conns[at].begun;
        let mut partial = None;
        // From the last to the first: what comes back takes its place before those behind it.
        for (place, frame) in frames.iter().enumerate().rev() {
            let start = if place == 0 { 0 } else { frames[place - 1].end };
            // SND-1: each frame counts by its own bytes.
            if frame.end <= accepted {
                self.whole(frame.what);
            } else if accepted > start || (place == 0 && begun) || frame.what == OutWhat::Handshake
            {
                partial = Some((start.max(accepted), *frame));
                #[cfg(canary)]
                if crate::canary!(one_connection_contiguous) {
                    partial = Some((start, *frame));
                }
            } else {
                self.unsend(at, frame.what, gate);
            }
        }
        let conn = &mut self.conns[at];
        conn.blocked = accepted < conn.out.len();
        conn.frames = frames;
        conn.frames.clear();
        conn.begun = partial.is_some_and(|(from, frame)| {
            conn.out.truncate(frame.end);
            conn.out.drain(..from);
            conn.frames.push(OutFrame { end: conn.out.len(), what: frame.what });
            true
        });
        if !conn.begun {
            conn.out.clear();
        }
        if let SendResult::Failed(reason) = result {
            // What arrived before the reset can still be read, and counts.
            conn.broken = Some(reason);
            self.drain(at);
        }
    }

    /// The socket takes bytes again after a short send.
    pub fn writable(&mut self, conn: ConnId) {
        if let Some(at) = self.index(conn) {
            self.conns[at].blocked = false;
        }
    }

    /// The connection that releases go out on now, if there are any.
    fn carrier(&mut self, now: Now) -> Option<usize> {
        if !self.lane.has_unsent() {
            return None;
        }
        let fit = |at: &usize| {
            let conn = &self.conns[*at];
            self.is_usable(conn) && conn.is_open_for_writing() && !conn.is_suspect(now.mono)
        };
        let last = self.last_used.and_then(|conn| self.index(conn)).filter(fit);
        last.or_else(|| (0..self.conns.len()).find(fit))
    }

    /// Puts into a connection's send buffer what may go out on it now.
    fn fill(&mut self, at: usize, carries: bool, now: Now, gate: &mut impl Gate) {
        let conn = &self.conns[at];
        if !conn.is_open_for_writing() {
            return;
        }
        if conn.begun
            && let Some(OutFrame { what: OutWhat::Acquire(id), .. }) = conn.frames.first().copied()
            && self.requests.get(id).is_some_and(|request| request.call.deadline <= now.mono)
        {
            // DL-6: partly written at its deadline, it gets no further byte.
            self.overdue(at, id, Reason::new(ReasonKind::Deadline));
            return;
        }
        if !matches!(self.conns[at].phase, Phase::Probing | Phase::Ready) {
            return;
        }
        self.fill_probe(at, now);
        if self.is_usable(&self.conns[at]) {
            if carries {
                self.fill_releases(at, now);
            }
            if !self.conns[at].is_suspect(now.mono) {
                self.fill_acquires(at, now, gate);
            }
        }
    }

    fn fill_probe(&mut self, at: usize, now: Now) {
        let conn = &mut self.conns[at];
        let Some(Probe { since, sent: None }) = conn.probe else { return };
        let Some(owner) = self.owners.fresh() else {
            // It cannot be asked; what is under way on a connection that served goes on.
            if conn.is_ready() {
                conn.probe = None;
            }
            return;
        };
        conn.probe = Some(Probe { since, sent: Some((owner, now)) });
        let frame = ClientFrame::Release { owner, token: 0, key: PROBE_KEY };
        self.append(at, frame_of(OutWhat::Probe), |out| frame.encode(out));
    }

    fn fill_releases(&mut self, at: usize, now: Now) {
        let conn = self.conns[at].id;
        while self.conns[at].out.len() < BATCH {
            let Some(id) = self.lane.pop_unsent() else { return };
            let Some(release) = self.lane.releases.get_mut(id) else { continue };
            if release.call.deadline <= now.mono {
                self.release_due(id);
                continue;
            }
            let Some(owner) = self.owners.fresh() else {
                self.end_release(id, ReleaseOutcome::OwnerExhausted);
                continue;
            };
            release.flight = Some(ReleaseFlight { conn, sent: now, owner });
            let (key, token, mark) = (release.call.key, release.call.token, release.mark);
            #[cfg(canary)]
            let token =
                token + u64::from(crate::canary!(releases_are_legitimate) && token % 64 == 0);
            self.owners.expect(owner, Pending::Release(id));
            let parked = self.lane.keys.sent(mark, conn);
            self.unpark(parked);
            self.conns[at].releases += 1;
            let frame = ClientFrame::Release { owner, token, key: key.as_bytes() };
            self.append(at, frame_of(OutWhat::Release(id)), |out| frame.encode(out));
        }
    }

    fn fill_acquires(&mut self, at: usize, now: Now, gate: &mut impl Gate) {
        self.adopt(at, now);
        let served = self.served(at, now);
        let conn = self.conns[at].id;
        let grace = (!self.settings.strict_deadline).then_some(self.settings.response_grace);
        while self.conns[at].out.len() < BATCH {
            let Some((class, id)) = self.next_for(at, served, now) else { return };
            self.queue.pop(class);
            let Some(request) = self.requests.get(id) else { continue };
            let Some(wire_wait) = request.wire_wait(now.mono) else {
                self.finish_late(id);
                continue;
            };
            let (requests, key) = (&self.requests, request.call.key);
            let parked = |id| requests.get(id).is_some_and(|other| other.place == Place::Parked);
            if !self.lane.keys.admit(&key, conn, id, parked) {
                self.with_request(id, |request| request.place = Place::Parked);
                continue;
            }
            let end = request.end(now.mono, wire_wait, grace);
            let (owner, lease) = (request.owner, request.call.lease);
            let claimed = gate.claim(RequestId::unpack(id), end);
            let flight = Flight { conn, sent: now, end, whole: false, abandoned: false };
            self.with_request(id, |request| {
                request.place = if claimed { Place::Flight(flight) } else { Place::Withdrawn };
            });
            if !claimed {
                continue;
            }
            // SND-4: it is known before its first byte can leave.
            self.owners.expect(owner, Pending::Acquire(id));
            self.queued -= 1;
            self.last_used = Some(conn);
            self.conns[at].add_acquire(lease, now.mono);
            let (wait, lease, key) = (wire_wait, lease.seconds(), key.as_bytes());
            let frame = ClientFrame::Acquire { wait, lease, owner, key };
            self.append(at, frame_of(OutWhat::Acquire(id)), |out| frame.encode(out));
        }
    }

    /// The next acquire, in call order, that may go out on this connection.
    fn next_for(&mut self, at: usize, served: [bool; 3], now: Now) -> Option<(Class, u64)> {
        let mut next: Option<(u64, Class, u64)> = None;
        for class in CLASSES {
            if !served[class as usize] || (class == Class::Ticket && self.is_loaded(at, now)) {
                continue;
            }
            let requests = &self.requests;
            if let Some((seq, id)) = self.queue.front(class, |id| waits(requests, id))
                && next.is_none_or(|(other, ..)| seq < other)
            {
                next = Some((seq, class, id));
            }
        }
        next.map(|(_, class, id)| (class, id))
    }

    /// CON-6: whether another connection that takes tickets has fewer in flight.
    fn is_loaded(&self, at: usize, now: Now) -> bool {
        let places = places(Class::Ticket, self.settings.connections);
        self.conns.iter().any(|other| {
            other.acquires < self.conns[at].acquires
                && other.place.is_some_and(|place| places.contains(&place))
                && self.is_usable(other)
                && other.is_open_for_writing()
                && !other.is_suspect(now.mono)
        })
    }

    fn append(&mut self, at: usize, mut frame: OutFrame, encode: impl FnOnce(&mut Vec<u8>)) {
        let conn = &mut self.conns[at];
        encode(&mut conn.out);
        frame.end = conn.out.len();
        conn.frames.push(frame);
    }

    fn whole(&mut self, what: OutWhat) {
        if let OutWhat::Acquire(id) = what {
            self.with_request(id, |request| {
                if let Place::Flight(flight) = &mut request.place {
                    flight.whole = true;
                }
            });
        }
    }

    /// Nothing of this frame was accepted: it is unsent again, and will be encoded anew.
    fn unsend(&mut self, at: usize, what: OutWhat, gate: &mut impl Gate) {
        match what {
            OutWhat::Handshake => {}
            OutWhat::Probe => {
                if let Some(probe) = &mut self.conns[at].probe {
                    probe.sent = None;
                }
            }
            OutWhat::Acquire(id) => {
                // OWN-3: it keeps its owner.
                let Some(request) = self.requests.get(id) else { return };
                self.owners.forget(request.owner);
                self.conns[at].remove_acquire(request.call.lease);
                self.queued += 1;
                self.requeue([id]);
                gate.unclaim(RequestId::unpack(id));
            }
            OutWhat::Release(id) => self.unsend_release(at, id),
        }
    }

    /// DL-4: ends an acquire that is still unsent at its deadline.
    pub(super) fn finish_late(&mut self, id: u64) {
        self.finish_unsent(id, AcquireOutcome::NotSent(self.last_error));
    }

    /// Asks for a last read of the connection before anything is decided about it (CLO-1).
    pub(super) fn drain(&mut self, at: usize) {
        let conn = &mut self.conns[at];
        if !conn.draining {
            conn.draining = true;
            self.effects.push_back(Effect::Drain { conn: conn.id });
        }
    }
}

fn frame_of(what: OutWhat) -> OutFrame {
    OutFrame { end: 0, what }
}
