//! Who is blocked in a call, so that closing the client can wake them even if the background
//! thread does nothing (HOST-6).

use super::reply::{Readiness, Reply};
use super::slot::Slot;
use crate::engine::ReleaseOutcome;
use crate::reason::{Reason, ReasonKind};
use crate::sync::{Arc, Mutex};
use std::time::Duration;

/// Whoever sleeps for less than this is not listed: most calls are over by then.
pub(crate) const UNLISTED: Duration = Duration::from_millis(20);

/// How long anybody waits for the list, which is held for a few instructions: only a holder that
/// the system has stopped makes anybody wait. A caller that goes without keeps its own limit.
const BRIEFLY: Duration = Duration::from_millis(10);

/// What a caller sleeps on.
#[derive(Debug)]
pub(crate) enum Sleeper {
    Acquire(Arc<Slot>),
    Release(Arc<Reply<Option<ReleaseOutcome>>>),
    Ready(Arc<Reply<Readiness>>),
}

impl Sleeper {
    /// Ends the call as closing the client does, unless it has an outcome.
    fn wake(&self) {
        match self {
            Sleeper::Acquire(slot) => {
                slot.close();
                Slot::announce(slot);
            }
            Sleeper::Release(reply) => {
                let closed = Reason::new(ReasonKind::Closed);
                reply.give(Some(ReleaseOutcome::Unconfirmed(closed)));
            }
            Sleeper::Ready(reply) => reply.give(Readiness::Closed),
        }
    }
}

/// The list.
#[derive(Debug)]
pub(crate) struct Sleepers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Whoever comes is woken at once.
    ended: bool,
    listed: Vec<Option<Sleeper>>,
    /// Places in it that are free.
    free: Vec<usize>,
}

impl Sleepers {
    pub(crate) fn new() -> Sleepers {
        Sleepers(Mutex::new(Inner::default()))
    }

    /// Lists somebody until the returned value is dropped.
    pub(crate) fn list(&self, sleeper: Sleeper) -> Listed<'_> {
        let mut listed = Listed { sleepers: self, place: None };
        let Some(mut inner) = self.0.try_lock_for(BRIEFLY) else { return listed };
        if inner.ended {
            drop(inner);
            sleeper.wake();
            return listed;
        }
        let place = inner.free.pop().unwrap_or_else(|| {
            inner.listed.push(None);
            inner.listed.len() - 1
        });
        inner.listed[place] = Some(sleeper);
        listed.place = Some(place);
        listed
    }

    /// Wakes everybody who is listed, and whoever will be.
    pub(crate) fn end(&self) {
        let Some(mut inner) = self.0.try_lock_for(BRIEFLY) else { return };
        inner.ended = true;
        let listed = std::mem::take(&mut inner.listed);
        // Whoever is woken takes locks of its own, and comes here with some of them held.
        drop(inner);
        listed.iter().flatten().for_each(Sleeper::wake);
    }
}

/// A place in the list.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    sleepers: &'a Sleepers,
    place: Option<usize>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        // One that stays listed because the list cannot be had has an outcome, and keeps it.
        if let Some(place) = self.place
            && let Some(mut inner) = self.sleepers.0.try_lock_for(BRIEFLY)
            && !inner.ended
        {
            inner.listed[place] = None;
            inner.free.push(place);
        }
    }
}
