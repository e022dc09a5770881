//! Requests and answers over sockets.

mod common;

use common::{Answer, Peer, eventually, plain, start};
use lockclient::wire::ClientFrame;
use std::time::{Duration, Instant};

#[test]
fn a_lock_is_acquired_and_released() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    let token = peer.take(1, "k", 10);
    assert_eq!(token, 1);
    peer.release(2, token, "k");
    assert_eq!(peer.answer(), plain('R', 2, "k"));
    peer.release(3, token, "k");
    assert_eq!(peer.answer(), plain('N', 3, "k"));
}

#[test]
fn a_waiter_on_another_connection_gets_the_lock_when_it_is_released() {
    let server = start();
    let mut holder = Peer::connect(server.addr());
    let mut waiter = Peer::connect(server.addr());
    let token = holder.take(1, "k", 60);
    waiter.acquire(2, "k", 60, 60);
    eventually(&server, "one waits", |stats| stats.locks.waiters == 1);
    holder.release(3, token, "k");
    assert_eq!(holder.answer(), plain('R', 3, "k"));
    assert_eq!(waiter.answer(), Answer::Acquired { owner: 2, token: token + 1, key: "k".into() });
}

#[test]
fn a_lease_ends_on_time_and_not_at_the_next_sweep() {
    let server = start();
    let mut holder = Peer::connect(server.addr());
    let mut waiter = Peer::connect(server.addr());
    holder.take(1, "k", 1);
    let granted = Instant::now();
    waiter.acquire(2, "k", 60, 60);
    assert!(matches!(waiter.answer(), Answer::Acquired { owner: 2, .. }));
    let waited = granted.elapsed();
    // The lease began before the first answer was read, so a little less than 1 s may be seen.
    assert!(waited > Duration::from_millis(700), "{waited:?}");
    assert!(waited < Duration::from_millis(3500), "{waited:?}");
}

#[test]
fn a_wait_ends_on_time_and_not_at_the_next_sweep() {
    let server = start();
    let mut holder = Peer::connect(server.addr());
    let mut waiter = Peer::connect(server.addr());
    holder.take(1, "k", 60);
    let asked = Instant::now();
    waiter.acquire(2, "k", 1, 60);
    assert_eq!(waiter.answer(), plain('T', 2, "k"));
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    assert!(waited < Duration::from_millis(3500), "{waited:?}");
}

#[test]
fn pipelined_requests_are_answered_in_the_order_in_which_they_were_decided() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    let mut bytes = Vec::new();
    for owner in 1..=1000u64 {
        let key = format!("k{owner}");
        let key = key.as_bytes();
        ClientFrame::Acquire { wait: 0, lease: 60, owner, key }.encode(&mut bytes);
        ClientFrame::Release { owner: owner + 5000, token: owner, key }.encode(&mut bytes);
    }
    peer.send(&bytes);
    for owner in 1..=1000u64 {
        let key = format!("k{owner}");
        assert_eq!(peer.answer(), Answer::Acquired { owner, token: owner, key: key.clone() });
        assert_eq!(peer.answer(), plain('R', owner + 5000, &key));
    }
    assert_eq!(server.stats().locks.held, 0);
}

#[test]
fn requests_arrive_in_any_chunking() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    let mut bytes = Vec::new();
    // An owner full of line feeds, in a header that is read by count.
    let owner = 0x0A0A_0A0A_0A0A_0A0A;
    ClientFrame::Acquire { wait: 10, lease: 10, owner, key: b"k" }.encode(&mut bytes);
    ClientFrame::Release { owner, token: 1, key: b"k" }.encode(&mut bytes);
    for byte in bytes {
        peer.send(&[byte]);
    }
    assert_eq!(peer.answer(), Answer::Acquired { owner, token: 1, key: "k".into() });
    assert_eq!(peer.answer(), plain('R', owner, "k"));
}

#[test]
fn a_probe_is_answered_n() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    peer.expect_served();
    assert_eq!(server.stats().locks.probes, 1);
}

#[test]
fn the_longest_keys_and_frames_work() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    let key = "키".repeat(42) + "ab";
    assert_eq!(key.len(), 128);
    let token = peer.take(u64::MAX, &key, 255);
    peer.release(u64::MAX, token, &key);
    assert_eq!(peer.answer(), plain('R', u64::MAX, &key));
}

#[test]
fn one_cr_before_the_lf_is_not_part_of_the_key() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    peer.acquire(1, "k\r", 0, 60);
    assert_eq!(peer.answer(), Answer::Acquired { owner: 1, token: 1, key: "k".into() });
}

#[test]
fn it_listens_on_several_addresses_at_once() {
    let config = lockd::Config {
        listen: vec!["127.0.0.1:0".into(), "127.0.0.1:0".into(), "[::1]:0".into()],
        ..lockd::Config::default()
    };
    let server = lockd::Server::start(config).expect("a server");
    assert_eq!(server.addrs().len(), 3);
    for (number, address) in server.addrs().iter().enumerate() {
        Peer::connect(*address).take(1, &format!("k{number}"), 60);
    }
    assert_eq!(server.stats().locks.held, 3);
}

#[test]
fn an_address_that_is_in_use_is_refused_by_name() {
    let server = start();
    let taken = server.addr().to_string();
    let config = lockd::Config { listen: vec![taken.clone()], ..lockd::Config::default() };
    let error = lockd::Server::start(config).expect_err("the address is in use");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&taken), "{error}");
}

#[test]
fn stopping_ends_every_connection_and_frees_the_address() {
    let server = start();
    let address = server.addr();
    let mut peers: Vec<Peer> = (0..5).map(|_| Peer::connect(address)).collect();
    for peer in &mut peers {
        peer.expect_served();
    }
    let begun = Instant::now();
    server.stop().expect("a clean stop");
    assert!(begun.elapsed() < Duration::from_secs(2));
    for peer in &mut peers {
        peer.expect_end();
    }
    let config = lockd::Config { listen: vec![address.to_string()], ..lockd::Config::default() };
    lockd::Server::start(config).expect("the address is free again");
}

#[test]
fn it_serves_on_a_socket_in_the_file_system_beside_tcp() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lockd.sock");
    let unix = format!("unix:{}", path.display());
    let config = lockd::Config {
        listen: vec![unix.clone(), "127.0.0.1:0".into()],
        ..lockd::Config::default()
    };
    let server = lockd::Server::start(config).expect("a server");
    assert_eq!(server.listening()[0].to_string(), unix);
    let mut local = Peer::connect_unix(&path);
    let mut remote = Peer::connect(server.addr());
    let token = local.take(1, "k", 60);
    remote.acquire(2, "k", 60, 60);
    eventually(&server, "one waits", |stats| stats.locks.waiters == 1);
    local.release(3, token, "k");
    assert_eq!(local.answer(), plain('R', 3, "k"));
    assert!(matches!(remote.answer(), Answer::Acquired { owner: 2, .. }));
    // Its end is seen, and errors arrive before it.
    local.send(b"?");
    assert_eq!(local.answer(), common::error("bad_request"));
    local.expect_end();
    eventually(&server, "one is gone", |stats| stats.connections == 1);
    server.stop().expect("a clean stop");
    assert!(!path.exists());
}
