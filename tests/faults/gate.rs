//! The delivery gate: a grant is handed over in time, or given back by its token.

use crate::common::{eventually, ms, seconds, server, waiting};
use crate::fake_node::{FakeNode, Reaction, Request, Seen};
use crate::proxy::Proxy;
use crate::support::{Mortal, endpoints, leasing, narrow, open, sleep_until, unknown};
use lockclient::{Outcome, ReasonKind};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A node that holds every acquire, and a client that waits long for late answers.
fn holding() -> (FakeNode, Mortal) {
    let node =
        FakeNode::start_with(
            |seen| {
                if seen.is_acquire() { Reaction::Hold } else { seen.served(1) }
            },
        );
    let client = open(&narrow(node.endpoint()).response_grace(seconds(30)).unwrap());
    (node, client)
}

fn acquire(node: &FakeNode) -> Seen {
    let seen = node.wait_for("the acquire", |seen| seen.iter().any(Seen::is_acquire));
    seen.into_iter().find(Seen::is_acquire).unwrap()
}

/// Waits for the release of a token; says how often it came.
fn releases(node: &FakeNode, token: u64) -> usize {
    let is = move |seen: &&Seen| matches!(&seen.request, Request::Release { token: t, key, .. } if *t == token && key == "k");
    node.wait_for("its release", |seen| seen.iter().any(|seen| is(&seen))).iter().filter(is).count()
}

#[test]
fn dl_7_a_grant_that_is_read_late_is_given_back() {
    let (node, client) = holding();
    let start = Instant::now();
    let ticket = client.start("k", &waiting(1)).unwrap();
    let acquire = acquire(&node);
    sleep_until(start + ms(1_050));
    assert!(ticket.poll().unwrap().is_none());
    node.say(0, &acquire.granted(42));
    assert_eq!(unknown(ticket.wait().unwrap()), ReasonKind::LateGrant);
    assert_eq!(releases(&node, 42), 1);
    assert_eq!(node.open_connections(), 1, "the connection stays");
    eventually("it is counted", || client.stats().late_grants == 1);
}

#[test]
fn dl_7_a_grant_that_nobody_takes_is_given_back_at_its_deadline() {
    let (node, client) = holding();
    let start = Instant::now();
    let ticket = client.start("k", &waiting(1)).unwrap();
    node.say(0, &acquire(&node).granted(43));
    eventually("it is there", || client.stats().acquired == 1);
    // Nobody looks.
    assert_eq!(releases(&node, 43), 1);
    let released = node.seen().last().unwrap().at;
    assert!(released >= start + seconds(1) && released < start + seconds(3));
    assert_eq!(unknown(ticket.poll().unwrap().unwrap()), ReasonKind::LateGrant);
    assert_eq!(node.open_connections(), 1);
    assert_eq!(releases(&node, 43), 1, "once");
}

#[test]
fn dl_7_snd_5_an_untaken_grant_of_a_dropped_or_cancelled_ticket_is_given_back() {
    for cancelled in [false, true] {
        let (node, client) = holding();
        let ticket = client.start("k", &waiting(60)).unwrap();
        node.say(0, &acquire(&node).granted(44));
        eventually("it is there", || client.stats().acquired == 1);
        if cancelled {
            ticket.cancel();
            assert_eq!(unknown(ticket.wait().unwrap()), ReasonKind::Cancelled);
        }
        drop(ticket);
        assert_eq!(releases(&node, 44), 1);
        assert_eq!(node.open_connections(), 1);
    }
}

#[test]
fn snd_5_an_answer_that_was_read_stands_against_a_cancel() {
    let (node, client) = holding();
    let ticket = client.start("k", &waiting(60)).unwrap();
    node.say(0, &acquire(&node).timed_out());
    eventually("it is there", || client.stats().timed_out == 1);
    ticket.cancel();
    assert!(matches!(ticket.wait().unwrap(), Outcome::TimedOut));
    assert_eq!(node.open_connections(), 1);
}

#[test]
fn dl_7_every_grant_is_delivered_once_or_given_back_once() {
    let server = server();
    let proxy = Proxy::start(server.addr());
    let client = open(&endpoints([proxy.endpoint()]));
    let delivered = AtomicUsize::new(0);
    // Each ticket is waited for by one thread and cancelled by another, at about the same time.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (client, delivered) = (&client, &delivered);
            scope.spawn(move || {
                for turn in 0..100 {
                    let key = format!("{thread}-{}", turn % 3);
                    let ticket = client.start(&key, &leasing(20, 2)).unwrap();
                    std::thread::scope(|both| {
                        let waiter = both.spawn(|| ticket.wait());
                        for _ in 0..turn * 20 {
                            std::hint::spin_loop();
                        }
                        ticket.cancel();
                        match waiter.join().unwrap().unwrap() {
                            Outcome::Acquired(lock) => {
                                delivered.fetch_add(1, Ordering::Relaxed);
                                drop(lock);
                            }
                            Outcome::Indeterminate(_) | Outcome::Cancelled => {}
                            other => panic!("{other:?}"),
                        }
                    });
                }
            });
        }
    });
    // A grant whose connection had gone first ends with its lease.
    eventually("nothing is held", || {
        let stats = client.stats();
        stats.queued_now + stats.in_flight_now == 0 && server.stats().locks.held == 0
    });
    let _ = client.shutdown(seconds(10)).unwrap();
    let (stats, locks) = (client.stats(), server.stats().locks);
    let mut given_back = HashSet::new();
    for frame in proxy.forwarded().into_iter().filter(|frame| frame.token != 0) {
        // On another link it is one that was sent again, because the first had no answer.
        assert!(given_back.insert((frame.link, frame.token)), "twice: {frame:?}");
    }
    assert_eq!(locks.grants - locks.undone, locks.released + locks.expired);
    assert_eq!(stats.acquired, delivered.load(Ordering::Relaxed) as u64);
    assert_eq!(locks.waiters, 0);
}

#[test]
fn dl_7_rel_6_a_client_that_is_closed_gives_its_untaken_grants_back() {
    let server = server();
    let client = open(&endpoints([server.addr()]));
    let start = |key: u32| client.start(&key.to_string(), &waiting(60)).unwrap();
    let tickets: Vec<_> = (0..50).map(start).collect();
    eventually("all are granted", || client.stats().acquired == 50);
    assert_eq!(client.shutdown(seconds(20)).unwrap(), lockclient::Shutdown::Clean);
    for ticket in tickets {
        let outcome = ticket.wait().unwrap();
        assert!(matches!(outcome, Outcome::Indeterminate(_)), "{outcome:?}");
    }
    eventually("nothing is held", || server.stats().locks.held == 0);
}
