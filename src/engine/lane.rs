//! The release lane: releases on their way, in room that acquires cannot use (REL-4).

use super::api::{ConnId, ReleaseCall, ReleaseKind};
use super::deadlines::Deadlines;
use super::keys::{Mark, ReleasingKeys};
use super::slab::{Id, Slab};
use crate::clock::Now;
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Release {
    pub(super) call: ReleaseCall,
    /// The key's.
    pub(super) mark: Mark,
    /// Where it was sent, when, and under which owner; `None` while unsent.
    pub(super) flight: Option<ReleaseFlight>,
    /// Whether an earlier try may have reached the server (REL-2).
    pub(super) retried: bool,
    /// Its five seconds are over and its outcome was given: it stays for its answer alone.
    pub(super) expired: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ReleaseFlight {
    pub(super) conn: ConnId,
    pub(super) sent: Now,
    pub(super) owner: u64,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) releases: Slab<Release>,
    pub(super) keys: ReleasingKeys,
    pub(super) deadlines: Deadlines<Id>,
    unsent: VecDeque<Id>,
    compensations: usize,
    places: usize,
    /// Those whose outcome was given, and that stay for their answers alone.
    expired: usize,
}

impl Lane {
    pub(super) fn new(places: usize, seed: u64) -> Lane {
        Lane {
            releases: Slab::new(),
            keys: ReleasingKeys::new(seed),
            deadlines: Deadlines::default(),
            unsent: VecDeque::new(),
            compensations: 0,
            places,
            expired: 0,
        }
    }

    /// `None`: it is a compensation and there is no place left.
    pub(super) fn push(&mut self, call: ReleaseCall) -> Option<Id> {
        if call.kind == ReleaseKind::Compensation {
            if self.compensations >= self.places {
                return None;
            }
            self.compensations += 1;
        }
        let mark = self.keys.mark(&call.key);
        self.keys.begin(mark);
        let deadline = call.deadline;
        let release = Release { call, mark, flight: None, retried: false, expired: false };
        let id = self.releases.insert(release);
        self.unsent.push_back(id);
        let releases = &self.releases;
        self.deadlines.push(deadline, id);
        self.deadlines.compact(releases.len(), |id| releases.get(*id).is_some());
        if self.unsent.len() > 64 + 2 * releases.len() {
            self.unsent.retain(|id| releases.get(*id).is_some());
        }
        Some(id)
    }

    /// Takes the oldest unsent release.
    pub(super) fn pop_unsent(&mut self) -> Option<Id> {
        loop {
            let id = self.unsent.pop_front()?;
            if self.releases.get(id).is_some() {
                return Some(id);
            }
        }
    }

    pub(super) fn has_unsent(&mut self) -> bool {
        while let Some(id) = self.unsent.front() {
            if self.releases.get(*id).is_some() {
                return true;
            }
            self.unsent.pop_front();
        }
        false
    }

    /// A release that was sent is to be sent again.
    pub(super) fn restore(&mut self, id: Id) {
        self.unsent.push_front(id);
    }

    /// A sent release's outcome was given without its answer. Returns the acquires that waited for
    /// its key.
    pub(super) fn expire(&mut self, id: Id) -> Vec<Id> {
        let Some(release) = self.releases.get_mut(id) else { return Vec::new() };
        release.expired = true;
        self.expired += 1;
        self.keys.end(release.mark, true)
    }

    /// Forgets a release. Returns the acquires that waited for its key.
    pub(super) fn remove(&mut self, id: Id) -> Vec<Id> {
        let Some(release) = self.releases.get(id) else { return Vec::new() };
        if release.call.kind == ReleaseKind::Compensation {
            self.compensations -= 1;
        }
        let parked = if release.expired {
            self.expired -= 1;
            Vec::new()
        } else {
            self.keys.end(release.mark, release.flight.is_some())
        };
        self.releases.remove(id);
        parked
    }

    /// Whether no release has an outcome to wait for.
    pub(super) fn is_empty(&self) -> bool {
        self.releases.len() == self.expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Mono;
    use crate::wire::{Key, KeyError};

    #[test]
    fn con_7_releases_that_end_unsent_do_not_pile_up_behind_one_that_stays() -> Result<(), KeyError>
    {
        let mut lane = Lane::new(1, 7);
        let kind = ReleaseKind::Guard;
        let call = ReleaseCall { key: Key::new(b"k")?, token: 5, kind, deadline: Mono(1) };
        lane.push(call.clone());
        // Many at once, and then one after the other.
        let many: Vec<_> = (0..500).map(|_| lane.push(call.clone())).collect();
        many.into_iter().flatten().for_each(|id| drop(lane.remove(id)));
        for _ in 0..500 {
            let id = lane.push(call.clone());
            id.map(|id| lane.remove(id));
        }
        assert!(lane.has_unsent());
        assert!(lane.unsent.len() < 100, "{}", lane.unsent.len());
        Ok(())
    }
}
