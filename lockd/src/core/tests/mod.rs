//! Tests of the core in virtual time.

mod events;
mod limits;
mod matrix;
mod model;
mod reports;
mod serving;

use super::{Acquire, Answers, ConnectionId, Core, Limits, Stats, Time, Turn};
use lockclient::wire::ServerFrame;

pub(super) const ROOMY: Limits =
    Limits { locks: 1000, waiters: 1000, waiters_per_key: 100, waiters_per_connection: 100 };

/// An answer, with the connection it went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Acquired { to: u32, owner: u64, token: u64, key: String },
    Plain { op: char, to: u32, owner: u64, key: String },
    Error { to: u32, code: String },
}

pub(super) fn plain(op: char, to: u32, owner: u64, key: &str) -> Answer {
    Answer::Plain { op, to, owner, key: key.into() }
}

pub(super) fn acquired(to: u32, owner: u64, token: u64, key: &str) -> Answer {
    Answer::Acquired { to, owner, token, key: key.into() }
}

pub(super) fn not_active(to: u32) -> Answer {
    Answer::Error { to, code: "not_active".into() }
}

#[derive(Debug, Default)]
pub(super) struct Collected(pub(super) Vec<Answer>);

impl Answers for Collected {
    fn answer(&mut self, to: ConnectionId, frame: ServerFrame<'_>) {
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        let plain = |op, owner, key| Answer::Plain { op, to: to.0, owner, key: text(key) };
        self.0.push(match frame {
            ServerFrame::Acquired { owner, token, key } => {
                Answer::Acquired { to: to.0, owner, token, key: text(key) }
            }
            ServerFrame::TimedOut { owner, key } => plain('T', owner, key),
            ServerFrame::Busy { owner, key } => plain('B', owner, key),
            ServerFrame::Released { owner, key } => plain('R', owner, key),
            ServerFrame::NotHeld { owner, key } => plain('N', owner, key),
            ServerFrame::Error { code } => Answer::Error { to: to.0, code: text(code) },
            other => panic!("the core never answers {other:?}"),
        });
    }
}

/// A core and a clock that the test moves.
pub(super) struct World {
    pub(super) core: Core,
    pub(super) now: Time,
    out: Collected,
}

impl World {
    pub(super) fn new(limits: Limits) -> World {
        World::with_tokens(limits, 1, u64::MAX)
    }

    pub(super) fn with_tokens(limits: Limits, first: u64, last: u64) -> World {
        let now = Time::default().after_seconds(100);
        World { core: Core::new(limits, first, last), now, out: Collected::default() }
    }

    /// An acquire, and every answer it led to.
    pub(super) fn acquire(
        &mut self,
        from: u32,
        owner: u64,
        key: &str,
        wait: u8,
        lease: u8,
    ) -> Vec<Answer> {
        let request = Acquire { wait, lease, owner, key: key.as_bytes() };
        self.core.acquire(ConnectionId(from), request, self.now, &mut self.out);
        self.answers()
    }

    /// Acquires a key that must be free, and gives the token.
    pub(super) fn take(&mut self, from: u32, owner: u64, key: &str, lease: u8) -> u64 {
        match self.acquire(from, owner, key, 0, lease)[..] {
            [Answer::Acquired { token, .. }] => token,
            ref other => panic!("expected a grant, got {other:?}"),
        }
    }

    pub(super) fn release(&mut self, from: u32, owner: u64, token: u64, key: &str) -> Vec<Answer> {
        let (from, now) = (ConnectionId(from), self.now);
        self.core.release(from, owner, token, key.as_bytes(), now, &mut self.out);
        self.answers()
    }

    pub(super) fn undo(&mut self, token: u64, key: &str) -> Vec<Answer> {
        self.core.undo(token, key.as_bytes(), self.now, &mut self.out);
        self.answers()
    }

    pub(super) fn disconnect(&mut self, connection: u32) {
        self.core.disconnect(ConnectionId(connection));
        assert_eq!(self.answers(), []);
    }

    /// Moves the clock without looking at timers, as a stalled server would.
    pub(super) fn stall(&mut self, seconds: f64) {
        self.now = Time::from_nanos(self.now.as_nanos() + (seconds * 1e9) as u64);
    }

    /// Moves the clock from deadline to deadline, so that every timer is on time.
    pub(super) fn pass(&mut self, seconds: f64) -> Vec<Answer> {
        let end = Time::from_nanos(self.now.as_nanos() + (seconds * 1e9) as u64);
        while let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.core.advance(self.now, &mut self.out);
        }
        self.now = end;
        self.answers()
    }

    /// Looks at the timers now.
    pub(super) fn advance(&mut self) -> Vec<Answer> {
        self.core.advance(self.now, &mut self.out);
        self.answers()
    }

    /// Looks at the timers now, in a turn that looked at its connections at `looked` and has read
    /// until now.
    pub(super) fn advance_since(&mut self, looked: Time) -> Vec<Answer> {
        let mut turn = Turn::begin(looked);
        turn.has_read(self.now);
        self.core.advance_in(turn, &mut self.out);
        self.answers()
    }

    pub(super) fn stats(&self) -> Stats {
        self.core.stats()
    }

    pub(super) fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.out.0)
    }
}
