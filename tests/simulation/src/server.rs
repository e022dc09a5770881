//! A server's turn, in the order in which `lockd`'s own loop does things, with places at which its
//! thread can be stopped. Time passes in it: which of its moments counts for what, [`Turn`] says.

use crate::cluster::{Life, Serving};
use crate::faults::Kind;
use crate::record::Record;
use crate::time::{SECOND, Time};
use crate::world::{Event, World};
use lockd::core::{ConnectionId, Turn};
use lockd::outbox::Outbox;
use lockd::session::PROGRESS;

/// How long a connection that the server ended may take to be closed by its peer.
const LINGER: Time = SECOND;

/// What one read takes at most.
const READ: usize = 4096;

/// Where a turn is, or was when the thread was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Which connections have something to say.
    Look,
    /// From one of them, `first` or after others.
    Read {
        first: bool,
    },
    /// What time has ended.
    Advance,
    /// To one connection.
    Write,
    End,
}

impl World {
    /// A node has something to read, or to do. It does so now, or as soon as it can.
    pub(crate) fn node_turn(&mut self, node: usize) {
        if !self.cluster.is_running(node, self.t) {
            return;
        }
        let at = &mut self.cluster.nodes[node];
        if at.stopped.is_some() && at.resume_at > self.t {
            return;
        }
        let mut step = at.stopped.take().unwrap_or(Step::Look);
        loop {
            let mut time = 0;
            step = match step {
                Step::Look => {
                    let now = self.cluster.now(self.t);
                    let at = &mut self.cluster.nodes[node];
                    at.turn = Turn::begin(now);
                    std::mem::swap(&mut at.ready, &mut at.reading);
                    Step::Read { first: true }
                }
                Step::Read { first } => match self.next_to_read(node, first) {
                    Some(link) => {
                        self.server_read(link);
                        time = self.plan.read + self.slow_syncs();
                        Step::Read { first: false }
                    }
                    None => Step::Advance,
                },
                Step::Advance => {
                    self.server_advance(node);
                    time = self.slow_syncs();
                    Step::Write
                }
                Step::Write => match self.cluster.nodes[node].queued.pop() {
                    Some(link) => {
                        self.cluster.outputs[link as usize].queued = false;
                        self.server_write(link);
                        time = self.slow_syncs();
                        Step::Write
                    }
                    None => Step::End,
                },
                Step::End => {
                    self.set_server_timer();
                    if self.cluster.nodes[node].ready.is_empty() {
                        return;
                    }
                    Step::Look
                }
            };
            if self.faults.happens(Kind::ServerStallInTurn) {
                let kind = Kind::ServerStallInTurn;
                let stall = self.faults.duration(kind);
                self.log.add(self.t, Record::Fault { kind, on: node as u32, time: stall });
                time += stall;
            }
            if time > 0 && !self.pass(time) {
                let at = &mut self.cluster.nodes[node];
                (at.stopped, at.resume_at) = (Some(step), self.t + time);
                self.push(self.t + time, Event::ServerTurn { node });
                return;
            }
        }
    }

    /// The connection to read from. None if there is no other, or if the rest is put off.
    fn next_to_read(&mut self, node: usize, first: bool) -> Option<u32> {
        let now = self.cluster.now(self.t);
        let at = &mut self.cluster.nodes[node];
        if !first && at.turn.is_stale(now) {
            at.reading.append(&mut at.ready);
            std::mem::swap(&mut at.reading, &mut at.ready);
        }
        at.reading.pop_front()
    }

    /// How long the disk has kept the server since this was last asked.
    fn slow_syncs(&mut self) -> Time {
        let Some((disk, _)) = &self.cluster.journal else { return 0 };
        let mut time = 0;
        for _ in 0..disk.take_syncs() {
            if self.faults.happens(Kind::SlowSync) {
                let slow = self.faults.duration(Kind::SlowSync);
                let record = Record::Fault { kind: Kind::SlowSync, on: 0, time: slow };
                self.log.add(self.t, record);
                time += slow;
            }
        }
        time
    }

    fn server_advance(&mut self, node: usize) {
        if self.cluster.leader == Some(node) {
            let Serving { core, turn, mut sink, .. } = self.serving(node, None);
            core.advance_in(turn, &mut sink);
        }
        if std::mem::take(&mut self.cluster.nodes[node].sweep) {
            self.end_overdue(node);
        }
    }

    fn server_read(&mut self, number: u32) {
        let at = number as usize;
        let link = &mut self.links[at];
        link.server_ready = false;
        if !link.server_open {
            return;
        }
        let node = link.node;
        if self.cluster.outputs[at].life != Life::Open {
            let rest = link.up.readable().len();
            link.up.consume(rest);
            let ended = link.up.is_at_end() || link.server_reset;
            if ended && matches!(self.cluster.outputs[at].life, Life::Lingering { .. }) {
                self.server_close(number);
            }
            return;
        }
        let mark = self.cluster.outputs[at].outbox.mark();
        if !self.links[at].up.readable().is_empty() {
            let Some(mut session) = self.cluster.sessions[at].take() else { return };
            let now = self.cluster.now(self.t);
            self.cluster.nodes[node].turn.has_read(now);
            let instead = self.instead(node);
            let Serving { core, secrets, turn, mut sink } = self.serving(node, instead);
            let links = sink.links;
            let there = links[at].up.readable();
            let input = &there[..there.len().min(READ)];
            let received = session.receive(input, turn.now(), secrets, core, &mut sink);
            self.cluster.sessions[at] = Some(session);
            let link = &mut self.links[at];
            link.up.consume(received.consumed);
            let rest = !link.up.readable().is_empty();
            if std::mem::take(&mut link.client_blocked) {
                let at = self.t + self.plan.latency.0;
                self.push(at, Event::Writable { link: number });
            }
            if received.over.is_some() {
                return self.server_end(number, true, mark);
            }
            if rest {
                self.mark_ready(number);
                return;
            }
        }
        if self.links[at].server_reset {
            self.break_off(number);
        } else if self.links[at].up.is_at_end() {
            if let Some(mut session) = self.cluster.sessions[at].take() {
                session.end_of_stream(&mut self.serving(node, None).sink);
                self.cluster.sessions[at] = Some(session);
            }
            self.server_end(number, false, mark);
        }
    }

