//! What comes in: each frame of the server's, by the phase that the connection is in.

use super::api::{AcquireOutcome, ConnId, Effect, Event, Grant, RequestId};
use super::connection::{OutWhat, Phase};
use super::owners::Pending;
use super::request::Place;
use super::slab::Id;
use super::{Engine, closing::Loss};
use crate::clock::Now;
use crate::reason::{Reason, ReasonKind};
use crate::wire::{Block, Key, PROBE_KEY, ServerFrame, client_proof, same_proof, server_proof};

impl Engine {
    /// A dial has ended. `nonce` is 32 fresh random bytes for the handshake.
    pub fn dialed(&mut self, conn: ConnId, result: Result<Block, Reason>, now: Now) {
        let Some(at) = self.index(conn) else { return };
        match result {
            Ok(nonce) => {
                let conn = &mut self.conns[at];
                conn.heard = now.mono;
                if self.settings.secret.is_some() {
                    conn.enter(Phase::Challenge { nonce }, now.mono);
                } else {
                    conn.enter(Phase::Probing, now.mono);
                    conn.begin_probe(now.mono);
                }
            }
            Err(reason) => self.lose(at, Loss::fault(reason), now),
        }
    }

    /// Bytes were read.
    pub fn received(&mut self, conn: ConnId, bytes: &[u8], now: Now) {
        let Some(at) = self.index(conn) else { return };
        self.conns[at].heard = now.mono;
        let Some(mut decoder) = self.conns[at].decoder.take() else { return };
        let mut input = bytes;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(frame)) => self.frame(conn, frame, now),
                Ok(None) => break,
                Err(_) => {
                    self.fail(conn, ReasonKind::Malformed, now);
                    return;
                }
            }
            if self.index(conn).is_none() {
                return;
            }
        }
        if let Some(at) = self.index(conn) {
            let conn = &mut self.conns[at];
            conn.decoder = Some(decoder);
            // The last answer from a node that serves no longer.
            if conn.is_idle() && self.is_ready() && self.target() != Some(self.conns[at].endpoint) {
                self.steer_at = Some(now.mono);
            }
        }
    }

    fn frame(&mut self, conn: ConnId, frame: ServerFrame<'_>, now: Now) {
        let Some(at) = self.index(conn) else { return };
        match &self.conns[at].phase {
            Phase::Dialing => {}
            Phase::Lingering { .. } => {
                if let ServerFrame::Acquired { token, key, .. } = frame {
                    self.compensate_wire(key, token, now);
                }
            }
            Phase::Challenge { .. } | Phase::Proving { .. } => self.handshake(at, frame, now),
            Phase::Probing | Phase::Ready => self.answer(at, frame, now),
        }
    }

    /// CON-4: until the server has proved itself, only `C`, `H` and `E auth_failed` are listened
    /// to; anything else closes the connection and changes nothing.
    fn handshake(&mut self, at: usize, frame: ServerFrame<'_>, now: Now) {
        let conn = &mut self.conns[at];
        match (&conn.phase, frame) {
            (Phase::Challenge { nonce }, ServerFrame::Challenge { nonce: theirs }) => {
                let secret = self.settings.secret.as_deref().unwrap_or_default();
                let proof = client_proof(secret, theirs, nonce);
                let expected = server_proof(secret, theirs, nonce);
                conn.begin_handshake(nonce.to_owned(), &proof);
                conn.enter(Phase::Proving { expected }, conn.since);
            }
            (Phase::Proving { expected }, ServerFrame::Accepted { proof })
                if same_proof(expected, proof) =>
            {
                conn.enter(Phase::Probing, now.mono);
                conn.begin_probe(now.mono);
            }
            (Phase::Proving { .. }, ServerFrame::Accepted { .. })
            | (_, ServerFrame::Error { code: b"auth_failed" }) => {
                self.lose_at(at, ReasonKind::Auth, now);
            }
            _ => self.lose_at(at, ReasonKind::Malformed, now),
        }
    }

    fn answer(&mut self, at: usize, frame: ServerFrame<'_>, now: Now) {
        match frame {
            ServerFrame::Acquired { owner, token, key } => {
                match self.answers_acquire(at, owner, key) {
                    Some(id) => self.granted(id, token, now),
                    None => {
                        self.compensate_wire(key, token, now);
                        self.lose_at(at, ReasonKind::Mismatch, now);
                    }
                }
            }
            ServerFrame::TimedOut { owner, key } => match self.answers_acquire(at, owner, key) {
                #[cfg(canary)]
                Some(id) if crate::canary!(indeterminate_exactly) => {
                    let reason = Reason::new(ReasonKind::Deadline);
                    self.finish(id, AcquireOutcome::Indeterminate(reason));
                }
                Some(id) => self.finish(id, AcquireOutcome::TimedOut),
                None => self.lose_at(at, ReasonKind::Mismatch, now),
            },
            ServerFrame::Busy { owner, key } => match self.answers_acquire(at, owner, key) {
                #[cfg(canary)]
                Some(id) if crate::canary!(definite_means_answered) => {
                    self.finish(id, AcquireOutcome::TimedOut);
                }
                Some(id) => self.busy(id, now),
                None => self.lose_at(at, ReasonKind::Mismatch, now),
            },
            ServerFrame::Released { owner, key } => {
                if !self.released(at, owner, key, true) {
                    self.lose_at(at, ReasonKind::Mismatch, now);
                }
            }
            ServerFrame::NotHeld { owner, key } => {
                if !self.probed(at, owner, key, now) && !self.released(at, owner, key, false) {
                    self.lose_at(at, ReasonKind::Mismatch, now);
                }
            }
            ServerFrame::Moved { leader } => {
                self.hear(leader, now);
                self.lose_at(at, ReasonKind::Moved, now);
            }
            ServerFrame::Leader { leader } => self.hear(leader, now),
            ServerFrame::Error { code } => {
                let kind = match code {
                    b"no_leader" => ReasonKind::NoLeader,
                    b"not_active" => ReasonKind::NotActive,
                    b"auth_failed" => ReasonKind::Auth,
                    _ => ReasonKind::ServerError,
                };
                self.lose_at(at, kind, now);
            }
            // A server that wants a secret which this client has not got.
            ServerFrame::Challenge { .. } if self.settings.secret.is_none() => {
                self.lose_at(at, ReasonKind::Auth, now);
            }
            ServerFrame::Challenge { .. } | ServerFrame::Accepted { .. } => {
                self.lose_at(at, ReasonKind::Mismatch, now);
            }
        }
    }

    fn hear(&mut self, leader: &[u8], now: Now) {
        if self.router.hear(leader, now.mono) {
            self.hinted = ConnId(self.next_conn);
            self.steer_at = Some(now.mono);
            self.log(Event::Hint { endpoint: self.router.hint() });
        }
    }

    /// The acquire that an answer belongs to: owner, op and key all agree, on this connection.
    fn answers_acquire(&mut self, at: usize, owner: u64, key: &[u8]) -> Option<Id> {
        let conn = &mut self.conns[at];
        let Some(Pending::Acquire(id)) = self.owners.get(owner) else { return None };
        let request = self.requests.get(id)?;
        let flight = request.flight().filter(|flight| flight.conn == conn.id)?;
        // A frame that is still being written has no answer yet, whatever the server makes up.
        if request.call.key.as_bytes() != key || conn.is_writing(OutWhat::Acquire(id)) {
            return None;
        }
        conn.answered(flight.sent);
        Some(id)
    }

    fn granted(&mut self, id: Id, token: u64, now: Now) {
        let Some(request) = self.requests.get(id) else { return };
        let Some(flight) = request.flight().copied() else { return };
        let (key, deadline) = (request.call.key, request.call.deadline);
        let (lease, budget) = (request.call.lease, request.call.budget);
        let proven = self.index(flight.conn).map(|at| self.conns[at].proof.boot);
        let proof = match proven {
            Some(proven) if self.settings.ordered_answers => proven.max(flight.sent.boot),
            _ => flight.sent.boot,
        };
        let remaining = lease.proven_remaining(now.boot.since(proof));
        let too_short =
            remaining.is_zero() || (self.settings.enforce_budget && remaining < budget.duration());
        let late = now.mono > deadline;
        #[cfg(canary)]
        let late = late && !crate::canary!(acquired_was_read_and_taken_in_time);
        #[cfg(canary)]
        let proof = if crate::canary!(proven_lease_is_a_lower_bound) { now.boot } else { proof };
        if late || too_short || flight.abandoned {
            // DL-7, GR-4: never handed over; given back by its exact token.
            let kind =
                if too_short && !late { ReasonKind::ShortLease } else { ReasonKind::LateGrant };
            #[cfg(canary)]
            if crate::canary!(refused_is_not_granted) {
                self.finish(id, AcquireOutcome::TimedOut);
            } else if crate::canary!(every_grant_has_one_end) {
                return self.finish(id, AcquireOutcome::Indeterminate(Reason::new(kind)));
            }
            self.finish(id, AcquireOutcome::Indeterminate(Reason::new(kind)));
            self.compensate(key, token, now);
            return;
        }
        let owner = request.owner;
        self.finish(id, AcquireOutcome::Granted(Grant { token, owner, proof }));
    }

    fn busy(&mut self, id: Id, now: Now) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let Some(flight) = request.flight().copied() else { return };
        let retry_at = now.mono + self.rng.jitter(request.busy_backoff());
        // With a strict deadline an answer that comes after it counts for nothing: a try that is
        // sent too late for one would turn a definite `B` into an unknown outcome.
        let answer_by = match self.settings.strict_deadline {
            true => retry_at + self.settings.response_grace,
            false => retry_at,
        };
        let retry = self.settings.busy_retry
            && !request.is_try()
            && !flight.abandoned
            && !self.closing
            && answer_by < request.call.deadline;
        let owner = if retry { self.owners.fresh() } else { None };
        let Some(owner) = owner else {
            self.finish(id, AcquireOutcome::Busy);
            return;
        };
        self.owners.forget(std::mem::replace(&mut request.owner, owner));
        request.retries += 1;
        request.place = Place::Backoff;
        self.queued += 1;
        self.timers.push(retry_at, id);
        let lease = request.call.lease;
        if let Some(at) = self.index(flight.conn) {
            self.conns[at].remove_acquire(lease);
        }
        self.effects.push_back(Effect::Unclaim { id: RequestId::unpack(id) });
    }

    /// Whether this `N` answers the connection's probe: the server serves, now.
    fn probed(&mut self, at: usize, owner: u64, key: &[u8], now: Now) -> bool {
        let conn = &mut self.conns[at];
        let Some((expected, sent)) = conn.probe.and_then(|probe| probe.sent) else { return false };
        if expected != owner || key != PROBE_KEY {
            return false;
        }
        conn.probe = None;
        conn.answered(sent);
        if matches!(conn.phase, Phase::Probing) {
            conn.enter(Phase::Ready, now.mono);
            let (id, endpoint) = (conn.id, conn.endpoint);
            self.counters.connects += 1;
            self.router.served(endpoint);
            self.steer_at = Some(now.mono);
            self.log(Event::Ready { endpoint });
            self.outweigh_hint(id, endpoint);
        }
        true
    }

    /// A node that was asked after the hint was heard, and serves, is newer news than a leader that
    /// nobody has reached: its machine may be dead, and the dial would take its whole time limit.
    fn outweigh_hint(&mut self, conn: ConnId, endpoint: u16) {
        let Some(hint) = self.router.hint() else { return };
        let reached = self.conns.iter().any(|conn| conn.is_ready() && conn.endpoint == hint);
        if conn >= self.hinted && hint != endpoint && !reached {
            self.router.drop_hint();
            self.log(Event::Hint { endpoint: None });
        }
    }

    /// A grant as it came off the wire. One whose key could not be ours is nobody's to release.
    fn compensate_wire(&mut self, key: &[u8], token: u64, now: Now) {
        if let Ok(key) = Key::new(key) {
            self.compensate(key, token, now);
        }
    }

    fn fail(&mut self, conn: ConnId, kind: ReasonKind, now: Now) {
        if let Some(at) = self.index(conn) {
            self.lose_at(at, kind, now);
        }
    }

    fn lose_at(&mut self, at: usize, kind: ReasonKind, now: Now) {
        let reason = Reason::new(kind).at(self.conns[at].endpoint);
        self.lose(at, Loss::fault(reason), now);
    }
}
