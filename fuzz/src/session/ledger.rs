//! What the server's answers must be, from the requests that it got.
//!
//! Requests are known by what the answers echo. Several with one owner are told apart by nothing,
//! so all of them must ask for the same: which one an answer is for does not matter then.

use super::{CONNECTIONS, LIMITS};
use lockclient::wire::{ClientFrame, Decoder, FromServer, Key, ServerFrame};
use lockd::core::{Core, Time};
use lockd::session::Fault;
use std::collections::{BTreeMap, BTreeSet};

/// A frame that a session has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Acquire { wait: u8, lease: u8, owner: u64, key: Vec<u8>, at: Time },
    Release { owner: u64, token: u64, key: Vec<u8> },
    Proof,
}

impl Request {
    pub(super) fn of(frame: ClientFrame<'_>, at: Time) -> Request {
        match frame {
            ClientFrame::Acquire { wait, lease, owner, key } => {
                Request::Acquire { wait, lease, owner, key: key.to_vec(), at }
            }
            ClientFrame::Release { owner, token, key } => {
                Request::Release { owner, token, key: key.to_vec() }
            }
            ClientFrame::Proof { .. } => Request::Proof,
        }
    }

    fn owner(&self) -> Option<u64> {
        match self {
            Request::Acquire { owner, .. } | Request::Release { owner, .. } => Some(*owner),
            Request::Proof => None,
        }
    }

    fn timeless(mut self) -> Request {
        if let Request::Acquire { at, .. } = &mut self {
            *at = Time::default();
        }
        self
    }

    fn key(&self) -> &[u8] {
        match self {
            Request::Acquire { key, .. } | Request::Release { key, .. } => key,
            Request::Proof => b"_",
        }
    }

    fn is_acquire_of(&self, owner: u64, key: &[u8]) -> bool {
        matches!(self, Request::Acquire { owner: of, key: name, .. } if *of == owner && name == key)
    }

