//! What goes wrong with the servers: pauses, deaths, elections, and things said out of turn.

use crate::cluster::Life;
use crate::faults::Kind;
use crate::record::Record;
use crate::time::{MILLI, Time};
use crate::world::{Event, World, endpoint_name};
use lockclient::wire::ServerFrame;
use lockd::core::{ConnectionId, Core, Time as CoreTime};
use lockd::outbox::Outbox;
use lockd::state::State;

impl World {
    /// A timed fault of the servers'.
    pub(crate) fn server_fault(&mut self, kind: Kind) {
        let nodes = self.cluster.nodes.len() as u64;
        let node = self.faults.rng(kind).below(nodes) as usize;
        let time = self.faults.duration(kind);
        self.log.add(self.t, Record::Fault { kind, on: node as u32, time });
        match kind {
            Kind::ServerPause => {
                self.cluster.nodes[node].paused_until = self.t + time;
                self.push(self.t + time, Event::ServerTurn { node });
            }
            Kind::ServerKill | Kind::CleanStop => self.kill(kind, node, time),
            Kind::DiskFault => self.disk_fault(),
            Kind::LeaderMove => {
                let Some(leader) = self.cluster.leader else {
                    return self.faults.was_in_vain(kind);
                };
                self.step_down(leader);
                self.push(self.t + time, Event::Elect);
            }
            _ => self.server_says(kind, node),
        }
    }

    /// A server ends, in good order or not, and is started again after some time.
    pub(crate) fn kill(&mut self, kind: Kind, node: usize, time: Time) {
        if !self.cluster.nodes[node].up {
            return self.faults.was_in_vain(kind);
        }
        // A cluster's table goes on without the node.
        if kind == Kind::CleanStop && self.cluster.nodes.len() == 1 {
            let now = self.cluster.now(self.t);
            // One whose record fails is a crash for the next start.
            let _ = self.cluster.core.stop(now);
        }
        for number in self.cluster.nodes[node].die() {
            let at = number as usize;
            self.cluster.core.disconnect(ConnectionId(number));
            self.cluster.sessions[at] = None;
            self.cluster.outputs[at].outbox = Outbox::default();
            self.links[at].server_open = false;
            self.links[at].server_ready = false;
            if self.faults.rng(kind).one_in(2) {
                self.links[at].down.drop_flights();
                self.reset_client(number);
            } else {
                self.finish_down(number);
            }
            self.links[at].release_if_dead();
        }
        if self.cluster.leader == Some(node) {
            self.cluster.leader = None;
            self.push(self.t + time, Event::Elect);
        }
        if let Some((disk, _)) = &self.cluster.journal {
            // The process alone, or its machine too.
            if self.faults.rng(kind).one_in(2) {
                disk.lose_power();
            }
        } else if self.cluster.nodes.len() == 1 {
            // What was held is forgotten: nothing is granted before the longest lease is over.
            let cluster = &mut self.cluster;
            let first = cluster.last_token + self.faults.rng(kind).between(1, 1_000);
            cluster.core = Core::new(cluster.limits, first, u64::MAX);
            let start = cluster.clock.boot(self.t + time);
            cluster.core.quarantine(CoreTime::from_nanos(start + cluster.longest_lease));
        }
        self.push(self.t + time, Event::Restart { node });
    }

    /// The disk fails at one of the next things that the server does with it.
    fn disk_fault(&mut self) {
        let steps = self.faults.rng(Kind::DiskFault).below(12);
        match &self.cluster.journal {
            Some((disk, _)) => disk.fail_in(Some(steps)),
            None => self.faults.was_in_vain(Kind::DiskFault),
        }
    }

    /// After a fault of its disk the server grants nothing until somebody starts it again.
    pub(crate) fn look_at_disk(&mut self) {
        let Some((disk, _)) = &self.cluster.journal else { return };
        if self.faults.are_over() {
            disk.fail_in(None);
        }
        if disk.has_failed() && self.cluster.nodes[0].up {
            self.kill(Kind::ServerKill, 0, 100 * MILLI);
        }
    }

