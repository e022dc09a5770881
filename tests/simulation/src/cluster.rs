//! The servers: `lockd`'s lock table and sessions, on nodes of which one leads.

use crate::disk::SimulatedDisk;
use crate::faults::Kind;
use crate::ledger::BOGUS_TOKEN;
use crate::log::Log;
use crate::net::Link;
use crate::record::Record;
use crate::time::{Clock, SECOND, Time};
use crate::world::{Event, World, endpoint_name, key_index};
use lockclient::wire::{PROBE_KEY, ServerFrame};
use lockd::Secret;
use lockd::core::{Answers, ConnectionId, Core, Limits, Time as CoreTime};
use lockd::outbox::Outbox;
use lockd::session::{PROGRESS, Session};
use lockd::state::State;

/// How long a connection that the server ended may take to be closed by its peer.
const LINGER: Time = SECOND;

/// Where a connection stands, for the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    Draining { linger: bool, since: Time },
    Lingering { until: Time },
}

/// What a node that does not lead says instead of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    Moved(usize),
    NoLeader,
    NotActive,
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) outbox: Outbox,
    pub(crate) life: Life,
    pub(crate) queued: bool,
    /// The writing side was shut down.
    pub(crate) shut: bool,
}

/// A server process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) up: bool,
    pub(crate) paused_until: Time,
    pub(crate) ready: Vec<u32>,
    /// Its open connections.
    pub(crate) links: Vec<u32>,
}

/// All servers. The lock table is one: a cluster agrees on it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) core: Core,
    /// What followers ask: it never serves.
    pub(crate) follower: Core,
    pub(crate) clock: Clock,
    pub(crate) leader: Option<usize>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) limits: Limits,
    /// What a single server keeps its state on, and how many tokens it reserves there at once.
    pub(crate) journal: Option<(SimulatedDisk, u64)>,
    /// By connection.
    pub(crate) sessions: Vec<Option<Session>>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) queued: Vec<u32>,
    pub(crate) timer_at: Time,
    pub(crate) last_token: u64,
    pub(crate) longest_lease: u64,
    pub(crate) bogus: u64,
}

/// Where answers go: into outboxes, and, if they are grants, into the log.
struct Sink<'a> {
    outputs: &'a mut [Output],
    queued: &'a mut Vec<u32>,
    links: &'a [Link],
    log: &'a mut Log,
    clock: &'a Clock,
    last_token: &'a mut u64,
    longest_lease: &'a mut u64,
    t: Time,
    instead: Option<Instead>,
}

impl Answers for Sink<'_> {
    fn answer(&mut self, to: ConnectionId, frame: ServerFrame<'_>) {
        let output = &mut self.outputs[to.0 as usize];
        let about_connection =
            matches!(frame, ServerFrame::Challenge { .. } | ServerFrame::Accepted { .. })
                || matches!(frame, ServerFrame::Error { code } if code != b"not_active");
        match self.instead {
            Some(Instead::Moved(node)) if !about_connection => {
                let leader = endpoint_name(node);
                output.outbox.push(ServerFrame::Moved { leader: leader.as_bytes() });
            }
            Some(Instead::NoLeader) if !about_connection => {
                output.outbox.push(ServerFrame::Error { code: b"no_leader" });
            }
            Some(Instead::NotActive) if !about_connection => {
                output.outbox.push(ServerFrame::Error { code: b"not_active" });
            }
            _ => output.outbox.push(frame),
        }
        if !output.queued {
            output.queued = true;
            self.queued.push(to.0);
        }
        if let ServerFrame::TimedOut { owner, .. } = frame
            && self.instead.is_none()
        {
            let client = self.links[to.0 as usize].client;
            self.log.add(self.t, Record::Refuse { client, owner });
        }
        if let ServerFrame::Released { owner, key } | ServerFrame::NotHeld { owner, key } = frame
            && self.instead.is_none()
            && key != PROBE_KEY
        {
            let client = self.links[to.0 as usize].client;
            let freed = matches!(frame, ServerFrame::Released { .. });
            self.log.add(self.t, Record::ReleaseServed { client, owner, freed });
        }
        if let ServerFrame::Acquired { owner, token, key } = frame
            && self.instead.is_none()
        {
            let client = self.links[to.0 as usize].client;
            let ledger = &self.log.ledger;
            let lease = ledger.attempt(client, owner).map_or(0, |at| ledger.call(at.call).lease);
            let lease = u64::from(lease) * SECOND;
            let lease_end = self.clock.when_boot(self.clock.boot(self.t) + lease);
            *self.last_token = token.max(*self.last_token);
            *self.longest_lease = lease.max(*self.longest_lease);
            let key = key_index(key);
            self.log.add(self.t, Record::Grant { client, owner, key, token, lease_end });
        }
    }
}

