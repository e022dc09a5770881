//! Leases that end, waits that end, connections that end, and their orders.

use super::{Answer, ROOMY, World, acquired, plain};

#[test]
fn a_lease_ends_when_it_ends_and_the_key_becomes_free() {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 11, "k", 3);
    assert_eq!(world.pass(2.999), []);
    assert_eq!(world.stats().held, 1);
    assert_eq!(world.pass(0.001), []);
    assert_eq!(world.stats().held, 0);
    assert_eq!(world.stats().expired, 1);
    assert_eq!(world.release(1, 12, token, "k"), [plain('N', 1, 12, "k")]);
}

#[test]
fn when_a_lease_ends_the_head_of_the_queue_is_granted_at_that_moment() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 100, 4), []);
    assert_eq!(world.acquire(3, 33, "k", 100, 4), []);
    assert_eq!(world.core.next_deadline(), Some(world.now.after_seconds(3)));
    assert_eq!(world.pass(3.0), [acquired(2, 22, 2, "k")]);
    // The next lease counts from its own grant.
    assert_eq!(world.pass(3.999), []);
    assert_eq!(world.pass(0.001), [acquired(3, 33, 3, "k")]);
}

#[test]
fn a_wait_that_ends_gets_t_and_leaves_the_queue() {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 11, "k", 100);
    assert_eq!(world.acquire(2, 22, "k", 2, 5), []);
    assert_eq!(world.acquire(3, 33, "k", 50, 5), []);
    assert_eq!(world.pass(1.999), []);
    assert_eq!(world.pass(0.001), [plain('T', 2, 22, "k")]);
    assert_eq!(world.stats().waiters, 1);
    assert_eq!(world.release(1, 12, token, "k")[1], acquired(3, 33, 2, "k"));
}

#[test]
fn a_stale_deadline_never_ends_a_newer_lease() {
    let mut world = World::new(ROOMY);
    // The first lease's entry comes up at 3 s; by then the key is held under a later one.
    let first = world.take(1, 11, "k", 3);
    world.release(1, 12, first, "k");
    world.stall(2.0);
    let second = world.take(2, 21, "k", 3);
    assert_eq!(world.pass(2.9), []);
    assert_eq!(world.release(2, 22, second, "k"), [plain('R', 2, 22, "k")], "still held");
    assert_eq!(world.stats().expired, 0);
}

#[test]
fn a_stale_deadline_still_leads_to_the_newer_leases_own_end() {
    let mut world = World::new(ROOMY);
    let first = world.take(1, 11, "k", 3);
    world.release(1, 12, first, "k");
    world.stall(2.0);
    world.take(2, 21, "k", 3);
    assert_eq!(world.pass(2.999), []);
    assert_eq!(world.stats().held, 1);
    assert_eq!(world.pass(0.001), []);
    assert_eq!((world.stats().held, world.stats().expired), (0, 1));
}

#[test]
fn a_shorter_lease_after_a_longer_one_ends_at_its_own_end() {
    let mut world = World::new(ROOMY);
    let first = world.take(1, 11, "k", 200);
    world.release(1, 12, first, "k");
    world.take(1, 13, "k", 1);
    world.pass(1.0);
    assert_eq!((world.stats().held, world.stats().expired), (0, 1));
    assert_eq!(world.pass(250.0), []);
    assert_eq!(world.stats().expired, 1);
}

#[test]
fn a_stale_wait_end_never_times_out_a_newer_waiter() {
    let mut world = World::new(ROOMY);
    let first = world.take(1, 11, "k", 200);
    assert_eq!(world.acquire(2, 22, "k", 3, 100), []);
    // The record that connection 2's waiter leaves behind is used again by connection 3's.
    assert_eq!(world.release(1, 12, first, "k")[1], acquired(2, 22, 2, "k"));
    assert_eq!(world.acquire(3, 33, "k", 50, 5), []);
    assert_eq!(world.pass(49.9), []);
    assert_eq!(world.pass(0.1), [plain('T', 3, 33, "k")]);
}

