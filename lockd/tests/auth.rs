//! The handshake.

mod common;

use common::{Answer, Peer, error, eventually};
use lockclient::wire::{self, ClientFrame};
use lockd::{Config, Secret, Server};
use std::time::{Duration, Instant};

fn start(secrets: &[&[u8]]) -> Server {
    let secrets = secrets.iter().map(|bytes| Secret::new(bytes).expect("a secret")).collect();
    Server::start(Config { secrets, ..Config::on_free_port() }).expect("a server")
}

const OLD: &[u8] = b"old secret of 24 bytes..";
const NEW: &[u8] = b"new secret of 24 bytes..";

fn challenge(peer: &mut Peer) -> [u8; 32] {
    match peer.answer() {
        Answer::Challenge(nonce) => nonce,
        other => panic!("expected a challenge, got {other:?}"),
    }
}

fn prove(peer: &mut Peer, secret: &[u8]) -> [u8; 32] {
    let nonce = challenge(peer);
    let mine = [7; 32];
    let proof = wire::client_proof(secret, &nonce, &mine);
    peer.request(ClientFrame::Proof { nonce: &mine, proof: &proof });
    wire::server_proof(secret, &nonce, &mine)
}

#[test]
fn a_client_that_knows_any_of_the_secrets_is_served_and_gets_the_proof_of_that_one() {
    let server = start(&[OLD, NEW]);
    for secret in [OLD, NEW] {
        let mut peer = Peer::connect(server.addr());
        let proof = prove(&mut peer, secret);
        assert_eq!(peer.answer(), Answer::Accepted(proof));
        peer.expect_served();
    }
}

#[test]
fn requests_may_follow_the_proof_at_once() {
    let server = start(&[OLD]);
    let mut peer = Peer::connect(server.addr());
    let nonce = challenge(&mut peer);
    let mut bytes = Vec::new();
    let proof = wire::client_proof(OLD, &nonce, &[7; 32]);
    ClientFrame::Proof { nonce: &[7; 32], proof: &proof }.encode(&mut bytes);
    ClientFrame::Acquire { wait: 0, lease: 5, owner: 1, key: b"k" }.encode(&mut bytes);
    peer.send(&bytes);
    assert!(matches!(peer.answer(), Answer::Accepted(_)));
    assert!(matches!(peer.answer(), Answer::Acquired { owner: 1, .. }));
}

#[test]
fn every_connection_gets_a_nonce_of_its_own() {
    let server = start(&[OLD]);
    let mut nonces: Vec<[u8; 32]> =
        (0..20).map(|_| challenge(&mut Peer::connect(server.addr()))).collect();
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), 20);
}

#[test]
fn a_wrong_proof_gets_auth_failed_and_the_connection_is_closed() {
    let server = start(&[OLD]);
    let mut peer = Peer::connect(server.addr());
    prove(&mut peer, NEW);
    assert_eq!(peer.answer(), error("auth_failed"));
    peer.expect_end();
}

#[test]
fn a_proof_for_another_connections_challenge_is_wrong() {
    let server = start(&[OLD]);
    let nonce = challenge(&mut Peer::connect(server.addr()));
    let mut peer = Peer::connect(server.addr());
    challenge(&mut peer);
    let proof = wire::client_proof(OLD, &nonce, &[7; 32]);
    peer.request(ClientFrame::Proof { nonce: &[7; 32], proof: &proof });
    assert_eq!(peer.answer(), error("auth_failed"));
    peer.expect_end();
}

#[test]
fn a_request_before_the_proof_gets_auth_failed_and_changes_nothing() {
    let server = start(&[OLD]);
    for release in [false, true] {
        let mut peer = Peer::connect(server.addr());
        challenge(&mut peer);
        if release {
            peer.release(1, 0, "_probe");
        } else {
            peer.acquire(1, "k", 0, 60);
        }
        assert_eq!(peer.answer(), error("auth_failed"));
        peer.expect_end();
    }
    let stats = server.stats().locks;
    assert_eq!((stats.held, stats.acquires, stats.probes), (0, 0, 0));
}

