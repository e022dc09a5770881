//! What must be true of a client, from what it was told, what it sent and what it said.

use super::SECRET;
use crate::harness::{Happening, NONCE, SECOND, World};
use crate::nodes::{Frame, State};
use lockclient::clock::{Mono, Now};
use lockclient::engine::{
    AcquireOutcome, ConnId, Effect, Event, Grant, ReleaseId, ReleaseOutcome, RequestId, Settings,
};
use lockclient::wire::{Decoder, FromServer, Key, PROBE_KEY, ServerFrame, server_proof};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// An acquire, as its caller knows it.
#[derive(Debug, Clone)]
struct Call {
    key: String,
    is_try: bool,
    lease: u64,
    deadline: Mono,
    ended: bool,
    /// The owners under which a byte of it went out.
    owners: Vec<u64>,
}

/// An awaited release.
#[derive(Debug, Clone)]
struct Release {
    key: String,
    token: u64,
    deadline: Mono,
}

/// A frame of which a byte went out.
#[derive(Debug, Clone)]
struct Sent {
    conn: ConnId,
    at: Now,
    /// The acquire, or none.
    id: Option<RequestId>,
    key: String,
    token: u64,
}

/// A connection, as its bytes show it.
#[derive(Default)]
struct Wire {
    decoder: Decoder<FromServer>,
    spoilt: bool,
    closed: bool,
    half_closed: bool,
    challenge: Option<[u8; 32]>,
    proved: bool,
    probes: BTreeSet<u64>,
    serves: bool,
}

pub(super) struct Ledger {
    settings: Settings,
    pub(super) closing: bool,
    begun: Now,
    calls: HashMap<RequestId, Call>,
    releases: HashMap<ReleaseId, Release>,
    wires: BTreeMap<ConnId, Wire>,
    sent: BTreeMap<u64, Sent>,
    /// Answers that were read: where, op, owner, key.
    answers: BTreeSet<(ConnId, u8, u64, Vec<u8>)>,
    /// Grants that were read and given back, in order: each has to be delivered or released, or its
    /// connection had ended before.
    coming: VecDeque<(Option<ConnId>, u64)>,
    passed_over: Vec<(Option<ConnId>, u64)>,
    /// Connections over which the answer to a release came, that ended unconfirmed: they must have
    /// ended at a frame before it.
    unheard: Vec<ConnId>,
    /// How often each token was read.
    tokens: BTreeMap<u64, u32>,
    /// Delivered, and not released.
    pub(super) held: Vec<(u64, String)>,
}

/// CON-3: a burst of 8, and 10 more.
const DIALS_A_SECOND: usize = 18;

impl Ledger {
    pub(super) fn new(settings: Settings, begun: Now) -> Ledger {
        Ledger {
            settings,
            closing: false,
            begun,
            calls: HashMap::new(),
            releases: HashMap::new(),
            wires: BTreeMap::new(),
            sent: BTreeMap::new(),
            answers: BTreeSet::new(),
            coming: VecDeque::new(),
            passed_over: Vec::new(),
            unheard: Vec::new(),
            tokens: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    pub(super) fn asked(
        &mut self,
        id: RequestId,
        key: &str,
        is_try: bool,
        lease: u64,
        deadline: Mono,
    ) {
        let key = key.to_owned();
        let call = Call { key, is_try, lease, deadline, ended: false, owners: Vec::new() };
        assert!(self.calls.insert(id, call).is_none(), "an id was used twice");
    }

    /// The calls that have no end yet, in a steady order.
    pub(super) fn live(&self) -> Vec<RequestId> {
        let live = self.calls.iter().filter(|(_, call)| !call.ended);
        let mut live: Vec<RequestId> = live.map(|(id, _)| *id).collect();
        live.sort_unstable();
        live
    }

    /// The engine was told that the caller has gone.
    pub(super) fn withdrawn(&mut self, id: RequestId) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.ended = true;
        }
    }

    pub(super) fn releasing(&mut self, id: ReleaseId, key: &str, token: u64, deadline: Mono) {
        let release = Release { key: key.to_owned(), token, deadline };
        assert!(self.releases.insert(id, release).is_none(), "an id was used twice");
    }

