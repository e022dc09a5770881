//! OWN-1 to OWN-3: which owner an attempt has.

use crate::harness::*;
use crate::nodes::{Frame, Node};
use lockclient::ReasonKind;
use lockclient::engine::{AcquireOutcome, ReleaseKind, ReleaseOutcome, Settings};
use lockclient::wire::ServerFrame;
use std::collections::HashSet;

fn owner(frame: &Frame) -> u64 {
    match frame {
        Frame::Acquire { owner, .. } | Frame::Release { owner, .. } | Frame::Probe { owner } => {
            *owner
        }
        Frame::Proof { .. } => unreachable!("no secret"),
    }
}

#[test]
fn own_1_acquires_releases_and_probes_draw_from_one_counter() {
    let mut world = World::single();
    world.ask(lock("a", 9));
    world.release("b", 5, ReleaseKind::Awaited);
    world.ask(lock("c", 9));
    world.advance(SECOND);
    let owners: Vec<u64> = world.wire.iter().map(|sent| owner(&sent.frame)).collect();
    // The first probe, the acquire, the release, the acquire, the probe for proof.
    assert_eq!(owners, [1, 2, 3, 4, 5]);
}

#[test]
fn own_1_no_owner_is_used_twice() {
    let mut world = World::ready();
    for round in 0..50 {
        let kind = if round % 2 == 0 { ReleaseKind::Guard } else { ReleaseKind::Awaited };
        world.ask(lock("k", 20));
        world.ask(attempt("k"));
        world.ask(ticket("k", 20));
        world.release("r", 7, kind);
        world.advance(ms(100));
    }
    let owners: HashSet<u64> = world.wire.iter().map(|sent| owner(&sent.frame)).collect();
    assert_eq!(owners.len(), world.wire.len());
    assert!(!owners.contains(&0));
    assert!(world.wire.len() > 200);
}

#[test]
fn own_2_the_last_owner_is_used_and_then_none() {
    let first_owner = u64::MAX - 1;
    let mut world = World::ready_with(Settings { connections: 1, first_owner, ..settings() });
    let last = world.ask(lock("a", 60));
    assert_eq!(world.acquire("a").owner, u64::MAX);
    for _ in 0..3 {
        let none = world.ask(lock("b", 60));
        assert_eq!(world.outcome(none), Some(AcquireOutcome::OwnerExhausted));
        let release = world.release("r", 3, ReleaseKind::Awaited);
        assert_eq!(world.release_outcome(release), Some(ReleaseOutcome::OwnerExhausted));
    }
    assert_eq!(world.acquires("b"), []);
    assert_eq!(world.releases("r"), []);
    assert_eq!(world.engine.queued(), 0);
    // What is under way goes on: that this client cannot ask is no silence of the server's.
    world.advance(20 * SECOND);
    assert_eq!(world.outcome(last), None);
    world.grant_it("a", 9);
    assert_eq!(world.grant(last).token, 9);
    world.advance(60 * SECOND);
    let none = world.ask(lock("c", 1));
    assert_eq!(world.outcome(none), Some(AcquireOutcome::OwnerExhausted));
}

#[test]
fn own_2_first_owner_zero_is_none_at_all() {
    let mut world = World::new(Settings { first_owner: 0, ..settings() });
    world.fire();
    let none = world.ask(lock("a", 60));
    assert_eq!(world.outcome(none), Some(AcquireOutcome::OwnerExhausted));
    let release = world.release("r", 3, ReleaseKind::Awaited);
    assert_eq!(world.release_outcome(release), Some(ReleaseOutcome::OwnerExhausted));
    world.advance(60 * SECOND);
    assert_eq!(world.wire, []);
}

#[test]
fn own_2_a_busy_retry_without_an_owner_is_busy() {
    let first_owner = u64::MAX - 1;
    let settings = Settings { connections: 1, first_owner, busy_retry: true, ..settings() };
    let mut world = World::ready_with(settings);
    let id = world.ask(lock("a", 60));
    let conn = world.only();
    world.answer(conn, ServerFrame::Busy { owner: u64::MAX, key: b"a" });
    assert_eq!(world.outcome(id), Some(AcquireOutcome::Busy));
}

#[test]
fn own_3_an_unsent_acquire_keeps_its_owner_through_full_sockets_and_lost_connections() {
    let mut world = World::single();
    world.nodes[0] = Node::Serves;
    let first = world.only();
    world.socket(first).room = 0;
    let id = world.ask(lock("k", 60));
    let offered = world.offered.last().unwrap().clone();
    let Frame::Acquire { owner, .. } = offered.1[0] else { panic!("{offered:?}") };
    for _ in 0..3 {
        world.open_up(first, 0);
        assert_eq!(world.offered.last().unwrap().1[0].clone(), offered.1[0]);
    }
    world.end(first, ReasonKind::Eof);
    world.advance(ms(100));
    let sent = world.acquire("k");
    assert_ne!(sent.conn, first);
    assert_eq!(sent.owner, owner);
    assert_eq!(world.outcome(id), None);
}

#[test]
fn own_2_a_release_that_was_sent_before_the_owners_ended_is_unconfirmed() {
    // Two connections' probes, two acquires, and a release with the last owner.
    let first_owner = u64::MAX - 4;
    let mut world = World::ready_with(Settings { first_owner, ..settings() });
    world.ask(lock("k", 60));
    world.ask(attempt("t"));
    let release = world.release("r", 3, ReleaseKind::Awaited);
    let (conn, owner, _) = world.releases("r")[0];
    assert_eq!((owner, world.open().len()), (u64::MAX, 2));
    world.end(conn, ReasonKind::Eof);
    assert!(matches!(world.release_outcome(release), Some(ReleaseOutcome::Unconfirmed(_))));
    assert_eq!(world.counters().unconfirmed, 1);
}
