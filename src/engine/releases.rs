//! Releases: from the call to their answer, across lost connections, inside their five seconds.

use super::Engine;
use super::api::{Effect, Event, ReleaseCall, ReleaseId, ReleaseKind, ReleaseOutcome};
use super::owners::Pending;
use super::request::Place;
use super::slab::Id;
use crate::clock::Now;
use crate::reason::{Reason, ReasonKind};
use crate::wire::Key;
use std::collections::BinaryHeap;
use std::time::Duration;

/// REL-1: what a release has from its call, or from being enqueued.
pub const RELEASE_TIME: Duration = Duration::from_secs(5);

impl Engine {
    /// Takes a release. `None`: the lane is full (compensations alone), or the client has ended;
    /// what nobody waits for is counted and logged then. An awaited one that was taken ends with
    /// [`Effect::Release`].
    pub fn release(&mut self, call: ReleaseCall, now: Now) -> Option<ReleaseId> {
        let (token, kind) = (call.token, call.kind);
        let pushed = if self.ended { None } else { self.lane.push(call) };
        let Some(id) = pushed else {
            match kind {
                ReleaseKind::Compensation => {
                    self.counters.compensations_dropped += 1;
                    self.log(Event::CompensationDropped { token });
                }
                ReleaseKind::Guard => {
                    self.counters.unconfirmed += 1;
                    self.log(Event::Unconfirmed { token });
                }
                // Its caller sees that it was not taken.
                ReleaseKind::Awaited => {}
            }
            return None;
        };
        if kind == ReleaseKind::Compensation {
            self.counters.compensations += 1;
            self.log(Event::Compensated { token });
        }
        if kind == ReleaseKind::Awaited
            && let Some(reason) = self.locked_out()
        {
            self.end_release(id, ReleaseOutcome::Auth(reason));
        } else if self.owners.is_exhausted() {
            self.end_release(id, ReleaseOutcome::OwnerExhausted);
        } else if !self.is_ready() {
            self.steer_at = Some(now.mono);
        }
        Some(ReleaseId(id))
    }

    /// A grant was given out but not taken in time, or not worth taking: release it.
    pub fn reclaim(&mut self, key: Key, token: u64, now: Now) {
        self.counters.acquired = self.counters.acquired.saturating_sub(1);
        self.counters.indeterminate += 1;
        self.compensate(key, token, now);
    }

    pub(super) fn compensate(&mut self, key: Key, token: u64, now: Now) {
        self.counters.late_grants += 1;
        let deadline = now.mono + RELEASE_TIME;
        let kind = ReleaseKind::Compensation;
        self.release(ReleaseCall { key, token, kind, deadline }, now);
    }

    /// Whether an `R` or `N` answers a release of ours; if so, ends it.
    pub(super) fn released(&mut self, at: usize, owner: u64, key: &[u8], held: bool) -> bool {
        let conn = &mut self.conns[at];
        let Some(Pending::Release(id)) = self.owners.get(owner) else { return false };
        let Some(release) = self.lane.releases.get(id) else { return false };
        let Some(flight) = release.flight.filter(|flight| flight.conn == conn.id) else {
            return false;
        };
        if release.call.key.as_bytes() != key {
            return false;
        }
        conn.answered(flight.sent);
        let retried = release.retried;
        #[cfg(canary)]
        let held = held || crate::canary!(released_means_answered);
        #[cfg(canary)]
        if crate::canary!(unconfirmed_exactly) {
            let reason = Reason::new(ReasonKind::Deadline);
            self.end_release(id, ReleaseOutcome::Unconfirmed(reason));
            return true;
        }
        let outcome = if held {
            self.counters.released += 1;
            ReleaseOutcome::Released
        } else {
            self.counters.not_held += 1;
            ReleaseOutcome::NotHeld { retried }
        };
        self.end_release(id, outcome);
        true
    }