    pub(super) fn note_reclaim(&mut self, token: u64) {
        self.coming.push_back((None, token));
    }

    pub(super) fn note(&mut self, now: Now, happening: &Happening, world: &World) {
        match happening {
            Happening::Sent(conn, frames) => {
                for frame in frames {
                    self.sent(*conn, frame, now, world);
                }
            }
            Happening::Read(conn, bytes) => self.read(*conn, bytes),
            Happening::Reclaimed(token) => self.note_reclaim(*token),
            Happening::Effect(effect) => self.effect(*effect, now, world),
        }
    }

    /// A byte of this frame went out.
    fn sent(&mut self, conn: ConnId, frame: &Frame, now: Now, world: &World) {
        let wire = self.wires.entry(conn).or_default();
        assert!(!wire.closed, "sent on a closed connection");
        if !matches!(frame, Frame::Proof { .. }) && self.settings.secret.is_some() {
            assert!(wire.proved, "CON-4: a request to a server that has not proved itself");
        }
        match frame {
            Frame::Proof { .. } => assert!(wire.challenge.is_some(), "an unasked proof"),
            Frame::Probe { owner } => {
                wire.probes.insert(*owner);
            }
            Frame::Release { owner, token, key } => {
                assert!(wire.serves, "CON-4: a release to a node that may not serve");
                assert_ne!(*token, 0);
                let sent = Sent { conn, at: now, id: None, key: key.clone(), token: *token };
                let before = self.sent.entry(*owner).or_insert(sent);
                assert!(before.conn == conn && before.token == *token, "one owner, two releases");
            }
            Frame::Acquire { wait, lease, owner, key } => {
                assert!(wire.serves, "CON-4: an acquire to a node that may not serve");
                if let Some(before) = self.sent.get(owner) {
                    assert_eq!(before.conn, conn, "SND-2: on two connections");
                    let call = &self.calls[&before.id.expect("an acquire's owner")];
                    assert!(call.deadline > now.mono, "DL-6: a byte after the deadline");
                    return;
                }
                let (id, _) = *world.owners.get(owner).expect("an acquire that nobody asked for");
                let call = self.calls.get_mut(&id).expect("an acquire that nobody asked for");
                assert_eq!(&call.key, key, "another key");
                assert!(call.deadline > now.mono, "DL-4: sent at its deadline");
                let left = call.deadline.since(now.mono).as_nanos().div_ceil(SECOND.as_nanos());
                let expected = if call.is_try { 0 } else { left };
                assert_eq!(u128::from(*wait), expected, "DL-3");
                assert_eq!(u64::from(*lease), call.lease);
                call.owners.push(*owner);
                let sent = Sent { conn, at: now, id: Some(id), key: key.clone(), token: 0 };
                self.sent.insert(*owner, sent);
            }
        }
    }

    fn read(&mut self, conn: ConnId, mut bytes: &[u8]) {
        let wire = self.wires.entry(conn).or_default();
        if wire.spoilt {
            return;
        }
        loop {
            let (op, owner, key) = match wire.decoder.next(&mut bytes) {
                Ok(Some(ServerFrame::Acquired { owner, token, key })) => {
                    *self.tokens.entry(token).or_default() += 1;
                    // One whose key could not be ours is nobody's to release.
                    if Key::new(key).is_ok() {
                        self.coming.push_back((Some(conn), token));
                    }
                    (b'A', owner, key)
                }
                // Only grants are listened to now (CLO-1).
                Ok(Some(_)) if wire.half_closed => continue,
                Ok(Some(ServerFrame::TimedOut { owner, key })) => (b'T', owner, key),
                Ok(Some(ServerFrame::Busy { owner, key })) => (b'B', owner, key),
                Ok(Some(ServerFrame::Released { owner, key })) => (b'R', owner, key),
                Ok(Some(ServerFrame::NotHeld { owner, key })) => {
                    wire.serves |= key == PROBE_KEY && wire.probes.contains(&owner);
                    (b'N', owner, key)
                }
                Ok(Some(ServerFrame::Challenge { nonce })) => {
                    wire.challenge.get_or_insert(*nonce);
                    continue;
                }
                Ok(Some(ServerFrame::Accepted { proof })) => {
                    let expected =
                        wire.challenge.map(|nonce| server_proof(&SECRET, &nonce, &NONCE));
                    wire.proved |= expected.is_some_and(|expected| expected == *proof);
                    continue;
                }
                Ok(Some(_)) => continue,
                Ok(None) => return,
                Err(_) => {
                    wire.spoilt = true;
                    return;
                }
            };
            self.answers.insert((conn, op, owner, key.to_vec()));
        }
    }

