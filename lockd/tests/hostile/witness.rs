//! Good clients that check what they are told, across the server's restarts.

use super::attacks::Attack;
use super::common::{Answer, Peer, error, plain};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const KEYS: usize = 32;
const CLIENTS: usize = 4;

/// What all of them have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// The highest token.
    highest: AtomicU64,
    tokens: Mutex<Tokens>,
    holders: [Mutex<Option<Holder>>; KEYS],
    /// How often the server said that it may not grant.
    not_active: AtomicU64,
    grants: AtomicU64,
}

/// The last tokens. Those below `floor` are known to be too old to be issued any more.
#[derive(Default)]
struct Tokens {
    floor: u64,
    last: HashSet<u64>,
}

struct Holder {
    token: u64,
    /// Until when its lease runs at least: it counts from the grant, which is not before the
    /// request was sent.
    until: Instant,
}

impl Seen {
    pub(crate) fn grants(&self) -> u64 {
        self.grants.load(Ordering::SeqCst)
    }

    pub(crate) fn not_active(&self) -> u64 {
        self.not_active.load(Ordering::SeqCst)
    }

    /// A grant has arrived. `floor` is the highest token that had arrived, at any client, before
    /// the request was sent.
    fn granted(&self, key: usize, token: u64, floor: u64, until: Instant) {
        assert!(token > floor, "token {token} was issued after {floor}");
        self.highest.fetch_max(token, Ordering::SeqCst);
        self.grants.fetch_add(1, Ordering::SeqCst);
        let mut tokens = self.tokens.lock().expect("tokens");
        assert!(tokens.last.insert(token) && token >= tokens.floor, "token {token} twice");
        if tokens.last.len() > 200_000 {
            // Nothing so old is in flight: a client has one request at a time.
            tokens.floor = token - 100_000;
            let floor = tokens.floor;
            tokens.last.retain(|token| *token >= floor);
        }
        drop(tokens);
        let mut holder = self.holders[key].lock().expect("a holder");
        let now = Instant::now();
        if let Some(other) = &*holder {
            assert!(
                now >= other.until || now >= until,
                "tokens {} and {token} hold the key {key} at once",
                other.token
            );
        }
        if holder.as_ref().is_none_or(|other| other.token < token) {
            *holder = Some(Holder { token, until });
        }
    }

    /// A release is about to be sent.
    fn releases(&self, key: usize, token: u64) {
        let mut holder = self.holders[key].lock().expect("a holder");
        holder.take_if(|holder| holder.token == token);
    }
}

/// Takes and releases, and lets leases end, for as long as the attack goes on.
pub(crate) fn begin(attack: &Attack, seen: &Arc<Seen>, longest: u8) -> Vec<JoinHandle<()>> {
    let spawn = |number: usize| {
        let (attack, seen) = (attack.clone(), seen.clone());
        std::thread::spawn(move || {
            let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number as u64 + 1));
            while let Some(mut peer) = attack.connect() {
                while attack.goes_on() && go_round(&mut peer, &seen, longest, &mut random) {}
            }
        })
    };
    (0..CLIENTS).map(spawn).collect()
}

/// One acquire, and mostly its release. Returns whether the connection still lives.
fn go_round(peer: &mut Peer, seen: &Seen, longest: u8, random: &mut Random) -> bool {
    let key = random.below(KEYS as u64) as usize;
    let name = format!("witnessed/{key}");
    let lease = 1 + random.below(longest.into()) as u8;
    let wait = random.below(2) as u8;
    let owner = 1 + random.below(u64::MAX - 1);
    let floor = seen.highest.load(Ordering::SeqCst);
    let sent = Instant::now();
    if peer.try_acquire(owner, &name, wait, lease).is_err() {
        return false;
    }
    let Ok(Some(answer)) = peer.try_answer() else { return false };
    let token = match answer {
        Answer::Acquired { owner: echo, token, key } if echo == owner && key == name => token,
        answer if answer == plain('T', owner, &name) => return true,
        answer => {
            assert_eq!(answer, error("not_active"));
            seen.not_active.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            return true;
        }
    };
    let until = sent + Duration::from_secs(lease.into());
    seen.granted(key, token, floor, until);
    if random.below(50) == 0 {
        // Its lease ends by itself.
        return true;
    }
    std::thread::sleep(Duration::from_millis(random.below(4)));
    seen.releases(key, token);
    if peer.try_release(owner ^ 1, token, &name).is_err() {
        return false;
    }
    match peer.try_answer() {
        Ok(Some(answer)) => {
            let known = answer == plain('R', owner ^ 1, &name);
            // The lease may have ended meanwhile.
            let ended = answer == plain('N', owner ^ 1, &name) && Instant::now() >= until;
            assert!(known || ended, "{answer:?} to the release of {token}");
            true
        }
        _ => false,
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
