//! REL-1 to REL-6: releases, from the call to their answer.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::engine::{AcquireOutcome, Event, ReleaseKind, ReleaseOutcome, Settings};
use lockclient::wire::{Key, ServerFrame};
use lockclient::{Reason, ReasonKind};
use std::time::Duration;

const NANO: Duration = Duration::from_nanos(1);

#[test]
fn rel_1_a_release_names_the_exact_token() {
    let mut world = World::single();
    world.release("k", u64::MAX, ReleaseKind::Awaited);
    world.release("k", 0x0a0a_0a0a, ReleaseKind::Guard);
    world.engine.reclaim(Key::new(b"k").unwrap(), 3, world.now);
    world.settle();
    let tokens: Vec<u64> = world.releases("k").iter().map(|release| release.2).collect();
    assert_eq!(tokens, [u64::MAX, 0x0a0a_0a0a, 3]);
}

#[test]
fn rel_1_it_is_retried_over_lost_connections_inside_its_five_seconds() {
    let mut world = World::single();
    let id = world.release("k", 9, ReleaseKind::Awaited);
    let called = world.mono();
    let mut lost = 0;
    while world.mono() < called + ms(4_500) {
        world.end(world.only(), ReasonKind::Eof);
        lost += 1;
        world.advance(ms(500));
    }
    let sent = world.releases("k");
    assert_eq!(sent.len(), lost + 1);
    let (conn, owner, _) = *sent.last().unwrap();
    let mut owners: Vec<u64> = sent.iter().map(|release| release.1).collect();
    owners.dedup();
    assert_eq!(owners.len(), sent.len(), "a fresh owner each time");
    assert!(sent.iter().all(|release| release.2 == 9));
    world.advance((called + 5 * SECOND).since(world.mono()) - NANO);
    assert_eq!(world.release_outcome(id), None);
    world.answer(conn, ServerFrame::Released { owner, key: b"k" });
    assert_eq!(world.release_outcome(id), Some(ReleaseOutcome::Released));
}

#[test]
fn rel_1_five_seconds_are_absolute() {
    for connected in [true, false] {
        let mut world = World::single();
        if !connected {
            world.nodes[0] = Node::Refuses;
            world.end(world.only(), ReasonKind::Eof);
        }
        let id = world.release("k", 9, ReleaseKind::Awaited);
        let called = world.mono();
        world.advance(ms(2_500));
        if connected {
            world.end(world.only(), ReasonKind::Eof);
        }
        world.advance(ms(2_500) - NANO);
        assert_eq!(world.release_outcome(id), None);
        world.advance(NANO);
        let (at, outcome) = world.release_ends[&id];
        assert_eq!(at, called + 5 * SECOND);
        // Sent, and sent again, it met silence; unsent it met the refusal.
        let refused = Reason::new(ReasonKind::Connect).at(0);
        let reason = if connected { Reason::new(ReasonKind::Deadline) } else { refused };
        assert_eq!(outcome, ReleaseOutcome::Unconfirmed(reason));
    }
}

#[test]
fn rel_1_the_writer_looks_even_if_no_timer_has_fired() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 0;
    let id = world.release("k", 9, ReleaseKind::Awaited);
    world.stall(5 * SECOND);
    world.open_up(conn, usize::MAX);
    assert_eq!(world.releases("k"), []);
    assert!(matches!(world.release_outcome(id), Some(ReleaseOutcome::Unconfirmed(_))));
}

#[test]
fn rel_1_lost_when_its_time_is_over_it_is_not_tried_again() {
    for timer_first in [false, true] {
        let mut world = World::single();
        let conn = world.only();
        let id = world.release("k", 9, ReleaseKind::Awaited);
        world.socket(conn).ending = Some(Reason::new(ReasonKind::Eof));
        world.stall(5 * SECOND);
        if timer_first {
            world.fire();
        } else {
            world.read(conn);
        }
        // At once, and not when there is another connection to find it out on.
        assert!(matches!(world.release_outcome(id), Some(ReleaseOutcome::Unconfirmed(_))));
        world.advance(10 * SECOND);
        assert_eq!(world.releases("k").len(), 1);
        assert_eq!(world.counters().unconfirmed, 1);
    }
}

#[test]
fn rel_2_not_held_after_a_retry_says_so() {
    let mut world = World::single();
    let id = world.release("k", 9, ReleaseKind::Awaited);
    world.end(world.only(), ReasonKind::Io);
    world.advance(ms(400));
    let (conn, owner, _) = world.releases("k")[1];
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"k" });
    let expected = ReleaseOutcome::NotHeld { retried: true };
    assert_eq!(world.release_outcome(id), Some(expected));
    assert_eq!(world.counters().not_held, 1);
}

