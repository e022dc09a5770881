//! How connections, requests and the client itself end.

use super::Engine;
use super::api::{AcquireOutcome, ConnId, Effect, Event, ReleaseKind, ReleaseOutcome, RequestId};
use super::connection::{LINGER, Phase};
use super::lane::Release;
use super::request::Place;
use super::slab::Id;
use crate::clock::Now;
use crate::reason::{Reason, ReasonKind};

/// Why a connection ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    /// For the requests that it takes with it.
    reason: Reason,
    /// Whether the endpoint did something wrong, and is backed off.
    fault: bool,
}

impl Loss {
    pub(super) fn fault(reason: Reason) -> Loss {
        Loss { reason, fault: true }
    }

    /// CON-3: this client's own decision, and no fault of the endpoint's.
    pub(super) fn own(kind: ReasonKind) -> Loss {
        Loss { reason: Reason::new(kind), fault: false }
    }

    /// Whether what still comes can be read for grants (CLO-1): not if the stream has ended or
    /// its framing cannot be trusted.
    fn may_linger(&self) -> bool {
        !matches!(
            self.reason.kind,
            ReasonKind::Eof | ReasonKind::Io | ReasonKind::Malformed | ReasonKind::Mismatch
        )
    }
}

impl Engine {
    /// The reading side has ended: end of stream ([`ReasonKind::Eof`]) or an error
    /// ([`ReasonKind::Io`]).
    pub fn ended(&mut self, conn: ConnId, reason: Reason, now: Now) {
        let Some(at) = self.index(conn) else { return };
        let reason = reason.at(self.conns[at].endpoint);
        self.lose(at, Loss::fault(reason), now);
    }

    /// An [`Effect::Drain`] is done: the socket would block, or has ended, which was reported.
    pub fn drained(&mut self, conn: ConnId, now: Now) {
        #[cfg(canary)]
        assert!(!crate::canary!(nothing_panics) || self.index(conn).is_some(), "a seeded bug");
        let Some(at) = self.index(conn) else { return };
        self.conns[at].draining = false;
        if let Phase::Lingering { until } = self.conns[at].phase {
            if until <= now.mono {
                self.remove(at);
            }
            return;
        }
        for id in std::mem::take(&mut self.conns[at].due_releases) {
            self.expire_release(id);
        }
        let requests = &self.requests;
        let conn = &mut self.conns[at];
        conn.due.retain(|(id, _)| requests.get(*id).is_some_and(|request| request.is_on(conn.id)));
        if let Some(reason) = conn.broken {
            let reason = reason.at(conn.endpoint);
            self.lose(at, Loss::fault(reason), now);
        } else if let Some(kind) = conn.silence(now.mono) {
            let reason = Reason::new(kind).at(conn.endpoint);
            self.lose(at, Loss::fault(reason), now);
        } else if !conn.due.is_empty() {
            let kind = if self.closing { ReasonKind::Closed } else { ReasonKind::SharedConnection };
            self.lose(at, Loss::own(kind), now);
        }
    }

    /// The caller gave the acquire up and knows its result: it cancelled, or its own timed wait
    /// ended; `cause` says which. No [`Effect::Acquire`] comes for it. Unknown ids are ignored.
    pub fn withdraw(&mut self, id: RequestId, cause: Reason) {
        let id = id.pack();
        let Some(request) = self.requests.get_mut(id) else { return };
        let answered = request.retries > 0;
        let Place::Flight(flight) = &mut request.place else {
            self.requests.remove(id);
            self.queued -= 1;
            *match cause.kind {
                // Its caller was told the last answer.
                _ if answered => &mut self.counters.busy,
                ReasonKind::Cancelled => &mut self.counters.cancelled,
                _ => &mut self.counters.not_sent,
            } += 1;
            return;
        };
        if std::mem::replace(&mut flight.abandoned, true) {
            return;
        }
        let conn = flight.conn;
        self.counters.indeterminate += 1;
        if let Some(at) = self.index(conn) {
            self.overdue(at, id, cause);
        }
    }

    /// A possibly sent acquire has no time left: a last read decides (CLO-1).
    pub(super) fn overdue(&mut self, at: usize, id: Id, reason: Reason) {
        self.conns[at].due.push((id, reason));
        self.drain(at);
    }

