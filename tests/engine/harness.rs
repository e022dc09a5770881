//! A driver for the engine: virtual time, fake sockets and nodes, a recording gate.
//!
//! It does what the I/O thread does and nothing more: it hands over events with a `now`, carries
//! out effects, sends what is to be sent. Time moves only when a test moves it.

use crate::nodes::{Frame, Node, Sent, Socket, State};
use lockclient::clock::{Boot, Mono, Now};
use lockclient::engine::{
    AcquireCall, AcquireOutcome, Class, ConnId, Effect, Engine, Event, Gate, ReleaseCall,
    ReleaseId, ReleaseKind, ReleaseOutcome, RequestId, SendResult, Settings,
};
use lockclient::wire::{Key, ServerFrame};
use lockclient::{Lease, Reason, ReasonKind, Wait, WorkBudget};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The nonce that every connection of the client's gets.
pub(crate) const NONCE: [u8; 32] = [7; 32];

/// One healthy endpoint `a:1`, four connections, and the defaults of the product.
pub(crate) fn settings() -> Settings {
    Settings {
        endpoints: vec!["a:1".to_owned()],
        secret: None,
        connections: 4,
        connect_timeout: ms(2_000),
        response_grace: ms(500),
        strict_deadline: false,
        enforce_budget: false,
        busy_retry: false,
        ordered_answers: true,
        idle_probe: ms(10_000),
        lane: 1024,
        first_owner: 1,
        seed: 1,
        log: true,
    }
}

/// `count` endpoints `a:1`, `b:1`, `c:1` …
pub(crate) fn endpoints(count: u8) -> Vec<String> {
    (0..count).map(|at| format!("{}:1", char::from(b'a' + at))).collect()
}

/// A gate that lets through what nobody withdrew, and remembers what it let through.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The acquires that count as possibly sent, and the ends that they were given.
    pub(crate) claimed: HashMap<RequestId, Mono>,
    /// Withdrawn by their callers; the engine does not know yet.
    pub(crate) withdrawn: HashSet<RequestId>,
    /// Those claimed since the last send, in order.
    pub(crate) batch: Vec<RequestId>,
    pub(crate) unclaims: usize,
}

impl Gate for Recorder {
    fn claim(&mut self, id: RequestId, end: Mono) -> bool {
        if self.withdrawn.contains(&id) {
            return false;
        }
        assert!(self.claimed.insert(id, end).is_none(), "claimed twice: {id:?}");
        self.batch.push(id);
        true
    }

    fn unclaim(&mut self, id: RequestId) {
        assert!(self.claimed.remove(&id).is_some(), "unclaimed, and was not claimed: {id:?}");
        self.unclaims += 1;
    }
}

/// An acquire as a test writes it.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) key: String,
    pub(crate) wait: Duration,
    pub(crate) lease: u64,
    pub(crate) budget: u64,
    pub(crate) class: Class,
}

/// A blocking wait of `seconds` for `key`, with a lease of 30 s.
pub(crate) fn lock(key: &str, seconds: u64) -> Ask {
    let wait = Duration::from_secs(seconds);
    Ask { key: key.to_owned(), wait, lease: 30, budget: 0, class: Class::Blocking }
}

/// One immediate attempt.
pub(crate) fn attempt(key: &str) -> Ask {
    Ask { class: Class::Try, ..lock(key, 0) }
}

/// As [`lock`], but it may be cut short.
pub(crate) fn ticket(key: &str, seconds: u64) -> Ask {
    Ask { class: Class::Ticket, ..lock(key, seconds) }
}

/// What passed between the engine and the world, in order.
#[allow(dead_code, reason = "the fuzz target's ledger reads it")]
#[derive(Debug)]
pub(crate) enum Happening {
    /// A send took at least one byte of each of these.
    Sent(ConnId, Vec<Frame>),
    /// These bytes were read.
    Read(ConnId, Vec<u8>),
    /// The engine asked for this.
    Effect(Effect),
    /// A grant that nobody takes any more was given back, by its token.
    Reclaimed(u64),
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now: Now,
    pub(crate) gate: Recorder,
    pub(crate) nodes: Vec<Node>,
    /// How many bytes a new socket takes before it is full.
    pub(crate) new_room: usize,
    pub(crate) sockets: BTreeMap<ConnId, Socket>,
    /// Every frame of which all bytes were accepted, in order.
    pub(crate) wire: Vec<Sent>,
    /// How each acquire ended, and when.
    pub(crate) ends: HashMap<RequestId, (Mono, AcquireOutcome)>,
    pub(crate) release_ends: HashMap<ReleaseId, (Mono, ReleaseOutcome)>,
    pub(crate) events: Vec<Event>,
    /// When each dial was asked for, and where to.
    pub(crate) dials: Vec<(Mono, ConnId, u16)>,
    /// When each connection was closed.
    pub(crate) closes: HashMap<ConnId, Mono>,
    pub(crate) keys: HashMap<RequestId, String>,
    /// Whose each owner is, and the connection that took a byte of its frame.
    pub(crate) owners: HashMap<u64, (RequestId, Option<ConnId>)>,
    /// The frames, whole or not, of each batch that was offered for sending.
    pub(crate) offered: Vec<(ConnId, Vec<Frame>)>,
    /// For whoever wants to check it all: what passed, and when.
    pub(crate) history: Vec<(Now, Happening)>,
}