    /// Forgets a release, and tells whoever waits for it unless it was told before.
    pub(super) fn end_release(&mut self, id: Id, outcome: ReleaseOutcome) {
        let Some(release) = self.lane.releases.get(id) else { return };
        let (kind, token) = (release.call.kind, release.call.token);
        let (retried, expired) = (release.retried, release.expired);
        if let Some(flight) = release.flight {
            self.owners.forget(flight.owner);
            if let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == flight.conn) {
                conn.releases -= 1;
            }
        }
        let parked = self.lane.remove(id);
        self.unpark(parked);
        if !expired {
            self.tell(id, kind, token, retried, outcome);
        }
    }

    /// REL-1: a release's five seconds are over. If it was sent a last read decides, as for an
    /// acquire (CLO-1).
    pub(super) fn release_due(&mut self, id: Id) {
        let Some(release) = self.lane.releases.get(id) else { return };
        match release.flight.map(|flight| self.index(flight.conn)) {
            Some(Some(at)) => {
                self.conns[at].due_releases.push(id);
                self.drain(at);
            }
            _ => self.end_release(id, ReleaseOutcome::Unconfirmed(self.last_error)),
        }
    }

    /// The last read brought it no answer. It stays for one all the same: without its entry the
    /// answer would look like a broken protocol.
    pub(super) fn expire_release(&mut self, id: Id) {
        let Some(release) = self.lane.releases.get(id) else { return };
        let (kind, token, retried) = (release.call.kind, release.call.token, release.retried);
        let parked = self.lane.expire(id);
        self.unpark(parked);
        let unanswered = Reason::new(ReasonKind::Deadline);
        self.tell(id, kind, token, retried, ReleaseOutcome::Unconfirmed(unanswered));
    }

    fn tell(
        &mut self,
        id: Id,
        kind: ReleaseKind,
        token: u64,
        retried: bool,
        outcome: ReleaseOutcome,
    ) {
        let outcome = match outcome {
            #[cfg(canary)]
            ReleaseOutcome::Unconfirmed(reason)
                if crate::canary!(unsent_release_never_went_out) =>
            {
                ReleaseOutcome::Auth(reason)
            }
            // An earlier try may have worked: only an answer could say.
            ReleaseOutcome::OwnerExhausted if retried => {
                ReleaseOutcome::Unconfirmed(self.last_error)
            }
            ReleaseOutcome::Auth(reason) if retried => ReleaseOutcome::Unconfirmed(reason),
            outcome => outcome,
        };
        if !matches!(outcome, ReleaseOutcome::Released | ReleaseOutcome::NotHeld { .. }) {
            self.counters.unconfirmed += 1;
            self.log(Event::Unconfirmed { token });
        }
        if kind == ReleaseKind::Awaited {
            self.effects.push_back(Effect::Release { id: ReleaseId(id), outcome });
        }
    }

    /// The release is to be sent again: nothing of it was accepted, or its connection has ended.
    pub(super) fn unsend_release(&mut self, at: usize, id: Id) {
        let Some(release) = self.lane.releases.get_mut(id) else { return };
        let Some(flight) = release.flight.take() else { return };
        let mark = release.mark;
        self.owners.forget(flight.owner);
        self.conns[at].releases -= 1;
        self.lane.keys.unsent(mark);
        self.lane.restore(id);
    }

    /// REL-1: the connection is gone. What it may have carried is safe to repeat, in its time.
    pub(super) fn resend_releases(&mut self, at: usize, now: Now) {
        let conn = self.conns[at].id;
        let lost = self
            .lane
            .releases
            .ids(|release| release.flight.is_some_and(|flight| flight.conn == conn));
        // The oldest goes first again: the last one to be put in front is the first. A heap, since a
        // sort has more code than all else here.
        let sent = |id: Id| {
            let flight = self.lane.releases.get(id).and_then(|release| release.flight);
            (flight.map(|flight| flight.owner), id)
        };
        let mut lost: BinaryHeap<_> = lost.into_iter().map(sent).collect();
        while let Some((_, id)) = lost.pop() {
            let Some(release) = self.lane.releases.get_mut(id) else { continue };
            if release.expired || release.call.deadline <= now.mono {
                self.end_release(id, ReleaseOutcome::Unconfirmed(self.last_error));
            } else {
                release.retried = true;
                self.unsend_release(at, id);
            }
        }
    }

    /// Acquires that waited for a release of their key may go on.
    pub(super) fn unpark(&mut self, parked: Vec<Id>) {
        let parked = parked.into_iter().filter(|id| {
            self.requests.get(*id).is_some_and(|request| request.place == Place::Parked)
        });
        let parked: Vec<Id> = parked.collect();
        self.requeue(parked);
    }
}