#[test]
fn a_second_proof_is_a_bad_request() {
    let server = start(&[OLD]);
    let mut peer = Peer::connect(server.addr());
    let proof = prove(&mut peer, OLD);
    assert_eq!(peer.answer(), Answer::Accepted(proof));
    peer.request(ClientFrame::Proof { nonce: &[7; 32], proof: &[7; 32] });
    assert_eq!(peer.answer(), error("bad_request"));
    peer.expect_end();
}

#[test]
fn a_handshake_that_takes_5_seconds_is_given_up() {
    let server = start(&[OLD]);
    let begun = Instant::now();
    let mut silent = Peer::connect(server.addr());
    let mut slow = Peer::connect(server.addr());
    challenge(&mut silent);
    challenge(&mut slow);
    slow.send(b"H");
    silent.expect_end();
    slow.expect_end();
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(4900), "{took:?}");
    assert!(took < Duration::from_secs(9), "{took:?}");
    eventually(&server, "both are gone", |stats| stats.connections == 0);
}

#[test]
fn secrets_come_from_files_less_one_final_line_feed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    let good: [(Vec<u8>, Vec<u8>); 4] = [
        (OLD.to_vec(), OLD.to_vec()),
        ([OLD, b"\n"].concat(), OLD.to_vec()),
        ([OLD, b"\n\n"].concat(), [OLD, b"\n"].concat()),
        ([&[9; 256][..], b"\n"].concat(), vec![9; 256]),
    ];
    for (content, secret) in good {
        std::fs::write(&path, content).expect("write");
        let config = Config { secret_files: vec![path.clone()], ..Config::on_free_port() };
        let server = Server::start(config).expect("a server");
        let mut peer = Peer::connect(server.addr());
        let proof = prove(&mut peer, &secret);
        assert_eq!(peer.answer(), Answer::Accepted(proof));
    }
}

#[test]
fn a_secret_file_that_is_no_secret_keeps_the_server_from_starting() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    for content in [Vec::new(), vec![b'x'; 15], [&[b'x'; 15][..], b"\n"].concat(), vec![9; 257]] {
        std::fs::write(&path, content).expect("write");
        let config = Config { secret_files: vec![path.clone()], ..Config::on_free_port() };
        let error = Server::start(config).expect_err("no secret");
        assert!(error.to_string().contains("secret"), "{error}");
    }
    let missing = dir.path().join("missing");
    let config = Config { secret_files: vec![missing.clone()], ..Config::on_free_port() };
    let error = Server::start(config).expect_err("no file");
    assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
}

#[test]
fn a_secret_file_that_every_user_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    std::fs::write(&path, OLD).expect("write");
    for (mode, good) in [(0o600, true), (0o640, true), (0o602, false), (0o666, false)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("chmod");
        let config = Config { secret_files: vec![path.clone()], ..Config::on_free_port() };
        assert_eq!(Server::start(config).is_ok(), good, "mode {mode:o}");
    }
}

#[test]
fn reading_the_files_again_changes_who_may_come_in_and_leaves_who_is_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    std::fs::write(&path, OLD).expect("write");
    let config = Config { secret_files: vec![path.clone()], ..Config::on_free_port() };
    let server = Server::start(config).expect("a server");
    let mut before = Peer::connect(server.addr());
    prove(&mut before, OLD);
    assert!(matches!(before.answer(), Answer::Accepted(_)));

    std::fs::write(&path, NEW).expect("write");
    assert_eq!(server.handle().reload_secrets().expect("a secret"), 1);
    let mut peer = Peer::connect(server.addr());
    prove(&mut peer, NEW);
    assert!(matches!(peer.answer(), Answer::Accepted(_)));
    let mut peer = Peer::connect(server.addr());
    prove(&mut peer, OLD);
    assert_eq!(peer.answer(), error("auth_failed"));
    before.expect_served();

    // A file that is no secret changes nothing.
    std::fs::write(&path, "short").expect("write");
    server.handle().reload_secrets().expect_err("no secret");
    let mut peer = Peer::connect(server.addr());
    prove(&mut peer, NEW);
    assert!(matches!(peer.answer(), Answer::Accepted(_)));
}

