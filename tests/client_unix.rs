//! A server on the same machine, through a socket file.

#![allow(unsafe_code, reason = "a process that gives up its rights")]

mod common;
#[path = "common/place.rs"]
mod place;

use common::{PATIENCE, at_once, client, config, eventually, lock, ready, seconds, waiting};
use lockclient::{Acquire, Client, Failure, Outcome, ReasonKind, Released};
use place::Place;
use socket2::{Domain, SockAddr, Socket, Type};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_lock_is_acquired_and_released_through_a_socket_file() {
    let place = Place::new();
    let server = place.serve();
    let client = client(place.endpoint());
    let held = lock(&client, "k");
    assert!(matches!(client.acquire("k", &at_once()).unwrap(), Outcome::TimedOut));
    assert!(matches!(client.acquire("k", &waiting(1)).unwrap(), Outcome::TimedOut));
    assert_eq!(held.release().unwrap(), Released::Released);
    assert_eq!(server.stats().locks.held, 0);
    // Tickets, many at once.
    let options = Acquire::new(seconds(60), Duration::ZERO).lease(seconds(250));
    let tickets: Vec<_> = (0..5_000)
        .map(|number| client.start(&format!("{number:0100}"), &options).unwrap())
        .collect();
    for ticket in tickets {
        assert!(matches!(ticket.wait().unwrap(), Outcome::Acquired(_)));
    }
    eventually("all were given back", || server.stats().locks.held == 0);
}

#[test]
fn both_ends_prove_that_they_know_the_secret() {
    let place = Place::new();
    let secrets = vec![lockd::Secret::new(&[7; 32]).unwrap()];
    let listen = vec![place.endpoint()];
    let config = lockd::Config { listen, secrets, ..lockd::Config::default() };
    let _server = lockd::Server::start(config).unwrap();
    let endpoint = place.endpoint();
    drop(lock(&ready(&common::config(&endpoint).secret(&[7; 32]).unwrap()), "k"));
    let stale = common::config(&endpoint).secret(&[8; 32]).unwrap().open().unwrap();
    let error = stale.acquire("k", &waiting(60)).unwrap_err();
    assert!(error.to_string().contains(&endpoint), "{error}");
}

#[test]
fn a_file_and_a_port_of_one_server_lead_to_the_same_locks() {
    let place = Place::new();
    let listen = vec![place.endpoint(), "127.0.0.1:0".to_owned()];
    let server =
        lockd::Server::start(lockd::Config { listen, ..lockd::Config::default() }).unwrap();
    let (near, far) = (client(place.endpoint()), client(server.addr()));
    let held = lock(&near, "k");
    let token = held.token();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock(&far, "k").token());
        eventually("the other waits", || server.stats().locks.waiters == 1);
        drop(held);
        assert!(waiter.join().unwrap() > token);
    });
}

/// Why nothing was sent.
fn unsent(client: &Client) -> Failure {
    let start = Instant::now();
    let outcome = client.acquire("k", &waiting(1)).unwrap();
    let took = start.elapsed();
    let Outcome::NotSent(failure) = outcome else { panic!("{outcome:?}") };
    assert!(took >= seconds(1) && took < seconds(6), "{took:?}");
    failure
}

#[track_caller]
fn expect_unsent(place: &Place, error: i32) -> Client {
    let client = config(place.endpoint()).open().unwrap();
    let failure = unsent(&client);
    assert_eq!((failure.kind(), failure.os_error()), (ReasonKind::Connect, Some(error)));
    assert_eq!(failure.endpoint(), Some(&*place.endpoint()));
    assert_eq!(client.stats().connects, 0);
    client
}

#[test]
fn dl_4_a_file_that_is_missing_is_a_reason_and_one_that_comes_is_found() {
    let place = Place::new();
    let client = expect_unsent(&place, libc::ENOENT);
    let _server = place.serve();
    drop(lock(&client, "k"));
}

#[test]
fn dl_4_a_file_that_nobody_listens_on_is_a_reason() {
    let place = Place::new();
    drop(UnixListener::bind(place.path()).unwrap());
    assert!(place.path().exists(), "as a killed server leaves it");
    let client = expect_unsent(&place, libc::ECONNREFUSED);
    let _server = place.serve();
    drop(lock(&client, "k"));
    // What is no socket at all says the same.
    let place = Place::new();
    std::fs::write(place.path(), "").unwrap();
    expect_unsent(&place, libc::ECONNREFUSED);
}

#[test]
fn con_3_a_full_queue_of_new_connections_is_a_failed_dial_and_tried_again_later() {
    let place = Place::new();
    let address = SockAddr::unix(place.path()).unwrap();
    let socket = || Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
    let listener = socket();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let mut fill = Vec::new();
    let error = loop {
        assert!(fill.len() < 64, "a queue of no length holds 64 connections");
        fill.push(socket());
        if let Err(error) = fill[fill.len() - 1].connect(&address) {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    let client = expect_unsent(&place, libc::EAGAIN);
    let failed = client.stats().connects_failed;
    assert!((1..=20).contains(&failed), "{failed} dials in a second");
    drop((listener, fill));
    let _server = place.serve();
    drop(lock(&client, "k"));
}

#[test]
fn a_server_that_ends_leaves_the_outcome_unknown_and_one_that_begins_is_found() {
    let place = Place::new();
    let server = place.serve();
    let client = client(place.endpoint());
    let held = lock(&client, "k").into_grant();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.acquire("k", &waiting(60)).unwrap());
        eventually("it waits", || server.stats().locks.waiters == 1);
        server.stop().unwrap();
        let outcome = waiter.join().unwrap();
        assert!(matches!(outcome, Outcome::Indeterminate(_)), "{outcome:?}");
    });
    assert!(!place.path().exists());
    eventually("the client knows", || client.stats().connections_now == 0);
    let server = place.serve();
    drop(lock(&client, "other"));
    // The new server never heard of it.
    let released = client.release("k", held.token()).unwrap();
    assert_eq!(released, Released::NotHeld { retried: false });
    assert_eq!(client.stats().indeterminate, 1);
    drop(server);
}

#[test]
fn a_file_that_the_user_may_not_use_is_a_reason() {
    const FILE: &str = "LOCKCLIENT_TEST_FILE";
    const NOBODY: libc::uid_t = 65_534;
    if let Ok(endpoint) = std::env::var(FILE) {
        // In a process of its own. Root may use every file.
        // SAFETY: only asks, and changes who this process is.
        unsafe {
            if libc::geteuid() == 0 {
                assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
            }
        }
        let client = config(&endpoint).open().unwrap();
        let failure = unsent(&client);
        assert_eq!((failure.kind(), failure.os_error()), (ReasonKind::Connect, Some(libc::EACCES)));
        assert!(failure.to_string().contains("Permission denied"), "{failure}");
        return;
    }
    let place = Place::new();
    let _server = place.serve();
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    set(place.path().parent().unwrap(), 0o755);
    set(&place.path(), 0o000);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_file_that_the_user_may_not_use_is_a_reason", "--test-threads=1"])
        .env(FILE, place.endpoint())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    // And again for those who may.
    set(&place.path(), 0o600);
    let client = config(place.endpoint()).open().unwrap();
    assert!(client.wait_ready(PATIENCE).unwrap());
}
