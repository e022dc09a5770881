//! What is due by itself.

use super::Engine;
use super::closing::Loss;
use super::connection::Phase;
use super::request::Place;
use super::slab::Id;
use crate::clock::{Mono, Now};
use crate::reason::{Reason, ReasonKind};
use std::time::Duration;

impl Engine {
    /// When [`Engine::timeout`] is next wanted.
    pub fn next_timeout(&mut self) -> Option<Mono> {
        let (requests, releases) = (&self.requests, &self.lane.releases);
        let (connect, idle) = (self.settings.connect_timeout, self.idle_probe());
        let conns = self.conns.iter().filter_map(|conn| conn.timer(connect, idle));
        let acquires = self.timers.next(|id| requests.get(*id).is_some());
        let lane = self.lane.deadlines.next(|id| releases.get(*id).is_some());
        #[cfg(canary)]
        if crate::canary!(nothing_spins) {
            return Some(Mono(0));
        }
        conns.chain(acquires).chain(lane).chain(self.steer_at).min()
    }

    /// Fires what is due. Early and repeated calls do nothing.
    pub fn timeout(&mut self, now: Now) {
        while let Some(id) = self.timers.pop_due(now.mono) {
            self.request_due(id, now);
        }
        while let Some(id) = self.lane.deadlines.pop_due(now.mono) {
            self.release_due(id);
        }
        let (connect, idle) = (self.settings.connect_timeout, self.idle_probe());
        // From the last to the first: one that ends leaves those before it in place.
        for at in (0..self.conns.len()).rev() {
            if self.conns[at].timer(connect, idle).is_some_and(|due| due <= now.mono) {
                self.connection_due(at, now);
            }
        }
        if self.steer_at.is_some_and(|at| at <= now.mono) {
            self.steer(now);
        }
    }

    fn request_due(&mut self, id: Id, now: Now) {
        let Some(request) = self.requests.get_mut(id) else { return };
        match request.place {
            // The timer of the next try comes before that of the deadline, which ends it if both
            // are due.
            Place::Backoff => {
                let class = request.call.class;
                self.requeue([id]);
                if self.wants_connection(class) {
                    self.steer_at = Some(now.mono);
                }
            }
            Place::Queued | Place::Parked | Place::Withdrawn => {
                self.finish_late(id);
            }
            Place::Flight(flight) if flight.whole && now.mono < flight.end => {
                self.timers.push(flight.end, id);
            }
            Place::Flight(flight) => {
                if let Some(at) = self.index(flight.conn) {
                    #[cfg(canary)]
                    if crate::canary!(a_last_read_decides) {
                        return self.lose(at, Loss::own(ReasonKind::SharedConnection), now);
                    }
                    self.overdue(at, id, Reason::new(ReasonKind::Deadline));
                }
            }
        }
    }

    /// How often an idle connection is probed. Without owners there are no probes (OWN-2), and that
    /// must not be taken for the server's silence.
    fn idle_probe(&self) -> Option<Duration> {
        (!self.owners.is_exhausted()).then_some(self.settings.idle_probe)
    }

    /// A connection's timer has come up.
    fn connection_due(&mut self, at: usize, now: Now) {
        let conn = &mut self.conns[at];
        if matches!(conn.phase, Phase::Dialing) {
            let reason = Reason::new(ReasonKind::ConnectTimeout).at(conn.endpoint);
            self.lose(at, Loss::fault(reason), now);
        } else if conn.is_lingering() || conn.silence(now.mono).is_some() {
            self.drain(at);
        } else {
            conn.begin_probe(now.mono);
        }
    }
}
