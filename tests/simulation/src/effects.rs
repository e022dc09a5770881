//! What a client's engine has decided, carried out; and how clients end.

use crate::client::{Client, Command};
use crate::faults::Kind;
use crate::net::{Dial, Link};
use crate::record::{Decider, Record, ReleaseEnd};
use crate::time::{SECOND, Time};
use crate::world::{Event, World};
use lockclient::clock::Mono;
use lockclient::engine::{self, ConnId, Effect, ReleaseOutcome, RequestId};
use lockclient::{Reason, ReasonKind};

impl World {
    /// Carries out what the engine has decided.
    pub(crate) fn effects(&mut self, number: u16) {
        let at = usize::from(number);
        while let Some(effect) = self.clients[at].engine.poll_effect() {
            match effect {
                Effect::Dial { conn, endpoint } => self.begin_dial(number, conn, endpoint),
                Effect::Close { conn } => self.close_link(number, conn),
                Effect::HalfClose { conn } => {
                    if let Some(link) = self.clients[at].link(conn) {
                        self.log.add(self.t, Record::HalfClosed { link });
                        self.finish_up(link);
                    }
                }
                Effect::Drain { conn } => self.clients[at].drains.push_back(conn),
                Effect::Acquire { id, outcome } => self.acquire_ended(number, id, outcome),
                Effect::Release { id, outcome } => {
                    if let Some((caller, token)) = self.clients[at].audiences.remove(&id) {
                        let end = match outcome {
                            ReleaseOutcome::Released => ReleaseEnd::Released,
                            ReleaseOutcome::NotHeld { retried } => ReleaseEnd::NotHeld { retried },
                            ReleaseOutcome::Unconfirmed(_) => ReleaseEnd::Unconfirmed,
                            ReleaseOutcome::Auth(_) => ReleaseEnd::Auth,
                            ReleaseOutcome::OwnerExhausted => ReleaseEnd::OwnerExhausted,
                        };
                        self.release_ended(caller, token, end);
                    }
                }
                Effect::Unclaim { id } => {
                    let client = &mut self.clients[at];
                    client.desk.retry(id);
                    if let Some(Some((_, call))) = client.ids.get(id.slot()) {
                        self.calls[*call as usize].end = 0;
                        client.told.push(*call);
                        self.log.add(self.t, Record::Retry { call: *call });
                    }
                }
                Effect::Log(engine::Event::Compensated { token }) => {
                    self.log.add(self.t, Record::Compensate { client: number, token });
                }
                Effect::Log(engine::Event::CompensationDropped { token }) => {
                    self.log.add(self.t, Record::CompensationDropped { client: number, token });
                }
                Effect::Log(_) => {}
            }
        }
    }

    pub(crate) fn acquire_ended(
        &mut self,
        number: u16,
        id: RequestId,
        outcome: engine::AcquireOutcome,
    ) {
        let client = &mut self.clients[usize::from(number)];
        let call = client.ids.get(id.slot()).copied().flatten();
        if let Some((known, call)) = call
            && known == id
        {
            let info = &mut self.calls[call as usize];
            if !std::mem::replace(&mut info.decided, true) {
                let mono = client.clock.mono(self.t);
                self.log.add(self.t, Record::Decide { call, by: Decider::Engine, mono });
            }
            client.told.push(call);
            if let engine::AcquireOutcome::Indeterminate(reason) = outcome {
                self.look_for_answer(number, call, reason.kind);
            }
        }
        let client = &mut self.clients[usize::from(number)];
        if let Some(reclaim) = client.desk.complete(id, outcome) {
            let now = client.clock.now(self.t);
            client.engine.reclaim(reclaim.key, reclaim.token, now);
        }
    }

    /// Whether a call whose outcome the client's own close made unknown has its answer in the socket.
    fn look_for_answer(&mut self, number: u16, call: u32, why: ReasonKind) {
        use ReasonKind::{Deadline, SharedConnection, Silent};
        if self.log.violation.is_some() {
            return;
        }
        let Some(attempt) = self.log.ledger.attempt_of(call) else { return };
        let Some(link) =
            attempt.link.filter(|_| matches!(why, Deadline | SharedConnection | Silent))
        else {
            return;
        };
        let (owner, mut found, mut broken) = (attempt.owner, None, false);
        let link = &self.links[link as usize];
        let mut unread = link.partial.clone();
        crate::tap::read(&mut unread, link.down.readable(), |heard| match heard {
            crate::tap::Heard::Fatal => broken = true,
            crate::tap::Heard::Answer { owner: other, answer, .. } => {
                if other == owner && !broken {
                    found = Some(answer);
                }
            }
        });
        if let Some(answer) = found {
            let mono = self.now(number).mono.0;
            self.log.add(self.t, Record::Overlooked { call, answer, mono });
        }
    }

    pub(crate) fn begin_dial(&mut self, number: u16, conn: ConnId, endpoint: u16) {
        let mut cut = (u64::MAX, u64::MAX);
        if self.faults.happens(Kind::ResetAtByte) {
            let rng = self.faults.rng(Kind::ResetAtByte);
            let bytes = rng.spread(1, 20_000);
            cut = if rng.one_in(2) { (bytes, u64::MAX) } else { (u64::MAX, bytes) };
        }
        let link = self.links.len() as u32;
        let node = usize::from(endpoint);
        self.links.push(Link::new(number, conn, node, self.plan.buffer, cut));
        let client = &mut self.clients[usize::from(number)];
        let at = conn.0 as usize;
        if client.links.len() <= at {
            client.links.resize(at + 1, u32::MAX);
        }
        client.links[at] = link;
        self.dial(link);
    }

