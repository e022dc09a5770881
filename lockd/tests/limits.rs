//! Limits, seen from outside.

mod common;

use common::{Answer, Peer, eventually, plain};
use lockclient::wire::ClientFrame;
use lockd::{Config, Server};
use std::time::{Duration, Instant};

fn start(change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config::on_free_port();
    change(&mut config);
    Server::start(config).expect("a server")
}

#[test]
fn one_connection_too_many_is_closed_and_the_others_are_served() {
    let server = start(|config| config.max_connections = 3);
    let mut peers: Vec<Peer> = (0..3).map(|_| Peer::connect(server.addr())).collect();
    eventually(&server, "three are open", |stats| stats.connections == 3);
    Peer::connect(server.addr()).expect_end();
    assert_eq!(server.stats().refused, 1);
    for peer in &mut peers {
        peer.expect_served();
    }
    peers.pop();
    eventually(&server, "one is gone", |stats| stats.connections == 2);
    Peer::connect(server.addr()).expect_served();
}

#[test]
fn a_connection_that_sends_nothing_is_closed_where_that_is_wanted_unless_it_waits() {
    let idle = Duration::from_secs(1);
    let server = start(|config| config.idle_timeout = Some(idle));
    let mut holder = Peer::connect(server.addr());
    let token = holder.take(1, "k", 255);
    let mut waiting = Peer::connect(server.addr());
    let asked = Instant::now();
    waiting.acquire(2, "k", 3, 60);
    waiting.expect_served();
    let mut silent = Peer::connect(server.addr());
    let begun = Instant::now();
    silent.expect_end();
    holder.expect_end();
    assert!(begun.elapsed() < idle + common::LONG, "{:?}", begun.elapsed());
    // It is answered, though it has sent nothing for longer, and only then is its time running.
    assert_eq!(waiting.answer(), plain('T', 2, "k"));
    waiting.expect_end();
    assert!(asked.elapsed() >= Duration::from_secs(3) + idle, "{:?}", asked.elapsed());
    assert!(server.stats().overdue >= 3);
    // What was held stays held.
    let mut other = Peer::connect(server.addr());
    other.acquire(3, "k", 0, 60);
    assert_eq!(other.answer(), plain('T', 3, "k"));
    other.release(4, token, "k");
    assert_eq!(other.answer(), plain('R', 4, "k"));
}

#[test]
fn a_connection_that_sends_something_in_time_is_not_taken_for_one_that_does_not() {
    let idle = Duration::from_secs(2);
    let server = start(|config| config.idle_timeout = Some(idle));
    // Where everything is slow it may not be in time, and has to try again.
    let stays = || {
        let mut peer = Peer::connect(server.addr());
        let begun = Instant::now();
        let mut heard = begun;
        while begun.elapsed() < 2 * idle {
            std::thread::sleep(idle / 20);
            let in_time = heard.elapsed() < idle / 2;
            heard = Instant::now();
            peer.release(1, 0, "_probe");
            match peer.try_answer() {
                Ok(Some(answer)) => assert_eq!(answer, plain('N', 1, "_probe")),
                end => {
                    assert!(!in_time, "{end:?}");
                    return false;
                }
            }
        }
        true
    };
    assert!((0..10).any(|_| stays()), "always too slow");
}

#[test]
fn admission_closes_at_90_percent_and_reopens_below_75_and_releases_work_throughout() {
    let server = start(|config| config.max_locks = 20);
    let mut peer = Peer::connect(server.addr());
    let tokens: Vec<u64> = (0..18).map(|number| peer.take(1, &format!("k{number}"), 255)).collect();
    for (number, token) in tokens.iter().enumerate().take(4) {
        peer.acquire(2, "new", 0, 5);
        assert_eq!(peer.answer(), plain('B', 2, "new"), "with {} held", 18 - number);
        let key = format!("k{number}");
        peer.release(3, *token, &key);
        assert_eq!(peer.answer(), plain('R', 3, &key));
    }
    peer.take(4, "new", 5);
}

