//! A run: the queue of events in virtual time, and everything that they happen to.

use crate::caller::Caller;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::disk::SimulatedDisk;
use crate::faults::{Faults, Kind, Skip};
use crate::ledger::Ledger;
use crate::log::Log;
use crate::net::{Dial, Link};
use crate::plan::Plan;
use crate::record::{Outcome, Record};
use crate::rng::Rng;
use crate::time::{Clock, SECOND, Time};
use lockclient::wire::Key;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// What can happen next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A client's thread has something to do.
    Turn {
        client: u16,
    },
    /// A client's thread goes on after it was stopped.
    Resume {
        client: u16,
    },
    /// A client's thread has asked to be woken.
    Timer {
        client: u16,
    },
    /// Something arrives at a connection's end.
    Arrive {
        link: u32,
        down: bool,
    },
    /// A dial ends.
    Dialed {
        link: u32,
        good: bool,
    },
    /// The client's side of a connection takes bytes again.
    Writable {
        link: u32,
    },
    /// The same, for the server.
    ServerWritable {
        link: u32,
    },
    /// The server finds out that its peer has gone.
    ServerReset {
        link: u32,
    },
    ServerTurn {
        node: usize,
    },
    ServerTimer,
    Restart {
        node: usize,
    },
    Elect,
    /// Once a second.
    Sweep,
    Caller {
        caller: u32,
    },
    Fault {
        kind: Kind,
    },
}

#[derive(Debug)]
struct Entry {
    at: Time,
    seq: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.seq == other.seq
    }
}

impl Eq for Entry {}

/// A call, as whoever drives it knows it.
#[derive(Debug)]
pub(crate) struct CallInfo {
    pub(crate) caller: u32,
    /// While it is claimed: when the wait for an answer ends; 0 if it is not.
    pub(crate) end: u64,
    pub(crate) decided: bool,
}

/// What a run is asked to be.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Everything follows from it.
    pub seed: u64,
    /// Acquires before the faults end.
    pub acquires: u32,
    /// Faults to leave out.
    pub skip: Skip,
    /// Check one predicate alone.
    pub only: Option<&'static str>,
    /// Keep the last records, and the faults that happened.
    pub keep: bool,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) t: Time,
    queue: BinaryHeap<Reverse<Entry>>,
    seq: u64,
    pub(crate) plan: Plan,
    pub(crate) faults: Faults,
    pub(crate) rng: Rng,
    /// The event log.
    pub log: Log,
    pub(crate) keys: Vec<Key>,
    pub(crate) links: Vec<Link>,
    pub(crate) cluster: Cluster,
    pub(crate) clients: Vec<Client>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) calls: Vec<CallInfo>,
    /// Paths that swallow packets: client, node, until when.
    pub(crate) holes: Vec<(u16, usize, Time)>,
    pub(crate) started: u32,
    pub(crate) outcomes: Outcomes,
    events: u64,
}

/// How calls ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcomes(pub [u64; 9]);

impl Outcomes {
    /// Where those are that are not definite.
    pub const INDETERMINATE: usize = 5;

    /// Their names.
    pub const NAMES: [&'static str; 9] = [
        "acquired",
        "timed out",
        "busy",
        "not sent",
        "cancelled",
        "indeterminate",
        "auth",
        "owner exhausted",
        "ended",
    ];

    pub(crate) fn count(&mut self, outcome: Outcome) {
        let at = match outcome {
            Outcome::Acquired => 0,
            Outcome::TimedOut => 1,
            Outcome::Busy => 2,
            Outcome::NotSent => 3,
            Outcome::Cancelled => 4,
            Outcome::Indeterminate(_) => 5,
            Outcome::Auth => 6,
            Outcome::OwnerExhausted => 7,
            Outcome::Ended => 8,
        };
        self.0[at] += 1;
    }
}

/// The endpoint of a node. One beyond the last is nobody's.
pub(crate) fn endpoint_name(node: usize) -> String {
    format!("node-{node}:7420")
}

/// The number of a key, which is in its name; some number for a key that is none of the run's.
pub(crate) fn key_index(key: &[u8]) -> u16 {
    let digits = key.get(1..5).unwrap_or_default();
    digits.iter().fold(0, |number: u16, digit| {
        number.wrapping_mul(10).wrapping_add(u16::from(digit.wrapping_sub(b'0')))
    })
}

fn key(index: usize) -> Key {
    let padding = match index % 4 {
        0 => "",
        1 => "/a-name-of-a-usual-length",
        2 => "/\u{c790}\u{bb3c}\u{c1e0}\n".trim_end(),
        _ => {
            "/0123456789012345678901234567890123456789012345678901234567890123456789\
              01234567890123456789012345678901234567890123456789"
        }
    };
    let text = format!("k{index:04}{padding}");
    Key::new(text.as_bytes()).expect("the names above are keys")
}

