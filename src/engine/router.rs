//! Where to dial, and when: the leader hint, the endpoints in turn, backoff for each, and a bound
//! on dials that holds whatever happens.

use super::rng::Rng;
use crate::clock::Mono;
use crate::endpoint::normalize;
use crate::reason::{Reason, ReasonKind};
use std::time::Duration;

/// CON-3: this many dials may follow each other at once …
const BURST: u32 = 8;
/// … and then one in this time.
const DIAL_EVERY: Duration = Duration::from_millis(100);
/// While a dial is under way the next endpoint is tried after this long: one that swallows
/// packets must not cost a caller its whole deadline.
pub(super) const STAGGER: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Endpoint {
    name: String,
    failures: u32,
    retry_at: Mono,
    /// Whether its last attempt ended in an authentication failure, and how.
    auth: Option<Reason>,
}

#[derive(Debug)]
pub(super) struct Router {
    endpoints: Vec<Endpoint>,
    hint: Option<u16>,
    /// The endpoint whose turn it is, modulo their number.
    turn: u16,
    /// When the bucket of dials is full again.
    bucket: Mono,
    rng: Rng,
}

/// What a dial is for: how much of the bucket it must leave to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DialFor {
    /// A serving node, or a connection that blocking callers need.
    Service,
    /// Another connection for tickets: whoever cancels all the time closes these all the time, and
    /// must not use up the dials that others need.
    Tickets,
}

impl Router {
    pub(super) fn new(endpoints: &[String], seed: u64) -> Router {
        let endpoint = |name: &String| Endpoint {
            name: name.clone(),
            failures: 0,
            retry_at: Mono(0),
            auth: None,
        };
        Router {
            endpoints: endpoints.iter().map(endpoint).collect(),
            hint: None,
            turn: 0,
            bucket: Mono(0),
            rng: Rng::new(seed),
        }
    }

    pub(super) fn hint(&self) -> Option<u16> {
        self.hint
    }

    /// CON-2: remembers the leader that a server named, if it is a configured endpoint. Returns
    /// whether the hint changed.
    pub(super) fn hear(&mut self, leader: &[u8], now: Mono) -> bool {
        let name = std::str::from_utf8(leader).ok().and_then(|text| normalize(text).ok());
        let Some(name) = name else { return false };
        let at = self.endpoints.iter().position(|endpoint| endpoint.name == name);
        let Some(at) = at.map(|at| at as u16) else { return false };
        if self.hint == Some(at) {
            return false;
        }
        self.hint = Some(at);
        // What it failed at before it led says nothing now.
        self.endpoints[usize::from(at)].retry_at = now;
        true
    }

    /// Returns whether there was a hint.
    pub(super) fn drop_hint(&mut self) -> bool {
        self.hint.take().is_some()
    }

    /// An attempt at `endpoint` has failed, or its serving connection was lost.
    pub(super) fn failed(&mut self, endpoint: u16, reason: Reason, now: Mono) {
        let (least, most) = schedule(reason.kind);
        let entry = &mut self.endpoints[usize::from(endpoint)];
        let step = least.saturating_mul(1 << entry.failures.min(16)).min(most);
        entry.failures = entry.failures.saturating_add(1);
        entry.retry_at = now + self.rng.jitter(step);
        #[cfg(canary)]
        if crate::canary!(everything_drains) && entry.failures > 2 {
            entry.retry_at = Mono(u64::MAX);
        }
        entry.auth = (reason.kind == ReasonKind::Auth).then_some(reason);
    }

    /// A connection to `endpoint` serves.
    pub(super) fn served(&mut self, endpoint: u16) {
        let entry = &mut self.endpoints[usize::from(endpoint)];
        entry.failures = 0;
        entry.retry_at = Mono(0);
        entry.auth = None;
    }

    /// The reason, when every endpoint's last attempt ended in an authentication failure.
    pub(super) fn all_auth(&self) -> Option<Reason> {
        let mut last = None;
        for endpoint in &self.endpoints {
            last = Some(endpoint.auth?);
        }
        last
    }

    pub(super) fn retry_at(&self, endpoint: u16) -> Mono {
        self.endpoints[usize::from(endpoint)].retry_at
    }

    /// The endpoint to try next: the hint, then the others in turn; none that backs off or that
    /// is `busy` already. Else the time at which one will do.
    pub(super) fn next(&self, now: Mono, busy: impl Fn(u16) -> bool) -> Result<u16, Mono> {
        let count = self.endpoints.len() as u16;
        let mut soonest = Mono(u64::MAX);
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        for at in self.hint.into_iter().chain(in_turn) {
            if busy(at) {
                continue;
            }
            let retry_at = self.endpoints[usize::from(at)].retry_at;
            if retry_at <= now {
                return Ok(at);
            }
            soonest = soonest.min(retry_at);
        }
        Err(soonest)
    }

    /// `endpoint` is dialled: the turn is the next one's.
    pub(super) fn turn_after(&mut self, endpoint: u16) {
        self.turn = endpoint + 1;
    }