    /// A single server goes on where its state ends. False: its disk fails again.
    fn reopen(&mut self) -> bool {
        let cluster = &mut self.cluster;
        let Some((disk, block)) = &cluster.journal else { return true };
        disk.begin();
        let opened = State::on(Box::new(disk.clone()), *block);
        // It serves nobody yet: how long that took is no matter.
        disk.take_syncs();
        let (state, past) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let damaged = error.kind() == std::io::ErrorKind::InvalidData;
                assert!(!damaged, "a crash has damaged the state: {error}");
                return false;
            }
        };
        cluster.core = Core::with_journal(cluster.limits, past.first_token, Box::new(state));
        if !past.quarantine.is_zero() {
            let now = cluster.now(self.t);
            cluster.core.quarantine(now.after(past.quarantine));
        }
        true
    }

    /// A node that was killed runs again.
    pub(crate) fn restart(&mut self, node: usize) {
        if !self.reopen() {
            self.push(self.t + 100 * MILLI, Event::Restart { node });
            return;
        }
        if self.cluster.nodes.len() == 1 {
            self.log.add(self.t, Record::Restarted);
        }
        self.cluster.nodes[node].up = true;
        self.cluster.nodes[node].paused_until = self.t;
    }

    /// The leader leads no more: its waiters leave, and its clients are told one way or another.
    pub(crate) fn step_down(&mut self, node: usize) {
        self.cluster.leader = None;
        let links = self.cluster.nodes[node].links.clone();
        let other = self.faults.rng(Kind::LeaderMove).below(self.cluster.nodes.len() as u64 + 1);
        let other = endpoint_name(other as usize);
        for number in links {
            self.cluster.core.disconnect(ConnectionId(number));
            let frame = match self.faults.rng(Kind::LeaderMove).below(4) {
                0 => ServerFrame::Leader { leader: other.as_bytes() },
                1 => ServerFrame::Moved { leader: other.as_bytes() },
                2 => ServerFrame::Error { code: b"no_leader" },
                _ => ServerFrame::Error { code: b"not_active" },
            };
            self.say(number, frame);
        }
        self.node_turn(node);
    }

    /// A leader is found, if there is a node that can be one.
    pub(crate) fn elect(&mut self) {
        if self.cluster.leader.is_some() {
            return;
        }
        let up: Vec<usize> =
            (0..self.cluster.nodes.len()).filter(|node| self.cluster.nodes[*node].up).collect();
        if up.is_empty() {
            self.push(self.t + 50 * MILLI, Event::Elect);
            return;
        }
        let node = up[self.rng.below(up.len() as u64) as usize];
        self.cluster.leader = Some(node);
        self.node_turn(node);
    }

    pub(crate) fn say(&mut self, number: u32, frame: ServerFrame<'_>) {
        if self.cluster.outputs[number as usize].life == Life::Open {
            self.cluster.outputs[number as usize].outbox.push(frame);
            self.queue_output(number);
        }
    }

    /// A server says something out of turn.
    pub(crate) fn server_says(&mut self, kind: Kind, node: usize) {
        if !self.cluster.is_running(node, self.t) || self.cluster.nodes[node].links.is_empty() {
            return self.faults.was_in_vain(kind);
        }
        let links = &self.cluster.nodes[node].links;
        let rng = self.faults.rng(kind);
        let number = links[rng.below(links.len() as u64) as usize];
        let (choice, other, far) = (rng.below(4), rng.below(4) as usize, rng.next() | 1 << 63);
        let leader = endpoint_name(other);
        let leader = leader.as_bytes();
        let key = self.keys[rng.below(self.keys.len() as u64) as usize];
        let key = key.as_bytes();
        match kind {
            Kind::LeaderNotice => self.say(number, ServerFrame::Leader { leader }),
            Kind::SpuriousMoved => self.say(number, ServerFrame::Moved { leader }),
            Kind::ServerError => {
                let codes: [&[u8]; 4] = [b"no_leader", b"not_active", b"bad_key", b"what"];
                self.say(number, ServerFrame::Error { code: codes[choice as usize] });
            }
            Kind::WrongAnswer => {
                self.cluster.bogus += 1;
                let token = self.cluster.bogus;
                self.say(
                    number,
                    match choice {
                        0 => ServerFrame::Acquired { owner: far, token, key },
                        1 => ServerFrame::TimedOut { owner: far, key },
                        2 => ServerFrame::Released { owner: far, key },
                        _ => ServerFrame::NotHeld { owner: far, key },
                    },
                );
            }
            Kind::ServerHalfClose => {
                let at = number as usize;
                if self.cluster.outputs[at].outbox.pending() == 0 {
                    self.cluster.outputs[at].shut = true;
                    self.finish_down(number);
                }
            }
            Kind::Garbage => {
                let at = number as usize;
                let between = self.cluster.outputs[at].outbox.pending() == 0;
                if between && !self.links[at].down.is_finished() && self.links[at].client_open {
                    let long = [b'M'; 200];
                    let bytes: &[u8] = match choice {
                        0 => b"Z",
                        1 => &long,
                        2 => b"A\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0k\n",
                        _ => b"\n",
                    };
                    let arrives = self.flight(number);
                    let arrives = self.links[at].down.send(bytes, arrives);
                    self.push(arrives, Event::Arrive { link: number, down: true });
                }
            }
            _ => {}
        }
        self.node_turn(node);
    }
}