#[test]
fn a_waiter_whose_wait_is_over_gets_t_never_a_grant() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 4, 5), []);
    assert_eq!(world.acquire(3, 33, "k", 100, 5), []);
    // The server was stopped over the lease's end and the first waiter's.
    world.stall(10.0);
    assert_eq!(world.advance(), [plain('T', 2, 22, "k"), acquired(3, 33, 2, "k")]);
}

#[test]
fn what_is_over_only_since_the_look_does_not_end_by_itself() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 100, 5), []);
    assert_eq!(world.acquire(3, 33, "k", 2, 5), []);
    world.stall(1.9);
    let looked = world.now;
    world.stall(5.0);
    assert_eq!(world.advance_since(looked), []);
    // The next turn has looked whether those who wait are still there.
    assert_eq!(world.advance(), [acquired(2, 22, 2, "k"), plain('T', 3, 33, "k")]);
}

#[test]
fn gr_2_what_ends_by_itself_is_granted_at_the_last_reading() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 100, 5), []);
    world.stall(3.0);
    let looked = world.now;
    world.stall(2.0);
    assert_eq!(world.advance_since(looked), [acquired(2, 22, 2, "k")]);
    assert_eq!(world.pass(4.9), []);
    assert_eq!(world.acquire(3, 33, "k", 0, 5), [plain('T', 3, 33, "k")]);
    assert_eq!(world.pass(0.1), []);
    assert_eq!(world.acquire(3, 33, "k", 0, 5), [acquired(3, 33, 3, "k")]);
}

#[test]
fn a_wait_that_ends_with_the_lease_gets_t() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 3, 5), []);
    assert_eq!(world.pass(3.0), [plain('T', 2, 22, "k")]);
    assert_eq!(world.stats().held, 0);
}

#[test]
fn a_release_after_a_stall_past_the_lease_says_not_held_and_passes_the_key_on() {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 100, 5), []);
    world.stall(3.0);
    // Read before the timers are looked at, as a turn of the loop does.
    let answers = world.release(1, 12, token, "k");
    assert_eq!(answers, [acquired(2, 22, 2, "k"), plain('N', 1, 12, "k")]);
    assert_eq!(world.advance(), []);
}

#[test]
fn an_acquire_after_a_stall_past_the_lease_finds_the_key_free() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    world.stall(3.0);
    assert_eq!(world.acquire(2, 22, "k", 0, 5), [acquired(2, 22, 2, "k")]);
    // The first lease's entry comes up now, and is not the second's.
    assert_eq!(world.advance(), []);
    assert_eq!(world.stats().held, 1);
}

#[test]
fn an_acquire_after_a_stall_does_not_overtake_who_waited() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 100, 5), []);
    world.stall(3.5);
    let answers = world.acquire(3, 33, "k", 0, 5);
    assert_eq!(answers, [acquired(2, 22, 2, "k"), plain('T', 3, 33, "k")]);
}

#[test]
fn an_acquire_after_a_stall_past_everyones_wait_finds_the_key_free() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 4, 5), []);
    world.stall(6.0);
    let answers = world.acquire(3, 33, "k", 0, 5);
    assert_eq!(answers, [plain('T', 2, 22, "k"), acquired(3, 33, 2, "k")]);
}

#[test]
fn a_probe_of_a_key_ends_its_lease_too() {
    let mut world = World::new(ROOMY);
    world.take(1, 11, "k", 3);
    assert_eq!(world.acquire(2, 22, "k", 100, 5), []);
    world.stall(3.0);
    let answers = world.release(3, 33, 0, "k");
    assert_eq!(answers, [acquired(2, 22, 2, "k"), plain('N', 3, 33, "k")]);
}

#[test]
fn a_connections_waiters_leave_with_it_and_what_it_holds_stays_held() {
    let mut world = World::new(ROOMY);
    let held = world.take(1, 11, "held", 100);
    let other = world.take(2, 21, "other", 100);
    assert_eq!(world.acquire(1, 12, "other", 200, 5), []);
    assert_eq!(world.acquire(3, 31, "other", 200, 5), []);
    world.disconnect(1);
    assert_eq!((world.stats().waiters, world.stats().abandoned), (1, 1));
    assert_eq!(world.release(2, 22, other, "other")[1], acquired(3, 31, 3, "other"));
    assert_eq!(world.acquire(3, 32, "held", 0, 5), [plain('T', 3, 32, "held")]);
    // Its token is still good, on any connection.
    assert_eq!(world.release(3, 33, held, "held"), [plain('R', 3, 33, "held")]);
}