    fn effect(&mut self, effect: Effect, now: Now, world: &World) {
        match effect {
            Effect::Close { conn } => self.wires.entry(conn).or_default().closed = true,
            Effect::Log(Event::Compensated { token } | Event::CompensationDropped { token }) => {
                self.accounted(token);
            }
            Effect::HalfClose { conn } => self.wires.entry(conn).or_default().half_closed = true,
            Effect::Acquire { id, outcome } => {
                self.acquired(id, outcome, now);
                if let AcquireOutcome::Granted(grant) = outcome
                    && !world.gate.withdrawn.contains(&id)
                {
                    self.held.push((grant.token, self.calls[&id].key.clone()));
                }
            }
            Effect::Release { id, outcome } => self.released(id, outcome),
            _ => {}
        }
    }

    /// A grant was delivered or given back: it must be the next of those that were read.
    fn accounted(&mut self, token: u64) -> Option<ConnId> {
        while let Some((conn, next)) = self.coming.pop_front() {
            if next == token {
                return conn;
            }
            self.passed_over.push((conn, next));
        }
        panic!("token {token:#x} was not read, or was accounted for before");
    }

    fn acquired(&mut self, id: RequestId, outcome: AcquireOutcome, now: Now) {
        let call = self.calls.get_mut(&id).expect("the end of an unknown call");
        assert!(!call.ended, "answered twice");
        call.ended = true;
        let call = call.clone();
        let answered = |op: u8| {
            call.owners.iter().any(|owner| {
                let conn = self.sent[owner].conn;
                self.answers.contains(&(conn, op, *owner, call.key.clone().into_bytes()))
            })
        };
        match outcome {
            AcquireOutcome::Granted(grant) => self.granted(&call, grant, now),
            AcquireOutcome::TimedOut => assert!(answered(b'T'), "no T was read"),
            AcquireOutcome::Busy => assert!(answered(b'B'), "no B was read"),
            AcquireOutcome::Indeterminate(_) => {
                assert!(!call.owners.is_empty(), "unknown, and nothing went out");
            }
            AcquireOutcome::NotSent(_)
            | AcquireOutcome::Cancelled
            | AcquireOutcome::Auth(_)
            | AcquireOutcome::OwnerExhausted => {
                // What went out before was refused, and is to be tried again.
                for owner in &call.owners {
                    let conn = self.sent[owner].conn;
                    let refused = (conn, b'B', *owner, call.key.clone().into_bytes());
                    assert!(self.answers.contains(&refused), "{outcome:?}, and a byte went out");
                }
            }
        }
        if matches!(outcome, AcquireOutcome::Cancelled) {
            assert!(self.closing, "cancelled by nobody");
        }
    }

    fn granted(&mut self, call: &Call, grant: Grant, now: Now) {
        let conn = self.accounted(grant.token).expect("granted by nobody");
        assert!(now.mono <= call.deadline, "DL-7: granted after its deadline");
        assert!(call.owners.contains(&grant.owner), "under an owner that was not sent");
        let sent = &self.sent[&grant.owner];
        assert_eq!(sent.conn, conn, "granted over another connection");
        let answer = (conn, b'A', grant.owner, call.key.clone().into_bytes());
        assert!(self.answers.contains(&answer), "granted, and no A was read");
        assert!(sent.at.boot <= grant.proof && grant.proof <= now.boot, "GR-2");
        assert!(grant.proof >= self.begun.boot);
        if !self.settings.ordered_answers {
            assert_eq!(grant.proof, sent.at.boot, "GR-2: only its own sending is a proof");
        }
        let elapsed = now.boot.since(grant.proof);
        assert!(elapsed < SECOND * call.lease as u32, "GR-4: its lease has ended");
    }

