//! What follows from the log so far: what the predicates are asked about.
//!
//! Calls, attempts and tokens are numbered from the start of a run, so that each is found by its
//! number; a run has a bounded number of them, and the ledger goes with the run.

use crate::record::{Answer, Decider, Outcome, Record, ReleaseEnd};
use crate::time::{SECOND, Time};
use std::collections::HashMap;

/// Tokens from here on were never issued: a server made them up.
pub(crate) const BOGUS_TOKEN: u64 = 1 << 60;

/// A client, as its callers opened it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) strict: bool,
    pub(crate) enforce: bool,
    pub(crate) ended: bool,
    first_owner: u64,
    /// By owner, from the first.
    owners: Vec<Owner>,
}

/// What an owner was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Not seen on the wire.
    Unknown,
    /// An acquire's attempt.
    Attempt(u32),
    /// A release, or a probe.
    Release {
        /// The connection that it went out on.
        link: u32,
        /// Of its frame.
        next: u16,
        /// The token that it releases; 0 for a probe.
        token: u64,
        /// It was answered.
        answered: bool,
    },
}

/// How a call stood when it was decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decision {
    pub(crate) by: Decider,
    pub(crate) claimed: bool,
    /// A complete answer had been read.
    pub(crate) answered: bool,
    pub(crate) mono: u64,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) client: u16,
    pub(crate) key: u16,
    pub(crate) wait: u8,
    pub(crate) lease: u8,
    pub(crate) budget: u8,
    pub(crate) deadline: u64,
    pub(crate) claimed: bool,
    pub(crate) claim_mono: u64,
    pub(crate) claim_boot: u64,
    /// What its last frame asked the server to wait, in seconds.
    pub(crate) wire_wait: Option<u8>,
    /// The attempt that stands; `None` before the first, and after a `B` that is retried.
    pub(crate) attempt: Option<u32>,
    pub(crate) last_busy: bool,
    /// Bytes accepted, of all its attempts.
    pub(crate) sent: u32,
    pub(crate) decision: Option<Decision>,
    pub(crate) outcome: Option<Outcome>,
}

/// An attempt of a call: one owner.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) call: u32,
    pub(crate) owner: u64,
    pub(crate) link: Option<u32>,
    /// Bytes accepted.
    pub(crate) sent: u16,
    /// When the last byte was accepted, in true time.
    pub(crate) whole_at: Option<Time>,
    /// The token in the server's grant log; 0 if there is none.
    pub(crate) granted: u64,
    pub(crate) answer: Option<Answer>,
    pub(crate) answer_token: u64,
    pub(crate) read_mono: u64,
    /// The token, given up by the same client, that still held the key when it was refused.
    pub(crate) met_own: Option<u64>,
}

/// Where a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// Nobody has read it.
    Server,
    /// Its client has read it.
    Read,
    /// Its client has read it, behind something that ended the connection.
    Overtaken,
    /// A live caller has it.
    Held,
    /// Its holder gave it up.
    GivenUp,
    /// Its client gives it back.
    Compensated,
}

/// The release of a token by its holder, as far as it can be seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Release {
    /// Frames of which a byte went out.
    pub(crate) tries: u16,
    /// The server answered one of them with `R`.
    pub(crate) freed: bool,
    /// The server answered one of them with `N`.
    pub(crate) missed: bool,
    /// The answer that its client has read, and had to listen to.
    pub(crate) answer: Option<Answer>,
    pub(crate) returned: Option<ReleaseEnd>,
}

/// A token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) client: u16,
    pub(crate) key: u16,
    pub(crate) lease_end: Time,
    pub(crate) at: Whereabouts,
    pub(crate) release: Release,
    /// When its release was handed to the client, on the client's clock, and the next call.
    pub(crate) given_up: Option<(u64, u32)>,
    attempt: Option<u32>,
}

/// A key.
#[derive(Debug, Default)]
pub(crate) struct Key {
    pub(crate) last_granted: u64,
    pub(crate) last_delivered: u64,
    /// Token, and the true time up to which its holder believes in it.
    pub(crate) holders: Vec<(u64, Time)>,
}

