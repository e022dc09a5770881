//! What happens within one turn of the loop: everything arrives while the server stands still.

mod common;

use common::program::Lockd;
use common::{Answer, Peer, plain};
use lockclient::wire::ClientFrame;
use std::time::{Duration, Instant};

/// Stops the server if that can be done before the first lease, of so many seconds and asked for at
/// `asked`, ends: where everything is slow it cannot, and the scene has to be set again.
fn freeze_within(lockd: &Lockd, asked: Instant, lease: u8) -> bool {
    lockd.freeze();
    asked.elapsed() < Duration::from_secs(lease.into())
}

/// Sets a scene again and again until it is set in time.
fn set_in_time(scene: fn() -> bool) {
    assert!((0..20).any(|_| scene()), "always too slow");
}

#[test]
fn after_being_stopped_over_leases_and_waits_nobody_is_granted_late_or_in_vain() {
    set_in_time(stopped_over_leases_and_waits);
}

fn stopped_over_leases_and_waits() -> bool {
    let lockd = Lockd::start(&[]);
    let mut holder = Peer::connect(lockd.address);
    let mut impatient = Peer::connect(lockd.address);
    let mut dead = Peer::connect(lockd.address);
    let mut patient = Peer::connect(lockd.address);
    let asked = Instant::now();
    let token = holder.take(1, "k", 2);
    impatient.acquire(2, "k", 3, 60);
    impatient.expect_served();
    dead.acquire(3, "k", 60, 60);
    dead.expect_served();
    patient.acquire(4, "k", 60, 60);
    patient.expect_served();
    if !freeze_within(&lockd, asked, 2) {
        return false;
    }
    // All of this happens while it stands still; it sees it in one turn.
    holder.release(5, token, "k");
    drop(dead);
    std::thread::sleep(Duration::from_millis(3500));
    lockd.signal("CONT");
    assert_eq!(holder.answer(), plain('N', 5, "k"));
    assert_eq!(impatient.answer(), plain('T', 2, "k"));
    // Not behind the dead connection's lease of 60 s.
    assert!(matches!(patient.answer(), Answer::Acquired { owner: 4, .. }));
    true
}

#[test]
fn what_was_sent_before_sigterm_is_answered() {
    let mut lockd = Lockd::start(&[]);
    let mut peer = Peer::connect(lockd.address);
    peer.expect_served();
    lockd.freeze();
    for owner in 1..=200 {
        peer.acquire(owner, &format!("k{owner}"), 0, 60);
    }
    lockd.signal("TERM");
    lockd.signal("CONT");
    for owner in 1..=200 {
        assert!(matches!(peer.answer(), Answer::Acquired { owner: echo, .. } if echo == owner));
    }
    peer.expect_end();
    assert!(lockd.wait().success());
}

#[test]
fn ends_of_streams_are_seen_before_leases_end_in_the_same_turn() {
    set_in_time(end_of_stream_and_of_lease);
}

fn end_of_stream_and_of_lease() -> bool {
    let lockd = Lockd::start(&[]);
    let mut holder = Peer::connect(lockd.address);
    let mut dead = Peer::connect(lockd.address);
    let mut patient = Peer::connect(lockd.address);
    let asked = Instant::now();
    let token = holder.take(1, "k", 1);
    dead.acquire(2, "k", 60, 60);
    dead.expect_served();
    patient.acquire(3, "k", 60, 60);
    patient.expect_served();
    if !freeze_within(&lockd, asked, 1) {
        return false;
    }
    drop(dead);
    std::thread::sleep(Duration::from_millis(1200));
    lockd.signal("CONT");
    // Not a token was spent on the dead.
    assert_eq!(patient.answer(), Answer::Acquired { owner: 3, token: token + 1, key: "k".into() });
    true
}

#[test]
fn more_requests_than_a_batch_are_all_answered_when_they_come_with_the_end() {
    let lockd = Lockd::start(&[]);
    let mut peer = Peer::connect(lockd.address);
    peer.expect_served();
    lockd.freeze();
    for owner in 1..=100 {
        peer.release(owner, 0, "_probe");
    }
    peer.end_sending();
    lockd.signal("CONT");
    for owner in 1..=100 {
        assert_eq!(peer.answer(), plain('N', owner, "_probe"));
    }
    peer.expect_end();
}

/// The token that one request gets that arrives together with, and just behind, as many requests
/// of another connection as fit into 100 kB, each with a key of `key_len` bytes.
fn token_behind_a_flood(key_len: usize) -> u64 {
    let lockd = Lockd::start(&[]);
    let mut flooder = Peer::connect(lockd.address);
    let mut other = Peer::connect(lockd.address);
    flooder.expect_served();
    other.expect_served();
    let mut flood = Vec::new();
    for owner in 1..=50_000 / key_len as u64 {
        let key = format!("{owner:0key_len$}");
        ClientFrame::Acquire { wait: 0, lease: 60, owner, key: key.as_bytes() }.encode(&mut flood);
    }
    lockd.freeze();
    flooder.send(&flood);
    other.acquire(1, "k", 0, 60);
    lockd.signal("CONT");
    match other.answer() {
        Answer::Acquired { token, .. } => token,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[test]
fn a_connection_gets_64_answers_before_the_next_has_its_turn() {
    // 64 frames of 21 bytes are less than one read.
    assert_eq!(token_behind_a_flood(9), 65);
}

#[test]
fn a_read_takes_4096_bytes() {
    // 29 frames of 140 bytes fit into one read, and the 30th is cut.
    assert_eq!(token_behind_a_flood(128), 30);
}

#[test]
fn a_peer_that_read_while_the_server_stood_still_is_not_taken_for_one_that_does_not_read() {
    let lockd = Lockd::start(&["--max-waiters-per-connection", "100"]);
    let mut peer = Peer::connect_with_small_window(lockd.address);
    peer.stream.set_write_timeout(Some(Duration::from_millis(500))).expect("time-out");
    let key = "x".repeat(128);
    let mut request = Vec::new();
    ClientFrame::Release { owner: 7, token: 0, key: key.as_bytes() }.encode(&mut request);
    // Until the server reads no more and the kernels are full.
    let mut sent = 0;
    loop {
        match std::io::Write::write(&mut peer.stream, &request[sent % request.len()..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    lockd.freeze();
    // The server has been waiting for the peer for half a second when it is stopped, and when it
    // goes on more than 5 s have passed. The peer has read meanwhile all that the kernels had.
    let mut read = 0;
    peer.stream.set_read_timeout(Some(Duration::from_millis(500))).expect("time-out");
    while let Ok(answer) = peer.try_answer() {
        assert_eq!(answer, Some(plain('N', 7, &key)));
        read += 1;
    }
    std::thread::sleep(Duration::from_millis(5000));
    lockd.signal("CONT");
    peer.stream.set_read_timeout(Some(common::LONG)).expect("time-out");
    peer.stream.set_write_timeout(None).expect("time-out");
    let requests = sent.div_ceil(request.len());
    for _ in read..sent / request.len() {
        assert_eq!(peer.answer(), plain('N', 7, &key));
    }
    peer.send(&request[request.len() - (requests * request.len() - sent)..]);
    if sent < requests * request.len() {
        assert_eq!(peer.answer(), plain('N', 7, &key));
    }
    peer.expect_served();
}
