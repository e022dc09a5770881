//! What came of it: how calls ended, and what went over the wire.

use crate::harness::World;
use crate::nodes::{Acquire, Frame, Sent};
use lockclient::ReasonKind;
use lockclient::clock::Mono;
use lockclient::engine::{
    AcquireOutcome, ConnId, Counters, Grant, ReleaseId, ReleaseOutcome, RequestId,
};
use lockclient::wire::ServerFrame;

impl World {
    pub(crate) fn outcome(&self, id: RequestId) -> Option<AcquireOutcome> {
        self.ends.get(&id).map(|(_, outcome)| *outcome)
    }

    /// The grant that the acquire ended with.
    pub(crate) fn grant(&self, id: RequestId) -> Grant {
        match self.outcome(id) {
            Some(AcquireOutcome::Granted(grant)) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Why the acquire's outcome is unknown.
    pub(crate) fn unknown(&self, id: RequestId) -> ReasonKind {
        match self.outcome(id) {
            Some(AcquireOutcome::Indeterminate(reason)) => reason.kind,
            other => panic!("not indeterminate: {other:?}"),
        }
    }

    pub(crate) fn ended_at(&self, id: RequestId) -> Option<Mono> {
        self.ends.get(&id).map(|(at, _)| *at)
    }

    pub(crate) fn release_outcome(&self, id: ReleaseId) -> Option<ReleaseOutcome> {
        self.release_ends.get(&id).map(|(_, outcome)| *outcome)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// The acquire frames for `key` that went out whole.
    pub(crate) fn acquires(&self, key: &str) -> Vec<Acquire> {
        self.wire.iter().filter_map(|sent| sent.acquire(key)).collect()
    }

    /// The only acquire frame for `key`.
    pub(crate) fn acquire(&self, key: &str) -> Acquire {
        match self.acquires(key)[..] {
            [acquire] => acquire,
            ref all => panic!("not one acquire of {key} but {all:?}"),
        }
    }

    /// The release frames for `key`: where, under which owner, which token.
    pub(crate) fn releases(&self, key: &str) -> Vec<(ConnId, u64, u64)> {
        let of = |sent: &Sent| match &sent.frame {
            Frame::Release { owner, token, key: of } if of == key => {
                Some((sent.conn, *owner, *token))
            }
            _ => None,
        };
        self.wire.iter().filter_map(of).collect()
    }

    /// When probes went out on `conn`, and under which owner.
    pub(crate) fn probes(&self, conn: ConnId) -> Vec<(Mono, u64)> {
        let of = |sent: &Sent| match sent.frame {
            Frame::Probe { owner } if sent.conn == conn => Some((sent.at, owner)),
            _ => None,
        };
        self.wire.iter().filter_map(of).collect()
    }

    /// Answers the only acquire of `key` with a grant.
    pub(crate) fn grant_it(&mut self, key: &str, token: u64) {
        let Acquire { conn, owner, .. } = self.acquire(key);
        self.answer(conn, ServerFrame::Acquired { owner, token, key: key.as_bytes() });
    }
}
