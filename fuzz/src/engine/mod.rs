//! The client's engine, on any bytes from its servers and any order of events around them, driven
//! as its thread drives it; `ledger` has the rules.
//!
//! Input: six bytes of settings, then choices of what happens next.

mod ledger;
mod servers;

use crate::harness::{SECOND, World, attempt, endpoints, lock, ms, settings, ticket};
use crate::input::Input;
use crate::nodes::{Node, State};
use ledger::Ledger;
use lockclient::engine::{Class, ConnId, ReleaseKind, RequestId, Settings};
use lockclient::wire::Key;
use lockclient::{Reason, ReasonKind};
use servers::Servers;

const KEYS: [&str; 3] = ["a", "bb", "열쇠"];
pub(crate) const SECRET: [u8; 16] = [9; 16];

/// # Panics
/// An invariant does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut run = Run::new(&mut input);
    let ending = input.byte();
    // More would only make the same things happen again.
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        run.step(&mut input);
        run.look();
    }
    run.end(ending);
}

struct Run {
    world: World,
    ledger: Ledger,
    servers: Servers,
    /// Their callers gave them up, and the engine was not told yet.
    untold: Vec<RequestId>,
}

impl Run {
    fn new(input: &mut Input<'_>) -> Run {
        let count = 1 + input.byte() % 3;
        let flags = input.byte();
        let flag = |bit: u8| flags & (1 << bit) != 0;
        let settings = Settings {
            endpoints: endpoints(count),
            secret: flag(0).then(|| SECRET.to_vec()),
            connections: 1 + input.below(5),
            strict_deadline: flag(1),
            enforce_budget: flag(2),
            busy_retry: flag(3),
            ordered_answers: !flag(4),
            lane: if flag(5) { 2 } else { 1024 },
            first_owner: if flag(6) { u64::MAX - 24 } else { 0x0A0A_0A0A },
            seed: u64::from(input.byte()),
            ..settings()
        };
        let mut world = World::new(settings.clone());
        for node in &mut world.nodes {
            *node = any_node(input);
        }
        if flag(7) {
            world.new_room = input.below(40);
        }
        world.fire();
        let ledger = Ledger::new(settings, world.now);
        Run { world, ledger, servers: Servers::default(), untold: Vec::new() }
    }

    /// Has the ledger look at what happened, and the servers at what they were asked.
    fn look(&mut self) {
        for (now, happening) in std::mem::take(&mut self.world.history) {
            self.ledger.note(now, &happening, &self.world);
            self.servers.note(&happening);
        }
        self.ledger.check(&self.world);
        let servers = &mut self.servers;
        self.world.sockets.retain(|conn, socket| {
            let open = socket.state != State::Closed;
            if !open {
                servers.forget(*conn);
            }
            open
        });
        self.world.offered.clear();
        self.world.wire.clear();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(64) {
            0..10 => self.ask(input),
            10 => {
                for _ in 0..input.below(16) {
                    self.ask_quietly(input);
                }
                self.world.settle();
            }
            11..14 => self.give_up(input),
            14 => self.tell(input),
            15..19 => self.release(input),
            19..28 => {
                if let Some((conn, bytes)) = self.servers.answer(input) {
                    self.arrive(conn, &bytes, input.is_odd());
                }
            }
            28..31 => {
                if let Some(conn) = self.any_open(input) {
                    let bytes = self.servers.say(input);
                    self.arrive(conn, &bytes, input.is_odd());
                }
            }
            31..34 => {
                if let Some(conn) = self.any_open(input) {
                    let count = input.below(160);
                    self.arrive(conn, input.bytes(count), input.is_odd());
                }
            }
            34..38 => {
                if let Some(conn) = self.any_open(input) {
                    self.world.read(conn);
                }
            }
            38..40 => self.read_some(input),
            40..42 => self.lose(input),
            42..45 => self.resize(input),
            45..48 => self.dial(input),
            48 => {
                let at = input.below(self.world.nodes.len());
                self.world.nodes[at] = any_node(input);
                self.world.settle();
            }
            49 => {
                if let Some((conn, bytes)) = self.servers.handshake(input) {
                    self.arrive(conn, &bytes, true);
                }
            }
            50 => {
                self.world.engine.shutdown(self.world.now);
                self.world.settle();
                self.ledger.closing = true;
            }
            51..54 => self.world.stall(ms(u64::from(input.byte()) * 20)),
            54..57 => self.fire(),
            57 => self.advance(u64::from(input.byte()) * 40),
            _ => self.advance(u64::from(input.byte())),
        }
    }

