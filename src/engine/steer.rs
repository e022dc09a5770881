//! Which connections there should be: one serving node, and as many connections to it as the
//! kinds of callers need (CON-3, CON-6).

use super::api::{Class, ConnId, Effect};
use super::closing::Loss;
use super::connection::{Connection, places};
use super::router::{DialFor, STAGGER};
use super::{Engine, waits};
use crate::clock::{Mono, Now};
use crate::reason::ReasonKind;
use std::ops::Range;
use std::time::Duration;

const CLASSES: [Class; 3] = [Class::Try, Class::Blocking, Class::Ticket];

/// How long a class waits for a connection of its own before it shares another's. Whoever may cut
/// calls short closes connections under the others, and is kept from them longer: long enough for
/// a lost SYN, which is repeated after a second.
fn patience(class: Class) -> Duration {
    match class {
        Class::Try | Class::Blocking => STAGGER,
        Class::Ticket => Duration::from_secs(1),
    }
}

impl Engine {
    /// Dials what is wanted and closes what is not, and says when to look again.
    pub(super) fn steer(&mut self, now: Now) {
        self.steer_at = None;
        // Without owners no connection can be probed, and none becomes ready (OWN-2).
        if (self.closing && self.lane.is_empty()) || self.owners.is_exhausted() {
            return;
        }
        if self.is_ready() {
            self.scouted = None;
            self.close_strays(now);
            for class in CLASSES {
                let requests = &self.requests;
                let waiting = self.queue.front(class, |id| waits(requests, id)).is_some();
                if self.has_own(class) {
                    self.lacking[class as usize] = None;
                } else if waiting {
                    let since = *self.lacking[class as usize].get_or_insert(now.mono);
                    self.look_again_after(now, since + patience(class));
                }
                if waiting {
                    self.open_for(class, now);
                }
            }
        } else {
            self.scout(now);
        }
    }

    /// Whether a call of this class gives a reason to look after the connections.
    pub(super) fn wants_connection(&self, class: Class) -> bool {
        let places = places(class, self.settings.connections);
        let holds = self.conns.iter().filter(|conn| self.holds(conn, &places));
        let mut usable = holds.clone().filter(|conn| self.is_usable(conn));
        match class {
            Class::Try | Class::Blocking => usable.next().is_none(),
            // One that carries another's ticket would take it along when that is cancelled.
            Class::Ticket => holds.count() < places.len() && usable.all(|conn| conn.acquires > 0),
        }
    }

    /// Whether a connection holds one of these places at the serving node. One to a node that
    /// serves no longer keeps what waits on it, and takes nobody's place.
    fn holds(&self, conn: &Connection, places: &Range<usize>) -> bool {
        !conn.is_lingering()
            && conn.place.is_some_and(|place| places.contains(&place))
            && self.target() == Some(conn.endpoint)
    }

    /// The first of these places that no connection holds.
    fn free(&self, mut places: Range<usize>) -> Option<usize> {
        places.find(|place| !self.conns.iter().any(|conn| self.holds(conn, &(*place..*place + 1))))
    }

    /// Looks for a node that serves.
    fn scout(&mut self, now: Now) {
        let scouting = self.conns.iter().any(Connection::is_opening);
        if scouting && let Some(last) = self.scouted {
            let next = last + STAGGER;
            if now.mono < next {
                self.look_again(next);
                return;
            }
        }
        let conns = &self.conns;
        let busy =
            |endpoint| conns.iter().any(|conn| conn.endpoint == endpoint && !conn.is_lingering());
        match self.router.next(now.mono, busy) {
            Ok(endpoint) => match self.router.take_dial(DialFor::Service, now.mono) {
                Ok(()) => {
                    self.scouted = Some(now.mono);
                    self.router.turn_after(endpoint);
                    self.dial(endpoint, None, now);
                    self.look_again(now.mono + STAGGER);
                }
                Err(at) => self.look_again(at),
            },
            Err(at) => self.look_again(at),
        }
    }

    /// Opens a connection to the serving node for acquires of this class, if one is missing.
    fn open_for(&mut self, class: Class, now: Now) {
        if !self.wants_connection(class) {
            return;
        }
        let Some(endpoint) = self.target() else { return };
        let Some(place) = self.free(places(class, self.settings.connections)) else {
            // One is opening.
            return;
        };
        if self.conns.iter().any(|conn| conn.place.is_none() && self.is_usable(conn)) {
            return;
        }
        let retry_at = self.router.retry_at(endpoint);
        if now.mono < retry_at {
            self.look_again(retry_at);
            return;
        }
        let purpose = match class {
            Class::Ticket => DialFor::Tickets,
            Class::Try | Class::Blocking => DialFor::Service,
        };
        match self.router.take_dial(purpose, now.mono) {
            Ok(()) => {
                self.dial(endpoint, Some(place), now);
            }
            Err(at) => self.look_again(at),
        }
    }

    fn dial(&mut self, endpoint: u16, place: Option<usize>, now: Now) {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.conns.push(Connection::new(conn, endpoint, place, now));
        self.effects.push_back(Effect::Dial { conn, endpoint });
    }

    fn look_again(&mut self, at: Mono) {
        if at < Mono(u64::MAX) {
            self.steer_at = Some(self.steer_at.map_or(at, |other| other.min(at)));
        }
    }

    fn look_again_after(&mut self, now: Now, at: Mono) {
        if at > now.mono {
            self.look_again(at);
        }
    }

    /// Closes what does not lead to the serving node and carries nothing.
    fn close_strays(&mut self, now: Now) {
        let Some(target) = self.target() else { return };
        for at in (0..self.conns.len()).rev() {
            let conn = &self.conns[at];
            if conn.endpoint != target && conn.is_idle() {
                self.lose(at, Loss::own(ReasonKind::Moved), now);
            }
        }
    }

    /// Gives a connection that nobody needed yet to the class of the oldest call that has none.
    pub(super) fn adopt(&mut self, at: usize, now: Now) {
        if self.conns[at].place.is_some() {
            return;
        }
        let mut oldest: Option<(u64, usize)> = None;
        for class in CLASSES {
            let requests = &self.requests;
            let Some((seq, _)) = self.queue.front(class, |id| waits(requests, id)) else {
                continue;
            };
            if let Some(place) = self.free(places(class, self.settings.connections))
                && oldest.is_none_or(|(other, _)| seq < other)
            {
                oldest = Some((seq, place));
            }
        }
        if let Some((_, place)) = oldest {
            self.conns[at].place = Some(place);
            // The other kinds of callers waited to see whose it becomes.
            self.steer_at = Some(now.mono);
        }
    }

    /// Whether a class has a connection of its own to the serving node.
    fn has_own(&self, class: Class) -> bool {
        let places = places(class, self.settings.connections);
        self.conns.iter().any(|conn| conn.is_ready() && self.holds(conn, &places))
    }

    /// CON-6: the classes that a connection carries now. One that has waited long enough for a
    /// connection of its own goes wherever there is one: sharing is better than waiting.
    pub(super) fn served(&self, at: usize, now: Now) -> [bool; 3] {
        let place = self.conns[at].place;
        CLASSES.map(|class| {
            let places = places(class, self.settings.connections);
            let lacking = self.lacking[class as usize];
            place.is_some_and(|place| places.contains(&place))
                || (lacking.is_some_and(|since| now.mono.since(since) >= patience(class))
                    && !self.has_own(class))
        })
    }
}