    pub(crate) fn finish_up(&mut self, number: u32) {
        if self.links[number as usize].dial == Dial::Pending {
            return;
        }
        let at = self.flight(number);
        if let Some(at) = self.links[number as usize].up.finish(at) {
            self.push(at, Event::Arrive { link: number, down: false });
        }
    }

    pub(crate) fn close_link(&mut self, number: u16, conn: ConnId) {
        let client = &mut self.clients[usize::from(number)];
        let Some(link) = client.link(conn) else { return };
        client.links[conn.0 as usize] = u32::MAX;
        let at = link as usize;
        self.links[at].client_open = false;
        if self.links[at].down.readable().is_empty() || self.rng.one_in(2) {
            self.finish_up(link);
        } else {
            // Closed with bytes unread: the kernel sends a reset, which may overtake.
            self.links[at].up.drop_flights();
            let arrives = self.flight(link);
            self.push(arrives, Event::ServerReset { link });
        }
        self.links[at].release_if_dead();
    }

    /// The shutdown is complete, or its time is up.
    pub(crate) fn end_if_closed(&mut self, number: u16) {
        let now = self.now(number).mono;
        let client = &mut self.clients[usize::from(number)];
        let Some(deadline) = client.closing.filter(|_| !client.ended) else { return };
        let drained = client.engine.is_drained() && client.commands.is_empty();
        if !drained && now < deadline {
            return;
        }
        client.engine.abort(Reason::new(ReasonKind::Closed));
        self.effects(number);
        self.tell(number);
        self.bury(number, drained);
    }

    /// The thread has ended. What still waits in its queue ends too.
    pub(crate) fn bury(&mut self, number: u16, clean: bool) {
        let at = usize::from(number);
        self.log.add(self.t, Record::ClientEnded { client: number });
        if self.clients[at].orderly {
            self.log.add(self.t, Record::Drained { client: number, clean });
        }
        self.clients[at].ended = true;
        self.clients[at].stopped = None;
        let now = self.now(number);
        for command in std::mem::take(&mut self.clients[at].commands) {
            match command {
                Command::Acquire(slot, call) => {
                    // An engine that has ended cancels at once.
                    let client = &mut self.clients[at];
                    let id = client.engine.acquire(slot.call().clone(), now);
                    client.desk.admit(id, slot);
                    client.told.push(call);
                }
                Command::Release(call, Some(caller)) => {
                    self.release_ended(caller, call.token, ReleaseEnd::Unconfirmed);
                }
                _ => {}
            }
        }
        self.clients[at].desk.abandon();
        for caller in 0..self.callers.len() {
            let Some(call) = self.callers[caller].waiting_at(number) else { continue };
            if !std::mem::replace(&mut self.calls[call as usize].decided, true) {
                let mono = now.mono.0;
                self.log.add(self.t, Record::Decide { call, by: Decider::Engine, mono });
            }
            self.notify(call);
        }
        let mut audiences: Vec<(u32, u64)> =
            std::mem::take(&mut self.clients[at].audiences).into_values().collect();
        audiences.sort_unstable();
        for (caller, token) in audiences {
            self.release_ended(caller, token, ReleaseEnd::Unconfirmed);
        }
        for conn in 0..self.clients[at].links.len() {
            self.close_link(number, ConnId(conn as u64));
        }
    }

    /// A timed fault of a client's.
    pub(crate) fn client_fault(&mut self, kind: Kind) {
        let awake = |client: &u16| {
            let client = &self.clients[usize::from(*client)];
            !client.is_closed() && client.frozen_until <= self.t
        };
        let open: Vec<u16> = (0..self.clients.len() as u16).filter(awake).collect();
        if open.is_empty() || (kind != Kind::Suspend && self.clients.len() > 100) {
            return self.faults.was_in_vain(kind);
        }
        let time = self.faults.duration(kind);
        let rng = self.faults.rng(kind);
        let number = open[rng.below(open.len() as u64) as usize];
        let patience = rng.below(6 * SECOND);
        self.log.add(self.t, Record::Fault { kind, on: u32::from(number), time });
        match kind {
            Kind::Suspend => {
                self.freeze(number, time);
                let client = &mut self.clients[usize::from(number)];
                let until = client.frozen_until;
                // Its monotonic clock stands still; it goes on where it was.
                let (from, to) = (client.clock.boot(self.t), client.clock.boot(until));
                client.clock.suspend(from, to);
                self.push(until, Event::Turn { client: number });
                client_turn_at(&mut self.clients[usize::from(number)], until);
            }
            Kind::Close => {
                let deadline = Mono(self.now(number).mono.0 + patience);
                self.clients[usize::from(number)].closing = Some(deadline);
                self.clients[usize::from(number)].commands.push(Command::Shutdown(deadline));
                self.wake_thread(number);
                self.replace_client(number);
            }
            _ => {
                // The thread ends wherever it is.
                self.bury(number, false);
                self.replace_client(number);
            }
        }
    }

    pub(crate) fn replace_client(&mut self, number: u16) {
        let new = self.open_client(false);
        for caller in &mut self.callers {
            caller.move_to(number, new);
        }
    }
}

fn client_turn_at(client: &mut Client, at: Time) {
    if client.stopped.is_none() && !client.ended {
        client.turn_at = client.turn_at.min(at);
    }
}
