//! Acquires in two halves, against a real server.

mod common;

use common::{PATIENCE, client, eventually, lock, server, waiting};
use lockclient::{Error, Outcome, ReasonKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[test]
fn a_ticket_brings_the_lock() {
    let server = server();
    let client = client(server.addr());
    let ticket = client.start("k", &waiting(60)).unwrap();
    let Outcome::Acquired(lock) = ticket.wait().unwrap() else { panic!("not acquired") };
    assert_eq!(lock.key(), "k");
    assert!(matches!(ticket.wait(), Err(Error::Taken)));
    assert!(matches!(ticket.poll(), Err(Error::Taken)));
    // What was taken is the guard's now.
    drop(ticket);
    assert_eq!(server.stats().locks.held, 1);
}

#[test]
fn many_tickets_are_in_flight_from_one_thread() {
    let server = server();
    let client = client(server.addr());
    let tickets: Vec<_> =
        (0..1_000).map(|key| client.start(&format!("k/{key}"), &waiting(60)).unwrap()).collect();
    let locks: Vec<_> =
        tickets.iter().map(|ticket| ticket.wait().unwrap().acquired().unwrap()).collect();
    assert_eq!(server.stats().locks.held, 1_000);
    drop(locks);
    eventually("all are free", || server.stats().locks.held == 0);
}

#[test]
fn a_ticket_can_be_polled() {
    let server = server();
    let client = client(server.addr());
    let held = lock(&client, "k");
    let ticket = client.start("k", &waiting(200)).unwrap();
    eventually("it waits", || server.stats().locks.waiters == 1);
    assert!(ticket.poll().unwrap().is_none());
    drop(held);
    let mut outcome = None;
    eventually("it has a result", || {
        outcome = ticket.poll().unwrap();
        outcome.is_some()
    });
    assert!(outcome.unwrap().acquired().is_some());
}

#[test]
fn snd_5_cancelling_what_was_sent_is_unknown_and_leaves_no_waiter() {
    let server = server();
    let client = client(server.addr());
    let held = lock(&client, "k");
    let ticket = client.start("k", &waiting(200)).unwrap();
    eventually("it waits", || server.stats().locks.waiters == 1);
    ticket.cancel();
    let Outcome::Indeterminate(failure) = ticket.poll().unwrap().unwrap() else { panic!() };
    assert_eq!(failure.kind(), ReasonKind::Cancelled);
    eventually("the waiter is gone", || server.stats().locks.waiters == 0);
    drop(held);
    // Nobody was granted it behind our back.
    drop(lock(&client, "k"));
    assert_eq!(client.stats().indeterminate, 1);
}

#[test]
fn cancelling_wakes_whoever_waits() {
    let server = server();
    let client = client(server.addr());
    let _held = lock(&client, "k");
    let ticket = client.start("k", &waiting(200)).unwrap();
    eventually("it waits", || server.stats().locks.waiters == 1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ticket.wait().unwrap());
        ticket.cancel();
        assert!(matches!(waiter.join().unwrap(), Outcome::Indeterminate(_)));
    });
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn dropping_a_ticket_gives_an_untaken_lock_back() {
    let server = server();
    let client = client(server.addr());
    let ticket = client.start("k", &waiting(60)).unwrap();
    eventually("it is granted", || client.stats().acquired == 1);
    drop(ticket);
    eventually("it is free", || server.stats().locks.held == 0);
    assert_eq!(client.stats().compensations, 1);
    assert_eq!(client.stats().connections_closed, 0, "the connection stays");
}

#[test]
fn snd_5_cancelling_an_untaken_grant_gives_it_back() {
    let server = server();
    let client = client(server.addr());
    let ticket = client.start("k", &waiting(60)).unwrap();
    eventually("it is granted", || client.stats().acquired == 1);
    ticket.cancel();
    assert!(matches!(ticket.wait().unwrap(), Outcome::Indeterminate(_)));
    eventually("it is free", || server.stats().locks.held == 0);
}

#[test]
fn dl_7_a_grant_that_nobody_takes_is_given_back_at_its_deadline() {
    let server = server();
    let client = client(server.addr());
    let ticket = client.start("k", &waiting(1)).unwrap();
    eventually("it is granted", || client.stats().acquired == 1);
    // Without anybody looking.
    eventually("it is free", || server.stats().locks.held == 0);
    let Outcome::Indeterminate(failure) = ticket.wait().unwrap() else { panic!() };
    assert_eq!(failure.kind(), ReasonKind::LateGrant);
    let stats = client.stats();
    assert_eq!((stats.late_grants, stats.compensations, stats.acquired), (1, 1, 0));
}

#[test]
fn con_6_one_who_cancels_again_and_again_does_not_starve_the_others() {
    let server = server();
    let client = client(server.addr());
    let _held = lock(&client, "contended");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                let ticket = client.start("contended", &waiting(100)).unwrap();
                eventually("it is in flight", || {
                    server.stats().locks.waiters > 0 || ticket.poll().unwrap().is_some()
                });
                ticket.cancel();
                count += 1;
            }
            count
        });
        for turn in 0..200 {
            let outcome = client.acquire(&format!("own/{turn}"), &waiting(30)).unwrap();
            assert!(matches!(outcome, Outcome::Acquired(_)), "{turn}: {outcome:?}");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(canceller.join().unwrap() > 0);
    });
}
