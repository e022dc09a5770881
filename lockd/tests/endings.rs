//! Connections that end, in every way, and what they leave behind.

mod common;

use common::{Answer, Peer, eventually, plain, start};
use lockd::{Config, Server};
use socket2::SockRef;
use std::time::Duration;

fn reset(peer: Peer) {
    SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO)).expect("linger");
}

#[test]
fn waiters_leave_with_their_connection_however_it_ends() {
    let server = start();
    let mut holder = Peer::connect(server.addr());
    holder.take(1, "k", 60);
    type Ending = fn(Peer) -> Option<Peer>;
    let endings: [(&str, Ending); 3] = [
        ("closed", |peer| {
            drop(peer);
            None
        }),
        ("reset", |peer| {
            reset(peer);
            None
        }),
        ("half-closed", |mut peer| {
            peer.end_sending();
            Some(peer)
        }),
    ];
    for (how, end) in endings {
        let mut waiter = Peer::connect(server.addr());
        waiter.acquire(2, "k", 255, 60);
        waiter.acquire(3, "k", 255, 60);
        eventually(&server, "two wait", |stats| stats.locks.waiters == 2);
        let half_closed = end(waiter);
        eventually(&server, how, |stats| stats.locks.waiters == 0 && stats.connections == 1);
        if let Some(mut peer) = half_closed {
            peer.expect_end();
        }
    }
    assert_eq!(server.stats().locks.abandoned, 6);
}

#[test]
fn what_a_connection_holds_stays_held_when_it_ends() {
    let server = start();
    let mut holder = Peer::connect(server.addr());
    let mut other = Peer::connect(server.addr());
    let token = holder.take(1, "k", 60);
    drop(holder);
    eventually(&server, "it has ended", |stats| stats.connections == 1);
    other.acquire(2, "k", 0, 60);
    assert_eq!(other.answer(), plain('T', 2, "k"));
    // The token releases it from any connection.
    other.release(3, token, "k");
    assert_eq!(other.answer(), plain('R', 3, "k"));
}

#[test]
fn requests_that_come_with_the_end_of_the_stream_are_answered() {
    let server = start();
    for round in 0..50 {
        let key = format!("k{round}");
        let mut peer = Peer::connect(server.addr());
        peer.acquire(1, &key, 0, 60);
        peer.release(2, 0, &key);
        peer.end_sending();
        assert!(matches!(peer.answer(), Answer::Acquired { owner: 1, .. }));
        assert_eq!(peer.answer(), plain('N', 2, &key));
        peer.expect_end();
    }
    assert_eq!(server.stats().locks.undone, 0);
}

#[test]
fn a_grant_of_which_no_byte_left_is_undone() {
    // A peer that does not read, so that answers pile up in the server.
    let config = Config { max_waiters_per_connection: 10, ..Config::on_free_port() };
    let server = Server::start(config).expect("a server");
    let mut holder = Peer::connect(server.addr());
    let token = holder.take(1, "k", 255);
    let mut deaf = Peer::connect_with_small_window(server.addr());
    deaf.acquire(2, "k", 255, 255);
    let key = "x".repeat(128);
    let mut sent = 0;
    while server.stats().paused == 0 {
        for _ in 0..100 {
            deaf.release(3, 0, &key);
        }
        sent += 100;
        assert!(sent < 1_000_000, "the server never stopped reading");
    }
    holder.release(4, token, "k");
    assert_eq!(holder.answer(), plain('R', 4, "k"));
    assert_eq!(server.stats().locks.held, 1, "granted to the deaf peer");
    drop(deaf);
    eventually(&server, "undone", |stats| stats.locks.undone == 1 && stats.connections == 1);
    holder.take(5, "k", 60);
}

#[test]
fn a_storm_of_connections_that_end_leaves_nothing_behind() {
    let server = start();
    let mut holder = Peer::connect(server.addr());
    let token = holder.take(1, "k", 255);
    for round in 0..20 {
        let mut peers: Vec<Peer> = (0..25).map(|_| Peer::connect(server.addr())).collect();
        for peer in &mut peers {
            peer.acquire(2, "k", 255, 255);
            peer.acquire(3, &format!("own{round}"), 255, 1);
        }
        for (number, peer) in peers.into_iter().enumerate() {
            if number % 2 == 0 { drop(peer) } else { reset(peer) }
        }
    }
    eventually(&server, "all have ended", |stats| stats.connections == 1);
    let stats = server.stats().locks;
    assert_eq!(stats.waiters, 0);
    holder.release(4, token, "k");
    assert_eq!(holder.answer(), plain('R', 4, "k"));
    // Leases of keys that ended connections held end by themselves.
    eventually(&server, "no lock is held", |stats| stats.locks.held == 0);
}

#[test]
fn a_grant_that_is_decided_with_the_end_and_cannot_be_sent_is_undone() {
    let server = start();
    let mut other = Peer::connect(server.addr());
    let mut deaf = Peer::connect_with_small_window(server.addr());
    // Until the kernel takes no more and answers pile up, below the bound at which the server
    // would stop reading.
    let key = "x".repeat(128);
    let answer = 1 + 8 + 128 + 1;
    let mut sent = 0;
    loop {
        for _ in 0..100 {
            deaf.release(3, 0, &key);
        }
        sent += 100;
        let stats = eventually(&server, "all are read", |stats| stats.locks.probes == sent);
        if sent * answer > stats.bytes_out + 20_000 {
            break;
        }
        assert!(sent < 1_000_000, "the kernel took everything");
    }
    assert_eq!(server.stats().paused, 0);
    deaf.acquire(4, "k", 0, 255);
    deaf.end_sending();
    eventually(&server, "undone", |stats| stats.locks.undone == 1);
    other.take(5, "k", 60);
    // What else was decided is still written.
    for _ in 0..sent {
        assert_eq!(deaf.answer(), plain('N', 3, &key));
    }
    deaf.expect_end();
}