impl World {
    /// A world at its beginning.
    pub(crate) fn new(orders: &Orders) -> World {
        let plan = Plan::new(orders.seed, orders.acquires);
        let mut rng = Rng::new(orders.seed, 3);
        let mut faults = Faults::new(orders.seed, orders.skip.clone());
        faults.trail = orders.keep.then(Vec::new);
        // One key for each client beyond those in use: for the acquires after the faults.
        let keys: Vec<Key> = (0..plan.keys + 256).map(key).collect();
        let drift = rng.between(0, 2 * plan.ppm.unsigned_abs()) as i64 - plan.ppm;
        let secret = plan.secret.then_some(crate::client::SECRET);
        let clock = Clock::new(0, drift);
        let disk = |block| (SimulatedDisk::new(Rng::new(orders.seed, 4)), block);
        let journal = plan.journal.map(disk);
        let cluster = Cluster::new(plan.nodes, plan.limits, secret, clock, journal);
        let ledger = Ledger::new(keys.len(), plan.grace);
        let mut world = World {
            t: 0,
            queue: BinaryHeap::new(),
            seq: 0,
            log: Log::new(ledger, orders.only, orders.keep),
            plan,
            faults,
            rng,
            keys,
            links: Vec::new(),
            cluster,
            clients: Vec::new(),
            callers: Vec::new(),
            calls: Vec::new(),
            holes: Vec::new(),
            started: 0,
            outcomes: Outcomes::default(),
            events: 0,
        };
        for number in 0..world.plan.clients {
            let client = world.open_client(number == 0);
            for _ in 0..world.plan.callers {
                world.add_caller(client);
            }
        }
        world.push(SECOND, Event::Sweep);
        world
    }

    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.seq += 1;
        self.queue.push(Reverse(Entry { at: at.max(self.t), seq: self.seq, event }));
    }

    /// Lets time pass, if nothing else happens meanwhile.
    pub(crate) fn pass(&mut self, time: Time) -> bool {
        let until = self.t + time;
        let alone = self.queue.peek().is_none_or(|Reverse(next)| next.at > until);
        if alone {
            self.t = until;
        }
        alone
    }

    /// A call is the occasion for what happens around it.
    pub(crate) fn draw_surroundings(&mut self) {
        for at in 0..self.faults.surroundings.len() {
            let kind = self.faults.surroundings[at];
            if self.faults.happens(kind) {
                let delay = self.faults.delay(kind);
                self.push(self.t + delay, Event::Fault { kind });
            }
        }
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(&mut self) {
        while self.started < self.plan.acquires && self.step() {}
        self.faults.end();
        self.holes.clear();
        for link in &mut self.links {
            link.up.mend();
            link.down.mend();
        }
        self.come_to_rest();
        if self.log.violation.is_none() {
            self.log.add(self.t, Record::End);
        }
    }

    /// Lets one event happen. False: nothing is left to happen, or something is wrong.
    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse(Entry { at, event, .. })) = self.queue.pop() else { return false };
        self.t = at;
        self.events += 1;
        // A loop that makes no progress would go on for ever.
        if self.events > 100_000 + 400 * u64::from(self.plan.acquires) {
            self.log.add(self.t, Record::Restless { events: self.events });
        }
        match event {
            Event::Turn { client } => self.turn(client),
            Event::Resume { client } => self.resume(client),
            Event::Timer { client } => self.timer(client),
            Event::Arrive { link, down } => self.arrive(link, down),
            Event::Dialed { link, good } => self.dialed(link, good),
            Event::Writable { link } => self.writable(link),
            Event::ServerWritable { link } => {
                if std::mem::take(&mut self.links[link as usize].server_blocked) {
                    self.queue_output(link);
                    self.node_turn(self.links[link as usize].node);
                }
            }
            Event::ServerReset { link } => {
                self.links[link as usize].server_reset = true;
                self.wake_server(link);
            }
            Event::ServerTurn { node } => self.node_turn(node),
            Event::ServerTimer => self.server_timer(),
            Event::Restart { node } => self.restart(node),
            Event::Elect => self.elect(),
            Event::Sweep => {
                self.sweep();
                self.push(self.t + SECOND, Event::Sweep);
            }
            Event::Caller { caller } => self.act(caller),
            Event::Fault { kind } => {
                if !self.faults.are_over() {
                    self.fault(kind);
                }
            }
        }
        self.log.violation.is_none()
    }

    fn fault(&mut self, kind: Kind) {
        match kind {
            Kind::BlackHole => {
                let time = self.faults.duration(kind);
                let clients = self.clients.len() as u64;
                let nodes = self.plan.nodes as u64;
                let rng = self.faults.rng(kind);
                let (client, node) = (rng.below(clients) as u16, rng.below(nodes) as usize);
                self.log.add(self.t, Record::Fault { kind, on: u32::from(client), time });
                self.open_hole(client, node, self.t + time);
            }
            Kind::ResetNow => {
                let open: Vec<u32> = (0..self.links.len() as u32)
                    .filter(|at| self.links[*at as usize].client_open)
                    .collect();
                if open.is_empty() {
                    return self.faults.was_in_vain(kind);
                }
                let at = self.faults.rng(kind).below(open.len() as u64) as usize;
                self.log.add(self.t, Record::Fault { kind, on: open[at], time: 0 });
                self.break_link(open[at]);
            }
            Kind::Suspend | Kind::Close | Kind::Abort => self.client_fault(kind),
            _ => self.server_fault(kind),
        }
    }

    /// A path swallows packets until then: they arrive later, as TCP sends them again.
    fn open_hole(&mut self, client: u16, node: usize, until: Time) {
        self.holes.retain(|(.., end)| *end > self.t);
        self.holes.push((client, node, until));
        for number in 0..self.links.len() as u32 {
            let link = &mut self.links[number as usize];
            if link.client == client && link.node == node && (link.client_open || link.server_open)
            {
                link.up.hold(until);
                link.down.hold(until);
                self.push(until, Event::Arrive { link: number, down: false });
                self.push(until, Event::Arrive { link: number, down: true });
            }
        }
    }

    fn hole(&self, client: u16, node: usize) -> Option<Time> {
        let ours = |hole: &&(u16, usize, Time)| hole.0 == client && hole.1 == node;
        let until = self.holes.iter().filter(ours).map(|hole| hole.2).max()?;
        (until > self.t).then_some(until)
    }

    /// When a packet that leaves now arrives.
    pub(crate) fn flight(&mut self, link: u32) -> Time {
        let (least, most) = self.plan.latency;
        let mut at = self.t + self.rng.between(least, most);
        if self.faults.happens(Kind::Delay) {
            at += self.faults.duration(Kind::Delay);
        }
        if !self.holes.is_empty() {
            let link = &self.links[link as usize];
            at = at.max(self.hole(link.client, link.node).unwrap_or(0));
        }
        at
    }

    /// A client dials a node.
    pub(crate) fn dial(&mut self, link: u32) {
        let (client, node) = (self.links[link as usize].client, self.links[link as usize].node);
        let hole = self.hole(client, node);
        let refused = self.faults.happens(Kind::DialRefused);
        let arrives = self.flight(link).max(hole.unwrap_or(0));
        let good = !refused && (self.cluster.nodes[node].up || hole.is_some());
        self.push(arrives + self.plan.latency.0, Event::Dialed { link, good });
    }

    fn dialed(&mut self, link: u32, good: bool) {
        let at = link as usize;
        if !self.links[at].client_open {
            return;
        }
        let good = good && self.cluster.nodes[self.links[at].node].up;
        if good {
            self.accept(link);
        }
        self.links[at].dial = Dial::Done(good);
        self.wake_client(link);
    }

    fn arrive(&mut self, number: u32, down: bool) {
        let link = &mut self.links[number as usize];
        if down {
            // A socket that was reset takes nothing any more.
            if !link.client_open || link.client_reset {
                return;
            }
            if link.down.arrive(self.t) {
                self.break_link(number);
            }
            self.wake_client(number);
        } else {
            let broke = link.up.arrive(self.t);
            if broke {
                self.break_link(number);
            } else if !link.server_open && link.dial != Dial::Pending {
                // Nobody is there any more, and says so.
                if link.client_open {
                    self.reset_client(number);
                }
                return;
            }
            self.wake_server(number);
        }
    }

    fn break_link(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        link.up.drop_flights();
        link.down.drop_flights();
        link.server_reset = true;
        let open = link.server_open;
        self.reset_client(number);
        if open {
            self.push(self.t, Event::ServerReset { link: number });
        }
    }

    /// The client's socket has received a reset. What arrived before can still be read, or not.
    pub(crate) fn reset_client(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        if link.client_open {
            link.client_reset = true;
            if self.rng.one_in(4) {
                let unread = link.down.readable().len();
                link.down.consume(unread);
            }
            self.wake_client(number);
        }
    }

    /// Everything that still runs comes to its end, and the world shows that it works again.
    fn come_to_rest(&mut self) {
        let idle = |world: &World| world.callers.iter().all(Caller::is_idle);
        while !idle(self) && self.step() {}
        // A pause, a restart, an election, a quarantine that began under the faults go on; then
        // releases have their time, and leases end.
        let until = self.t + 30 * SECOND;
        while self.t < until && self.step() {}
        self.try_again();
        while !idle(self) && self.step() {}
        let until = self.t + 30 * SECOND;
        while self.t < until && self.step() {}
        self.look_around();
        let until = self.t + 6 * SECOND;
        self.close_all();
        while self.t < until && self.step() {}
        self.look_at_closed();
    }

    /// Calls so far.
    pub(crate) fn acquires(&self) -> u32 {
        self.started
    }

    /// How calls ended.
    pub(crate) fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// The faults of the run.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The time that has passed in it.
    pub(crate) fn time(&self) -> Time {
        self.t
    }
}
