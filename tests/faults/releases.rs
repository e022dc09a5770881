//! Releases, across lost connections and in their own room.

use crate::common::{at_once, eventually, lock, ms, seconds, server, waiting};
use crate::fake_node::{FakeNode, Reaction, Request, Seen};
use crate::proxy::{Course, End, Plan, Proxy};
use crate::support::{begin, endpoints, narrow, open, sleep_until};
use lockclient::{Client, Error, Outcome, Released, Shutdown, Token};
use std::time::Instant;

fn is_release(seen: &Seen) -> bool {
    matches!(seen.request, Request::Release { .. })
}

#[test]
fn rel_1_rel_3_five_seconds_over_several_lost_connections() {
    let server = server();
    // Every link takes one release, and loses its answer.
    let sent = 24 + 19;
    let lossy = move |_| Plan {
        up: Course { end: Some((sent, End::Reset)), ..Course::default() },
        ..Plan::default()
    };
    let proxy = Proxy::start(server.addr());
    let client = open(&endpoints([proxy.endpoint()]));
    proxy.plan(lossy);
    proxy.end_all(End::Reset);
    let start = Instant::now();
    let outcome = client.release("k", Token::new(7)).unwrap();
    let took = start.elapsed();
    assert!(matches!(outcome, Released::Unconfirmed(_)), "{outcome:?}");
    assert!(took >= seconds(5) && took < seconds(7), "{took:?}");
    let releases = proxy.forwarded().into_iter().filter(|frame| frame.token == 7);
    let links: Vec<_> = releases.map(|frame| frame.link).collect();
    assert!(links.len() >= 3 && links.is_sorted_by(|a, b| a < b), "{links:?}");
    // Whoever repeats it itself is heard, once the network is well.
    proxy.plan(|_| Plan::default());
    let again = client.release("k", Token::new(7)).unwrap();
    assert!(matches!(again, Released::NotHeld { .. }), "{again:?}");
}

#[test]
fn rel_1_rel_2_a_release_is_repeated_by_its_token_and_says_so() {
    let node = FakeNode::start_with(|seen| match seen.request {
        Request::Release { .. } if seen.connection < 2 => Reaction::SayAndClose(Vec::new()),
        Request::Release { .. } => Reaction::Say(seen.not_held()),
        _ => seen.served(1),
    });
    let client = open(&narrow(node.endpoint()));
    let outcome = client.release("k", Token::new(7)).unwrap();
    assert_eq!(outcome, Released::NotHeld { retried: true });
    let releases: Vec<_> = node.seen().into_iter().filter(is_release).collect();
    assert_eq!(releases.iter().map(|seen| seen.connection).collect::<Vec<_>>(), [0, 1, 2]);
    for seen in &releases {
        assert!(matches!(&seen.request, Request::Release { token: 7, key, .. } if key == "k"));
    }
}

/// Has so many grants come to a client at once, all of them after their deadlines.
fn come_late(client: &Client, node: &FakeNode, count: usize) {
    let start = Instant::now();
    let begin = |at: usize| loop {
        match client.start(&format!("k{at}"), &waiting(1)) {
            // There is room again when what waits was sent.
            Err(Error::QueueFull) if start.elapsed() < seconds(60) => std::thread::yield_now(),
            ticket => break ticket.unwrap(),
        }
    };
    let tickets: Vec<_> = (0..count).map(begin).collect();
    let acquires = |seen: &[Seen]| seen.iter().filter(|seen| seen.is_acquire()).count();
    node.wait_for("all of them", |seen| acquires(seen) == count);
    sleep_until(Instant::now() + ms(1_200));
    let grants: Vec<u8> =
        node.acquires().iter().enumerate().flat_map(|(at, a)| a.granted(1 + at as u64)).collect();
    node.say(0, &grants);
    for ticket in tickets {
        assert!(!ticket.wait().unwrap().is_definite());
    }
    eventually("all are counted", || client.stats().late_grants == count as u64);
}

#[test]
fn rel_4_thousands_of_grants_that_come_late_at_once_are_all_released() {
    const GRANTS: usize = 3_000;
    let node =
        FakeNode::start_with(
            |seen| {
                if seen.is_acquire() { Reaction::Hold } else { seen.served(1) }
            },
        );
    let client = open(&narrow(node.endpoint()).response_grace(seconds(60)).unwrap());
    come_late(&client, &node, GRANTS);
    eventually("all are answered", || {
        let stats = client.stats();
        stats.released + stats.not_held == GRANTS as u64
    });
    let stats = client.stats();
    assert_eq!((stats.compensations, stats.compensations_dropped), (GRANTS as u64, 0));
}

#[test]
fn rel_4_a_full_lane_drops_and_counts_what_has_no_place() {
    const GRANTS: usize = 1_200;
    // As many places as the queue, and 1,024 at least: what was sent is in the queue no longer.
    for (queue_limit, places) in [(8, 1_024), (1_100, 1_100)] {
        full_lane(queue_limit, places, GRANTS);
    }
}

fn full_lane(queue_limit: usize, places: usize, grants: usize) {
    // No release is answered.
    let node =
        FakeNode::start_with(|seen| if seen.is_probe() { seen.served(1) } else { Reaction::Hold });
    let config = narrow(node.endpoint()).response_grace(seconds(60)).unwrap();
    let client = open(&config.queue_limit(queue_limit).unwrap());
    come_late(&client, &node, grants);
    let stats = client.stats();
    assert_eq!(stats.compensations, places as u64);
    assert_eq!(stats.compensations_dropped, (grants - places) as u64);
    // Room of their own: a guard's release and one that is waited for still go out.
    let before = node.wait_for("the releases", |seen| {
        seen.iter().filter(|seen| is_release(seen)).count() == places
    });
    client.release_start("another", Token::new(5_000)).unwrap();
    node.wait_for("another", |seen| seen.len() > before.len());
    assert!(is_release(&node.seen()[before.len()]));
}

