//! The server's sessions and its lock table, on any bytes from several connections and any time
//! between them, driven as its event loop drives them; `ledger` has the rules.
//!
//! Input: two bytes of settings, then choices: which connection, and what happens there.

mod ledger;

use crate::input::Input;
use ledger::{Ledger, Request};
use lockclient::wire::{
    Block, ClientFrame, Decoder, FromClient, Key, MAX_FRAME, ServerFrame, client_proof,
};
use lockd::Secret;
use lockd::core::{Answers, ConnectionId, Core, Limits, Time};
use lockd::outbox::{BATCH, Outbox};
use lockd::session::{Overdue, PROGRESS, Received, Session};
use std::collections::VecDeque;
use std::time::Duration;

const CONNECTIONS: usize = 4;
const KEYS: [&[u8]; 4] = [b"a", b"bb", b"_probe", "열쇠".as_bytes()];
const SECRET: [u8; 16] = [9; 16];

/// Small ones, so that they are reached.
pub(crate) const LIMITS: Limits =
    Limits { locks: 6, waiters: 12, waiters_per_key: 4, waiters_per_connection: 5 };
const OUTPUT_BOUND: usize = LIMITS.waiters_per_connection * MAX_FRAME;

/// # Panics
/// An invariant does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    // More would only make the same things happen again.
    for _ in 0..2_000 {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.ledger.check(&world.core, false, world.now);
    }
    world.end();
}

/// The answers on their way, and those that the core has just decided.
#[derive(Default)]
struct Outputs {
    boxes: [Outbox; CONNECTIONS],
    decided: Vec<(usize, Vec<u8>)>,
}

impl Answers for Outputs {
    fn answer(&mut self, to: ConnectionId, frame: ServerFrame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert!(bytes.len() <= MAX_FRAME, "an answer of {} bytes", bytes.len());
        self.decided.push((to.0 as usize, bytes));
        self.boxes[to.0 as usize].push(frame);
    }
}

struct Connection {
    session: Session,
    nonce: Option<Block>,
    /// Arrived, and not handed to the session.
    inbox: Vec<u8>,
    /// The session's input once more.
    reader: Decoder<FromClient>,
    /// When the frame that has begun and not ended began.
    begun: Option<Time>,
    was_paused: bool,
    paused: bool,
    /// Over: what was decided is still written.
    draining: bool,
    /// Decided, and not sent whole.
    expected: VecDeque<Vec<u8>>,
    /// How much of the first of these was sent.
    sent: usize,
}

struct World {
    core: Core,
    secrets: Vec<Secret>,
    out: Outputs,
    connections: [Option<Connection>; CONNECTIONS],
    ledger: Ledger,
    now: Time,
    nonces: u8,
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let now = Time::default().after_seconds(100);
        let settings = input.byte();
        let last = if settings & 1 == 1 { u64::MAX } else { u64::from(input.byte()) };
        let mut core = Core::new(LIMITS, 1, last);
        let mut ledger = Ledger::new(last);
        if settings & 2 == 2 {
            let until = now.after_seconds(3);
            core.quarantine(until);
            ledger.inactive_until = Some(until);
        }
        let secret = Secret::new(&SECRET).expect("of a good length");
        World {
            core,
            secrets: if settings & 12 == 12 { vec![secret] } else { Vec::new() },
            out: Outputs::default(),
            connections: Default::default(),
            ledger,
            now,
            nonces: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = input.below(CONNECTIONS);
        let choice = input.below(32);
        if self.connections[at].is_none() && choice < 24 {
            self.open(at);
        }
        match choice {
            0..10 => {
                let bytes = frame(input, self.connections[at].as_ref(), &mut self.ledger);
                self.arrive(at, &bytes);
                if choice < 6 {
                    self.read(at, usize::MAX);
                }
            }
            10..12 => {
                let count = input.below(200);
                let bytes = input.bytes(count);
                self.arrive(at, bytes);
            }
            12..16 => self.read(at, usize::from(input.byte())),
            16..20 => self.send(at, usize::from(input.byte()) * 3),
            20 => {
                // Many at once: a batch is limited, and so is what one connection may cause.
                let bytes = frame(input, self.connections[at].as_ref(), &mut self.ledger);
                self.arrive(at, &bytes.repeat(input.below(100)));
                self.read(at, usize::MAX);
            }
            21 => self.end_of_stream(at, input),
            22 => self.break_off(at),
            23 => self.send(at, usize::MAX),
            24..27 => {
                self.pass(Duration::from_millis(u64::from(input.byte()) * 20));
            }
            27 => self.pass(Duration::from_secs(u64::from(input.byte()))),
            _ => self.advance(),
        }
    }