    /// Ends a connection, with what it carries: possibly sent acquires are unknown, releases are
    /// sent again.
    pub(super) fn lose(&mut self, at: usize, loss: Loss, now: Now) {
        let conn = &mut self.conns[at];
        if conn.is_lingering() {
            self.remove(at);
            return;
        }
        let (id, endpoint, was_ready) = (conn.id, conn.endpoint, conn.is_ready());
        let linger = loss.may_linger() && conn.acquires > 0;
        for (request, reason) in std::mem::take(&mut conn.due) {
            if self.requests.get(request).is_some_and(|request| request.is_on(id)) {
                self.finish(request, AcquireOutcome::Indeterminate(reason));
            }
        }
        #[cfg(canary)]
        if crate::canary!(unsent_never_went_out) {
            for request in self.requests.ids(|request| request.is_on(id)) {
                self.finish(request, AcquireOutcome::NotSent(loss.reason));
            }
        }
        for request in self.requests.ids(|request| request.is_on(id)) {
            self.finish(request, AcquireOutcome::Indeterminate(loss.reason));
        }
        self.resend_releases(at, now);
        self.steer_at = Some(now.mono);
        if was_ready {
            self.counters.connections_closed += 1;
        } else {
            self.counters.connects_failed += u64::from(loss.fault);
        }
        if linger {
            let until = now.mono + LINGER;
            let conn = &mut self.conns[at];
            conn.enter(Phase::Lingering { until }, now.mono);
            conn.out.clear();
            conn.frames.clear();
            conn.probe = None;
            conn.draining = false;
            self.effects.push_back(Effect::HalfClose { conn: id });
        } else {
            self.remove(at);
        }
        if loss.fault {
            self.punish(endpoint, was_ready, loss.reason, now);
        }
    }

    fn punish(&mut self, endpoint: u16, was_ready: bool, reason: Reason, now: Now) {
        self.last_error = reason;
        self.log(Event::Lost { reason });
        self.router.failed(endpoint, reason, now.mono);
        let unreachable = !was_ready
            && !self.conns.iter().any(|conn| conn.is_ready() && conn.endpoint == endpoint);
        let is_hint = self.router.hint() == Some(endpoint);
        let drops = match reason.kind {
            ReasonKind::NoLeader => true,
            // Either it names the other leader already, or this one was wrong to be it.
            ReasonKind::NotActive | ReasonKind::Moved => is_hint,
            _ => is_hint && unreachable,
        };
        if drops && self.router.drop_hint() {
            self.log(Event::Hint { endpoint: None });
        }
        if let Some(reason) = self.locked_out() {
            self.fail_queued(reason);
        }
    }

    /// CON-3: nobody accepts the secret: the calls that wait end at once. Releases that nobody
    /// waits for keep their five seconds.
    fn fail_queued(&mut self, reason: Reason) {
        for id in self.requests.ids(|request| request.flight().is_none()) {
            self.finish_unsent(id, AcquireOutcome::Auth(reason));
        }
        let awaited = |release: &Release| {
            release.flight.is_none() && release.call.kind == ReleaseKind::Awaited
        };
        for id in self.lane.releases.ids(awaited) {
            self.end_release(id, ReleaseOutcome::Auth(reason));
        }
    }

    /// Forgets a connection and has it closed.
    pub(super) fn remove(&mut self, at: usize) {
        let conn = self.conns.remove(at);
        self.effects.push_back(Effect::Close { conn: conn.id });
    }

    /// Begins the end: unsent acquires are cancelled (or `Busy`, if that is what they were answered
    /// before), possibly sent ones end Indeterminate, the
    /// lane drains.
    pub fn shutdown(&mut self, now: Now) {
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        for id in self.requests.ids(|request| request.flight().is_none()) {
            self.finish_unsent(id, AcquireOutcome::Cancelled);
        }
        let closed = Reason::new(ReasonKind::Closed);
        for at in 0..self.conns.len() {
            let conn = self.conns[at].id;
            for id in self.requests.ids(|request| request.is_on(conn)) {
                self.overdue(at, id, closed);
            }
        }
        self.steer_at = Some(now.mono);
    }

    /// Whether a shutdown has nothing left to wait for. True only after [`Engine::shutdown`].
    pub fn is_drained(&self) -> bool {
        let busy = |conn: &super::Connection| conn.is_lingering() || conn.draining;
        self.closing && self.lane.is_empty() && !self.conns.iter().any(busy)
    }

    /// Ends everything at once: every acquire and release gets its effect, every connection a
    /// close. Nothing is taken afterwards.
    pub fn abort(&mut self, reason: Reason) {
        self.closing = true;
        self.ended = true;
        for id in self.requests.ids(|_| true) {
            let flies = self.requests.get(id).is_some_and(|request| request.flight().is_some());
            match flies {
                true => self.finish(id, AcquireOutcome::Indeterminate(reason)),
                false => self.finish_unsent(id, AcquireOutcome::Cancelled),
            }
        }
        for id in self.lane.releases.ids(|_| true) {
            self.end_release(id, ReleaseOutcome::Unconfirmed(reason));
        }
        while !self.conns.is_empty() {
            self.remove(0);
        }
        self.steer_at = None;
    }
}
