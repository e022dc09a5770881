//! The servers: `lockd`'s lock table and sessions, on nodes of which one leads.

use crate::disk::SimulatedDisk;
use crate::ledger::BOGUS_TOKEN;
use crate::log::Log;
use crate::net::Link;
use crate::record::Record;
use crate::server::Step;
use crate::time::{Clock, SECOND, Time};
use crate::world::{Event, World, endpoint_name, key_index};
use lockclient::wire::{PROBE_KEY, ServerFrame};
use lockd::Secret;
use lockd::core::{Answers, ConnectionId, Core, Limits, Time as CoreTime, Turn};
use lockd::outbox::Outbox;
use lockd::session::Session;
use lockd::state::State;
use std::collections::VecDeque;

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
    /// This turn's moments, or the last one's.
    pub(crate) turn: Turn,
    /// The thread is stopped in its turn, and goes on here; not before `resume_at`.
    pub(crate) stopped: Option<Step>,
    pub(crate) resume_at: Time,
    /// Connections to read from in the next turn, each once.
    pub(crate) ready: VecDeque<u32>,
    /// Those that this turn found ready and has not read from yet.
    pub(crate) reading: VecDeque<u32>,
    /// Connections with something to send, each once.
    pub(crate) queued: Vec<u32>,
    /// The next turn looks for peers whose time is up.
    pub(crate) sweep: bool,
    /// Its open connections.
    pub(crate) links: Vec<u32>,
}

impl Node {
    fn new() -> Node {
        Node {
            up: true,
            paused_until: 0,
            turn: Turn::begin(CoreTime::default()),
            stopped: None,
            resume_at: 0,
            ready: VecDeque::new(),
            reading: VecDeque::new(),
            queued: Vec::new(),
            sweep: false,
            links: Vec::new(),
        }
    }

    /// The process ends, wherever its thread is. Returns its connections.
    pub(crate) fn die(&mut self) -> Vec<u32> {
        let links = std::mem::take(&mut self.links);
        *self = Node { up: false, ..Node::new() };
        links
    }
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
    pub(crate) timer_at: Time,
    pub(crate) last_token: u64,
    pub(crate) longest_lease: u64,
    pub(crate) bogus: u64,
}

/// Where answers go: into outboxes, and, if they are grants, into the log.
pub(crate) struct Sink<'a> {
    outputs: &'a mut [Output],
    nodes: &'a mut [Node],
    pub(crate) links: &'a [Link],
    log: &'a mut Log,
    clock: &'a Clock,
    last_token: &'a mut u64,
    longest_lease: &'a mut u64,
    t: Time,
    /// The moment that the table is told.
    now: CoreTime,
    instead: Option<Instead>,
}

/// What a node needs to answer: the table that it asks, its secrets, the moment, the way out.
pub(crate) struct Serving<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) secrets: &'a [Secret],
    pub(crate) turn: Turn,
    pub(crate) sink: Sink<'a>,
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
            self.nodes[self.links[to.0 as usize].node].queued.push(to.0);
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
            // A turn takes time: the moment that the table was told may be over.
            let now = self.now.as_nanos();
            let begins = match now == self.clock.boot(self.t) {
                true => self.t,
                false => self.clock.when_boot(now),
            };
            let lease_end = self.clock.when_boot(now + lease);
            *self.last_token = token.max(*self.last_token);
            *self.longest_lease = lease.max(*self.longest_lease);
            let key = key_index(key);
            let grant = Record::Grant { client, owner, key, token, begins, lease_end };
            self.log.add(self.t, grant);
        }
    }
}

impl Cluster {
    pub(crate) fn new(
        nodes: usize,
        limits: Limits,
        secret: Option<&[u8]>,
        clock: Clock,
        journal: Option<(SimulatedDisk, u64)>,
    ) -> Cluster {
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
            nodes: std::iter::repeat_with(Node::new).take(nodes).collect(),
            secrets: secret.into_iter().filter_map(|secret| Secret::new(secret).ok()).collect(),
            limits,
            journal,
            sessions: Vec::new(),
            outputs: Vec::new(),
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

    /// What a node answers with: in its own name, or `instead`.
    pub(crate) fn serving(&mut self, node: usize, instead: Option<Instead>) -> Serving<'_> {
        let Cluster {
            core,
            follower,
            clock,
            nodes,
            secrets,
            outputs,
            last_token,
            longest_lease,
            ..
        } = &mut self.cluster;
        let turn = nodes[node].turn;
        let sink = Sink {
            outputs,
            nodes,
            links: &self.links,
            log: &mut self.log,
            clock,
            last_token,
            longest_lease,
            t: self.t,
            now: turn.now(),
            instead,
        };
        let core = if instead.is_none() { core } else { follower };
        Serving { core, secrets, turn, sink }
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
        let Serving { mut sink, .. } = self.serving(node, None);
        let session = Session::new(ConnectionId(link), nonce, now, &mut sink);
        self.cluster.sessions[at] = Some(session);
        self.cluster.nodes[node].links.push(link);
        self.links[at].server_open = true;
        self.node_turn(node);
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
        // If it cannot now, the turn after the pause, or after the election, looks at it.
        if let Some(leader) = self.cluster.leader {
            self.node_turn(leader);
        }
    }

    /// Marks a connection for its node's next turn, and has it at once if the node runs.
    pub(crate) fn wake_server(&mut self, link: u32) {
        let Some(node) = self.mark_ready(link) else { return };
        self.node_turn(node);
    }

    /// Has the connection read from in the next turn. Returns its node, unless it is closed.
    pub(crate) fn mark_ready(&mut self, number: u32) -> Option<usize> {
        let link = &mut self.links[number as usize];
        if !link.server_open {
            return None;
        }
        if !std::mem::replace(&mut link.server_ready, true) {
            self.cluster.nodes[link.node].ready.push_back(number);
        }
        Some(link.node)
    }

    /// A second has passed: in their next turns the servers look for peers whose time is up.
    pub(crate) fn sweep(&mut self) {
        self.look_at_disk();
        for node in 0..self.cluster.nodes.len() {
            self.cluster.nodes[node].sweep = true;
            self.node_turn(node);
        }
    }
}