/// A peer that has just failed, and was told nothing yet.
fn failing(server: &Server) -> Peer {
    let mut peer = Peer::connect(server.addr());
    challenge(&mut peer);
    peer.acquire(1, "k", 0, 1);
    peer
}

fn expect_failure(peer: &mut Peer) {
    assert_eq!(peer.answer(), error("auth_failed"));
    peer.expect_end();
}

/// Fails until the server keeps a peer waiting for the answer, and gives that peer.
fn fail_often(server: &Server) -> (Peer, Instant) {
    for failures in 0..200 {
        let begun = Instant::now();
        let slowed = server.stats().auth_slowed;
        let mut peer = failing(server);
        let stats = eventually(server, "it has failed", |stats| stats.auth_failed > failures);
        if stats.auth_slowed > slowed {
            assert!(failures >= 20, "only {failures} before");
            return (peer, begun);
        }
        expect_failure(&mut peer);
    }
    panic!("nobody is ever kept waiting");
}

#[test]
fn an_address_that_fails_again_and_again_is_told_so_a_second_later() {
    let server = start(&[OLD]);
    let (mut peer, begun) = fail_often(&server);
    expect_failure(&mut peer);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(server.stats().overdue, 0);
}

#[test]
fn who_knows_the_secret_is_let_in_however_often_others_of_its_address_fail() {
    let server = start(&[OLD]);
    let mut before = Peer::connect(server.addr());
    prove(&mut before, OLD);
    assert!(matches!(before.answer(), Answer::Accepted(_)));
    let (slowed, _) = fail_often(&server);
    let mut failed = vec![slowed];
    for _ in 0..30 {
        let bad = failing(&server);
        let mut good = Peer::connect(server.addr());
        let proof = prove(&mut good, OLD);
        assert_eq!(good.answer(), Answer::Accepted(proof));
        good.expect_served();
        failed.push(bad);
    }
    // Late or at once, every one is told.
    failed.iter_mut().for_each(expect_failure);
    before.expect_served();
}

#[test]
fn many_who_fail_together_are_all_told() {
    let server = start(&[OLD]);
    let (_slowed, _) = fail_often(&server);
    let mut peers: Vec<Peer> = (0..60).map(|_| failing(&server)).collect();
    peers.iter_mut().for_each(expect_failure);
    drop(peers);
    eventually(&server, "all have gone", |stats| stats.connections <= 1);
}

#[test]
fn a_server_with_few_connections_keeps_none_of_them_waiting() {
    let secrets = vec![Secret::new(OLD).expect("a secret")];
    let config = Config { secrets, max_connections: 7, ..Config::on_free_port() };
    let server = Server::start(config).expect("a server");
    for _ in 0..40 {
        // So that the ones before take no place.
        eventually(&server, "there is room", |stats| stats.connections < 5);
        expect_failure(&mut failing(&server));
    }
    assert_eq!((server.stats().auth_failed, server.stats().auth_slowed), (40, 0));
}

#[test]
fn who_is_kept_waiting_and_leaves_is_forgotten() {
    let server = start(&[OLD]);
    let (slowed, _) = fail_often(&server);
    drop(slowed);
    eventually(&server, "it has gone", |stats| stats.connections == 0);
    assert_eq!(server.stats().overdue, 0);
}

#[test]
fn who_is_kept_waiting_when_the_server_stops_is_told() {
    let server = start(&[OLD]);
    let (mut slowed, _) = fail_often(&server);
    server.stop().expect("a clean stop");
    expect_failure(&mut slowed);
}

#[test]
fn who_comes_through_a_socket_file_is_never_kept_waiting() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listen = vec![format!("unix:{}", path.display())];
    let secrets = vec![Secret::new(OLD).expect("a secret")];
    let server = Server::start(Config { listen, secrets, ..Config::default() }).expect("a server");
    for _ in 0..40 {
        let mut peer = Peer::connect_unix(&path);
        challenge(&mut peer);
        peer.acquire(1, "k", 0, 1);
        expect_failure(&mut peer);
    }
    assert_eq!((server.stats().auth_failed, server.stats().auth_slowed), (40, 0));
}
