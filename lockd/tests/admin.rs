//! Looking at a running server.

mod common;

use common::program::Lockd;
use common::{Peer, eventually, plain, send_all};
use lockd::{Config, LockLine, Server};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn start(change: impl FnOnce(&mut Config)) -> Server {
    let mut config =
        Config { metrics_listen: Some("127.0.0.1:0".into()), ..Config::on_free_port() };
    change(&mut config);
    Server::start(config).expect("a server")
}

/// The whole answer to a request.
fn ask(server: &Server, request: &str) -> String {
    let address = server.metrics_addr().expect("an address for metrics");
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(common::LONG)).expect("time-out");
    send_all(&stream, request.as_bytes()).expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn get(server: &Server, path: &str) -> String {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

#[test]
fn metrics_tell_what_happened() {
    let server = start(|_| {});
    let mut peer = Peer::connect(server.addr());
    let token = peer.take(1, "a", 60);
    peer.take(2, "b", 60);
    peer.acquire(3, "b", 60, 60);
    peer.release(4, token, "a");
    assert_eq!(peer.answer(), plain('R', 4, "a"));
    let answer = get(&server, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        "lockd_held 1",
        "lockd_waiters 1",
        "lockd_connections 1",
        "lockd_admitting 1",
        "lockd_active 1",
        "lockd_acquires_total 3",
        "lockd_grants_total 2",
        "lockd_releases_total 1",
        "lockd_wait_seconds_count 2",
        "lockd_hold_seconds_count 1",
        "lockd_sent_bytes_total 49",
    ] {
        assert!(answer.lines().any(|found| found == line), "{line} is missing in\n{answer}");
    }
}

#[test]
fn healthz_says_whether_it_may_grant() {
    let server = start(|_| {});
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200 "));
    let server = start(|config| config.quarantine = Duration::from_secs(60));
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 503 "));
}

#[test]
fn metrics_show_no_locks_and_answer_nothing_else() {
    let server = start(|_| {});
    assert!(get(&server, "/locks").starts_with("HTTP/1.1 404 "));
    assert!(get(&server, "/").starts_with("HTTP/1.1 404 "));
    assert!(ask(&server, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let head = ask(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn whoever_asks_slowly_or_too_much_is_cut_off_and_locks_are_served_meanwhile() {
    let server = start(|_| {});
    let address = server.metrics_addr().expect("an address for metrics");
    let slow: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(address).expect("connect")).collect();
    for stream in &slow {
        send_all(stream, b"GET /me").expect("send");
    }
    Peer::connect(server.addr()).take(1, "k", 60);
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200 "));
    for mut stream in slow {
        stream.set_read_timeout(Some(common::LONG)).expect("time-out");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the end");
        assert_eq!(answer, "");
    }
    let mut large = TcpStream::connect(address).expect("connect");
    let _ = send_all(&large, &[b'x'; 20_000]);
    let mut answer = Vec::new();
    // The end or a reset: it has not read all that was sent.
    let _ = large.read_to_end(&mut answer);
    assert!(answer.is_empty());
}

#[test]
fn those_who_ask_slowly_leave_a_place_to_those_who_ask() {
    let server = start(|_| {});
    let address = server.metrics_addr().expect("an address for metrics");
    // More than are served at once, again and again.
    let mut slow = Vec::new();
    for _ in 0..5 {
        for _ in 0..40 {
            let stream = TcpStream::connect(address).expect("connect");
            // It may have been cut off already.
            let _ = send_all(&stream, b"GET /me");
            slow.push(stream);
        }
        let answer = get(&server, "/healthz");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

fn list(path: &Path, prefix: &str, limit: usize) -> Vec<LockLine> {
    let mut lines = Vec::new();
    lockd::inspect(path, prefix, limit, |line| {
        lines.push(line);
        Ok(())
    })
    .expect("a list");
    lines.sort_by(|a, b| a.key.cmp(&b.key));
    lines
}

#[test]
fn inspect_lists_locks_with_their_tokens_leases_and_queues() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin.sock");
    let server = start(|config| config.admin_socket = Some(path.clone()));
    let mut peer = Peer::connect(server.addr());
    let job = peer.take(1, "jobs/한글&=%", 60);
    peer.take(2, "jobs/b", 200);
    peer.take(3, "other", 60);
    peer.acquire(4, "jobs/한글&=%", 60, 60);
    eventually(&server, "one waits", |stats| stats.locks.waiters == 1);
    let lines = list(&path, "jobs/", 10);
    assert_eq!(lines.len(), 2);
    let line = &lines[1];
    assert_eq!((line.key.as_str(), line.token, line.waiters), ("jobs/한글&=%", job, 1));
    assert!((30_000..=60_000).contains(&line.remaining_ms), "{line:?}");
    assert_eq!(list(&path, "jobs/한글&=%", 10).len(), 1);
    assert_eq!(list(&path, "", 2).len(), 2);
    assert_eq!(list(&path, "nothing", 2), []);
    let mode = std::fs::metadata(&path).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others could release locks");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn one_server_at_a_time_has_an_admin_socket_from_before_it_listens() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin.sock");
    let config = Config { admin_socket: Some(path.clone()), ..Config::on_free_port() };
    let _first = Server::start(config.clone()).expect("a server");
    // As it is between binding and listening.
    std::fs::remove_file(&path).expect("its file");
    let starting = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    starting.bind(&SockAddr::unix(&path).expect("an address")).expect("bind");
    let error = Server::start(config).expect_err("the first has the place").to_string();
    assert!(error.contains("admin.sock.lock") && error.contains("another lockd"), "{error}");
    assert!(path.exists(), "its socket is left alone");
}

#[test]
fn inspect_lists_more_locks_than_one_piece_of_the_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin.sock");
    let server = start(|config| config.admin_socket = Some(path.clone()));
    let mut peer = Peer::connect(server.addr());
    for number in 0..10_000 {
        peer.acquire(1, &format!("k{number:05}"), 0, 255);
        if number % 100 == 99 {
            for _ in 0..100 {
                assert!(matches!(peer.answer(), common::Answer::Acquired { .. }));
            }
        }
    }
    let lines = list(&path, "", usize::MAX);
    assert_eq!(lines.len(), 10_000);
    assert!(lines.windows(2).all(|pair| pair[0].key < pair[1].key));
    assert_eq!(list(&path, "k099", usize::MAX).len(), 100);
}

#[test]
fn the_inspect_command_prints_a_table_or_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin.sock");
    let socket = path.to_str().expect("UTF-8");
    let lockd = Lockd::start(&["--admin-socket", socket]);
    let token = Peer::connect(lockd.address).take(1, "job\u{1b}[2J", 60);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockd"));
        let output = command
            .args(["inspect", "--admin-socket", socket])
            .args(arguments)
            .output()
            .expect("lockd");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let table = run(&[]);
    let line = table.lines().nth(1).expect("a line");
    assert!(line.trim_start().starts_with(&token.to_string()), "{table}");
    assert!(line.ends_with(r"job\u{1b}[2J"), "a name must not control the terminal: {table}");
    let json = run(&["--json", "--prefix", "job"]);
    let lock: LockLine = serde_json::from_str(&json).expect("JSON");
    assert_eq!((lock.key.as_str(), lock.token), ("job\u{1b}[2J", token));
    assert_eq!(run(&["--json", "--prefix", "x"]), "");
}

#[test]
fn the_inspect_command_says_when_there_is_no_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_lockd"))
        .args(["inspect", "--admin-socket", path.to_str().expect("UTF-8")])
        .output()
        .expect("lockd");
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
}