    /// The connection is over; answers that were decided are still written.
    fn server_end(&mut self, number: u32, linger: bool, mark: usize) {
        self.cluster.outputs[number as usize].life = Life::Draining { linger, since: self.t };
        self.cluster.core.disconnect(ConnectionId(number));
        self.undo_grants(number, mark);
        self.queue_output(number);
    }

    pub(crate) fn queue_output(&mut self, number: u32) {
        let output = &mut self.cluster.outputs[number as usize];
        if !std::mem::replace(&mut output.queued, true) {
            let node = self.links[number as usize].node;
            self.cluster.nodes[node].queued.push(number);
        }
    }

    fn break_off(&mut self, number: u32) {
        self.cluster.core.disconnect(ConnectionId(number));
        self.undo_grants(number, usize::MAX);
        self.server_close(number);
    }

    fn undo_grants(&mut self, number: u32, mark: usize) {
        let cluster = &mut self.cluster;
        let node = self.links[number as usize].node;
        let mut undone: Vec<(u64, Vec<u8>)> = Vec::new();
        cluster.outputs[number as usize]
            .outbox
            .withdraw_grants(mark, |token, key| undone.push((token, key.to_vec())));
        // One that leads no more cannot undo: the lease's end is the safety net.
        if cluster.leader != Some(node) {
            return;
        }
        for (token, key) in undone {
            self.log.add(self.t, Record::Undo { token });
            let Serving { core, turn, mut sink, .. } = self.serving(node, None);
            core.undo(token, &key, turn.now(), &mut sink);
        }
    }

    /// Closes the server's side. What is on its way still arrives.
    fn server_close(&mut self, number: u32) {
        let at = number as usize;
        self.cluster.sessions[at] = None;
        self.cluster.outputs[at].outbox = Outbox::default();
        let node = self.links[at].node;
        self.cluster.nodes[node].links.retain(|link| *link != number);
        self.links[at].server_open = false;
        self.finish_down(number);
        self.links[at].release_if_dead();
    }

    pub(crate) fn finish_down(&mut self, number: u32) {
        let at = self.flight(number);
        if let Some(at) = self.links[number as usize].down.finish(at) {
            self.push(at, Event::Arrive { link: number, down: true });
        }
    }

    /// Sends what a connection's outbox holds, as far as the socket takes it.
    fn server_write(&mut self, number: u32) {
        let at = number as usize;
        if !self.links[at].server_open {
            return;
        }
        while self.cluster.outputs[at].outbox.pending() > 0 {
            if self.links[at].server_reset || self.cluster.outputs[at].shut {
                return self.break_off(number);
            }
            let batch = self.cluster.outputs[at].outbox.batch().len();
            let mut count = batch.min(self.links[at].down.room());
            let cut_short = count > 1 && self.faults.happens(Kind::ServerPartialWrite);
            if cut_short {
                count = self.faults.rng(Kind::ServerPartialWrite).below(count as u64) as usize;
            }
            if count > 0 {
                let arrives = self.flight(number);
                let link = &mut self.links[at];
                if link.client_open {
                    let bytes = &self.cluster.outputs[at].outbox.batch()[..count];
                    let arrives = link.down.send(bytes, arrives);
                    self.push(arrives, Event::Arrive { link: number, down: true });
                } else {
                    // The peer has gone: the next call will find out.
                    self.push(arrives, Event::ServerReset { link: number });
                }
                self.cluster.outputs[at].outbox.accepted(count);
            }
            if count < batch {
                self.links[at].server_blocked = true;
                if cut_short {
                    let later = self.faults.duration(Kind::ServerPartialWrite);
                    self.push(self.t + later, Event::ServerWritable { link: number });
                }
                break;
            }
        }
        if let Life::Draining { linger, .. } = self.cluster.outputs[at].life {
            if self.cluster.outputs[at].outbox.pending() > 0 {
                self.undo_grants(number, usize::MAX);
            }
            if self.cluster.outputs[at].outbox.pending() > 0 {
                return;
            }
            if linger {
                self.finish_down(number);
                let until = self.t + LINGER;
                self.cluster.outputs[at].life = Life::Lingering { until };
            } else {
                self.server_close(number);
            }
        }
    }

    /// Ends connections whose peer's time is up.
    fn end_overdue(&mut self, node: usize) {
        let looked = self.cluster.nodes[node].turn.looked();
        let progress = PROGRESS.as_nanos() as Time;
        for number in self.cluster.nodes[node].links.clone() {
            let at = number as usize;
            match self.cluster.outputs[at].life {
                Life::Open => {
                    let session = self.cluster.sessions[at].as_ref();
                    let overdue = session.and_then(|session| session.overdue(looked)).is_some();
                    if overdue {
                        let mark = self.cluster.outputs[at].outbox.mark();
                        self.server_end(number, true, mark);
                    }
                }
                Life::Draining { since, .. } if since + progress <= self.t => {
                    self.break_off(number);
                }
                Life::Lingering { until } if until <= self.t => self.server_close(number),
                _ => {}
            }
        }
    }
}
