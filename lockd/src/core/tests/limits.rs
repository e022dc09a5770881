//! Admission, and the queues' limits.

use super::{Limits, ROOMY, World, acquired, plain};
use crate::core::{Acquire, Answers, ConnectionId, Core, Time};
use lockclient::wire::ServerFrame;

#[test]
fn a_full_queue_of_a_key_answers_b_and_other_keys_go_on() {
    let mut world = World::new(Limits { waiters_per_key: 2, ..ROOMY });
    world.take(1, 11, "k", 100);
    world.take(1, 12, "other", 100);
    assert_eq!(world.acquire(2, 21, "k", 50, 5), []);
    assert_eq!(world.acquire(3, 31, "k", 50, 5), []);
    assert_eq!(world.acquire(4, 41, "k", 50, 5), [plain('B', 4, 41, "k")]);
    assert_eq!(world.acquire(4, 42, "k", 0, 5), [plain('T', 4, 42, "k")]);
    assert_eq!(world.acquire(4, 43, "other", 50, 5), []);
    // As soon as one leaves there is room again.
    world.disconnect(2);
    assert_eq!(world.acquire(4, 44, "k", 50, 5), []);
}

#[test]
fn a_connection_with_too_many_waiters_gets_b_and_other_connections_go_on() {
    let mut world = World::new(Limits { waiters_per_connection: 2, ..ROOMY });
    for key in ["a", "b", "c"] {
        world.take(1, 11, key, 100);
    }
    assert_eq!(world.acquire(2, 21, "a", 50, 5), []);
    assert_eq!(world.acquire(2, 22, "b", 50, 5), []);
    assert_eq!(world.acquire(2, 23, "c", 50, 5), [plain('B', 2, 23, "c")]);
    assert_eq!(world.acquire(2, 24, "free", 50, 5), [acquired(2, 24, 4, "free")]);
    assert_eq!(world.acquire(3, 31, "c", 50, 5), []);
}

#[test]
fn at_90_percent_of_the_locks_every_acquire_gets_b_until_below_75() {
    let mut world = World::new(Limits { locks: 20, ..ROOMY });
    let tokens: Vec<u64> =
        (0..18).map(|number| world.take(1, 1, &format!("k{number}"), 100)).collect();
    assert!(!world.stats().admitting && !world.core.is_admitting());
    // A free key, a held one, with and without a wait: B.
    assert_eq!(world.acquire(2, 21, "new", 0, 5), [plain('B', 2, 21, "new")]);
    assert_eq!(world.acquire(2, 22, "new", 9, 5), [plain('B', 2, 22, "new")]);
    assert_eq!(world.acquire(2, 23, "k0", 0, 5), [plain('B', 2, 23, "k0")]);
    assert_eq!(world.acquire(2, 24, "k0", 9, 5), [plain('B', 2, 24, "k0")]);
    // Releases are not affected. 15 of 20 is still 75 %, 14 is below.
    for (number, token) in tokens.iter().enumerate().take(3) {
        let key = format!("k{number}");
        assert_eq!(world.release(1, 2, *token, &key), [plain('R', 1, 2, &key)]);
        assert_eq!(world.acquire(2, 25, "new", 0, 5), [plain('B', 2, 25, "new")]);
    }
    world.release(1, 2, tokens[3], "k3");
    assert!(world.stats().admitting && world.core.is_admitting());
    world.take(2, 26, "new", 5);
}

#[test]
fn at_90_percent_of_the_waiters_every_acquire_gets_b_until_below_75() {
    let mut world = World::new(Limits { waiters: 20, ..ROOMY });
    world.take(1, 11, "k", 200);
    for connection in 2..20 {
        assert_eq!(world.acquire(connection, 1, "k", 255, 5), []);
    }
    assert_eq!(world.acquire(30, 2, "free", 0, 5), [plain('B', 30, 2, "free")]);
    for connection in 2..5 {
        world.disconnect(connection);
        assert!(!world.stats().admitting);
    }
    world.disconnect(5);
    assert!(world.stats().admitting);
}

#[test]
fn a_queue_moves_on_while_admission_is_closed() {
    let mut world = World::new(Limits { waiters: 10, ..ROOMY });
    let token = world.take(1, 11, "k", 200);
    for connection in 2..11 {
        assert_eq!(world.acquire(connection, 1, "k", 255, 5), []);
    }
    assert!(!world.stats().admitting);
    let answers = world.release(1, 12, token, "k");
    assert_eq!(answers, [plain('R', 1, 12, "k"), acquired(2, 1, 2, "k")]);
}

#[test]
fn leases_and_waits_that_end_reopen_admission() {
    let mut world = World::new(Limits { locks: 10, ..ROOMY });
    for number in 0..9 {
        world.take(1, 1, &format!("k{number}"), 2);
    }
    assert_eq!(world.acquire(2, 2, "new", 0, 5), [plain('B', 2, 2, "new")]);
    // The leases' end is noticed by the acquire's own key at the latest, and by the timers.
    world.pass(2.0);
    assert!(world.stats().admitting);
    world.take(2, 3, "new", 5);
}

#[test]
fn the_smallest_limits_still_serve_one() {
    let smallest = Limits { locks: 1, waiters: 1, waiters_per_key: 1, waiters_per_connection: 1 };
    let mut world = World::new(smallest);
    let token = world.take(1, 1, "k", 5);
    assert_eq!(world.acquire(2, 2, "k", 5, 5), [plain('B', 2, 2, "k")]);
    world.release(1, 3, token, "k");
    world.take(2, 4, "k", 5);
}

#[test]
fn a_million_locks_and_a_hundred_thousand_waiters_fit_in_the_default_limits() {
    struct Grants(usize);
    impl Answers for Grants {
        fn answer(&mut self, _: ConnectionId, frame: ServerFrame<'_>) {
            self.0 += usize::from(matches!(frame, ServerFrame::Acquired { .. }));
        }
    }
    let mut core = Core::new(crate::Config::default().limits().unwrap(), 1, u64::MAX);
    let now = Time::default();
    let mut out = Grants(0);
    let mut acquire = |number: u32, wait, lease| {
        let key = [b"lock-", &(number | 0x4040_4040).to_be_bytes()[..], &[number as u8]].concat();
        let request = Acquire { wait, lease, owner: 1, key: &key };
        core.acquire(ConnectionId(number % 1000), request, now, &mut out);
    };
    let numbers = || (0..u32::MAX).filter(|number| number & 0x4040_4040 == 0);
    for number in numbers().take(1_000_000) {
        acquire(number, 0, 1 + (number % 255) as u8);
    }
    for number in numbers().take(100_000) {
        acquire(number, 255, 9);
    }
    assert_eq!(out.0, 1_000_000);
    assert_eq!((core.stats().held, core.stats().waiters), (1_000_000, 100_000));
    for connection in 0..1000 {
        core.disconnect(ConnectionId(connection));
    }
    assert_eq!((core.stats().held, core.stats().waiters), (1_000_000, 0));
}