    fn any_open(&self, input: &mut Input<'_>) -> Option<ConnId> {
        let open = |state| matches!(state, State::Open | State::HalfClosed);
        let sockets = self.world.sockets.iter();
        let open: Vec<ConnId> =
            sockets.filter(|(_, socket)| open(socket.state)).map(|(conn, _)| *conn).collect();
        (!open.is_empty()).then(|| open[input.below(open.len())])
    }

    fn ask(&mut self, input: &mut Input<'_>) {
        self.ask_quietly(input);
        self.world.settle();
    }

    fn ask_quietly(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let key = KEYS[usize::from(choice % 3)];
        let seconds = u64::from(choice / 3 % 6);
        let mut ask = match (seconds, choice & 128) {
            (0, _) => attempt(key),
            (_, 0) => lock(key, seconds),
            (_, _) => ticket(key, seconds),
        };
        ask.lease = 1 + input.below(16) as u64;
        ask.budget = ask.lease.min(u64::from(choice % 2));
        let wait = if ask.class == Class::Try { 5 } else { seconds };
        let deadline = self.world.mono() + SECOND * wait as u32;
        let lease = ask.lease;
        let id = self.world.ask_quietly(ask);
        self.ledger.asked(id, key, seconds == 0, lease, deadline);
    }

    /// A caller withdraws its request: the gate knows, the engine is told now or later.
    fn give_up(&mut self, input: &mut Input<'_>) {
        let live: Vec<RequestId> = self.ledger.live();
        let live: Vec<RequestId> =
            live.into_iter().filter(|id| !self.world.gate.withdrawn.contains(id)).collect();
        if live.is_empty() {
            return;
        }
        let id = live[input.below(live.len())];
        self.world.gate.withdrawn.insert(id);
        self.untold.push(id);
        if input.is_odd() {
            self.tell(input);
        }
    }

    fn tell(&mut self, input: &mut Input<'_>) {
        let cause = if input.is_odd() { ReasonKind::Cancelled } else { ReasonKind::Deadline };
        for id in std::mem::take(&mut self.untold) {
            self.world.engine.withdraw(id, Reason::new(cause));
            self.ledger.withdrawn(id);
        }
        self.world.settle();
    }

    fn release(&mut self, input: &mut Input<'_>) {
        let held = self.ledger.held.len();
        if held == 0 {
            return;
        }
        let (token, key) = self.ledger.held.swap_remove(input.below(held));
        match input.below(4) {
            0 => {
                let name = Key::new(key.as_bytes()).expect("a key that was asked for");
                self.ledger.note_reclaim(token);
                self.world.engine.reclaim(name, token, self.world.now);
            }
            1 => {
                self.world.release_quietly(&key, token, ReleaseKind::Guard);
            }
            _ => {
                let id = self.world.release_quietly(&key, token, ReleaseKind::Awaited);
                let id = id.expect("the client has not ended");
                self.ledger.releasing(id, &key, token, self.world.mono() + 5 * SECOND);
            }
        }
        self.world.settle();
    }

    fn arrive(&mut self, conn: ConnId, bytes: &[u8], read: bool) {
        let Some(socket) = self.world.sockets.get_mut(&conn) else { return };
        if !matches!(socket.state, State::Open | State::HalfClosed) {
            return;
        }
        socket.inbox.extend_from_slice(bytes);
        if read {
            self.world.read(conn);
        }
    }

