//! Peers that are slow, broken or hostile, all at once, and one that is none of it.
//!
//! Takes a few seconds. `LOCKD_SOAK_SECONDS` makes it take as long as is wanted.

mod common;

use common::program::Lockd;
use common::{Peer, plain, send_all};
use lockclient::wire::ClientFrame;
use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Clone)]
struct Attack {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Attack {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn spawn(&self, attack: fn(&Attack)) -> JoinHandle<()> {
        let this = self.clone();
        std::thread::spawn(move || attack(&this))
    }
}

/// Asks and never reads, until it is closed.
fn deaf(attack: &Attack) {
    let mut request = Vec::new();
    ClientFrame::Release { owner: 1, token: 0, key: &[b'x'; 128] }.encode(&mut request);
    let requests = request.repeat(100);
    while attack.goes_on() {
        let peer = Peer::connect_with_small_window(attack.address);
        peer.stream.set_write_timeout(Some(Duration::from_millis(200))).expect("time-out");
        while attack.goes_on()
            && !matches!(send_all(&peer.stream, &requests), Err(error)
            if error.kind() != std::io::ErrorKind::WouldBlock)
        {}
    }
}

/// Sends frames a byte at a time, on many connections, and never ends one.
fn dripping(attack: &Attack) {
    let connect = || Peer::connect(attack.address);
    let mut peers: Vec<Peer> = (0..20).map(|_| connect()).collect();
    let mut sent = 0u64;
    while attack.goes_on() {
        for peer in &mut peers {
            let byte = if sent == 0 { b'A' } else { 1 };
            if send_all(&peer.stream, &[byte]).is_err() {
                *peer = connect();
            }
        }
        sent = (sent + 1) % 8;
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asks as fast as it can, and reads.
fn flooding(attack: &Attack) {
    let mut requests = Vec::new();
    for owner in 1..=500 {
        ClientFrame::Release { owner, token: 0, key: b"k" }.encode(&mut requests);
    }
    let mut peer = Peer::connect(attack.address);
    while attack.goes_on() {
        peer.send(&requests);
        for owner in 1..=500 {
            assert_eq!(peer.answer(), plain('N', owner, "k"));
        }
    }
}

/// Sends what is no frame.
fn babbling(attack: &Attack) {
    let mut random = 88172645463325252u64;
    while attack.goes_on() {
        let mut peer = Peer::connect(attack.address);
        let bytes: Vec<u8> = (0..2000)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 32) as u8
            })
            .collect();
        // It may be closed before all is sent, and must be in the end.
        let _ = send_all(&peer.stream, &bytes);
        let _ = peer.stream.shutdown(std::net::Shutdown::Write);
        while let Ok(Some(_)) = peer.try_answer() {}
    }
}

/// Connects, waits for a lock that is never free, and goes, in every manner.
fn storming(attack: &Attack) {
    let mut round = 0u64;
    while attack.goes_on() {
        let mut peers: Vec<Peer> = (0..20).map(|_| Peer::connect(attack.address)).collect();
        for peer in &mut peers {
            let _ = send_all(&peer.stream, &{
                let mut bytes = Vec::new();
                ClientFrame::Acquire { wait: 255, lease: 255, owner: 1, key: b"hot" }
                    .encode(&mut bytes);
                ClientFrame::Acquire { wait: 255, lease: 1, owner: 2, key: b"warm" }
                    .encode(&mut bytes);
                bytes
            });
        }
        for peer in peers {
            round += 1;
            if round.is_multiple_of(2) {
                SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO)).expect("linger");
            }
        }
    }
}

/// Connects and says nothing.
fn silent(attack: &Attack) {
    let peers: Vec<Peer> = (0..50).map(|_| Peer::connect(attack.address)).collect();
    while attack.goes_on() {
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(peers);
}

fn descriptors(lockd: &Lockd) -> usize {
    let path = format!("/proc/{}/fd", lockd.child.id());
    std::fs::read_dir(path).expect("descriptors").count()
}

fn resident_kib(lockd: &Lockd) -> u64 {
    let path = format!("/proc/{}/status", lockd.child.id());
    let status = std::fs::read_to_string(path).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// All attacks at once for a while. Returns how long the good client's requests took.
fn attack(lockd: &Lockd, good: &mut Peer, duration: Duration) -> Vec<Duration> {
    let attack = Attack { address: lockd.address, over: Arc::default() };
    let attacks: [fn(&Attack); 7] = [deaf, deaf, dripping, flooding, babbling, storming, silent];
    let threads = attacks.map(|kind| attack.spawn(kind));
    let end = Instant::now() + duration;
    let mut took = Vec::new();
    let mut owner = 100;
    while Instant::now() < end {
        owner += 2;
        let key = format!("good{}", owner % 100);
        let begun = Instant::now();
        let token = good.take(owner, &key, 60);
        good.release(owner + 1, token, &key);
        assert_eq!(good.answer(), plain('R', owner + 1, &key));
        took.push(begun.elapsed() / 2);
    }
    attack.over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("an attacker");
    }
    took.sort_unstable();
    took
}

#[test]
fn peers_that_misbehave_cost_the_others_nothing_and_leave_nothing_behind() {
    let seconds: u64 = match std::env::var("LOCKD_SOAK_SECONDS") {
        Ok(seconds) => seconds.parse().expect("LOCKD_SOAK_SECONDS is a number of seconds"),
        Err(_) => 6,
    };
    let mut lockd = Lockd::start(&["--max-waiters-per-connection", "100", "--log", "error"]);
    let mut good = Peer::connect(lockd.address);
    let held = good.take(1, "hot", 255);
    let before = descriptors(&lockd);
    let mut settled_kib = 0;
    // The first round brings tables and buffers to their size, the second shows that they stay.
    for round in 0..2 {
        let took = attack(&lockd, &mut good, Duration::from_secs(seconds.div_ceil(2)));
        let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
        assert!(median < Duration::from_millis(100), "median {median:?} of {}", took.len());
        assert!(worst < Duration::from_secs(3), "worst {worst:?}");
        // Draining and lingering ends; nothing is left but the good client.
        let end = Instant::now() + common::LONG;
        while descriptors(&lockd) > before {
            assert!(Instant::now() < end, "{} descriptors", descriptors(&lockd) - before);
            std::thread::sleep(Duration::from_millis(50));
        }
        let kib = resident_kib(&lockd);
        eprintln!(
            "round {round}: {} requests, median {median:?}, worst {worst:?}, {kib} KiB",
            took.len() * 2
        );
        if round == 0 {
            settled_kib = kib;
        } else {
            assert!(kib < settled_kib + settled_kib / 4 + 4096, "{settled_kib} then {kib} KiB");
        }
    }
    if seconds < 200 {
        good.release(2, held, "hot");
        assert_eq!(good.answer(), plain('R', 2, "hot"));
    }
    good.expect_served();
    lockd.signal("TERM");
    assert!(lockd.wait().success());
}