    /// Lets everything come to its end.
    fn end(&mut self) {
        for _ in 0..3 {
            self.pass(Duration::from_secs(256));
            self.advance();
            for at in 0..CONNECTIONS {
                self.send(at, usize::MAX);
            }
        }
        let stats = self.core.stats();
        assert_eq!((stats.held, stats.waiters), (0, 0), "something is held for ever");
        assert!(stats.admitting, "nothing is held, and admission is closed");
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    fn open(&mut self, at: usize) {
        let nonce = (!self.secrets.is_empty()).then(|| {
            self.nonces = self.nonces.wrapping_add(1);
            [self.nonces; 32]
        });
        self.ledger.open(at, nonce.is_some());
        let id = ConnectionId(at as u32);
        let session = Session::new(id, nonce, self.now, &mut self.out);
        self.connections[at] = Some(Connection {
            session,
            nonce,
            inbox: Vec::new(),
            reader: Decoder::default(),
            begun: None,
            was_paused: false,
            paused: false,
            draining: false,
            expected: VecDeque::new(),
            sent: 0,
        });
        self.note(&[]);
    }

    fn arrive(&mut self, at: usize, bytes: &[u8]) {
        if let Some(connection) = &mut self.connections[at] {
            connection.inbox.extend_from_slice(bytes);
            connection.inbox.truncate(16 * 1024);
        }
    }

    /// Hands over what has arrived, at most `count` bytes of it.
    fn read(&mut self, at: usize, count: usize) {
        let Some(connection) = &mut self.connections[at] else { return };
        if connection.paused || connection.draining {
            return;
        }
        let mark = self.out.boxes[at].mark();
        let bytes = connection.inbox[..count.min(connection.inbox.len())].to_vec();
        if !self.ledger.is_clear(at, &requests(&mut connection.reader.clone(), &bytes, self.now)) {
            return self.break_off(at);
        }
        let Some(connection) = &mut self.connections[at] else { return };
        let Received { consumed, over } = connection.session.receive(
            &bytes,
            self.now,
            &self.secrets,
            &mut self.core,
            &mut self.out,
        );
        assert!(consumed <= bytes.len());
        let requests = connection.understand(&bytes[..consumed], self.now);
        assert!(requests.len() <= BATCH, "{} requests in one batch", requests.len());
        connection.inbox.drain(..consumed);
        let requests: Vec<(usize, Request)> =
            requests.into_iter().map(|request| (at, request)).collect();
        self.note(&requests);
        match over {
            Some(fault) => {
                self.ledger.fault(at, fault);
                self.finish(at, mark);
            }
            None => self.ledger.no_fault(at),
        }
        self.balance(at);
    }

    /// As the event loop does at the end of a turn: who does not read is not read from.
    fn balance(&mut self, at: usize) {
        let pending = self.out.boxes[at].pending();
        // Above the bound it is not read from; one batch and the waiters can still be answered.
        let most = OUTPUT_BOUND + (BATCH + LIMITS.waiters_per_connection + 2) * MAX_FRAME;
        assert!(pending <= most, "{pending} bytes wait for one connection");
        let Some(connection) = &mut self.connections[at] else { return };
        let pause = pending > OUTPUT_BOUND;
        if pause != connection.paused {
            connection.paused = pause;
            connection.was_paused = true;
            match pause {
                true => connection.session.pause(self.now),
                false => connection.session.resume(self.now),
            }
        }
    }

    /// The kernel takes up to `room` bytes of what waits.
    fn send(&mut self, at: usize, mut room: usize) {
        let outbox = &mut self.out.boxes[at];
        let Some(connection) = &mut self.connections[at] else { return };
        while outbox.pending() > 0 && room > 0 {
            let batch = outbox.batch();
            let count = batch.len().min(room);
            assert!(count > 0, "an empty batch, and bytes that wait");
            connection.take(&batch[..count], &mut self.ledger, at);
            outbox.accepted(count);
            room -= count;
        }
        if connection.draining && self.out.boxes[at].pending() == 0 {
            assert!(connection.expected.is_empty(), "an answer was lost");
            self.close(at);
        }
        self.balance(at);
    }

    fn end_of_stream(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(connection) = &mut self.connections[at] else { return };
        if connection.draining || connection.paused {
            return;
        }
        let mark = self.out.boxes[at].mark();
        let cut = connection.reader.is_mid_frame();
        connection.session.end_of_stream(&mut self.out);
        if cut {
            self.ledger.fault(at, lockd::session::Fault::BadRequest);
        }
        self.note(&[]);
        self.finish(at, mark);
        self.send(at, usize::from(input.byte()));
    }

    /// The session is over: its waiters leave, and grants of which no byte has left are undone.
    fn finish(&mut self, at: usize, mark: usize) {
        self.core.disconnect(ConnectionId(at as u32));
        self.ledger.disconnect(at);
        self.undo(at, mark);
        if let Some(connection) = &mut self.connections[at] {
            connection.draining = true;
        }
        if self.out.boxes[at].pending() == 0 {
            self.close(at);
        }
    }

    fn break_off(&mut self, at: usize) {
        if self.connections[at].is_some() {
            self.core.disconnect(ConnectionId(at as u32));
            self.ledger.disconnect(at);
            self.undo(at, usize::MAX);
            self.close(at);
        }
    }

    fn undo(&mut self, at: usize, mark: usize) {
        let mut undone = Vec::new();
        self.out.boxes[at].withdraw_grants(mark, |token, key| undone.push((token, key.to_vec())));
        for (token, key) in undone {
            if let Some(connection) = &mut self.connections[at] {
                connection.withdraw(token);
            }
            self.ledger.undo(token, &key);
            self.core.undo(token, &key, self.now, &mut self.out);
            self.note(&[]);
        }
    }

    fn close(&mut self, at: usize) {
        self.out.boxes[at] = Outbox::default();
        self.connections[at] = None;
        self.ledger.close(at);
    }

    /// A turn's look at the clock.
    fn advance(&mut self) {
        self.core.advance(self.now, &mut self.out);
        self.note(&[]);
        self.ledger.check(&self.core, true, self.now);
        assert!(self.core.next_deadline().is_none_or(|at| at > self.now), "a busy loop");
        for at in 0..CONNECTIONS {
            let Some(connection) = &self.connections[at] else { continue };
            if connection.draining {
                self.break_off(at);
            } else if connection.is_overdue(self.now) {
                self.finish(at, usize::MAX);
            }
        }
    }

    /// Has the answers that were just decided looked at.
    fn note(&mut self, requests: &[(usize, Request)]) {
        for (to, bytes) in &self.out.decided {
            let connection = self.connections[*to].as_mut().expect("an answer to nobody");
            connection.expected.push_back(bytes.clone());
        }
        let decided = std::mem::take(&mut self.out.decided);
        self.ledger.turn(requests, &decided, self.now);
    }
}

impl Connection {
    /// The requests that these bytes complete.
    fn understand(&mut self, bytes: &[u8], now: Time) -> Vec<Request> {
        let had = self.reader.is_mid_frame();
        let requests = requests(&mut self.reader, bytes, now);
        if !self.reader.is_mid_frame() {
            self.begun = None;
        } else if !had || !requests.is_empty() {
            self.begun = Some(now);
        }
        requests
    }