/// Everything known of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) grace: u64,
    pub(crate) clients: Vec<Client>,
    pub(crate) calls: Vec<Call>,
    pub(crate) attempts: Vec<Attempt>,
    tokens: Vec<Option<Token>>,
    bogus: HashMap<u64, Token>,
    pub(crate) keys: Vec<Key>,
    /// The highest token that was granted.
    pub(crate) last_token: u64,
    /// The end of the last lease that ran when a server was started which knew nothing of it.
    pub(crate) forgotten_until: Time,
    /// By connection: something was read after which it must end.
    fatal: Vec<bool>,
    /// By connection: answers but grants are not listened to.
    half_closed: Vec<bool>,
}

impl Ledger {
    /// An empty ledger, for `keys` keys.
    pub(crate) fn new(keys: usize, grace: u64) -> Ledger {
        Ledger {
            grace,
            keys: std::iter::repeat_with(Key::default).take(keys).collect(),
            ..Ledger::default()
        }
    }

    pub(crate) fn call(&self, call: u32) -> &Call {
        &self.calls[call as usize]
    }

    pub(crate) fn attempt_of(&self, call: u32) -> Option<&Attempt> {
        self.call(call).attempt.map(|at| &self.attempts[at as usize])
    }

    pub(crate) fn owner(&self, client: u16, owner: u64) -> Owner {
        let client = &self.clients[usize::from(client)];
        let at = owner.wrapping_sub(client.first_owner) as usize;
        client.owners.get(at).copied().unwrap_or(Owner::Unknown)
    }

    pub(crate) fn attempt(&self, client: u16, owner: u64) -> Option<&Attempt> {
        match self.owner(client, owner) {
            Owner::Attempt(at) => Some(&self.attempts[at as usize]),
            _ => None,
        }
    }

    pub(crate) fn token(&self, token: u64) -> Option<&Token> {
        if token >= BOGUS_TOKEN {
            return self.bogus.get(&token);
        }
        self.tokens.get(token as usize)?.as_ref()
    }