#[test]
fn a_full_queue_of_one_key_does_not_close_the_server() {
    let server = start(|config| {
        config.max_waiters = 100;
        config.max_waiters_per_key = None;
    });
    let mut peer = Peer::connect(server.addr());
    peer.take(1, "hot", 255);
    peer.take(2, "cold", 255);
    for owner in 0..10 {
        peer.acquire(100 + owner, "hot", 255, 5);
    }
    peer.acquire(200, "hot", 255, 5);
    assert_eq!(peer.answer(), plain('B', 200, "hot"), "a tenth of all waiters is the limit");
    peer.acquire(201, "cold", 255, 5);
    peer.expect_served();
    assert_eq!(server.stats().locks.waiters, 11);
}

#[test]
fn one_connections_waiters_are_limited() {
    let server = start(|config| config.max_waiters_per_connection = 2);
    let mut peer = Peer::connect(server.addr());
    let mut other = Peer::connect(server.addr());
    peer.take(1, "k", 255);
    peer.acquire(2, "k", 255, 5);
    peer.acquire(3, "k", 255, 5);
    peer.acquire(4, "k", 255, 5);
    assert_eq!(peer.answer(), plain('B', 4, "k"));
    other.acquire(5, "k", 255, 5);
    other.expect_served();
    assert_eq!(server.stats().locks.waiters, 3);
}

#[test]
fn a_started_frame_must_be_complete_within_5_seconds() {
    let server = start(|_| {});
    let mut idle = Peer::connect(server.addr());
    let mut peer = Peer::connect(server.addr());
    let mut frame = Vec::new();
    ClientFrame::Acquire { wait: 0, lease: 5, owner: 1, key: b"key" }.encode(&mut frame);
    // A byte now and then does not help: the whole frame has 5 s.
    let begun = Instant::now();
    peer.send(&frame[..1]);
    std::thread::sleep(Duration::from_secs(3));
    peer.send(&frame[1..4]);
    peer.expect_end();
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(4900), "{took:?}");
    assert!(took < Duration::from_secs(9), "{took:?}");
    // A connection that sends nothing is not asked for anything.
    idle.expect_served();
    assert_eq!(server.stats().overdue, 1);
}

#[test]
fn frames_that_follow_each_other_slowly_have_5_seconds_each() {
    let server = start(|_| {});
    let mut peer = Peer::connect(server.addr());
    let mut frame = Vec::new();
    ClientFrame::Release { owner: 1, token: 0, key: b"key" }.encode(&mut frame);
    // Always inside a frame, never 5 s inside the same one.
    peer.send(&frame[..5]);
    for _ in 0..4 {
        std::thread::sleep(Duration::from_secs(2));
        peer.send(&frame[5..]);
        peer.send(&frame[..5]);
        assert_eq!(peer.answer(), plain('N', 1, "key"));
    }
    peer.send(&frame[5..]);
    assert_eq!(peer.answer(), plain('N', 1, "key"));
    assert_eq!(server.stats().overdue, 0);
}

/// Sends probes with the longest key until the server stops reading from the peer.
fn fill(server: &Server, peer: &mut Peer) -> u64 {
    let key = "x".repeat(128);
    let mut sent = 0;
    while server.stats().paused == 0 {
        for _ in 0..100 {
            sent += 1;
            peer.release(sent, 0, &key);
        }
        assert!(sent < 1_000_000, "the server never stopped reading");
    }
    sent
}

#[test]
fn a_peer_that_does_not_read_is_closed_5_seconds_after_the_last_accepted_byte() {
    let server = start(|config| config.max_waiters_per_connection = 100);
    let mut deaf = Peer::connect_with_small_window(server.addr());
    let mut other = Peer::connect(server.addr());
    fill(&server, &mut deaf);
    let begun = Instant::now();
    // What it has asked for and not read costs the others nothing.
    other.expect_served();
    assert_eq!(server.stats().connections, 2);
    eventually(&server, "it is closed", |stats| stats.connections == 1);
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(4), "{took:?}");
    assert!(took < Duration::from_secs(9), "{took:?}");
    other.expect_served();
}