    /// The kernel takes these bytes: they must be those that were decided, in that order.
    fn take(&mut self, mut bytes: &[u8], ledger: &mut Ledger, at: usize) {
        while !bytes.is_empty() {
            let next = self.expected.front().expect("bytes that were not decided");
            let rest = &next[self.sent..];
            let count = rest.len().min(bytes.len());
            assert_eq!(&rest[..count], &bytes[..count], "other bytes than were decided");
            self.sent += count;
            bytes = &bytes[count..];
            if self.sent == next.len() {
                ledger.told(at, next);
                self.sent = 0;
                self.expected.pop_front();
            }
        }
    }

    /// A grant is not told after all.
    fn withdraw(&mut self, token: u64) {
        let token = token.to_be_bytes();
        let is_it = |answer: &Vec<u8>| answer[0] == b'A' && answer[9..17] == token;
        let place = self.expected.iter().position(is_it).expect("a grant that was decided");
        assert!(place > 0 || self.sent == 0, "a byte of it was sent");
        self.expected.remove(place);
    }

    fn is_overdue(&self, now: Time) -> bool {
        let overdue = self.session.overdue(now);
        let due = self.begun.is_some_and(|begun| begun.after(PROGRESS) <= now);
        match overdue {
            Some(Overdue::Frame) => assert!(due, "a frame that is not overdue"),
            Some(Overdue::Handshake) => assert!(self.session.is_handshaking()),
            None => assert!(!due || self.was_paused, "an overdue frame"),
        }
        overdue.is_some()
    }
}

fn requests(reader: &mut Decoder<FromClient>, mut bytes: &[u8], now: Time) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Ok(Some(frame)) = reader.next(&mut bytes) {
        requests.push(Request::of(frame, now));
    }
    requests
}

/// A good frame, or almost.
fn frame(input: &mut Input<'_>, connection: Option<&Connection>, ledger: &mut Ledger) -> Vec<u8> {
    let kind = input.below(16);
    let key = KEYS[input.below(KEYS.len())];
    let owner = ledger.fresh_owner();
    let mut bytes = Vec::new();
    match kind {
        0..7 => {
            let (wait, lease) = (input.byte() & 7, input.byte() & 15);
            ClientFrame::Acquire { wait, lease, owner, key }.encode(&mut bytes);
        }
        7..12 => {
            let token = match input.is_odd() {
                true => ledger.token_of(key),
                false => u64::from(input.byte()),
            };
            ClientFrame::Release { owner, token, key }.encode(&mut bytes);
        }
        12 => {
            let key = input.bytes(130);
            ClientFrame::Acquire { wait: 0, lease: 1, owner, key }.encode(&mut bytes);
        }
        13 => {
            // Other keys than the usual ones: there is a limit to how many can be held.
            let name = format!("k{}", input.byte());
            debug_assert!(Key::new(name.as_bytes()).is_ok());
            let frame = ClientFrame::Acquire { wait: 1, lease: 9, owner, key: name.as_bytes() };
            frame.encode(&mut bytes);
        }
        _ => {
            let nonce = [input.byte(); 32];
            let theirs = connection.and_then(|connection| connection.nonce).unwrap_or_default();
            let proof = client_proof(&SECRET, &theirs, &nonce);
            ClientFrame::Proof { nonce: &nonce, proof: &proof }.encode(&mut bytes);
        }
    }
    bytes
}