macro_rules! sink {
    ($world:ident, $cluster:ident, $instead:expr) => {
        Sink {
            outputs: &mut $cluster.outputs,
            queued: &mut $cluster.queued,
            links: &$world.links,
            log: &mut $world.log,
            clock: &$cluster.clock,
            last_token: &mut $cluster.last_token,
            longest_lease: &mut $cluster.longest_lease,
            t: $world.t,
            instead: $instead,
        }
    };
}

impl Cluster {
    pub(crate) fn new(
        nodes: usize,
        limits: Limits,
        secret: Option<&[u8]>,
        clock: Clock,
        journal: Option<(SimulatedDisk, u64)>,
    ) -> Cluster {
        let node = || Node { up: true, paused_until: 0, ready: Vec::new(), links: Vec::new() };
        let mut follower = Core::new(limits, 1, 1);
        follower.quarantine(CoreTime::from_nanos(u64::MAX));
        let core = match &journal {
            Some((disk, block)) => {
                let (state, past) = State::on(Box::new(disk.clone()), *block).expect("a new disk");
                Core::with_journal(limits, past.first_token, Box::new(state))
            }
            None => Core::new(limits, 1, u64::MAX),
        };
        Cluster {
            core,
            follower,
            clock,
            leader: Some(0),
            nodes: std::iter::repeat_with(node).take(nodes).collect(),
            secrets: secret.into_iter().filter_map(|secret| Secret::new(secret).ok()).collect(),
            limits,
            journal,
            sessions: Vec::new(),
            outputs: Vec::new(),
            queued: Vec::new(),
            timer_at: Time::MAX,
            last_token: 0,
            longest_lease: 0,
            bogus: BOGUS_TOKEN,
        }
    }

    pub(crate) fn now(&self, t: Time) -> CoreTime {
        CoreTime::from_nanos(self.clock.boot(t))
    }

    pub(crate) fn is_running(&self, node: usize, t: Time) -> bool {
        self.nodes[node].up && self.nodes[node].paused_until <= t
    }
}

impl World {
    pub(crate) fn instead(&mut self, node: usize) -> Option<Instead> {
        match self.cluster.leader {
            Some(leader) if leader == node => None,
            Some(leader) if !self.rng.one_in(8) => Some(Instead::Moved(leader)),
            Some(_) => Some(Instead::NotActive),
            None => Some(Instead::NoLeader),
        }
    }

    /// A dialled connection has reached its node.
    pub(crate) fn accept(&mut self, link: u32) {
        let node = self.links[link as usize].node;
        let at = link as usize;
        let cluster = &mut self.cluster;
        cluster.sessions.resize_with(self.links.len(), || None);
        cluster.outputs.resize_with(self.links.len(), || Output {
            outbox: Outbox::default(),
            life: Life::Open,
            queued: false,
            shut: false,
        });
        let nonce = (!cluster.secrets.is_empty()).then(|| {
            let mut nonce = [0; 32];
            nonce[..8].copy_from_slice(&self.rng.next().to_be_bytes());
            nonce
        });
        let now = cluster.now(self.t);
        let mut sink = sink!(self, cluster, None);
        let session = Session::new(ConnectionId(link), nonce, now, &mut sink);
        cluster.sessions[at] = Some(session);
        cluster.nodes[node].links.push(link);
        self.links[at].server_open = true;
        self.node_turn(node);
    }

    /// A node has something to read, or to do.
    pub(crate) fn node_turn(&mut self, node: usize) {
        if !self.cluster.is_running(node, self.t) {
            return;
        }
        let mut ready = std::mem::take(&mut self.cluster.nodes[node].ready);
        for link in ready.drain(..) {
            self.links[link as usize].server_ready = false;
            self.server_read(link);
        }
        self.cluster.nodes[node].ready = ready;
        if self.cluster.leader == Some(node) {
            let cluster = &mut self.cluster;
            let now = cluster.now(self.t);
            let mut sink = sink!(self, cluster, None);
            cluster.core.advance(now, &mut sink);
        }
        self.server_write_all();
        self.set_server_timer();
    }

    pub(crate) fn set_server_timer(&mut self) {
        let Some(next) = self.cluster.core.next_deadline() else { return };
        let boot = next.as_nanos();
        // The clock's base is 0 and its drift small: no need for the exact instant if it is late.
        let at = self.cluster.clock.when_boot(boot).max(self.t + 1);
        if at < self.cluster.timer_at {
            self.cluster.timer_at = at;
            self.push(at, Event::ServerTimer);
        }
    }