    /// The call whose grant has this token.
    pub(crate) fn call_of(&self, token: u64) -> Option<u32> {
        let at = self.token(token)?.attempt?;
        Some(self.attempts[at as usize].call)
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = (u64, &Token)> {
        let known =
            |(number, token): (usize, &'_ Option<Token>)| token.is_some().then_some(number as u64);
        let numbers = self.tokens.iter().enumerate().filter_map(known);
        numbers.filter_map(|number| Some((number, self.token(number)?)))
    }

    pub(crate) fn is_fatal(&self, link: u32) -> bool {
        self.fatal.get(link as usize).copied().unwrap_or(false)
    }

    /// Whether an answer belongs to something that waits for it on that connection.
    fn matches(&self, record: &Record) -> bool {
        let &Record::Read { client, link, owner, answer, key, .. } = record else { return true };
        match self.owner(client, owner) {
            Owner::Attempt(at) => {
                let attempt = &self.attempts[at as usize];
                matches!(answer, Answer::Acquired | Answer::TimedOut | Answer::Busy)
                    && attempt.link == Some(link)
                    && attempt.answer.is_none()
                    && self.call(attempt.call).key == key
            }
            Owner::Release { link: at, token, answered, .. } => {
                at == link
                    && !answered
                    && (answer == Answer::NotHeld || answer == Answer::Released && token != 0)
            }
            Owner::Unknown => false,
        }
    }

    fn owner_mut(&mut self, client: u16, owner: u64) -> Option<&mut Owner> {
        let client = &mut self.clients[usize::from(client)];
        let at = owner.wrapping_sub(client.first_owner) as usize;
        // A run uses few: what is far off was made up.
        if at > 1 << 24 {
            return None;
        }
        if client.owners.len() <= at {
            client.owners.resize(at + 1, Owner::Unknown);
        }
        client.owners.get_mut(at)
    }

    fn token_mut(&mut self, token: u64) -> Option<&mut Token> {
        if token >= BOGUS_TOKEN {
            return self.bogus.get_mut(&token);
        }
        self.tokens.get_mut(token as usize)?.as_mut()
    }

    fn set_fatal(&mut self, link: u32) {
        mark(&mut self.fatal, link);
    }

    /// The release of the token that this owner's frame names.
    fn release_mut(&mut self, client: u16, owner: u64) -> Option<&mut Release> {
        let Owner::Release { token, .. } = self.owner(client, owner) else { return None };
        self.token_mut(token).map(|token| &mut token.release)
    }

    fn decide(&mut self, call: u32, by: Decider, mono: u64) {
        let attempt = self.attempt_of(call);
        let answered = attempt.is_some_and(|attempt| attempt.answer.is_some());
        let call = &mut self.calls[call as usize];
        if call.decision.is_none() || by == Decider::Lapse || by == Decider::Cancel {
            call.decision = Some(Decision { by, claimed: call.claimed, answered, mono });
        }
    }

    /// Takes note of a record.
    pub(crate) fn apply(&mut self, t: Time, record: &Record) {
        match *record {
            Record::Open { strict, enforce, first_owner, .. } => self.clients.push(Client {
                strict,
                enforce,
                ended: false,
                first_owner,
                owners: Vec::new(),
            }),
            Record::Call { client, key, wait, lease, budget, deadline, .. } => {
                self.calls.push(Call {
                    client,
                    key,
                    wait,
                    lease,
                    budget,
                    deadline,
                    claimed: false,
                    claim_mono: 0,
                    claim_boot: 0,
                    wire_wait: None,
                    attempt: None,
                    last_busy: false,
                    sent: 0,
                    decision: None,
                    outcome: None,
                });
            }
            Record::Claim { call, mono, boot } => {
                let call = &mut self.calls[call as usize];
                call.claimed = true;
                (call.claim_mono, call.claim_boot) = (mono, boot);
            }
            Record::Encode { call, owner, wait, .. } => self.encode(call, owner, wait),
            Record::Unclaim { call } => self.calls[call as usize].claimed = false,
            Record::Retry { call } => {
                let call = &mut self.calls[call as usize];
                call.claimed = false;
                call.attempt = None;
                call.last_busy = true;
            }
            Record::AcquireBytes { call, link, from, to, len, .. } => {
                self.calls[call as usize].sent += u32::from(to - from);
                if let Some(at) = self.call(call).attempt {
                    let attempt = &mut self.attempts[at as usize];
                    attempt.link = Some(link);
                    attempt.sent = to;
                    attempt.whole_at = (to == len).then_some(t);
                }
            }
            Record::ReleaseBytes { client, link, owner, token, from, to, .. } => {
                if let Some(entry) = self.owner_mut(client, owner) {
                    *entry = Owner::Release { link, next: to, token, answered: false };
                }
                if from == 0
                    && let Some(token) = self.token_mut(token)
                {
                    token.release.tries += 1;
                }
            }
            Record::ReleaseServed { client, owner, freed } => {
                if let Some(release) = self.release_mut(client, owner) {
                    *if freed { &mut release.freed } else { &mut release.missed } = true;
                }
            }
            Record::ReleaseReturn { token, end } => {
                if let Some(token) = self.token_mut(token) {
                    token.release.returned = Some(end);
                }
            }
            Record::Restarted => {
                let running = self.tokens().filter(|(_, token)| !token.release.freed);
                let last = running.map(|(_, token)| token.lease_end).max().unwrap_or(0);
                self.forgotten_until = last.max(self.forgotten_until);
            }
            Record::HalfClosed { link } => mark(&mut self.half_closed, link),
            Record::Grant { client, owner, key, token, lease_end, .. } => {
                let attempt = match self.owner(client, owner) {
                    Owner::Attempt(at) => Some(at),
                    _ => None,
                };
                if let Some(at) = attempt {
                    self.attempts[at as usize].granted = token;
                }
                let at = token as usize;
                if self.tokens.len() <= at {
                    self.tokens.resize(at + 1, None);
                }
                let (at_server, release) = (Whereabouts::Server, Release::default());
                self.tokens[at] = Some(Token {
                    client,
                    key,
                    lease_end,
                    at: at_server,
                    release,
                    given_up: None,
                    attempt,
                });
                self.keys[usize::from(key)].last_granted = token;
                self.last_token = self.last_token.max(token);
            }
            Record::Refuse { client, owner } => self.refuse(client, owner),
            Record::Undo { token } => {
                if let Some(token) = self.token_mut(token) {
                    token.release.freed = true;
                }
                if let Some(at) = self.token(token).and_then(|token| token.attempt) {
                    self.attempts[at as usize].granted = 0;
                }
            }
            Record::Read { .. } => self.read(record),
            Record::Fatal { link } => self.set_fatal(link),
            Record::Decide { call, by, mono } => self.decide(call, by, mono),
            Record::Return { call, outcome, .. } => {
                self.calls[call as usize].outcome = Some(outcome);
            }
            Record::Hold { call, token, until, .. } => {
                self.set_token(token, Whereabouts::Held);
                let key = self.call(call).key;
                let key = &mut self.keys[usize::from(key)];
                key.last_delivered = token;
                key.holders.retain(|(_, end)| *end > t);
                key.holders.push((token, until));
            }
            Record::GiveUp { token, mono, handed } => {
                let next = self.calls.len() as u32;
                if let Some(token) = self.token_mut(token).filter(|_| handed) {
                    token.given_up = Some((mono, next));
                }
                self.set_token(token, Whereabouts::GivenUp);
                if let Some(key) = self.token(token).map(|token| token.key) {
                    let holders = &mut self.keys[usize::from(key)].holders;
                    holders.retain(|(holder, _)| *holder != token);
                }
            }
            Record::Compensate { token, .. } | Record::CompensationDropped { token, .. } => {
                self.set_token(token, Whereabouts::Compensated);
            }
            Record::ClientEnded { client } => self.clients[usize::from(client)].ended = true,
            Record::Stray { .. }
            | Record::Fault { .. }
            | Record::Quiet { .. }
            | Record::QuietServer { .. }
            | Record::Fresh { .. }
            | Record::Drained { .. }
            | Record::Restless { .. }
            | Record::Overlooked { .. }
            | Record::Panic
            | Record::End => {}
        }
    }

    /// A try that meets a lock which its own client had begun to release before the call.
    fn refuse(&mut self, client: u16, owner: u64) {
        let Owner::Attempt(at) = self.owner(client, owner) else { return };
        let attempt = &self.attempts[at as usize];
        let call = self.call(attempt.call);
        // Where owners run out a release may end unsent.
        if call.wait > 0 || owner > u64::MAX - 1_000 {
            return;
        }
        let number = self.keys[usize::from(call.key)].last_granted;
        let held = self.token(number).filter(|token| token.client == client);
        // A release has five seconds; what is sent after them waits for it no longer.
        let releasing = held.and_then(|token| token.given_up).is_some_and(|(mono, next)| {
            attempt.call >= next && call.claim_mono < mono + 5 * SECOND
        });
        self.attempts[at as usize].met_own = releasing.then_some(number);
    }

    fn set_token(&mut self, token: u64, at: Whereabouts) {
        if let Some(token) = self.token_mut(token) {
            token.at = at;
        }
    }

    fn encode(&mut self, call: u32, owner: u64, wait: u8) {
        self.calls[call as usize].wire_wait = Some(wait);
        match self.call(call).attempt {
            Some(_) => {}
            None => {
                let at = self.attempts.len() as u32;
                self.attempts.push(Attempt {
                    call,
                    owner,
                    link: None,
                    sent: 0,
                    whole_at: None,
                    granted: 0,
                    answer: None,
                    answer_token: 0,
                    read_mono: 0,
                    met_own: None,
                });
                self.calls[call as usize].attempt = Some(at);
                let client = self.call(call).client;
                if let Some(entry) = self.owner_mut(client, owner) {
                    *entry = Owner::Attempt(at);
                }
            }
        }
    }

    fn read(&mut self, record: &Record) {
        let &Record::Read { client, link, owner, answer, token, key, mono } = record else {
            return;
        };
        let counts = !self.is_fatal(link);
        if answer == Answer::Acquired {
            if token >= BOGUS_TOKEN {
                let at = Whereabouts::Server;
                let made_up = Token {
                    client,
                    key,
                    lease_end: 0,
                    at,
                    release: Release::default(),
                    given_up: None,
                    attempt: None,
                };
                self.bogus.insert(token, made_up);
            }
            let at = if counts { Whereabouts::Read } else { Whereabouts::Overtaken };
            self.set_token(token, at);
        }
        if !counts {
            return;
        }
        if !self.matches(record) {
            self.set_fatal(link);
            return;
        }
        match self.owner_mut(client, owner) {
            Some(Owner::Release { answered, .. }) => {
                *answered = true;
                if self.half_closed.get(link as usize).is_some_and(|closed| *closed) {
                    return;
                }
                if let Some(release) = self.release_mut(client, owner) {
                    release.answer.get_or_insert(answer);
                }
            }
            Some(Owner::Attempt(at)) => {
                let at = *at;
                let attempt = &mut self.attempts[at as usize];
                attempt.answer = Some(answer);
                attempt.answer_token = token;
                attempt.read_mono = mono;
            }
            _ => {}
        }
    }
}

fn mark(links: &mut Vec<bool>, link: u32) {
    let at = link as usize;
    if links.len() <= at {
        links.resize(at + 1, false);
    }
    links[at] = true;
}