    /// Takes a dial out of the bucket, or says when there will be one.
    pub(super) fn take_dial(&mut self, purpose: DialFor, now: Mono) -> Result<(), Mono> {
        let kept = match purpose {
            DialFor::Service => 0,
            DialFor::Tickets => 2,
        };
        let room = DIAL_EVERY * (BURST - 1 - kept);
        let level = self.bucket.since(now);
        if level > room {
            return Err(now + (level - room));
        }
        self.bucket = self.bucket.max(now) + DIAL_EVERY;
        Ok(())
    }
}

/// The first and the longest backoff after a failure of this kind.
fn schedule(kind: ReasonKind) -> (Duration, Duration) {
    let (least, most) = match kind {
        // It named the leader, or is between two: the answer changes soon.
        ReasonKind::Moved | ReasonKind::NoLeader => (50, 500),
        ReasonKind::NotActive => (100, 1_000),
        // Only somebody who changes a secret mends it.
        ReasonKind::Auth => (500, 15_000),
        _ => (50, 5_000),
    };
    (Duration::from_millis(least), Duration::from_millis(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router() -> Router {
        Router::new(&["a:1".to_owned(), "b:1".to_owned(), "[::1]:1".to_owned()], 7)
    }

    const SECOND: Mono = Mono(1_000_000_000);

    #[test]
    fn con_2_a_hint_counts_only_if_it_is_configured() {
        let mut router = router();
        for stranger in ["c:1", "a:2", "a", "", "a:1:1", "\u{fffd}:1"] {
            assert!(!router.hear(stranger.as_bytes(), SECOND), "{stranger}");
        }
        assert!(!router.hear(&[0xff, b':', b'1'], SECOND));
        assert_eq!(router.hint(), None);
        assert!(router.hear(b"B.:01", SECOND));
        assert_eq!(router.hint(), Some(1));
        assert!(router.hear(b"[0::1]:1", SECOND));
        assert_eq!(router.hint(), Some(2));
    }

    #[test]
    fn con_2_a_hint_may_name_a_socket_file() {
        let mut router = Router::new(&["a:1".to_owned(), "unix:/run/Lockd.sock".to_owned()], 7);
        for stranger in ["unix:/run/lockd.sock", "unix:/run//Lockd.sock", "/run/Lockd.sock"] {
            assert!(!router.hear(stranger.as_bytes(), SECOND), "{stranger}");
        }
        assert!(router.hear(b"unix:/run/Lockd.sock", SECOND));
        assert_eq!(router.hint(), Some(1));
    }

    #[test]
    fn con_3_the_hint_first_then_the_others_in_turn() {
        let mut router = router();
        router.hear(b"b:1", SECOND);
        for _ in 0..3 {
            // Asking changes nothing: a dial that was not allowed costs nobody its turn.
            assert_eq!(router.next(SECOND, |_| false), Ok(1));
        }
        router.turn_after(1);
        assert_eq!(router.next(SECOND, |at| at == 1), Ok(2));
        router.turn_after(2);
        assert_eq!(router.next(SECOND, |at| at == 1), Ok(0));
        router.failed(0, Reason::new(ReasonKind::Connect), SECOND);
        router.failed(2, Reason::new(ReasonKind::Connect), SECOND);
        let soonest = router.retry_at(0).min(router.retry_at(2));
        assert_eq!(router.next(SECOND, |at| at == 1), Err(soonest));
        assert!(soonest > SECOND && soonest <= SECOND + Duration::from_millis(50));
    }

    #[test]
    fn con_3_dials_are_bounded() {
        let mut router = router();
        let mut dials = 0;
        for millis in 0..10_000 {
            let now = SECOND + Duration::from_millis(millis);
            while router.take_dial(DialFor::Service, now).is_ok() {
                dials += 1;
            }
        }
        assert_eq!(dials, 8 + 99);
    }

    #[test]
    fn con_6_tickets_leave_dials_to_others() {
        let mut router = router();
        let mut tickets = 0;
        while router.take_dial(DialFor::Tickets, SECOND).is_ok() {
            tickets += 1;
        }
        assert_eq!(tickets, 6);
        assert_eq!(router.take_dial(DialFor::Service, SECOND), Ok(()));
        assert_eq!(router.take_dial(DialFor::Service, SECOND), Ok(()));
        let free = router.take_dial(DialFor::Service, SECOND);
        assert_eq!(free, Err(SECOND + Duration::from_millis(100)));
    }

    #[test]
    fn con_3_all_auth_counts_nothing_else() {
        let mut router = router();
        let auth = Reason::new(ReasonKind::Auth);
        router.failed(0, auth, SECOND);
        router.failed(1, auth, SECOND);
        assert_eq!(router.all_auth(), None);
        router.failed(2, auth.at(2), SECOND);
        assert_eq!(router.all_auth(), Some(auth.at(2)));
        router.failed(1, Reason::new(ReasonKind::Connect), SECOND);
        assert_eq!(router.all_auth(), None);
    }
}