    /// The lock table's timer.
    pub(crate) fn server_timer(&mut self) {
        if self.cluster.timer_at > self.t {
            return;
        }
        self.cluster.timer_at = Time::MAX;
        match self.cluster.leader {
            Some(leader) if self.cluster.is_running(leader, self.t) => self.node_turn(leader),
            // The turn after the pause, or after the election, looks at it.
            _ => {}
        }
    }

    /// Marks a connection for its node's next turn, and has it at once if the node runs.
    pub(crate) fn wake_server(&mut self, link: u32) {
        let (node, open) = {
            let link = &mut self.links[link as usize];
            (link.node, link.server_open)
        };
        if !open {
            return;
        }
        if !std::mem::replace(&mut self.links[link as usize].server_ready, true) {
            self.cluster.nodes[node].ready.push(link);
        }
        self.node_turn(node);
    }

    pub(crate) fn server_read(&mut self, number: u32) {
        let at = number as usize;
        let link = &mut self.links[at];
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
        loop {
            let instead = self.instead(node);
            let cluster = &mut self.cluster;
            let Some(mut session) = cluster.sessions[at].take() else { return };
            let input = self.links[at].up.readable();
            if input.is_empty() {
                cluster.sessions[at] = Some(session);
                break;
            }
            let now = cluster.now(self.t);
            let mut sink = sink!(self, cluster, instead);
            let core = match instead {
                None => &mut cluster.core,
                Some(_) => &mut cluster.follower,
            };
            let received = session.receive(input, now, &cluster.secrets, core, &mut sink);
            cluster.sessions[at] = Some(session);
            let link = &mut self.links[at];
            link.up.consume(received.consumed);
            if std::mem::take(&mut link.client_blocked) {
                let at = self.t + self.plan.latency.0;
                self.push(at, Event::Writable { link: number });
            }
            if received.over.is_some() {
                self.server_end(number, true, mark);
                return;
            }
        }
        if self.links[at].server_reset {
            self.break_off(number);
        } else if self.links[at].up.is_at_end() {
            let cluster = &mut self.cluster;
            if let Some(mut session) = cluster.sessions[at].take() {
                session.end_of_stream(&mut sink!(self, cluster, None));
                cluster.sessions[at] = Some(session);
            }
            self.server_end(number, false, mark);
        }
    }

    /// The connection is over; answers that were decided are still written.
    pub(crate) fn server_end(&mut self, number: u32, linger: bool, mark: usize) {
        self.cluster.outputs[number as usize].life = Life::Draining { linger, since: self.t };
        self.cluster.core.disconnect(ConnectionId(number));
        self.undo_grants(number, mark);
        self.queue_output(number);
    }

    pub(crate) fn queue_output(&mut self, number: u32) {
        let output = &mut self.cluster.outputs[number as usize];
        if !std::mem::replace(&mut output.queued, true) {
            self.cluster.queued.push(number);
        }
    }

    pub(crate) fn break_off(&mut self, number: u32) {
        self.cluster.core.disconnect(ConnectionId(number));
        self.undo_grants(number, usize::MAX);
        self.server_close(number);
    }

    pub(crate) fn undo_grants(&mut self, number: u32, mark: usize) {
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
        let now = cluster.now(self.t);
        for (token, key) in undone {
            self.log.add(self.t, Record::Undo { token });
            let mut sink = sink!(self, cluster, None);
            cluster.core.undo(token, &key, now, &mut sink);
        }
    }

    /// Closes the server's side. What is on its way still arrives.
    pub(crate) fn server_close(&mut self, number: u32) {
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

    pub(crate) fn server_write_all(&mut self) {
        while let Some(number) = self.cluster.queued.pop() {
            self.cluster.outputs[number as usize].queued = false;
            self.server_write(number);
        }
    }

    /// Sends what a connection's outbox holds, as far as the socket takes it.
    pub(crate) fn server_write(&mut self, number: u32) {
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

    /// Ends connections whose peer's time is up. Comes by once a second.
    pub(crate) fn sweep(&mut self) {
        self.look_at_disk();
        let now = self.cluster.now(self.t);
        let progress = PROGRESS.as_nanos() as Time;
        for node in 0..self.cluster.nodes.len() {
            if !self.cluster.is_running(node, self.t) {
                continue;
            }
            for number in self.cluster.nodes[node].links.clone() {
                let at = number as usize;
                match self.cluster.outputs[at].life {
                    Life::Open => {
                        let session = self.cluster.sessions[at].as_ref();
                        let overdue = session.and_then(|session| session.overdue(now)).is_some();
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
            self.node_turn(node);
        }
    }
}