impl World {
    /// A client whose every endpoint is a [`Node::Serves`], with nothing done yet.
    pub(crate) fn new(settings: Settings) -> World {
        let now = Now { mono: Mono(1_000_000_000_000), boot: Boot(5_000_000_000_000) };
        World {
            nodes: vec![Node::Serves; settings.endpoints.len()],
            engine: Engine::new(settings, now),
            now,
            gate: Recorder::default(),
            new_room: usize::MAX,
            sockets: BTreeMap::new(),
            wire: Vec::new(),
            ends: HashMap::new(),
            release_ends: HashMap::new(),
            events: Vec::new(),
            dials: Vec::new(),
            closes: HashMap::new(),
            keys: HashMap::new(),
            owners: HashMap::new(),
            offered: Vec::new(),
            history: Vec::new(),
        }
    }

    /// A client with the default settings and one connection that is ready.
    pub(crate) fn ready() -> World {
        World::ready_with(settings())
    }

    /// One connection that is ready, to the first endpoint.
    pub(crate) fn ready_with(settings: Settings) -> World {
        let mut world = World::new(settings);
        world.fire();
        assert!(world.engine.is_ready());
        world
    }

    /// One connection for everything, so that a test knows where a frame goes.
    pub(crate) fn single() -> World {
        World::ready_with(Settings { connections: 1, ..settings() })
    }

    pub(crate) fn mono(&self) -> Mono {
        self.now.mono
    }

    // Calls.

    pub(crate) fn ask(&mut self, ask: Ask) -> RequestId {
        let id = self.ask_quietly(ask);
        self.fire();
        id
    }

    /// Without sending anything yet.
    pub(crate) fn ask_quietly(&mut self, ask: Ask) -> RequestId {
        let lease = Lease::new(Duration::from_secs(ask.lease)).unwrap();
        let time = if ask.wait.is_zero() { 5 * SECOND } else { ask.wait };
        let call = AcquireCall {
            key: Key::new(ask.key.as_bytes()).unwrap(),
            wait: Wait::new(ask.wait).unwrap(),
            lease,
            budget: WorkBudget::new(Duration::from_secs(ask.budget), lease).unwrap(),
            deadline: self.now.mono + time,
            class: ask.class,
        };
        let id = self.engine.acquire(call, self.now);
        self.keys.insert(id, ask.key);
        id
    }