#[test]
fn a_peer_that_reads_again_in_time_loses_nothing() {
    let server = start(|config| config.max_waiters_per_connection = 100);
    let mut slow = Peer::connect_with_small_window(server.addr());
    let sent = fill(&server, &mut slow);
    // Paused for a while, with a frame begun that the server has not read.
    std::thread::sleep(Duration::from_secs(2));
    let key = "x".repeat(128);
    for owner in 1..=sent {
        assert_eq!(slow.answer(), plain('N', owner, &key));
    }
    slow.expect_served();
    assert_eq!(server.stats().overdue, 0);
}

#[test]
fn a_flood_on_one_connection_does_not_keep_another_waiting() {
    let server = start(|_| {});
    let mut flood = Vec::new();
    for owner in 1..=20_000u64 {
        ClientFrame::Release { owner, token: 0, key: b"k" }.encode(&mut flood);
    }
    let flooder = Peer::connect(server.addr());
    let sending = flooder.stream.try_clone().expect("clone");
    let mut other = Peer::connect(server.addr());
    let sender = std::thread::spawn(move || {
        for _ in 0..10 {
            common::send_all(&sending, &flood).expect("send");
        }
    });
    let receiver = std::thread::spawn(move || {
        let mut flooder = flooder;
        for round in 0..200_000u64 {
            let owner = round % 20_000 + 1;
            assert_eq!(flooder.answer(), plain('N', owner, "k"));
        }
    });
    let mut slowest = Duration::ZERO;
    for owner in 1..=200 {
        let begun = Instant::now();
        other.take(owner, &format!("k{owner}"), 60);
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    sender.join().expect("sender");
    receiver.join().expect("receiver");
}

#[test]
fn many_waiters_that_are_answered_together_are_all_answered() {
    let server = start(|config| config.max_waiters_per_key = Some(20_000));
    let mut holder = Peer::connect(server.addr());
    holder.take(1, "k", 255);
    let mut waiter = Peer::connect(server.addr());
    for owner in 1..=5000 {
        waiter.acquire(owner, "k", 2, 5);
    }
    let mut owners: Vec<u64> = (0..5000)
        .map(|_| match waiter.answer() {
            Answer::Plain { op: 'T', owner, .. } => owner,
            other => panic!("expected T, got {other:?}"),
        })
        .collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 5000);
    assert_eq!(server.stats().locks.waiters, 0);
}

#[test]
fn limits_out_of_range_keep_the_server_from_starting() {
    type Change = fn(&mut Config);
    let bad: [(&str, Change); 5] = [
        ("max-locks", |config| config.max_locks = 0),
        ("max-waiters", |config| config.max_waiters = 0),
        ("max-waiters-per-key", |config| config.max_waiters_per_key = Some(0)),
        ("max-waiters-per-connection", |config| config.max_waiters_per_connection = 0),
        ("max-connections", |config| config.max_connections = 1 << 40),
    ];
    for (name, change) in bad {
        let mut config = Config::on_free_port();
        change(&mut config);
        let error = Server::start(config).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_hundred_thousand_waiters_wait_on_one_server_and_leave_with_their_connections() {
    let server = start(|_| {});
    let mut holder = Peer::connect(server.addr());
    for number in 0..20 {
        holder.take(1, &format!("hot{number}"), 255);
    }
    let mut peers: Vec<Peer> = (0..20).map(|_| Peer::connect(server.addr())).collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        let mut requests = Vec::new();
        for owner in 1..=5000u64 {
            let key = format!("hot{}", (number as u64 + owner) % 20);
            ClientFrame::Acquire { wait: 255, lease: 1, owner, key: key.as_bytes() }
                .encode(&mut requests);
        }
        peer.send(&requests);
    }
    eventually(&server, "all wait", |stats| stats.locks.waiters == 100_000);
    holder.expect_served();
    drop(peers);
    eventually(&server, "all have left", |stats| stats.locks.waiters == 0);
    assert_eq!(server.stats().locks.abandoned, 100_000);
}
