//! The client without its sockets and clocks: takes events with a `now`, gives effects.
//!
//! Everything that can go wrong in a lock client goes wrong in the order of events, so every
//! decision about order is made here, where a test can choose the order. Feed an event, then
//! drain [`Engine::poll_transmit`] and [`Engine::poll_effect`]; come back at
//! [`Engine::next_timeout`]. Early and repeated timeouts do nothing.

mod api;
mod closing;
mod connection;
mod deadlines;
mod keys;
mod lane;
mod owners;
mod queue;
mod receive;
mod releases;
mod request;
mod rng;
mod router;
mod slab;
mod steer;
mod table;
mod timers;
mod transmit;

pub use api::*;
pub use releases::RELEASE_TIME;

use crate::clock::{Mono, Now};
use crate::reason::{Reason, ReasonKind};
use connection::Connection;
pub(crate) use deadlines::Deadlines;
use lane::Lane;
use owners::Owners;
use queue::Queue;
use request::{Place, Request};
use rng::Rng;
use router::Router;
use slab::{Id, Slab};
use std::collections::VecDeque;
pub(crate) use table::Table;

/// The sans-IO client.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    requests: Slab<Request>,
    owners: Owners,
    queue: Queue,
    timers: Deadlines<Id>,
    lane: Lane,
    /// In the order in which they were dialled.
    conns: Vec<Connection>,
    router: Router,
    rng: Rng,
    next_conn: u64,
    next_seq: u64,
    /// Acquires without a byte sent.
    queued: usize,
    /// The connection that acquires last went out on: releases join them there, in one send.
    last_used: Option<ConnId>,
    last_error: Reason,
    /// When connections are looked after next.
    steer_at: Option<Mono>,
    /// When the last dial in search of a serving node began.
    scouted: Option<Mono>,
    /// Since when calls of each class have had no connection of their own (CON-6).
    lacking: [Option<Mono>; 3],
    /// The first connection that was dialled after the leader hint was heard.
    hinted: ConnId,
    closing: bool,
    ended: bool,
    effects: VecDeque<Effect>,
    counters: Counters,
}

impl Engine {
    /// A client with nothing connected. It begins to look for a serving node at once.
    pub fn new(settings: Settings, now: Now) -> Engine {
        Engine {
            requests: Slab::new(),
            owners: Owners::new(settings.first_owner),
            queue: Queue::default(),
            timers: Deadlines::default(),
            lane: Lane::new(settings.lane, settings.seed),
            conns: Vec::new(),
            router: Router::new(&settings.endpoints, settings.seed),
            rng: Rng::new(!settings.seed),
            next_conn: 1,
            next_seq: 0,
            queued: 0,
            last_used: None,
            last_error: Reason::new(ReasonKind::None),
            steer_at: Some(now.mono),
            scouted: None,
            lacking: [None; 3],
            hinted: ConnId(0),
            closing: false,
            ended: false,
            effects: VecDeque::new(),
            counters: Counters::default(),
            settings,
        }
    }

    /// Takes an acquire. Its end comes as [`Effect::Acquire`], never from inside this call.
    pub fn acquire(&mut self, call: AcquireCall, now: Now) -> RequestId {
        let (class, deadline) = (call.class, call.deadline);
        let seq = self.next_seq;
        self.next_seq += 1;
        let request = Request { call, seq, owner: 0, retries: 0, place: Place::Queued };
        let id = self.requests.insert(request);
        self.queued += 1;
        if self.closing {
            self.finish(id, AcquireOutcome::Cancelled);
        } else if let Some(reason) = self.locked_out() {
            self.finish(id, AcquireOutcome::Auth(reason));
        } else if let Some(owner) = self.owners.fresh() {
            self.with_request(id, |request| request.owner = owner);
            self.timers.push(deadline, id);
            let requests = &self.requests;
            self.timers.compact(requests.len(), |id| requests.get(*id).is_some());
            self.queue.compact(self.queued, |id| waits(requests, id));
            self.queue.push(class, seq, id);
            if self.wants_connection(class) {
                self.steer_at = Some(now.mono);
            }
        } else {
            self.finish(id, AcquireOutcome::OwnerExhausted);
        }
        RequestId::unpack(id)
    }

