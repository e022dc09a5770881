//! Peers that are slow, broken or hostile, all at once, and some that are none of it; and a
//! server that is killed among them.
//!
//! Takes some seconds. `LOCKD_SOAK_SECONDS` makes it take as long as is wanted.

mod attacks;
#[path = "../common/mod.rs"]
mod common;
mod kills;
mod witness;

use attacks::Attack;
use common::program::Lockd;
use common::{Peer, plain};
use std::time::{Duration, Instant};

fn soak_seconds(default: u64) -> u64 {
    match std::env::var("LOCKD_SOAK_SECONDS") {
        Ok(seconds) => seconds.parse().expect("LOCKD_SOAK_SECONDS is a number of seconds"),
        Err(_) => default,
    }
}

fn descriptors(lockd: &Lockd) -> usize {
    let path = format!("/proc/{}/fd", lockd.child.id());
    std::fs::read_dir(path).expect("descriptors").count()
}

/// Waits until it has no more descriptors than `before`: draining and lingering ends.
fn await_descriptors(lockd: &Lockd, before: usize) {
    let end = Instant::now() + common::LONG;
    while descriptors(lockd) > before {
        assert!(Instant::now() < end, "{} descriptors", descriptors(lockd) - before);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn resident_kib(lockd: &Lockd) -> u64 {
    let path = format!("/proc/{}/status", lockd.child.id());
    let status = std::fs::read_to_string(path).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// All attacks at once for a while. Returns how long the good client's requests took.
fn attack(lockd: &Lockd, good: &mut Peer, duration: Duration) -> Vec<Duration> {
    let attack = Attack::on(lockd.address);
    let threads = attack.begin();
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
    attack.end(threads);
    took.sort_unstable();
    took
}

#[test]
fn peers_that_misbehave_cost_the_others_nothing_and_leave_nothing_behind() {
    let seconds = soak_seconds(6);
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
        await_descriptors(&lockd, before);
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