#[test]
fn rel_2_what_never_left_was_not_tried() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 0;
    let id = world.release("k", 9, ReleaseKind::Awaited);
    world.end(conn, ReasonKind::Io);
    world.advance(ms(400));
    let (conn, owner, _) = world.releases("k")[0];
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"k" });
    let expected = ReleaseOutcome::NotHeld { retried: false };
    assert_eq!(world.release_outcome(id), Some(expected));
}

#[test]
fn rel_3_no_answer_is_unconfirmed_and_a_late_one_is_no_mismatch() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.release("k", 9, ReleaseKind::Awaited);
    world.advance(5 * SECOND);
    let reason = Reason::new(ReasonKind::Deadline);
    assert_eq!(world.release_outcome(id), Some(ReleaseOutcome::Unconfirmed(reason)));
    assert!(world.events.contains(&Event::Unconfirmed { token: 9 }));
    let waits = world.ask(lock("w", 200));
    world.advance(60 * SECOND);
    let (_, owner, _) = world.releases("k")[0];
    world.answer(conn, ServerFrame::Released { owner, key: b"k" });
    assert_eq!((world.state(conn), world.outcome(waits)), (State::Open, None));
    // Once only.
    world.answer(conn, ServerFrame::Released { owner, key: b"k" });
    assert_eq!(world.unknown(waits), ReasonKind::Mismatch);
    assert_eq!(world.releases("k").len(), 1);
}

#[test]
fn rel_3_an_expired_release_is_not_repeated_when_its_connection_ends() {
    let mut world = World::single();
    world.release("k", 9, ReleaseKind::Guard);
    world.advance(6 * SECOND);
    world.end(world.only(), ReasonKind::Eof);
    world.advance(10 * SECOND);
    assert_eq!(world.releases("k").len(), 1);
    assert_eq!(world.counters().unconfirmed, 1);
}

#[test]
fn rel_4_the_lane_is_bounded_and_what_is_too_much_is_counted_and_logged() {
    let mut world = World::new(Settings { lane: 3, ..settings() });
    world.nodes[0] = Node::Swallows;
    world.fire();
    for token in 1..=5 {
        world.engine.reclaim(Key::new(b"k").unwrap(), token, world.now);
    }
    world.settle();
    let counters = world.counters();
    assert_eq!((counters.compensations, counters.compensations_dropped), (3, 2));
    for token in 1..=5 {
        let expected = if token <= 3 {
            Event::Compensated { token }
        } else {
            Event::CompensationDropped { token }
        };
        assert!(world.events.contains(&expected), "{expected:?}");
    }
    // Neither acquires nor guards use its places, and it uses none of theirs.
    for _ in 0..10 {
        world.ask(lock("k", 60));
        assert!(world.release_quietly("g", 7, ReleaseKind::Guard).is_some());
        assert!(world.release_quietly("e", 7, ReleaseKind::Awaited).is_some());
    }
    assert_eq!(world.release_quietly("k", 9, ReleaseKind::Compensation), None);
    // A place is free again when its release has ended.
    world.nodes[0] = Node::Serves;
    world.connect(world.dials[0].1);
    let first = *world.releases("k").first().unwrap();
    world.answer(first.0, ServerFrame::Released { owner: first.1, key: b"k" });
    assert!(world.release_quietly("k", 9, ReleaseKind::Compensation).is_some());
}

#[test]
fn rel_4_five_thousand_guards_dropped_in_an_outage_all_go_out() {
    let mut world = World::single();
    world.nodes[0] = Node::Refuses;
    world.end(world.only(), ReasonKind::Eof);
    for token in 1..=5_000 {
        assert!(world.release_quietly("g", token, ReleaseKind::Guard).is_some());
    }
    world.advance(2 * SECOND);
    world.nodes[0] = Node::Serves;
    world.advance(2 * SECOND);
    let tokens: Vec<u64> = world.releases("g").iter().map(|release| release.2).collect();
    assert_eq!(tokens, (1..=5_000).collect::<Vec<u64>>(), "the oldest first");
    assert_eq!(world.counters().compensations_dropped, 0);
}

#[test]
fn rel_4_releases_go_before_the_acquires_that_wait() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 0;
    for _ in 0..1_000 {
        world.ask_quietly(lock("k", 60));
    }
    world.settle();
    world.release("r", 9, ReleaseKind::Guard);
    world.open_up(conn, 200);
    assert_eq!(world.releases("r").len(), 1);
    let order = world.wire.iter().position(|sent| sent.acquire("k").is_some());
    assert_eq!(order, Some(2), "the first probe, the release, the acquires");
}

