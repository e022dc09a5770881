//! What the tests of the whole client share: servers, clients, and patience.

// Each test program uses a part of this.
#![allow(dead_code)]

pub(crate) mod fake;

use lockclient::{Acquire, Client, Config, Lock, Outcome};
use lockd::Server;
use socket2::{SockAddr, SockAddrStorage, SockRef};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a test waits for what must happen: enough for a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Resets a connection at once, whoever else holds or reads its socket: what a killed process does
/// whose socket has unread bytes. A close with no time to linger would do it only for the last holder,
/// and a shutdown sends an orderly end.
pub(crate) fn reset(stream: &TcpStream) {
    let family = size_of::<libc::sa_family_t>() as libc::socklen_t;
    // SAFETY: zeros are an address of the unspecified family, which has nothing but its family.
    #[allow(unsafe_code)]
    let nowhere = unsafe { SockAddr::new(SockAddrStorage::zeroed(), family) };
    // Connecting it to nowhere is what resets it. One that has ended before cannot be.
    let _ = SockRef::from(stream).connect(&nowhere);
}

/// A lockd of the test's own, on a free port.
pub(crate) fn server() -> Server {
    Server::start(lockd::Config::on_free_port()).unwrap()
}

/// A configuration with one endpoint.
pub(crate) fn config(address: impl ToString) -> Config {
    Config::new().endpoint(&address.to_string()).unwrap()
}

/// A client that has a connection.
pub(crate) fn client(address: impl ToString) -> Client {
    ready(&config(address))
}

/// The same, with more settings.
pub(crate) fn ready(config: &Config) -> Client {
    let client = config.open().unwrap();
    assert!(client.wait_ready(PATIENCE).unwrap());
    client
}

/// An acquire that waits so many seconds, with a lease that no test outlives.
pub(crate) fn waiting(wait: u64) -> Acquire {
    Acquire::new(seconds(wait), Duration::ZERO).lease(seconds(250))
}

/// One immediate attempt.
pub(crate) fn at_once() -> Acquire {
    waiting(0)
}

/// The lock, which must be had.
#[track_caller]
pub(crate) fn lock(client: &Client, key: &str) -> Lock {
    match client.acquire(key, &waiting(60)).unwrap() {
        Outcome::Acquired(lock) => lock,
        other => panic!("{other:?}"),
    }
}

/// Waits until `happened`, which must come true.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "{what}: it never happened");
        std::thread::sleep(ms(2));
    }
}
