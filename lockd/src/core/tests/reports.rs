//! What can be seen from outside: counters, histograms, and the list of locks.

use super::{Limits, ROOMY, World, not_active, plain};
use crate::core::{Core, Journal, Refusals, Stats};
use std::io;
use std::time::Duration;

#[test]
fn waits_are_measured_from_the_request_to_the_grant() {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 1, "k", 100);
    assert_eq!(world.acquire(2, 2, "k", 60, 5), []);
    world.pass(2.0);
    world.release(1, 3, token, "k");
    let waits = world.stats().waits;
    assert_eq!((waits.count(), waits.sum_nanos), (2, 2_000_000_000));
}

#[test]
fn holds_are_measured_to_the_release_or_the_end_of_the_lease_however_late_it_is_seen() {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 1, "released", 100);
    world.pass(3.0);
    world.release(1, 2, token, "released");
    world.take(1, 3, "expired", 4);
    world.stall(50.0);
    world.advance();
    world.take(1, 4, "seen by a request", 4);
    world.stall(60.0);
    world.acquire(1, 5, "seen by a request", 0, 7);
    let holds = world.stats().holds;
    assert_eq!((holds.count(), holds.sum_nanos), (3, 11_000_000_000));
}

#[test]
fn undone_grants_were_never_held() {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 1, "k", 100);
    world.undo(token, "k");
    assert_eq!(world.stats().holds.count(), 0);
}

#[test]
fn every_acquire_is_accounted_for() {
    let mut world = World::new(Limits { waiters_per_key: 1, ..ROOMY });
    world.take(1, 1, "k", 10);
    world.acquire(2, 2, "k", 0, 5);
    world.acquire(3, 3, "k", 5, 5);
    assert_eq!(world.acquire(4, 4, "k", 5, 5), [plain('B', 4, 4, "k")]);
    world.pass(20.0);
    let stats = world.stats();
    assert_eq!(stats.acquires, 4);
    assert_eq!((stats.grants, stats.timeouts, stats.busy), (1, 2, 1));
}

#[test]
fn the_list_shows_each_lock_once_in_pieces_of_any_size() {
    let mut world = World::new(ROOMY);
    for number in 0..100u64 {
        world.take(1, number + 1, &format!("a{number:02}"), 50);
        world.take(1, number + 1, &format!("b{number:02}"), 50);
    }
    world.acquire(2, 1, "a07", 60, 5);
    world.stall(10.0);
    for (places, limit) in [(1, 10), (7, 3), (64, 1), (1000, 1000)] {
        let mut keys = Vec::new();
        let mut from = Some(0);
        while let Some(place) = from {
            let (held, next) = world.core.inspect(b"a", place, places, limit, world.now);
            assert!(held.len() <= limit);
            for held in held {
                assert_eq!(held.remaining, Duration::from_secs(40));
                assert_eq!(held.waiters, usize::from(held.key == "a07"));
                keys.push(held.key);
            }
            from = next;
        }
        keys.sort();
        let expected: Vec<String> = (0..100).map(|number| format!("a{number:02}")).collect();
        assert_eq!(keys, expected, "{places} places, at most {limit}");
    }
}

#[test]
fn the_list_looks_at_as_many_places_as_it_was_asked_to() {
    let mut world = World::new(ROOMY);
    for number in 0..5u64 {
        world.take(1, number + 1, &format!("k{number}"), 50);
    }
    let list = |from, places| {
        let (held, next) = world.core.inspect(b"", from, places, 100, world.now);
        let keys: Vec<String> = held.into_iter().map(|held| held.key).collect();
        (keys.join(" "), next)
    };
    assert_eq!(list(0, 1), ("k0".to_owned(), Some(1)));
    assert_eq!(list(1, 3), ("k1 k2 k3".to_owned(), Some(4)));
    assert_eq!(list(4, 3), ("k4".to_owned(), None));
    assert_eq!(list(0, 0), (String::new(), Some(0)));
}