#[test]
fn a_connection_that_ends_leaves_in_the_middle_of_many_queues() {
    let mut world = World::new(ROOMY);
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        world.take(0, 1, key, 50);
        for connection in 1..=3 {
            assert_eq!(world.acquire(connection, 2, key, 200, 60), []);
        }
    }
    world.disconnect(2);
    assert_eq!(world.stats().waiters, 40);
    let first: Vec<_> = world.pass(50.0);
    assert_eq!(first.len(), 20);
    let second = world.pass(60.0);
    assert!(
        second.iter().all(|answer| matches!(answer, super::Answer::Acquired { to: 3, .. })),
        "{second:?}"
    );
}

#[test]
fn a_connections_number_can_be_used_again() {
    let mut world = World::new(ROOMY);
    let token = world.take(1, 11, "k", 100);
    assert_eq!(world.acquire(2, 22, "k", 200, 5), []);
    world.disconnect(2);
    // Another connection, under the same number: nothing of the first comes to it.
    assert_eq!(world.acquire(2, 23, "k", 200, 5), []);
    assert_eq!(world.release(1, 12, token, "k")[1..], [acquired(2, 23, 2, "k")]);
}

#[test]
fn a_grant_is_undone_and_the_next_in_the_queue_gets_the_key() {
    let mut world = World::new(ROOMY);
    let first = world.take(1, 11, "k", 100);
    for connection in [2, 3] {
        assert_eq!(world.acquire(connection, 5, "k", 200, 5), []);
    }
    assert_eq!(world.release(1, 12, first, "k")[1], acquired(2, 5, 2, "k"));
    world.disconnect(2);
    assert_eq!(world.undo(2, "k"), [acquired(3, 5, 3, "k")]);
    assert_eq!(world.undo(2, "k"), [], "once");
    assert_eq!(world.undo(3, "k"), []);
    assert_eq!((world.stats().held, world.stats().undone), (0, 2));
}

#[test]
fn an_undo_after_the_lease_ended_leaves_the_next_holder_alone() {
    let mut world = World::new(ROOMY);
    let first = world.take(1, 11, "k", 1);
    world.pass(1.0);
    let second = world.take(2, 22, "k", 10);
    assert_eq!(world.undo(first, "k"), []);
    assert_eq!(world.release(2, 23, second, "k"), [plain('R', 2, 23, "k")]);
}

#[test]
fn many_leases_that_end_together_end_4096_at_a_time_and_when_asked_for() {
    let mut world = World::new(super::Limits { locks: 20_000, ..ROOMY });
    for number in 0..10_000u64 {
        world.take(1, number + 1, &format!("k{number}"), 1 + (number % 200) as u8);
    }
    world.stall(255.0);
    let mut held = 10_000;
    for ended in [4096, 4096] {
        assert_eq!(world.advance(), []);
        held -= ended;
        assert_eq!(world.stats().held, held);
        assert!(world.core.next_deadline().is_some_and(|deadline| deadline <= world.now));
    }
    // The last to end is one of those that were not looked at.
    assert!(matches!(world.acquire(2, 1, "k199", 0, 1)[..], [Answer::Acquired { .. }]));
    assert_eq!(world.advance(), []);
    assert_eq!((world.stats().held, world.stats().expired), (1, 10_000));
    assert_eq!(world.advance(), []);
    assert_eq!(world.core.next_deadline(), Some(world.now.after_seconds(1)));
}

#[test]
fn many_waits_that_end_together_end_4096_at_a_time() {
    let mut world = World::new(super::Limits {
        waiters: 20_000,
        waiters_per_key: 20_000,
        waiters_per_connection: 20_000,
        ..ROOMY
    });
    world.take(1, 1, "k", 255);
    for owner in 0..5_000 {
        assert_eq!(world.acquire(2, owner, "k", 1, 1), []);
    }
    world.stall(2.0);
    assert_eq!(world.advance().len(), 4096);
    assert_eq!(world.advance().len(), 5_000 - 4096);
}