#[test]
fn rel_4_releases_that_come_back_keep_their_order() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 0;
    for token in 1..=5 {
        world.release_quietly("r", token, ReleaseKind::Guard);
    }
    world.settle();
    world.open_up(conn, usize::MAX);
    let tokens: Vec<u64> = world.releases("r").iter().map(|release| release.2).collect();
    assert_eq!(tokens, [1, 2, 3, 4, 5]);
    // All of them are repeated when the connection is lost, the oldest first again.
    world.end(conn, ReasonKind::Eof);
    world.advance(ms(400));
    let tokens: Vec<u64> = world.releases("r").iter().map(|release| release.2).collect();
    assert_eq!(tokens[5..], [1, 2, 3, 4, 5]);
}

#[test]
fn rel_4_releases_go_before_acquires_on_other_connections_too() {
    let mut world = World::ready();
    world.ask(attempt("t"));
    world.ask(lock("b", 60));
    let (first, last) = (world.acquire("t").conn, world.acquire("b").conn);
    assert!(first < last);
    let before = world.wire.len();
    world.ask_quietly(attempt("u"));
    world.release_quietly("r", 5, ReleaseKind::Guard);
    world.settle();
    let order: Vec<_> = world.wire[before..].iter().map(|sent| sent.conn).collect();
    assert_eq!(order, [last, first], "it goes where acquires last went, and before them");
}

#[test]
fn rel_4_a_release_goes_where_there_is_room() {
    let mut world = World::ready();
    world.ask(lock("k", 30));
    world.ask(attempt("t"));
    let (first, last) = (world.acquire("k").conn, world.acquire("t").conn);
    assert_ne!(first, last);
    // The connection that was used last is full.
    world.socket(last).room = 0;
    world.ask(attempt("u"));
    world.release("r", 5, ReleaseKind::Guard);
    assert_eq!(world.releases("r")[0].0, first);
}

#[test]
fn gr_5_an_unconfirmed_release_can_be_tried_again_with_its_token() {
    let mut world = World::single();
    let first = world.release("k", 9, ReleaseKind::Awaited);
    world.advance(5 * SECOND);
    assert!(matches!(world.release_outcome(first), Some(ReleaseOutcome::Unconfirmed(_))));
    let again = world.release("k", 9, ReleaseKind::Awaited);
    let (conn, owner, token) = world.releases("k")[1];
    assert_eq!(token, 9);
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"k" });
    let expected = ReleaseOutcome::NotHeld { retried: false };
    assert_eq!(world.release_outcome(again), Some(expected));
}

