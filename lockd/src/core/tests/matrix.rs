//! Every request in every state of its key.

use super::{ROOMY, World, acquired, plain};

/// A key that connection 1 holds under the returned token.
fn held() -> (World, u64) {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 11, "k", 10);
    (world, token)
}

/// The same, with connections 2 and 3 waiting in that order.
fn contended() -> (World, u64) {
    let (mut world, token) = held();
    assert_eq!(world.acquire(2, 22, "k", 100, 7), []);
    assert_eq!(world.acquire(3, 33, "k", 100, 7), []);
    (world, token)
}

#[test]
fn acquire_without_wait_of_a_free_key_is_granted() {
    let mut world = World::new(ROOMY);
    assert_eq!(world.acquire(1, 11, "k", 0, 10), [acquired(1, 11, 1, "k")]);
}

#[test]
fn acquire_with_wait_of_a_free_key_is_granted_at_once() {
    let mut world = World::new(ROOMY);
    assert_eq!(world.acquire(1, 11, "k", 5, 10), [acquired(1, 11, 1, "k")]);
}

#[test]
fn acquire_without_wait_of_a_held_key_times_out_at_once() {
    let (mut world, _) = held();
    assert_eq!(world.acquire(2, 22, "k", 0, 10), [plain('T', 2, 22, "k")]);
    let (mut world, _) = contended();
    assert_eq!(world.acquire(4, 44, "k", 0, 10), [plain('T', 4, 44, "k")]);
    assert_eq!(world.stats().waiters, 2);
}

#[test]
fn acquire_with_wait_of_a_held_key_joins_the_tail_of_the_queue() {
    let (mut world, token) = contended();
    assert_eq!(world.acquire(4, 44, "k", 100, 7), []);
    let granted = |to, owner, token| acquired(to, owner, token, "k");
    let released = plain('R', 1, 12, "k");
    assert_eq!(world.release(1, 12, token, "k"), [released, granted(2, 22, 2)]);
    assert_eq!(world.release(2, 23, 2, "k"), [plain('R', 2, 23, "k"), granted(3, 33, 3)]);
    assert_eq!(world.release(3, 34, 3, "k"), [plain('R', 3, 34, "k"), granted(4, 44, 4)]);
    assert_eq!(world.release(4, 45, 4, "k"), [plain('R', 4, 45, "k")]);
    assert_eq!((world.stats().held, world.stats().waiters), (0, 0));
}

#[test]
fn release_of_a_free_key_says_not_held() {
    let mut world = World::new(ROOMY);
    assert_eq!(world.release(1, 11, 5, "k"), [plain('N', 1, 11, "k")]);
    assert_eq!(world.release(1, 12, 0, "k"), [plain('N', 1, 12, "k")]);
}

#[test]
fn release_by_the_current_token_frees_the_key() {
    let (mut world, token) = held();
    assert_eq!(world.release(1, 12, token, "k"), [plain('R', 1, 12, "k")]);
    assert_eq!(world.stats().held, 0);
    assert_eq!(world.release(1, 13, token, "k"), [plain('N', 1, 13, "k")]);
    assert_eq!(world.acquire(2, 22, "k", 0, 10), [acquired(2, 22, token + 1, "k")]);
}

#[test]
fn release_by_the_token_is_anyones_who_knows_it() {
    let (mut world, token) = held();
    assert_eq!(world.release(9, 99, token, "k"), [plain('R', 9, 99, "k")]);
}

#[test]
fn release_by_another_token_or_by_0_changes_nothing() {
    for (mut world, token) in [held(), contended()] {
        let before = world.stats();
        for wrong in [0, token - 1, token + 1, u64::MAX] {
            assert_eq!(world.release(1, 12, wrong, "k"), [plain('N', 1, 12, "k")]);
        }
        assert_eq!(world.stats().waiters, before.waiters);
        assert_eq!(world.release(1, 13, token, "k")[0], plain('R', 1, 13, "k"));
    }
}

#[test]
fn release_names_the_key_as_well_as_the_token() {
    let (mut world, token) = held();
    let other = world.take(1, 12, "other", 10);
    assert_eq!(world.release(1, 13, token, "other"), [plain('N', 1, 13, "other")]);
    assert_eq!(world.release(1, 14, other, "other"), [plain('R', 1, 14, "other")]);
}

#[test]
fn the_same_owner_again_is_an_ordinary_new_request() {
    let (mut world, token) = held();
    // Not the live token again, and no renewal: the lease still ends 10 s after the grant.
    assert_eq!(world.acquire(1, 11, "k", 0, 200), [plain('T', 1, 11, "k")]);
    world.stall(4.0);
    assert_eq!(world.acquire(1, 11, "k", 100, 200), []);
    assert_eq!(world.pass(5.9), []);
    assert_eq!(world.pass(0.2), [acquired(1, 11, token + 1, "k")]);
}

#[test]
fn two_requests_of_one_connection_for_one_key_are_two_waiters() {
    let (mut world, token) = held();
    assert_eq!(world.acquire(2, 21, "k", 100, 5), []);
    assert_eq!(world.acquire(2, 22, "k", 100, 5), []);
    assert_eq!(world.release(1, 12, token, "k")[1], acquired(2, 21, token + 1, "k"));
    assert_eq!(world.release(2, 23, token + 1, "k")[1], acquired(2, 22, token + 2, "k"));
}

#[test]
fn keys_do_not_affect_each_other() {
    let mut world = World::new(ROOMY);
    let a = world.take(1, 11, "a", 10);
    let b = world.take(2, 22, "b", 10);
    assert_ne!(a, b);
    assert_eq!(world.acquire(3, 33, "a", 100, 5), []);
    assert_eq!(world.release(2, 23, b, "b"), [plain('R', 2, 23, "b")]);
    assert_eq!(world.stats().waiters, 1);
}
