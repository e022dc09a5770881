//! Tokens, and the times at which a node may not serve.

use super::{ROOMY, World, acquired, not_active, plain};

#[test]
fn tokens_grow_with_every_grant_across_keys() {
    let mut world = World::with_tokens(ROOMY, 500, u64::MAX);
    let mut last = 499;
    for number in 0..50u64 {
        let token = world.take(1, number + 1, &format!("k{}", number % 7), 1);
        assert_eq!(token, last + 1);
        last = token;
        if number % 2 == 0 {
            world.release(1, 1000, token, &format!("k{}", number % 7));
        } else {
            world.pass(1.0);
        }
    }
}

#[test]
fn without_tokens_acquires_and_probes_say_not_active_and_releases_work() {
    let mut world = World::with_tokens(ROOMY, 1, 2);
    let first = world.take(1, 11, "a", 10);
    assert_eq!(world.release(9, 9, 0, "_probe"), [plain('N', 9, 9, "_probe")]);
    world.take(1, 12, "b", 10);
    assert_eq!(world.acquire(2, 21, "c", 0, 5), [not_active(2)]);
    assert_eq!(world.acquire(2, 22, "a", 9, 5), [not_active(2)]);
    assert_eq!(world.release(9, 9, 0, "_probe"), [not_active(9)]);
    assert_eq!(world.release(1, 13, first, "a"), [plain('R', 1, 13, "a")]);
}

#[test]
fn who_waits_is_refused_when_its_turn_comes_and_there_is_no_token() {
    let mut world = World::with_tokens(ROOMY, 1, 2);
    let token = world.take(1, 11, "k", 10);
    assert_eq!(world.acquire(2, 22, "k", 100, 5), []);
    assert_eq!(world.acquire(3, 33, "k", 100, 5), []);
    world.take(4, 44, "other", 5);
    let answers = world.release(1, 12, token, "k");
    assert_eq!(answers, [plain('R', 1, 12, "k"), plain('B', 2, 22, "k"), plain('B', 3, 33, "k")]);
    assert_eq!((world.stats().held, world.stats().waiters), (1, 0));
}

#[test]
fn in_quarantine_acquires_and_probes_say_not_active_and_then_it_serves() {
    let mut world = World::new(ROOMY);
    world.core.quarantine(world.now.after_seconds(30));
    assert_eq!(world.acquire(1, 11, "k", 0, 5), [not_active(1)]);
    assert_eq!(world.acquire(1, 12, "k", 9, 5), [not_active(1)]);
    assert_eq!(world.release(1, 13, 0, "_probe"), [not_active(1)]);
    assert_eq!(world.release(1, 14, 77, "k"), [plain('N', 1, 14, "k")]);
    world.stall(29.999);
    assert_eq!(world.acquire(1, 15, "k", 0, 5), [not_active(1)]);
    world.stall(0.001);
    assert_eq!(world.release(1, 16, 0, "_probe"), [plain('N', 1, 16, "_probe")]);
    assert_eq!(world.acquire(1, 17, "k", 0, 5), [acquired(1, 17, 1, "k")]);
}