#[test]
fn rel_3_a_release_that_was_sent_before_the_secret_was_refused_is_unconfirmed() {
    let mut world = World::single();
    let conn = world.only();
    let sent = world.release("s", 5, ReleaseKind::Awaited);
    world.socket(conn).room = 0;
    let unsent = world.release("u", 6, ReleaseKind::Awaited);
    world.answer(conn, ServerFrame::Error { code: b"auth_failed" });
    let auth = |reason: Reason| assert_eq!(reason.kind, ReasonKind::Auth);
    match world.release_outcome(sent) {
        Some(ReleaseOutcome::Unconfirmed(reason)) => auth(reason),
        other => panic!("{other:?}"),
    }
    match world.release_outcome(unsent) {
        Some(ReleaseOutcome::Auth(reason)) => auth(reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rel_2_each_answer_is_counted() {
    let mut world = World::single();
    let conn = world.only();
    for round in 1..=3 {
        world.release("k", 5, ReleaseKind::Guard);
        let owner = world.releases("k").last().unwrap().1;
        world.answer(conn, ServerFrame::NotHeld { owner, key: b"k" });
        world.release("k", 5, ReleaseKind::Guard);
        let owner = world.releases("k").last().unwrap().1;
        world.answer(conn, ServerFrame::Released { owner, key: b"k" });
        assert_eq!((world.counters().not_held, world.counters().released), (round, round));
    }
    assert_eq!(world.counters().unconfirmed, 0);
}

#[test]
fn rel_4_what_comes_after_the_end_of_the_client_is_counted_and_logged() {
    let mut world = World::single();
    world.engine.abort(Reason::new(ReasonKind::Closed));
    world.settle();
    assert_eq!(world.release_quietly("g", 5, ReleaseKind::Guard), None);
    assert_eq!(world.release_quietly("c", 6, ReleaseKind::Compensation), None);
    assert_eq!(world.release_quietly("a", 7, ReleaseKind::Awaited), None);
    world.settle();
    let counters = world.counters();
    assert_eq!((counters.unconfirmed, counters.compensations_dropped), (1, 1));
    assert!(world.events.contains(&Event::Unconfirmed { token: 5 }));
    assert!(world.events.contains(&Event::CompensationDropped { token: 6 }));
}

#[test]
fn rel_4_an_end_of_the_client_counts_what_it_could_not_release() {
    let mut world = World::single();
    world.engine.abort(Reason::new(ReasonKind::ThreadEnded));
    world.engine.reclaim(Key::new(b"k").unwrap(), 4, world.now);
    world.settle();
    assert_eq!(world.counters().compensations_dropped, 1);
    assert!(world.events.contains(&Event::CompensationDropped { token: 4 }));
}

#[test]
fn rel_5_a_known_token_is_released_by_name_over_another_connection() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(lock("k", 1));
    world.advance(SECOND + NANO);
    // The late grant and the end of the connection in one read.
    world.socket(conn).ending = Some(Reason::new(ReasonKind::Eof));
    world.grant_it("k", 31);
    assert_eq!(world.unknown(id), ReasonKind::LateGrant);
    world.advance(ms(400));
    let released = world.releases("k");
    assert_eq!(released.len(), 1);
    assert_eq!((released[0].0 != conn, released[0].2), (true, 31));
}

#[test]
fn rel_5_an_unknown_token_is_left_to_its_lease() {
    let mut world = World::single();
    let id = world.ask(lock("k", 30));
    world.end(world.only(), ReasonKind::Io);
    assert_eq!(world.unknown(id), ReasonKind::Io);
    world.advance(60 * SECOND);
    assert_eq!(world.releases("k"), []);
}

#[test]
fn rel_6_closing_lets_the_lane_drain() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Swallows;
    world.fire();
    let released = world.release("k", 9, ReleaseKind::Awaited);
    world.release("g", 8, ReleaseKind::Guard);
    world.engine.shutdown(world.now);
    world.settle();
    assert!(!world.engine.is_drained());
    world.nodes[0] = Node::Serves;
    world.connect(world.dials[0].1);
    for (conn, owner, _) in world.releases("g") {
        world.answer(conn, ServerFrame::Released { owner, key: b"g" });
    }
    assert!(!world.engine.is_drained());
    for (conn, owner, _) in world.releases("k") {
        world.answer(conn, ServerFrame::NotHeld { owner, key: b"k" });
    }
    assert!(world.engine.is_drained());
    let expected = ReleaseOutcome::NotHeld { retried: false };
    assert_eq!(world.release_outcome(released), Some(expected));
}

#[test]
fn rel_6_a_closing_client_connects_for_its_lane_and_not_without_one() {
    let mut world = World::single();
    world.release("k", 9, ReleaseKind::Guard);
    world.engine.shutdown(world.now);
    world.end(world.only(), ReasonKind::Eof);
    world.advance(ms(400));
    let (conn, owner, _) = world.releases("k")[1];
    world.answer(conn, ServerFrame::Released { owner, key: b"k" });
    assert!(world.engine.is_drained());
    let dials = world.dials.len();
    world.end(conn, ReasonKind::Eof);
    world.advance(60 * SECOND);
    assert_eq!(world.dials.len(), dials);
    let refused = world.ask(lock("k", 9));
    assert_eq!(world.outcome(refused), Some(AcquireOutcome::Cancelled));
}

#[test]
fn rel_6_a_release_whose_time_is_over_does_not_hold_the_close() {
    let mut world = World::single();
    world.release("k", 9, ReleaseKind::Guard);
    world.engine.shutdown(world.now);
    world.settle();
    world.advance(5 * SECOND - NANO);
    assert!(!world.engine.is_drained());
    world.advance(NANO);
    assert!(world.engine.is_drained());
}

#[test]
fn rel_6_a_release_whose_answer_comes_after_its_time_does_not_hold_the_close_either() {
    let mut world = World::single();
    let conn = world.only();
    let release = world.release("r", 5, ReleaseKind::Awaited);
    let owner = world.releases("r")[0].1;
    world.advance(5 * SECOND);
    assert!(matches!(world.release_outcome(release), Some(ReleaseOutcome::Unconfirmed(_))));
    world.answer(conn, ServerFrame::Released { owner, key: b"r" });
    // The next one counts again.
    world.release("r", 6, ReleaseKind::Awaited);
    world.engine.shutdown(world.now);
    world.settle();
    assert!(!world.engine.is_drained());
    let owner = world.releases("r")[1].1;
    world.answer(conn, ServerFrame::Released { owner, key: b"r" });
    assert!(world.engine.is_drained());
}

#[test]
fn rel_6_a_release_that_comes_while_the_client_closes_still_connects() {
    let mut world = World::new(settings());
    world.engine.shutdown(world.now);
    world.fire();
    assert_eq!(world.dials.len(), 0, "for nothing it would not");
    world.release("k", 9, ReleaseKind::Guard);
    world.fire();
    assert_eq!(world.releases("k").len(), 1);
}