#[test]
fn rel_4_rel_6_a_client_that_closes_with_a_full_lane() {
    for answered in [true, false] {
        let node = FakeNode::start_with(move |seen| {
            if is_release(seen) && !answered { Reaction::Hold } else { seen.served(1) }
        });
        // As many releases may be under way as acquires may be queued.
        let config = endpoints([node.endpoint()]).queue_limit(1_024).unwrap();
        let client = open(&config);
        let started = (1..).find(|token| {
            let full = client.release_start("k", Token::new(*token));
            assert!(matches!(full, Ok(()) | Err(Error::QueueFull)), "{full:?}");
            full.is_err() || *token == 1_024 * 4
        });
        assert!(answered || started == Some(1_025), "{started:?}");
        let start = Instant::now();
        let end = client.shutdown(ms(700)).unwrap();
        if answered {
            assert_eq!(end, Shutdown::Clean);
        } else {
            assert_eq!(end, Shutdown::Unconfirmed);
            assert!(start.elapsed() >= ms(650) && start.elapsed() < ms(2_500));
            eventually("all are counted", || client.stats().unconfirmed == 1_024);
        }
    }
}

#[test]
fn rel_4_5000_guards_are_dropped_in_an_outage() {
    const GUARDS: usize = 5_000;
    let server = server();
    let proxy = Proxy::start(server.addr());
    let client = open(&endpoints([proxy.endpoint()]));
    let tickets: Vec<_> =
        (0..GUARDS).map(|at| client.start(&format!("k{at}"), &waiting(60)).unwrap()).collect();
    let guards: Vec<_> =
        tickets.iter().map(|ticket| ticket.wait().unwrap().acquired().unwrap()).collect();
    assert_eq!(server.stats().locks.held, GUARDS);
    proxy.refuse(true);
    proxy.end_all(End::Reset);
    eventually("the outage is noticed", || client.stats().connections_now == 0);
    let start = Instant::now();
    drop(guards);
    let took = start.elapsed();
    assert!(took < seconds(2), "dropping never blocks: {took:?}");
    std::thread::sleep(ms(300));
    assert_eq!(server.stats().locks.held, GUARDS);
    proxy.refuse(false);
    eventually("all are free", || server.stats().locks.held == 0);
    assert_eq!(server.stats().locks.expired, 0);
    eventually("all are confirmed", || client.stats().released == GUARDS as u64);
    let stats = client.stats();
    assert_eq!((stats.unconfirmed, stats.compensations_dropped), (0, 0));
}

#[test]
fn rel_4_snd_6_a_release_goes_out_before_acquires_that_fill_the_queue() {
    const QUEUE: usize = 2_000;
    // No connection serves until everything is queued.
    let node = FakeNode::start_with(|_| Reaction::Hold);
    let client = begin(&endpoints([node.endpoint()]).queue_limit(QUEUE).unwrap());
    let probe = node.wait_for("a probe", |seen| !seen.is_empty())[0].clone();
    let start = |at: usize| client.start(&format!("k{at}"), &waiting(60));
    let _tickets: Vec<_> = (0..QUEUE).map(|at| start(at).unwrap()).collect();
    eventually("all are queued", || client.stats().queued_now == QUEUE as u64);
    assert!(matches!(start(QUEUE), Err(Error::QueueFull)));
    client.release_start("released", Token::new(3)).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.release("awaited", Token::new(4)).unwrap());
        // There is nothing to see of it before it leaves.
        std::thread::sleep(ms(50));
        node.react(|seen| seen.served(1));
        node.say(0, &probe.not_held());
        assert_eq!(waiter.join().unwrap(), Released::Released);
    });
    let seen = node.wait_for("an acquire", |seen| seen.iter().any(Seen::is_acquire));
    let first = |is: fn(&Seen) -> bool| seen.iter().position(is).unwrap();
    let last_release = seen.iter().rposition(is_release).unwrap();
    assert!(last_release < first(Seen::is_acquire), "releases go first");
}

#[test]
fn snd_6_a_drop_and_a_try_10000_times_over_four_connections() {
    let server = server();
    let client = open(&endpoints([server.addr()]));
    // Everybody else's traffic opens all the connections, and keeps them busy.
    let busy = lock(&client, "busy");
    let tickets: Vec<_> = (0..2).map(|_| client.start("busy", &waiting(200)).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.acquire("busy", &waiting(200)));
        eventually("they wait", || server.stats().locks.waiters == 3);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let client = &client;
                scope.spawn(move || {
                    let key = format!("own-{thread}");
                    for turn in 0..2_500 {
                        // By every kind of call in turn: they use different connections.
                        let outcome = match (thread + turn) % 4 {
                            0 | 1 => client.acquire(&key, &at_once()).unwrap(),
                            2 => client.acquire(&key, &waiting(60)).unwrap(),
                            _ => client.start(&key, &at_once()).unwrap().wait().unwrap(),
                        };
                        match outcome {
                            Outcome::Acquired(lock) => drop(lock),
                            other => panic!("{thread} {turn}: {other:?}"),
                        }
                    }
                });
            }
        });
        assert!(server.stats().connections >= 4);
        drop(busy);
        drop(tickets);
        drop(waiter.join().unwrap().unwrap());
    });
}