    /// A part of what has arrived comes in a read of its own.
    fn read_some(&mut self, input: &mut Input<'_>) {
        let Some(conn) = self.any_open(input) else { return };
        let socket = self.world.socket(conn);
        let count = usize::from(input.byte()).min(socket.inbox.len());
        let rest = socket.inbox.split_off(count);
        let ending = socket.ending.take();
        self.world.read(conn);
        if let Some(socket) = self.world.sockets.get_mut(&conn) {
            // The engine may have asked for a last read meanwhile: it has not seen this.
            socket.inbox.extend_from_slice(&rest);
            socket.ending = ending;
        }
    }

    fn lose(&mut self, input: &mut Input<'_>) {
        let Some(conn) = self.any_open(input) else { return };
        match input.below(4) {
            0 => self.world.socket(conn).fails = Some(Reason::new(ReasonKind::Io)),
            1 => self.world.socket(conn).ending = Some(Reason::new(ReasonKind::Eof)),
            2 => self.world.end(conn, ReasonKind::Eof),
            _ => self.world.end(conn, ReasonKind::Io),
        }
    }

    fn resize(&mut self, input: &mut Input<'_>) {
        let Some(conn) = self.any_open(input) else { return };
        let room = match input.byte() {
            255 => usize::MAX,
            room => usize::from(room) / 2,
        };
        if self.world.state(conn) == State::Open && input.is_odd() {
            self.world.open_up(conn, room);
        } else {
            self.world.socket(conn).room = room;
        }
    }

    fn dial(&mut self, input: &mut Input<'_>) {
        let mut dialing = self.world.sockets.iter().filter(|(_, s)| s.state == State::Dialing);
        let Some((conn, _)) = dialing.next() else { return };
        let conn = *conn;
        if input.is_odd() {
            self.world.connect(conn);
        } else {
            self.world.refuse(conn, ReasonKind::Connect);
        }
    }

    fn advance(&mut self, millis: u64) {
        self.world.advance(ms(millis));
        self.look();
        self.ledger.in_time(&self.world);
    }

    fn fire(&mut self) {
        // Early and repeated time-outs are no-ops; and there is no busy loop.
        for _ in 0..20 {
            self.world.fire();
            if self.world.engine.next_timeout().is_none_or(|at| at > self.world.mono()) {
                self.look();
                return self.ledger.in_time(&self.world);
            }
        }
        panic!("next_timeout makes a busy loop");
    }

    /// Nothing more comes from outside: everything ends, by itself or because the client does.
    fn end(&mut self, ending: u8) {
        let mut input = Input::new(&[]);
        self.tell(&mut input);
        match ending % 3 {
            0 => {}
            1 => {
                self.world.engine.shutdown(self.world.now);
                self.ledger.closing = true;
                self.world.settle();
            }
            _ => {
                self.world.engine.abort(Reason::new(ReasonKind::ThreadEnded));
                self.ledger.closing = true;
                self.world.settle();
                self.look();
                self.ledger.nothing_lives();
                assert!(self.world.sockets.is_empty(), "a socket outlives the client");
                return;
            }
        }
        // The longest wait, what it is rounded up by, the grace; five seconds for a release.
        self.fire();
        self.advance(5_000);
        self.advance(5_000);
        self.ledger.nothing_lives();
        let counters = self.world.engine.counters();
        assert_eq!((self.world.engine.queued(), counters.in_flight_now), (0, 0));
        // What a last read brings late has five seconds of its own.
        for _ in 0..10 {
            if ending % 3 != 1 || self.world.engine.is_drained() {
                return;
            }
            self.advance(5_000);
        }
        panic!("a shutdown that does not end");
    }
}

fn any_node(input: &mut Input<'_>) -> Node {
    [Node::Serves, Node::Serves, Node::Serves, Node::Accepts, Node::Refuses, Node::Swallows]
        [input.below(6)]
}