    /// Whether a connection is ready for acquires.
    pub fn is_ready(&self) -> bool {
        self.conns.iter().any(|conn| self.is_usable(conn))
    }

    /// The last connection error, for calls that end unsent without the engine's help.
    pub fn last_error(&self) -> Reason {
        self.last_error
    }

    /// Acquires that wait unsent: what the caller's bound on the local queue counts.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let in_flight: usize = self.conns.iter().map(|conn| conn.acquires).sum();
        let ready = self.conns.iter().filter(|conn| conn.is_ready()).count();
        Counters {
            queued_now: self.queued as u64,
            in_flight_now: in_flight as u64,
            connections_now: ready as u64,
            ..self.counters
        }
    }

    /// The next effect. Drain after every call that takes a `now`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Ends an acquire: forgets it, counts it, and tells its caller unless the caller knows.
    fn finish(&mut self, id: Id, outcome: AcquireOutcome) {
        let Some(request) = self.requests.get(id) else { return };
        let abandoned = request.is_abandoned();
        match request.flight() {
            Some(flight) => {
                self.owners.forget(request.owner);
                if let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == flight.conn) {
                    conn.remove_acquire(request.call.lease);
                }
            }
            None => self.queued -= 1,
        }
        self.requests.remove(id);
        if abandoned {
            return;
        }
        let counters = &mut self.counters;
        *match outcome {
            AcquireOutcome::Granted(_) => &mut counters.acquired,
            AcquireOutcome::TimedOut => &mut counters.timed_out,
            AcquireOutcome::Busy => &mut counters.busy,
            AcquireOutcome::Cancelled => &mut counters.cancelled,
            AcquireOutcome::Indeterminate(_) => &mut counters.indeterminate,
            AcquireOutcome::NotSent(_)
            | AcquireOutcome::Auth(_)
            | AcquireOutcome::OwnerExhausted => &mut counters.not_sent,
        } += 1;
        self.effects.push_back(Effect::Acquire { id: RequestId::unpack(id), outcome });
    }

    /// Ends an acquire that is unsent. If it was sent before and waited to be retried, the answer
    /// that it had then is its outcome, whatever it ends for: `B`, which is definite.
    fn finish_unsent(&mut self, id: Id, otherwise: AcquireOutcome) {
        let answered = self.requests.get(id).is_some_and(|request| request.retries > 0);
        self.finish(id, if answered { AcquireOutcome::Busy } else { otherwise });
    }

    fn with_request<R>(&mut self, id: Id, change: impl FnOnce(&mut Request) -> R) -> Option<R> {
        self.requests.get_mut(id).map(change)
    }

    /// Puts unsent acquires back into the queue, at the places that their calls have.
    fn requeue(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            if let Some(request) = self.requests.get_mut(id) {
                request.place = Place::Queued;
                self.queue.restore(request.call.class, request.seq, id);
            }
        }
    }

    fn index(&self, conn: ConnId) -> Option<usize> {
        self.conns.iter().position(|other| other.id == conn)
    }

    /// The node that acquires go to: the leader that was named, or whoever serves.
    fn target(&self) -> Option<u16> {
        let first = || self.conns.iter().find(|conn| conn.is_ready()).map(|conn| conn.endpoint);
        self.router.hint().or_else(first)
    }

    fn is_usable(&self, conn: &Connection) -> bool {
        conn.is_ready()
            && !conn.draining
            && conn.broken.is_none()
            && self.target() == Some(conn.endpoint)
    }

    /// CON-3: the reason, when every endpoint's last attempt ended in an authentication failure. A
    /// connection that was made before, and still serves, goes on serving.
    pub fn locked_out(&self) -> Option<Reason> {
        self.router.all_auth().filter(|_| !self.is_ready())
    }

    fn log(&mut self, event: Event) {
        if self.settings.log {
            self.effects.push_back(Effect::Log(event));
        }
    }
}

/// Whether `id` stands in the queue, and is not one that has left it in another way.
fn waits(requests: &Slab<Request>, id: Id) -> bool {
    requests.get(id).is_some_and(|request| request.place == Place::Queued)
}
