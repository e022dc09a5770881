//! Frames that are wrong, and what becomes of their connection.

mod common;

use common::{Peer, error, eventually, plain, start};
use lockclient::wire::ClientFrame;

fn acquire(wait: u8, lease: u8, owner: u64, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientFrame::Acquire { wait, lease, owner, key }.encode(&mut bytes);
    bytes
}

fn release(owner: u64, token: u64, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientFrame::Release { owner, token, key }.encode(&mut bytes);
    bytes
}

#[test]
fn a_malformed_frame_gets_bad_request_and_the_connection_is_closed() {
    let server = start();
    let proof_without_challenge = {
        let mut bytes = Vec::new();
        ClientFrame::Proof { nonce: &[1; 32], proof: &[2; 32] }.encode(&mut bytes);
        bytes
    };
    let malformed: [(&str, Vec<u8>); 9] = [
        ("unknown op", b"X\n".to_vec()),
        ("an op of the other direction", b"N12345678k\n".to_vec()),
        ("lease 0", acquire(1, 0, 1, b"k")),
        ("owner 0 in an acquire", acquire(1, 1, 0, b"k")),
        ("owner 0 in a release", release(0, 1, b"k")),
        ("oversized", vec![b'A'; 192]),
        ("oversized release", [&release(1, 1, b"k")[..17], &[b'k'; 175]].concat()),
        ("text in a proof", [b"H".as_slice(), &[1; 64], b"text\n"].concat()),
        ("a proof that nobody asked for", proof_without_challenge),
    ];
    for (what, bytes) in malformed {
        let mut peer = Peer::connect(server.addr());
        peer.send(&bytes);
        assert_eq!(peer.answer(), error("bad_request"), "{what}");
        peer.expect_end();
    }
    eventually(&server, "all are closed", |stats| stats.connections == 0);
    assert_eq!(server.stats().locks.acquires, 0);
}

#[test]
fn a_frame_cut_short_by_the_end_of_the_stream_is_malformed() {
    let server = start();
    let whole = acquire(1, 1, 1, b"key");
    for len in 1..whole.len() {
        let mut peer = Peer::connect(server.addr());
        peer.send(&whole[..len]);
        peer.end_sending();
        assert_eq!(peer.answer(), error("bad_request"), "cut after {len} bytes");
        peer.expect_end();
    }
    assert_eq!(server.stats().locks.acquires, 0);
}

#[test]
fn a_bad_key_gets_bad_key_and_the_connection_stays() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    let long = [b'k'; 129];
    let keys: [&[u8]; 6] = [b"", b"a key", b" ", b"\xFF", &"키".repeat(43).into_bytes(), &long];
    for key in keys {
        for frame in [acquire(5, 5, 1, key), release(2, 3, key)] {
            peer.send(&frame);
            assert_eq!(peer.answer(), error("bad_key"), "{key:?}");
        }
    }
    peer.expect_served();
    assert_eq!(server.stats().locks.held, 0);
}

#[test]
fn answers_before_an_error_leave_before_it_and_nothing_after_it_is_served() {
    let server = start();
    let mut peer = Peer::connect(server.addr());
    let bytes = [
        release(1, 0, b"a"),
        acquire(0, 5, 2, b"bad key"),
        release(3, 0, b"b"),
        b"?".to_vec(),
        acquire(0, 5, 4, b"never"),
    ]
    .concat();
    peer.send(&bytes);
    assert_eq!(peer.answer(), plain('N', 1, "a"));
    assert_eq!(peer.answer(), error("bad_key"));
    assert_eq!(peer.answer(), plain('N', 3, "b"));
    assert_eq!(peer.answer(), error("bad_request"));
    peer.expect_end();
    assert_eq!(server.stats().locks.acquires, 0);
}

#[test]
fn the_error_arrives_however_much_was_sent_after_the_malformed_frame() {
    let server = start();
    for _ in 0..20 {
        let mut peer = Peer::connect(server.addr());
        let mut bytes = release(1, 0, b"a");
        bytes.extend([b'?'; 200_000]);
        // What comes too late is thrown away: closing at once would answer it with a reset, which
        // can overtake the error.
        peer.send(&bytes);
        assert_eq!(peer.answer(), plain('N', 1, "a"));
        assert_eq!(peer.answer(), error("bad_request"));
        assert_eq!(peer.try_answer().expect("an orderly end"), None);
    }
    eventually(&server, "all are closed", |stats| stats.connections == 0);
}

#[test]
fn a_malformed_frame_ends_the_connections_waiters() {
    let server = start();
    let mut holder = Peer::connect(server.addr());
    let mut waiter = Peer::connect(server.addr());
    holder.take(1, "k", 60);
    waiter.acquire(2, "k", 60, 60);
    eventually(&server, "one waits", |stats| stats.locks.waiters == 1);
    waiter.send(b"?");
    assert_eq!(waiter.answer(), error("bad_request"));
    assert_eq!(server.stats().locks.waiters, 0);
}