    /// Whether its wait is over, or there is none.
    fn is_over(&self, now: Time) -> bool {
        match self {
            Request::Acquire { wait, at, .. } => *wait == 0 || at.after_seconds(*wait) <= now,
            Request::Release { .. } | Request::Proof => true,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Grant {
    token: u64,
    end: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Closed,
    Handshake,
    Open,
    /// The error that ends it was answered.
    Faulty,
}

/// A request without an answer.
#[derive(Debug)]
struct Open {
    from: usize,
    request: Request,
    /// The turn in which it was read.
    turn: u64,
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) inactive_until: Option<Time>,
    last_token: u64,
    /// The last token that there is.
    most: u64,
    /// Held keys. Those whose lease has ended may stay until somebody looks.
    held: BTreeMap<Vec<u8>, Grant>,
    /// Without an answer, in the order in which they came.
    open: Vec<Open>,
    turn: u64,
    lives: [Life; CONNECTIONS],
    /// Error codes that were answered and end a session.
    endings: [Option<Fault>; CONNECTIONS],
    undone: BTreeSet<u64>,
    /// What each owner asked for, from whom.
    asked: BTreeMap<u64, (usize, Request)>,
    owners: u64,
}

impl Ledger {
    pub(super) fn new(most: u64) -> Ledger {
        Ledger {
            inactive_until: None,
            last_token: 0,
            most: most.min(u64::MAX - 1),
            held: BTreeMap::new(),
            open: Vec::new(),
            turn: 0,
            lives: [Life::Closed; CONNECTIONS],
            endings: [None; CONNECTIONS],
            undone: BTreeSet::new(),
            asked: BTreeMap::new(),
            owners: 0x0A0A_0000,
        }
    }

    /// Whether the answers to these requests could be told apart from those to others.
    pub(super) fn is_clear(&mut self, from: usize, requests: &[Request]) -> bool {
        requests.iter().all(|request| {
            let asked = (from, request.clone().timeless());
            match request.owner() {
                Some(owner) => *self.asked.entry(owner).or_insert(asked.clone()) == asked,
                None => true,
            }
        })
    }

    /// The token that the key is held under, or one that was never issued.
    pub(super) fn token_of(&self, key: &[u8]) -> u64 {
        self.held.get(key).map_or(u64::MAX, |grant| grant.token)
    }

    pub(super) fn fresh_owner(&mut self) -> u64 {
        self.owners += 1;
        self.owners
    }

    pub(super) fn open(&mut self, at: usize, handshake: bool) {
        self.lives[at] = if handshake { Life::Handshake } else { Life::Open };
        self.endings[at] = None;
    }

    /// The connection's waiters leave; what it holds stays held.
    pub(super) fn disconnect(&mut self, at: usize) {
        self.open.retain(|open| open.from != at);
    }

    pub(super) fn close(&mut self, at: usize) {
        assert!(!self.open.iter().any(|open| open.from == at));
        self.lives[at] = Life::Closed;
    }

    /// A grant of which no byte has left is taken back.
    pub(super) fn undo(&mut self, token: u64, key: &[u8]) {
        assert!(self.undone.insert(token), "undone twice");
        if self.held.get(key).is_some_and(|grant| grant.token == token) {
            self.held.remove(key);
        }
    }

    /// All of an answer has left.
    pub(super) fn told(&mut self, _: usize, answer: &[u8]) {
        read(answer, |frame| {
            if let ServerFrame::Acquired { token, .. } = frame {
                assert!(!self.undone.contains(&token), "a grant that was undone is told");
            }
        });
    }

    /// The session says that it is over.
    pub(super) fn fault(&mut self, at: usize, fault: Fault) {
        let said = self.endings[at];
        // At the end of the stream the error is decided after this.
        assert!(said.is_none_or(|said| said == fault), "{said:?} was answered, not {fault:?}");
        self.lives[at] = Life::Faulty;
    }

    pub(super) fn no_fault(&self, at: usize) {
        assert_eq!(self.endings[at], None, "an error that ends the session, and it goes on");
    }

    /// Requests that were read, and answers that were decided then.
    pub(super) fn turn(
        &mut self,
        requests: &[(usize, Request)],
        answers: &[(usize, Vec<u8>)],
        now: Time,
    ) {
        self.turn += 1;
        for (from, request) in requests {
            if *request != Request::Proof {
                let (from, request, turn) = (*from, request.clone(), self.turn);
                self.open.push(Open { from, request, turn });
            }
        }
        for (to, answer) in answers {
            read(answer, |frame| self.answer(*to, frame, now));
        }
        // What is not answered waits in a queue, or its session is over.
        for Open { from, request, .. } in self.open.iter().filter(|open| open.turn == self.turn) {
            let waits = matches!(request, Request::Acquire { wait: 1.., .. });
            assert!(waits || self.endings[*from].is_some(), "no answer to {request:?}");
        }
    }

    fn answer(&mut self, to: usize, frame: ServerFrame<'_>, now: Time) {
        assert_ne!(self.lives[to], Life::Closed, "an answer to nobody");
        assert!(self.endings[to].is_none(), "an answer after the last one: {frame:?}");
        match frame {
            ServerFrame::Challenge { .. } => return assert_eq!(self.lives[to], Life::Handshake),
            ServerFrame::Accepted { .. } => {
                assert_eq!(self.lives[to], Life::Handshake);
                self.lives[to] = Life::Open;
                return;
            }
            ServerFrame::Error { code } => return self.error(to, code, now),
            _ => {}
        }
        assert!(matches!(self.lives[to], Life::Open | Life::Faulty), "before the handshake");
        match frame {
            ServerFrame::Acquired { owner, token, key } => self.granted(to, owner, token, key, now),
            ServerFrame::TimedOut { owner, key } => {
                let held = self.held.get(key).is_some_and(|grant| grant.end > now);
                let request = self
                    .take(to, |request| request.is_acquire_of(owner, key) && request.is_over(now));
                if matches!(request, Request::Acquire { wait: 0, .. }) {
                    assert!(held, "the key is free, and the attempt timed out");
                }
            }
            ServerFrame::Busy { owner, key } => {
                assert!(self.may_refuse(to, key), "refused without need");
                let place = self
                    .open
                    .iter()
                    .rposition(|open| open.from == to && open.request.is_acquire_of(owner, key));
                self.open.remove(place.expect("an answer to no request"));
            }
            ServerFrame::Released { owner, key } => {
                let grant = self.held.remove(key).expect("released, and nobody holds it");
                assert!(grant.end > now, "released, and its lease has ended");
                self.take(to, |request| {
                    let asked = Request::Release { owner, token: grant.token, key: key.to_vec() };
                    *request == asked
                });
            }
            ServerFrame::NotHeld { owner, key } => {
                let held = self.held.get(key).filter(|grant| grant.end > now).copied();
                self.take(to, |request| match request {
                    Request::Release { owner: of, token, key: name } => {
                        let holds = held.is_some_and(|grant| grant.token == *token);
                        *of == owner && name == key && !holds
                    }
                    _ => false,
                });
            }
            other => panic!("a server never answers {other:?}"),
        }
    }

    fn granted(&mut self, to: usize, owner: u64, token: u64, key: &[u8], now: Time) {
        assert!(self.inactive_until.is_none_or(|until| until <= now), "granted in quarantine");
        assert!(token > self.last_token && token <= self.most, "token {token}");
        self.last_token = token;
        if let Some(grant) = self.held.get(key) {
            assert!(grant.end <= now, "two holders: {} and {token}", grant.token);
        }
        // First come, first served, but for those whose wait is over.
        let place = self
            .open
            .iter()
            .position(|open| match &open.request {
                Request::Acquire { wait, key: name, .. } => {
                    name == key && (*wait == 0 || !open.request.is_over(now))
                }
                _ => false,
            })
            .expect("a grant that nobody asked for");
        let Open { from, request, .. } = self.open.remove(place);
        assert!(from == to && request.is_acquire_of(owner, key), "not the first in the queue");
        let Request::Acquire { lease, .. } = request else { unreachable!("it is an acquire") };
        self.held.insert(key.to_vec(), Grant { token, end: now.after_seconds(lease) });
    }

    fn error(&mut self, to: usize, code: &[u8], now: Time) {
        match code {
            b"bad_key" => {
                self.take(to, |request| Key::from_wire(request.key()).is_err());
            }
            b"not_active" => {
                let inactive = self.inactive_until.is_some_and(|until| until > now);
                assert!(inactive || self.last_token >= self.most, "it is active");
                // Once it is inactive all that follows is answered so.
                let place = self.open.iter().rposition(|open| {
                    (open.from, open.turn) == (to, self.turn)
                        && Key::from_wire(open.request.key()).is_ok()
                        && !matches!(open.request, Request::Release { token: 1.., .. })
                });
                self.open.remove(place.expect("an answer to no request"));
            }
            b"bad_request" => self.endings[to] = Some(Fault::BadRequest),
            b"auth_failed" => {
                assert_eq!(self.lives[to], Life::Handshake);
                self.endings[to] = Some(Fault::AuthFailed);
            }
            other => panic!("an unknown code: {other:?}"),
        }
    }

    /// The first of the connection's requests that `fits`.
    fn take(&mut self, from: usize, fits: impl Fn(&Request) -> bool) -> Request {
        let place = self.open.iter().position(|open| open.from == from && fits(&open.request));
        self.open.remove(place.expect("an answer to no request")).request
    }

    /// Whether an acquire may be refused now: a limit is near enough, or there are no tokens.
    fn may_refuse(&self, from: usize, key: &[u8]) -> bool {
        let near = |used: usize, most: usize| used * 4 >= most * 3;
        let of_connection = self.open.iter().filter(|open| open.from == from).count();
        let of_key = self.open.iter().filter(|open| open.request.key() == key).count();
        near(self.held.len(), LIMITS.locks)
            || near(self.open.len(), LIMITS.waiters)
            || of_connection > LIMITS.waiters_per_connection
            || of_key > LIMITS.waiters_per_key
            || self.last_token >= self.most
    }

    /// What must hold after every step; `advanced` says that the core has just looked at the time.
    pub(super) fn check(&mut self, core: &Core, advanced: bool, now: Time) {
        let stats = core.stats();
        assert_eq!(stats.waiters, self.open.len(), "waiters");
        assert!(stats.waiters <= LIMITS.waiters && stats.held <= LIMITS.locks, "over a limit");
        assert!(stats.held <= self.held.len(), "held");
        if advanced {
            self.held.retain(|_, grant| grant.end > now);
            assert_eq!(stats.held, self.held.len(), "held");
            for Open { request, .. } in &self.open {
                assert!(!request.is_over(now), "no answer in time to {request:?}");
            }
        }
    }
}

/// Reads one answer, which must be a good frame.
fn read(answer: &[u8], with: impl FnOnce(ServerFrame<'_>)) {
    let mut decoder = Decoder::<FromServer>::default();
    let mut rest = answer;
    let frame = decoder.next(&mut rest).expect("a good frame").expect("a whole frame");
    assert!(rest.is_empty(), "more than one frame");
    with(frame);
}