    fn released(&mut self, id: ReleaseId, outcome: ReleaseOutcome) {
        let release = self.releases.remove(&id).expect("the end of an unknown release");
        // Of a server that gives a token twice nothing can be said.
        if self.tokens.get(&release.token) != Some(&1) {
            return;
        }
        let tries: Vec<(&u64, &Sent)> = self
            .sent
            .iter()
            .filter(|(_, sent)| {
                sent.id.is_none() && sent.token == release.token && sent.key == release.key
            })
            .collect();
        let answered = |op: u8| {
            tries.iter().any(|(owner, sent)| {
                let answer = (sent.conn, op, **owner, release.key.clone().into_bytes());
                self.answers.contains(&answer)
            })
        };
        match outcome {
            ReleaseOutcome::Released => assert!(answered(b'R'), "no R was read"),
            ReleaseOutcome::NotHeld { retried } => {
                assert!(answered(b'N'), "no N was read");
                assert_eq!(retried, tries.len() > 1, "REL-2");
            }
            ReleaseOutcome::Unconfirmed(_) => {
                let heard = tries.iter().filter(|(owner, sent)| {
                    let answer = |op| (sent.conn, op, **owner, release.key.clone().into_bytes());
                    [b'R', b'N'].into_iter().any(|op| self.answers.contains(&answer(op)))
                });
                self.unheard.extend(heard.map(|(_, sent)| sent.conn));
            }
            ReleaseOutcome::Auth(_) | ReleaseOutcome::OwnerExhausted => {
                assert!(tries.is_empty(), "{outcome:?}, and a byte went out");
            }
        }
    }

    /// What must hold after every step.
    pub(super) fn check(&mut self, world: &World) {
        let left = std::mem::take(&mut self.coming).into_iter();
        for (conn, token) in std::mem::take(&mut self.passed_over).into_iter().chain(left) {
            let closed = conn.is_some_and(|conn| self.wires[&conn].closed);
            assert!(closed, "token {token:#x} was read, and nothing became of it");
        }
        for conn in self.unheard.drain(..) {
            let wire = &self.wires[&conn];
            assert!(wire.closed || wire.half_closed, "unconfirmed, and its answer was read");
        }
        let counters = world.engine.counters();
        assert_eq!(counters.queued_now, world.engine.queued() as u64);
        let (mut queued, mut flying, mut unclear) = (0, 0, 0);
        for (id, _) in self.calls.iter().filter(|(_, call)| !call.ended) {
            match (world.gate.claimed.contains_key(id), world.gate.withdrawn.contains(id)) {
                (true, false) => flying += 1,
                (false, false) => queued += 1,
                (_, true) => unclear += 1,
            }
        }
        assert!((queued..=queued + unclear).contains(&counters.queued_now), "queued");
        // What was given up stays in flight until its connection has gone.
        assert!(counters.in_flight_now >= flying, "in flight");
        // One that lingers was used, or at least dialled, within the last second.
        let most = (self.settings.connections + 2) * self.settings.endpoints.len();
        let count = |lingering: bool| {
            let open = world.sockets.values().map(|s| s.state).filter(|s| *s != State::Closed);
            open.filter(|state| (*state == State::HalfClosed) == lingering).count()
        };
        assert!(count(false) <= most, "{} connections", count(false));
        assert!(count(true) <= most + DIALS_A_SECOND, "{} of them linger", count(true));
    }

    /// What must hold whenever the timers have been looked at.
    pub(super) fn in_time(&self, world: &World) {
        for (id, call) in self.calls.iter().filter(|(_, call)| !call.ended) {
            if !world.gate.withdrawn.contains(id) {
                let end = world.gate.claimed.get(id).copied().unwrap_or(call.deadline);
                assert!(end > world.mono(), "{id:?} is overdue");
            }
        }
        for (id, release) in &self.releases {
            assert!(release.deadline > world.mono(), "{id:?} is overdue");
        }
    }

    pub(super) fn nothing_lives(&self) {
        assert_eq!(self.live(), [], "calls without an end");
        assert!(self.releases.is_empty(), "releases without an end");
    }
}