#[test]
fn the_list_leaves_out_leases_that_are_over() {
    let mut world = World::new(ROOMY);
    world.take(1, 1, "k", 5);
    world.stall(5.0);
    assert_eq!(world.core.inspect(b"", 0, 100, 100, world.now), (vec![], None));
}

#[test]
fn what_admission_let_in_and_was_refused_is_counted_by_its_cause() {
    let limits = Limits { locks: 2, waiters_per_key: 1, ..ROOMY };
    let mut world = World::with_tokens(limits, 1, 3);
    let token = world.take(1, 1, "k", 100);
    world.acquire(2, 2, "k", 50, 5);
    assert_eq!(world.acquire(3, 3, "k", 50, 5), [plain('B', 3, 3, "k")]);
    assert_eq!(world.core.refusals(), Refusals { full_queue: 1, tokenless: 0 });
    // At a limit: neither of the two.
    let other = world.take(1, 4, "other", 100);
    assert_eq!(world.acquire(3, 5, "k", 50, 5), [plain('B', 3, 5, "k")]);
    assert_eq!(world.core.refusals(), Refusals { full_queue: 1, tokenless: 0 });
    world.release(1, 6, other, "other");
    world.take(1, 7, "last", 100);
    assert_eq!(world.release(1, 8, token, "k"), [plain('R', 1, 8, "k"), plain('B', 2, 2, "k")]);
    assert_eq!(world.core.refusals(), Refusals { full_queue: 1, tokenless: 1 });
    assert_eq!(world.stats().busy, 3);
}

#[test]
fn each_counter_counts_its_own_and_nothing_else() {
    let mut world = World::with_tokens(Limits { waiters_per_key: 1, ..ROOMY }, 1, 4);
    let first = world.take(1, 1, "k", 10);
    world.acquire(2, 2, "k", 50, 10);
    world.acquire(3, 3, "k", 50, 10);
    world.acquire(3, 4, "k", 0, 10);
    world.release(1, 5, first, "k");
    world.release(1, 6, first, "k");
    world.release(1, 7, 0, "_probe");
    world.undo(2, "k");
    world.take(1, 8, "k", 1);
    world.acquire(2, 9, "k", 50, 1);
    world.disconnect(2);
    world.stall(1.0);
    // Ends the lease that is over, and takes the last token.
    world.take(1, 10, "k", 5);
    assert_eq!(world.acquire(1, 11, "x", 0, 5), [not_active(1)]);
    assert_eq!(world.release(1, 12, 0, "_probe"), [not_active(1)]);
    let stats = world.stats();
    let expected = Stats {
        held: 1,
        waiters: 0,
        admitting: true,
        active: false,
        acquires: 8,
        queued: 2,
        grants: 4,
        undone: 1,
        timeouts: 1,
        busy: 1,
        released: 1,
        not_held: 2,
        probes: 2,
        not_active: 2,
        expired: 1,
        abandoned: 1,
        waits: stats.waits,
        holds: stats.holds,
    };
    assert_eq!(stats, expected);
    assert_eq!((stats.waits.count(), stats.holds.count()), (4, 2));
}

#[test]
fn a_node_is_shown_as_active_outside_its_quarantine() {
    let mut world = World::new(ROOMY);
    assert!(world.stats().active);
    world.core.quarantine(world.now.after_seconds(5));
    assert!(!world.stats().active);
    world.pass(4.9);
    assert!(!world.stats().active);
    world.pass(0.1);
    assert!(world.stats().active);
}

#[test]
fn an_acquire_that_cannot_be_recorded_is_counted_as_not_active() {
    #[derive(Debug)]
    struct Broken;
    impl Journal for Broken {
        fn reserve(&mut self, _: u64, _: u8) -> io::Result<u64> {
            Err(io::Error::other("no space"))
        }
        fn stop(&mut self, _: u64, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }
    let mut world = World::new(ROOMY);
    world.core = Core::with_journal(ROOMY, 1, Box::new(Broken));
    assert!(world.stats().active);
    assert_eq!(world.acquire(1, 1, "k", 0, 5), [not_active(1)]);
    assert_eq!((world.stats().not_active, world.stats().held), (1, 0));
    assert!(!world.stats().active);
}
