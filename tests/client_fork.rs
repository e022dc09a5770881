//! A process that forks with an open client (HOST-2).

#![allow(unsafe_code, reason = "fork")]

mod common;

use common::{at_once, client, eventually, lock, ms, seconds, server, waiting};
use lockclient::{Client, Error, Lock, Shutdown, Stats, Ticket, Token};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Runs `child` in a forked child; it ends with 0 if `child` gives true.
fn fork(child: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child runs `child` alone and then ends without returning: it never comes back to
    // the test program, whose other threads it has not got.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: ends the child, also one that hangs.
        unsafe {
            libc::alarm(60);
            libc::_exit(if child() { 0 } else { 1 });
        }
    }
    pid
}

fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: our own child, and `status` is valid to write to.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Every call of a child's is refused, and what it frees is freed for itself.
fn refused(client: Client, held: Lock, pending: Ticket, granted: Ticket) -> bool {
    let forked = |error: Option<Error>| matches!(error, Some(Error::Forked));
    let token = Token::new(1);
    let every = [
        forked(client.acquire("k", &at_once()).err()),
        forked(client.acquire("", &at_once()).err()),
        forked(client.start("k", &at_once()).err()),
        forked(client.release("k", token).err()),
        forked(client.release_start("k", token).err()),
        forked(client.wait_ready(ms(10)).err()),
        forked(client.shutdown(seconds(10)).err()),
        forked(pending.wait().err()),
        forked(pending.poll().err()),
        forked(granted.poll().err()),
        client.stats() == Stats::default(),
    ];
    pending.cancel();
    drop(granted);
    drop(pending);
    drop(held);
    drop(client);
    every.iter().all(|one| *one)
}

#[test]
fn host_2_a_child_is_refused_and_its_parent_is_not_disturbed() {
    let server = server();
    let client = client(server.addr());
    let held = lock(&client, "held");
    let pending = client.start("held", &waiting(200)).unwrap();
    let granted = client.start("free", &waiting(200)).unwrap();
    eventually("one waits and one is granted", || {
        server.stats().locks.waiters == 1 && client.stats().acquired == 2
    });
    let before = server.stats();
    let (client_of_child, pid);
    {
        client_of_child = client.clone();
        pid = fork(|| {
            // Bitwise the parent's: what is dropped here is dropped in the child.
            // SAFETY: the child ends without using the originals.
            let (held, pending, granted) = unsafe {
                (std::ptr::read(&held), std::ptr::read(&pending), std::ptr::read(&granted))
            };
            // SAFETY: as above.
            let client = unsafe { std::ptr::read(&client_of_child) };
            refused(client, held, pending, granted)
        });
    }
    assert_eq!(wait(pid), 0, "a call of the child's was not refused, or it hung");
    drop(client_of_child);
    let after = server.stats();
    assert_eq!(after.locks.held, 2);
    assert_eq!(after.locks.waiters, 1);
    assert_eq!(after.connections, before.connections);
    // All of the parent's still works, the ticket that waits included.
    drop(held);
    assert!(pending.wait().unwrap().acquired().is_some());
    assert!(granted.wait().unwrap().acquired().is_some());
    eventually("all is free", || server.stats().locks.held == 0);
    assert_eq!(client.stats().connections_closed, 0);
}

#[test]
fn clo_2_the_parents_closes_close_though_a_child_holds_the_descriptors() {
    let server = server();
    let client = client(server.addr());
    drop(lock(&client, "k"));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let pid = fork(|| {
        // Lives until the parent says so.
        let mut theirs = &theirs;
        matches!(theirs.read(&mut [0; 1]), Ok(1))
    });
    assert_eq!(client.shutdown(seconds(30)).unwrap(), Shutdown::Clean);
    eventually("the server sees the end", || server.stats().connections == 0);
    #[allow(clippy::disallowed_methods, reason = "the test's own socket pair")]
    ours.write_all(b"x").unwrap();
    assert_eq!(wait(pid), 0);
}

#[test]
fn host_2_a_child_that_opens_a_client_of_its_own_can_use_it() {
    let server = server();
    let parents = client(server.addr());
    let pid = fork(|| {
        let own = client(server.addr());
        let held = lock(&own, "k");
        let stays = matches!(parents.acquire("k", &at_once()), Err(Error::Forked));
        let released = held.release().is_ok();
        stays && released && own.shutdown(seconds(30)).unwrap() == Shutdown::Clean
    });
    assert_eq!(wait(pid), 0);
    drop(lock(&parents, "k"));
}
