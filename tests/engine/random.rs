//! Random events from a seed, and what must hold after each of them.
//!
//! The events are those that the I/O thread could see: sends cut anywhere, full sockets, resets,
//! garbage, answers in any order, callers who cancel, clocks that jump before or after the socket
//! is read. Every run ends with faults that stop, after which everything must come to its end.

use crate::harness::*;
use crate::nodes::{Frame, Node, State};
use lockclient::clock::Mono;
use lockclient::engine::{
    AcquireOutcome, Class, ConnId, Counters, Event, ReleaseId, ReleaseKind, RequestId, Settings,
};
use lockclient::wire::{Key, ServerFrame};
use lockclient::{Reason, ReasonKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How many seeds are run unless more are asked for.
const SEEDS: u64 = 100;

const KEYS: [&str; 3] = ["a", "bb", "ccc"];

/// What a fake node has been asked, and has not answered.
#[derive(Debug, Clone)]
struct Asked {
    conn: ConnId,
    owner: u64,
    key: String,
    acquire: bool,
}

struct Run {
    world: World,
    rng: fastrand::Rng,
    /// Calls without an end, and their deadlines.
    live: BTreeMap<RequestId, Mono>,
    /// Of those, the ones that their callers gave up. The engine was told of them.
    told: BTreeSet<RequestId>,
    /// The engine was not told yet.
    untold: Vec<RequestId>,
    asked: Vec<Asked>,
    /// How much of `world.wire` was looked at.
    seen: usize,
    /// Grants, by token: those on their way on a connection that nothing bad came over before.
    coming: HashMap<ConnId, Vec<u64>>,
    /// Connections over which something came that closes them.
    spoilt: BTreeSet<ConnId>,
    /// Tokens that the engine has read, and has to account for.
    read: BTreeSet<u64>,
    /// Delivered, and neither released nor reclaimed by the test.
    held: Vec<(u64, String)>,
    delivered: BTreeSet<u64>,
    /// How often the engine said that a token's release was enqueued, or dropped.
    compensated: BTreeMap<u64, u32>,
    reclaimed: BTreeSet<u64>,
    awaited: BTreeMap<ReleaseId, Mono>,
    next_token: u64,
}

/// Returns the client's counters before the healing.
fn run(seed: u64, steps: usize) -> Counters {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = rng.u8(1..=3);
    let settings = Settings {
        endpoints: endpoints(count),
        connections: rng.usize(1..=5),
        strict_deadline: rng.u8(0..4) == 0,
        enforce_budget: rng.bool(),
        busy_retry: rng.bool(),
        ordered_answers: rng.u8(0..4) > 0,
        lane: [2, 1024][rng.usize(0..2)],
        seed,
        ..settings()
    };
    let mut world = World::new(settings);
    for node in &mut world.nodes {
        *node = any_node(&mut rng);
    }
    world.fire();
    let mut run = Run {
        world,
        rng,
        live: BTreeMap::new(),
        told: BTreeSet::new(),
        untold: Vec::new(),
        asked: Vec::new(),
        seen: 0,
        coming: HashMap::new(),
        spoilt: BTreeSet::new(),
        read: BTreeSet::new(),
        held: Vec::new(),
        delivered: BTreeSet::new(),
        compensated: BTreeMap::new(),
        reclaimed: BTreeSet::new(),
        awaited: BTreeMap::new(),
        next_token: 1,
    };
    for _ in 0..steps {
        run.step();
        run.check();
    }
    let counters = run.world.counters();
    run.heal();
    counters
}

fn any_node(rng: &mut fastrand::Rng) -> Node {
    [Node::Serves, Node::Serves, Node::Serves, Node::Accepts, Node::Refuses, Node::Swallows]
        [rng.usize(0..6)]
}

impl Run {
    fn step(&mut self) {
        match self.rng.u8(0..100) {
            0..20 => {
                for _ in 0..self.rng.u8(1..5) {
                    self.ask();
                }
                self.world.settle();
            }
            20..25 => self.give_up(),
            25..28 => self.tell(),
            28..34 => self.release(),
            34..55 => self.answer(),
            55..64 => self.read(),
            64..66 => self.spoil(),
            66..68 => self.lose(),
            68..76 => self.resize(),
            76..79 => self.dial(),
            79..81 => {
                let at = self.rng.usize(0..self.world.nodes.len());
                self.world.nodes[at] = any_node(&mut self.rng);
                self.world.settle();
            }
            81..83 => self.world.stall(ms(self.rng.u64(0..3_000))),
            83..90 => self.fire(),
            _ => {
                let time = ms(self.rng.u64(0..400));
                self.world.advance(time);
                self.in_time();
            }
        }
    }

    fn any_open(&mut self) -> Option<ConnId> {
        let open: Vec<ConnId> = self
            .world
            .sockets
            .iter()
            .filter(|(_, s)| matches!(s.state, State::Open | State::HalfClosed))
            .map(|(conn, _)| *conn)
            .collect();
        (!open.is_empty()).then(|| open[self.rng.usize(0..open.len())])
    }

    fn ask(&mut self) {
        let seconds = self.rng.u64(0..6);
        let class = match (seconds, self.rng.bool()) {
            (0, _) => Class::Try,
            (_, true) => Class::Blocking,
            (_, false) => Class::Ticket,
        };
        let key = KEYS[self.rng.usize(0..KEYS.len())];
        let lease = self.rng.u64(1..12);
        let budget = self.rng.u64(0..=lease);
        let ask = Ask { class, lease, budget, ..lock(key, seconds) };
        let id = self.world.ask_quietly(ask);
        let time = if seconds == 0 { 5 * SECOND } else { seconds as u32 * SECOND };
        self.live.insert(id, self.world.mono() + time);
    }

    /// A caller withdraws its request: the gate knows, the engine is told now or later.
    fn give_up(&mut self) {
        let candidates: Vec<RequestId> = self
            .live
            .keys()
            .filter(|id| !self.world.gate.withdrawn.contains(id))
            .copied()
            .collect();
        if candidates.is_empty() {
            return;
        }
        let id = candidates[self.rng.usize(0..candidates.len())];
        self.world.gate.withdrawn.insert(id);
        self.untold.push(id);
        if self.rng.bool() {
            self.tell();
        }
    }

    fn tell(&mut self) {
        for id in std::mem::take(&mut self.untold) {
            let cause = [ReasonKind::Cancelled, ReasonKind::Deadline][self.rng.usize(0..2)];
            self.world.engine.withdraw(id, Reason::new(cause));
            self.told.insert(id);
        }
        self.world.settle();
    }

    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (token, key) = self.held.swap_remove(self.rng.usize(0..self.held.len()));
        match self.rng.u8(0..3) {
            0 => {
                self.reclaimed.insert(token);
                self.world.engine.reclaim(Key::new(key.as_bytes()).unwrap(), token, self.world.now);
                self.world.settle();
            }
            1 => {
                self.world.release(&key, token, ReleaseKind::Guard);
            }
            _ => {
                let id = self.world.release(&key, token, ReleaseKind::Awaited);
                self.awaited.insert(id, self.world.mono() + 5 * SECOND);
            }
        }
    }

    /// A node answers one of the requests that it has got, or notices something.
    fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let at = self.rng.usize(0..self.asked.len());
        let asked = self.asked.swap_remove(at);
        let roll = self.rng.u8(0..4);
        self.put_answer(&asked, roll);
        if self.rng.bool() {
            self.read_from(asked.conn);
        }
    }

    fn put_answer(&mut self, asked: &Asked, roll: u8) {
        let (owner, key) = (asked.owner, asked.key.as_bytes());
        let frame = match (asked.acquire, roll) {
            (true, 0) => ServerFrame::TimedOut { owner, key },
            (true, 1) => ServerFrame::Busy { owner, key },
            (true, _) => {
                let token = self.token(asked.conn);
                ServerFrame::Acquired { owner, token, key }
            }
            (false, 0) => ServerFrame::NotHeld { owner, key },
            (false, _) => ServerFrame::Released { owner, key },
        };
        self.world.put(asked.conn, frame);
    }

    /// A fresh token, on its way over `conn`.
    fn token(&mut self, conn: ConnId) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        if !self.spoilt.contains(&conn) {
            self.coming.entry(conn).or_default().push(token);
        }
        token
    }

    fn read(&mut self) {
        if let Some(conn) = self.any_open() {
            self.read_from(conn);
        }
    }

    fn read_from(&mut self, conn: ConnId) {
        let live = |s: &crate::nodes::Socket| matches!(s.state, State::Open | State::HalfClosed);
        if self.world.sockets.get(&conn).is_some_and(live) {
            self.world.read(conn);
        }
    }

    /// Something comes that no good server would say, or that ends the connection.
    fn spoil(&mut self) {
        let Some(conn) = self.any_open() else { return };
        let key = KEYS[self.rng.usize(0..KEYS.len())].as_bytes();
        let owner = self.rng.u64(0..50);
        match self.rng.u8(0..9) {
            // Its token counts, if it is read; what comes behind it does not.
            0 => {
                let token = self.token(conn);
                self.world.put(conn, ServerFrame::Acquired { owner: u64::MAX - 3, token, key });
            }
            1 => self.world.put(conn, ServerFrame::TimedOut { owner: u64::MAX - 3, key }),
            2 => self.world.put(conn, ServerFrame::Released { owner, key: b"nobody" }),
            3 => self.world.put(conn, ServerFrame::Moved { leader: b"b:1" }),
            4 => self.world.put(conn, ServerFrame::Error { code: b"no_leader" }),
            5 => self.world.put(conn, ServerFrame::Error { code: b"auth_failed" }),
            6 => self.world.socket(conn).inbox.extend_from_slice(b"??\n"),
            7 => {
                // Good or bad, this one leaves the connection as it is.
                let leader = [&b"a:1"[..], b"b:1", b"c:1", b"x:9"][self.rng.usize(0..4)];
                self.world.put(conn, ServerFrame::Leader { leader });
                self.world.read(conn);
                return;
            }
            _ => self.world.socket(conn).inbox.extend_from_slice(b"A\0\0\0"),
        }
        self.spoilt.insert(conn);
        if self.rng.bool() {
            self.read_from(conn);
        }
    }

    fn lose(&mut self) {
        let Some(conn) = self.any_open() else { return };
        let kind = [ReasonKind::Eof, ReasonKind::Io][self.rng.usize(0..2)];
        match self.rng.u8(0..3) {
            0 => self.world.socket(conn).fails = Some(Reason::new(ReasonKind::Io)),
            1 => self.world.socket(conn).ending = Some(Reason::new(kind)),
            _ => self.world.end(conn, kind),
        }
    }

    fn resize(&mut self) {
        let Some(conn) = self.any_open() else { return };
        let room = match self.rng.u8(0..3) {
            0 => usize::MAX,
            1 => 0,
            _ => self.rng.usize(0..60),
        };
        if self.world.state(conn) == State::Open && self.rng.bool() {
            self.world.open_up(conn, room);
        } else {
            self.world.socket(conn).room = room;
        }
    }

    fn dial(&mut self) {
        let dialing = |(_, s): &(&ConnId, &crate::nodes::Socket)| s.state == State::Dialing;
        let Some(conn) = self.world.sockets.iter().find(dialing).map(|(conn, _)| *conn) else {
            return;
        };
        if self.rng.bool() {
            self.world.connect(conn);
        } else {
            self.world.refuse(conn, ReasonKind::Connect);
        }
    }

    fn fire(&mut self) {
        // Early and repeated time-outs are no-ops; and there is no busy loop.
        for _ in 0..20 {
            self.world.fire();
            if self.world.engine.next_timeout().is_none_or(|at| at > self.world.mono()) {
                self.in_time();
                return;
            }
        }
        panic!("next_timeout makes a busy loop");
    }

    /// What must hold whenever the timers have been looked at.
    fn in_time(&mut self) {
        let now = self.world.mono();
        self.collect();
        for (id, deadline) in &self.live {
            if self.world.gate.withdrawn.contains(id) {
                continue;
            }
            let end = self.world.gate.claimed.get(id).copied().unwrap_or(*deadline);
            assert!(end > now, "{id:?} is overdue");
        }
        for (id, deadline) in &self.awaited {
            assert!(*deadline > now, "{id:?} is overdue");
        }
    }

    /// Takes note of what has ended and of what went out.
    fn collect(&mut self) {
        let ended: Vec<RequestId> = self.live.keys().copied().collect();
        for id in ended {
            let Some(outcome) = self.world.outcome(id) else { continue };
            self.live.remove(&id);
            if let AcquireOutcome::Granted(grant) = outcome {
                assert!(self.delivered.insert(grant.token), "delivered twice");
                self.held.push((grant.token, self.world.keys[&id].clone()));
            }
        }
        self.awaited.retain(|id, _| self.world.release_outcome(*id).is_none());
        for sent in &self.world.wire[self.seen..] {
            let (owner, key, acquire) = match &sent.frame {
                Frame::Acquire { owner, key, .. } => (*owner, key.clone(), true),
                Frame::Release { owner, key, .. } => (*owner, key.clone(), false),
                Frame::Probe { .. } | Frame::Proof { .. } => continue,
            };
            self.asked.push(Asked { conn: sent.conn, owner, key, acquire });
        }
        self.seen = self.world.wire.len();
        // What was in a socket and is there no more has been read, if the socket still lived.
        let mut read = Vec::new();
        for (conn, tokens) in &mut self.coming {
            if self.world.sockets[conn].inbox.is_empty() {
                read.append(tokens);
            }
        }
        self.read.extend(read);
        for event in self.world.events.drain(..) {
            if let Event::Compensated { token } | Event::CompensationDropped { token } = event {
                *self.compensated.entry(token).or_insert(0) += 1;
            }
        }
        let sockets = &mut self.world.sockets;
        sockets.retain(|_, socket| socket.state != State::Closed);
        self.coming.retain(|conn, _| sockets.contains_key(conn));
        self.asked.retain(|asked| sockets.contains_key(&asked.conn));
    }

    fn check(&mut self) {
        self.collect();
        // Of one whose caller gave it up the engine knows when it was told.
        let (mut queued, mut flying, mut unclear) = (0, 0, 0);
        for id in self.live.keys() {
            match (self.world.gate.claimed.contains_key(id), self.world.gate.withdrawn.contains(id))
            {
                (true, false) => flying += 1,
                (false, false) => queued += 1,
                (_, true) => unclear += 1,
            }
        }
        let counters = self.world.counters();
        assert_eq!(counters.queued_now, self.world.engine.queued() as u64);
        assert!((queued..=queued + unclear).contains(&counters.queued_now));
        assert!((flying..=flying + unclear).contains(&counters.in_flight_now));
        for token in &self.read {
            let delivered = self.delivered.contains(token) && !self.reclaimed.contains(token);
            let released = self.compensated.get(token).copied().unwrap_or(0);
            assert_eq!(u32::from(delivered) + released, 1, "token {token}");
        }
        let open = |s: &&crate::nodes::Socket| s.state == State::Open || s.state == State::Dialing;
        let nodes = self.world.nodes.len();
        assert!(self.world.sockets.values().filter(open).count() <= 6 * nodes);
    }

    /// Faults stop: everything ends, and the client serves again.
    fn heal(&mut self) {
        self.tell();
        self.world.nodes.fill(Node::Serves);
        for _ in 0..300 {
            let conns: Vec<ConnId> = self.world.sockets.keys().copied().collect();
            for conn in conns {
                self.world.connect(conn);
                self.world.socket(conn).fails = None;
                if self.world.state(conn) == State::Open {
                    self.world.open_up(conn, usize::MAX);
                }
                self.read_from(conn);
            }
            self.collect();
            while let Some(asked) = self.asked.pop() {
                self.put_answer(&asked, 0);
                self.read_from(asked.conn);
                self.collect();
            }
            self.world.advance(ms(100));
            self.check();
        }
        self.in_time();
        self.live.retain(|id, _| !self.told.contains(id));
        assert!(self.live.is_empty(), "{:?}", self.live);
        assert!(self.awaited.is_empty(), "{:?}", self.awaited);
        assert_eq!((self.world.engine.queued(), self.world.counters().in_flight_now), (0, 0));
        for ask in [attempt("new"), lock("new", 5), ticket("new", 5)] {
            let id = self.world.ask(ask);
            self.world.advance(ms(1));
            let sent = *self.world.acquires("new").last().expect("the client does not serve");
            let token = u64::MAX;
            let (conn, owner) = (sent.conn, sent.owner);
            self.world.answer(conn, ServerFrame::Acquired { owner, token, key: b"new" });
            assert_eq!(self.world.grant(id).token, token);
        }
        self.world.engine.shutdown(self.world.now);
        self.world.settle();
        self.world.advance(SECOND);
        assert!(self.world.engine.is_drained());
    }
}

#[test]
fn random_events_break_no_invariant() {
    // More, or one that failed, on request.
    let number = |name, default| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let (first, count) = (number("LOCKCLIENT_SEED", 0), number("LOCKCLIENT_SEEDS", SEEDS));
    let mut sum = [0; 13];
    for seed in first..first + count {
        let result = std::panic::catch_unwind(|| run(seed, 400));
        let Ok(counters) = result else {
            panic!("with LOCKCLIENT_SEED={seed} LOCKCLIENT_SEEDS=1");
        };
        let counts = [
            counters.acquired,
            counters.timed_out,
            counters.busy,
            counters.not_sent,
            counters.cancelled,
            counters.indeterminate,
            counters.released,
            counters.not_held,
            counters.unconfirmed,
            counters.compensations,
            counters.compensations_dropped,
            counters.connects_failed,
            counters.connections_closed,
        ];
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    // Everything that can happen did, many times.
    assert!(count < SEEDS || sum.iter().all(|sum| *sum >= count), "{sum:?}");
}