    /// The caller cancels: the gate knows at once, the engine is told.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.cancel_quietly(id);
        self.settle();
    }

    pub(crate) fn cancel_quietly(&mut self, id: RequestId) {
        self.gate.withdrawn.insert(id);
        self.engine.withdraw(id, Reason::new(ReasonKind::Cancelled));
    }

    pub(crate) fn release(&mut self, key: &str, token: u64, kind: ReleaseKind) -> ReleaseId {
        let id = self.release_quietly(key, token, kind).unwrap();
        self.settle();
        id
    }

    pub(crate) fn release_quietly(
        &mut self,
        key: &str,
        token: u64,
        kind: ReleaseKind,
    ) -> Option<ReleaseId> {
        let key = Key::new(key.as_bytes()).unwrap();
        let deadline = self.now.mono + 5 * SECOND;
        self.engine.release(ReleaseCall { key, token, kind, deadline }, self.now)
    }

    // Time.

    /// Moves the clocks and does nothing else: the thread is stopped meanwhile.
    pub(crate) fn stall(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        self.now.mono.0 += nanos;
        self.now.boot.0 += nanos;
    }

    /// Fires what is due now.
    pub(crate) fn fire(&mut self) {
        self.engine.timeout(self.now);
        self.settle();
    }

    /// Moves on by `time`, firing every timer at its exact instant.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now.mono + time;
        let mut same_instant = 0;
        while let Some(at) = self.engine.next_timeout().filter(|at| *at <= end) {
            same_instant = if at <= self.now.mono { same_instant + 1 } else { 0 };
            assert!(same_instant < 20, "next_timeout makes a busy loop at {:?}", self.now.mono);
            self.stall(at.since(self.now.mono));
            self.fire();
        }
        self.stall(end.since(self.now.mono));
    }

    // The loop.

    /// Carries out effects and sends what there is to send, until there is nothing more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            let busy = self.send() | self.reply();
            // A look at what there is to send can have effects, though it finds nothing.
            let mut quiet = !busy;
            while let Some(effect) = self.engine.poll_effect() {
                quiet = false;
                self.carry_out(effect);
            }
            if quiet {
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    /// Sends one batch.
    fn send(&mut self) -> bool {
        if !self.engine.may_transmit() {
            return false;
        }
        self.gate.batch.clear();
        let now = self.now;
        let Some((conn, bytes)) = self.engine.poll_transmit(now, &mut self.gate) else {
            assert!(self.gate.batch.is_empty(), "claimed and not sent");
            return false;
        };
        let socket = self.sockets.get_mut(&conn).expect("a send to an unknown connection");
        assert_eq!(socket.state, State::Open, "a send to {conn:?}");
        assert!(!bytes.is_empty());
        let offered = socket.peek(bytes);
        let begun = usize::from(socket.is_mid_frame());
        let new = offered.iter().skip(begun).filter_map(Frame::acquire_owner);
        let new: Vec<u64> = new.collect();
        assert_eq!(new.len(), self.gate.batch.len(), "claimed and offered differ");
        for (owner, id) in new.into_iter().zip(&self.gate.batch) {
            let before = self.owners.insert(owner, (*id, None));
            // OWN-3, SND-2: the same call again, and not a byte of it went out before.
            assert!(before.is_none_or(|before| before == (*id, None)), "owner {owner}");
        }
        let result = match socket.fails.take() {
            Some(reason) => SendResult::Failed(reason),
            None => {
                let room = socket.room.min(bytes.len());
                socket.room -= if socket.room == usize::MAX { 0 } else { room };
                SendResult::Accepted(room)
            }
        };
        if let SendResult::Accepted(count) = result {
            let frames = socket.take(&bytes[..count]);
            let begun = frames.len() + usize::from(socket.is_mid_frame());
            for owner in offered.iter().take(begun).filter_map(Frame::acquire_owner) {
                let (id, place) = self.owners.get_mut(&owner).unwrap();
                assert!(place.is_none_or(|other| other == conn), "SND-2: on two connections");
                *place = Some(conn);
                assert!(!self.ends.contains_key(id), "sent after its end: {id:?}");
            }
            self.history.push((now, Happening::Sent(conn, offered[..begun].to_vec())));
            let sent = frames.into_iter().map(|frame| Sent { conn, at: now.mono, frame });
            self.wire.extend(sent);
        }
        self.offered.push((conn, offered));
        self.engine.transmitted(conn, result, &mut self.gate);
        true
    }

    /// Lets the nodes that serve answer the probes that they got.
    fn reply(&mut self) -> bool {
        let mut replies = Vec::new();
        for (conn, socket) in &mut self.sockets {
            if self.nodes[usize::from(socket.endpoint)] == Node::Accepts {
                continue;
            }
            for owner in std::mem::take(&mut socket.probes) {
                if socket.state != State::Closed {
                    replies.push((*conn, owner));
                }
            }
        }
        for (conn, owner) in &replies {
            let mut bytes = Vec::new();
            ServerFrame::NotHeld { owner: *owner, key: b"_probe" }.encode(&mut bytes);
            self.engine.received(*conn, &bytes, self.now);
            self.history.push((self.now, Happening::Read(*conn, bytes)));
        }
        !replies.is_empty()
    }

    fn carry_out(&mut self, effect: Effect) {
        let now = self.now;
        self.history.push((now, Happening::Effect(effect)));
        match effect {
            Effect::Dial { conn, endpoint } => {
                self.dials.push((now.mono, conn, endpoint));
                let socket = Socket::new(endpoint, self.new_room);
                assert!(self.sockets.insert(conn, socket).is_none());
                match self.nodes[usize::from(endpoint)] {
                    Node::Serves | Node::Accepts => self.connect_quietly(conn),
                    Node::Refuses => {
                        let reason = Reason::new(ReasonKind::Connect).at(endpoint);
                        self.engine.dialed(conn, Err(reason), now);
                    }
                    Node::Swallows => {}
                }
            }
            Effect::Close { conn } => {
                let socket = self.sockets.get_mut(&conn).expect("a close of an unknown one");
                assert_ne!(socket.state, State::Closed, "closed twice");
                socket.state = State::Closed;
                self.closes.insert(conn, now.mono);
            }
            Effect::HalfClose { conn } => {
                let socket = self.sockets.get_mut(&conn).expect("a half-close of an unknown one");
                assert_eq!(socket.state, State::Open);
                socket.state = State::HalfClosed;
            }
            Effect::Drain { conn } => {
                self.read_quietly(conn);
                self.engine.drained(conn, now);
            }
            Effect::Acquire { id, outcome } => {
                self.gate.claimed.remove(&id);
                if !self.gate.withdrawn.contains(&id) {
                    let before = self.ends.insert(id, (now.mono, outcome));
                    assert_eq!(before, None, "{id:?} ended twice");
                } else if let AcquireOutcome::Granted(grant) = outcome {
                    // Its caller gave it up first: nobody will take it.
                    let key = Key::new(self.keys[&id].as_bytes()).unwrap();
                    self.history.push((now, Happening::Reclaimed(grant.token)));
                    self.engine.reclaim(key, grant.token, now);
                }
            }
            Effect::Release { id, outcome } => {
                let before = self.release_ends.insert(id, (now.mono, outcome));
                assert_eq!(before, None, "{id:?} ended twice");
            }
            Effect::Unclaim { id } => self.gate.unclaim(id),
            Effect::Log(event) => self.events.push(event),
        }
    }

    // Sockets.

    fn connect_quietly(&mut self, conn: ConnId) {
        if let Some(socket) = self.sockets.get_mut(&conn)
            && socket.state == State::Dialing
        {
            socket.state = State::Open;
            self.engine.dialed(conn, Ok(NONCE), self.now);
        }
    }

    /// The dial succeeds.
    pub(crate) fn connect(&mut self, conn: ConnId) {
        self.connect_quietly(conn);
        self.settle();
    }

    /// The dial fails.
    pub(crate) fn refuse(&mut self, conn: ConnId, kind: ReasonKind) {
        let reason = Reason::new(kind).at(self.sockets[&conn].endpoint);
        self.engine.dialed(conn, Err(reason), self.now);
        self.settle();
    }

    /// Bytes arrive in the socket, and are not read yet.
    pub(crate) fn put(&mut self, conn: ConnId, frame: ServerFrame<'_>) {
        frame.encode(&mut self.socket(conn).inbox);
    }

    /// Reads what has arrived in the socket.
    pub(crate) fn read(&mut self, conn: ConnId) {
        self.read_quietly(conn);
        self.settle();
    }

    fn read_quietly(&mut self, conn: ConnId) {
        let Some(socket) = self.sockets.get_mut(&conn) else { return };
        if socket.state == State::Closed {
            return;
        }
        let bytes = std::mem::take(&mut socket.inbox);
        let ending = socket.ending.take();
        if !bytes.is_empty() {
            self.engine.received(conn, &bytes, self.now);
            self.history.push((self.now, Happening::Read(conn, bytes)));
        }
        if let Some(reason) = ending {
            self.engine.ended(conn, reason, self.now);
        }
    }

    /// Arrives and is read at once.
    pub(crate) fn answer(&mut self, conn: ConnId, frame: ServerFrame<'_>) {
        self.put(conn, frame);
        self.read(conn);
    }

    /// As [`World::answer`], with raw bytes.
    pub(crate) fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.socket(conn).inbox.extend_from_slice(bytes);
        self.read(conn);
    }

    /// The other side closes.
    pub(crate) fn end(&mut self, conn: ConnId, kind: ReasonKind) {
        self.socket(conn).ending = Some(Reason::new(kind));
        self.read(conn);
    }

    /// The socket takes `room` more bytes, and says so.
    pub(crate) fn open_up(&mut self, conn: ConnId, room: usize) {
        self.socket(conn).room = room;
        self.engine.writable(conn);
        self.settle();
    }

    pub(crate) fn socket(&mut self, conn: ConnId) -> &mut Socket {
        self.sockets.get_mut(&conn).unwrap()
    }

    pub(crate) fn state(&self, conn: ConnId) -> State {
        self.sockets[&conn].state
    }

    /// The connections that are open both ways.
    pub(crate) fn open(&self) -> Vec<ConnId> {
        let open = self.sockets.iter().filter(|(_, socket)| socket.state == State::Open);
        open.map(|(conn, _)| *conn).collect()
    }

    /// The only connection that is open both ways.
    pub(crate) fn only(&self) -> ConnId {
        match self.open()[..] {
            [conn] => conn,
            ref open => panic!("not one connection but {open:?}"),
        }
    }
}
