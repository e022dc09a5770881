//! DL-1 to DL-6 and DL-8: one deadline, and the wait that goes on the wire.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::engine::{AcquireOutcome, Settings};
use lockclient::wire::ServerFrame;
use lockclient::{Reason, ReasonKind};
use std::time::Duration;

const NANO: Duration = Duration::from_nanos(1);

/// A client whose connection is made when a test says so.
fn unconnected() -> World {
    let mut world = World::new(Settings { connections: 1, ..settings() });
    world.nodes[0] = Node::Swallows;
    world.fire();
    world
}

#[test]
fn dl_1_queueing_connecting_and_failing_over_count_against_the_deadline() {
    let mut world = unconnected();
    let id = world.ask(lock("k", 10));
    let deadline = world.mono() + 10 * SECOND;
    // Two dials that end in their time limits, then one that works.
    world.advance(ms(4_500));
    assert!(world.dials.len() >= 3);
    world.nodes[0] = Node::Serves;
    let (_, last, _) = *world.dials.last().unwrap();
    world.connect(last);
    let sent = world.acquire("k");
    assert_eq!(sent.wait, 6, "5.5 s are left");
    // Written whole 5.5 s before the deadline; the answer may take the rounding and the grace.
    world.advance((sent.at + 6 * SECOND + ms(500)).since(world.mono()) - NANO);
    assert_eq!(world.outcome(id), None);
    world.advance(NANO);
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
    assert_eq!(world.ended_at(id), Some(deadline + ms(1_000)));
}

#[test]
fn dl_1_a_failover_does_not_extend_it() {
    let mut world = World::single();
    let first = world.only();
    world.socket(first).room = 0;
    let id = world.ask(lock("k", 3));
    let deadline = world.mono() + 3 * SECOND;
    world.advance(ms(2_100));
    world.nodes[0] = Node::Refuses;
    world.end(first, ReasonKind::Eof);
    world.advance(ms(900) - NANO);
    assert_eq!(world.outcome(id), None);
    world.advance(NANO);
    assert_eq!(world.ended_at(id), Some(deadline));
    let reason = Reason::new(ReasonKind::Connect).at(0);
    assert_eq!(world.outcome(id), Some(AcquireOutcome::NotSent(reason)));
}

#[test]
fn dl_2_wait_zero_has_five_seconds_and_puts_zero_on_the_wire() {
    let mut world = unconnected();
    let late = world.ask(attempt("late"));
    let (_, conn, _) = world.dials[0];
    world.advance(ms(1_999));
    world.nodes[0] = Node::Serves;
    world.connect(conn);
    assert_eq!(world.acquire("late").wait, 0);
    world.grant_it("late", 1);
    assert_eq!(world.grant(late).token, 1);

    let mut world = unconnected();
    let never = world.ask(attempt("never"));
    world.advance(5 * SECOND - NANO);
    assert_eq!(world.outcome(never), None);
    world.advance(NANO);
    assert!(matches!(world.outcome(never), Some(AcquireOutcome::NotSent(_))));
}

#[test]
fn dl_2_no_other_wait_ever_becomes_zero() {
    for (left, wire) in [
        (NANO, 1),
        (ms(999), 1),
        (SECOND, 1),
        (SECOND + NANO, 2),
        (3 * SECOND - NANO, 3),
        (3 * SECOND, 3),
    ] {
        let mut world = unconnected();
        world.ask(lock("k", 3));
        let (_, conn, _) = world.dials[0];
        world.stall(3 * SECOND - left);
        world.nodes[0] = Node::Serves;
        world.connect(conn);
        assert_eq!(world.acquire("k").wait, wire, "{left:?} left");
    }
    // The longest wait fills the byte, and is not cut by rounding.
    let mut world = World::single();
    world.ask(lock("k", 255));
    assert_eq!(world.acquire("k").wait, 255);
}

#[test]
fn dl_3_nothing_accepted_is_encoded_again_with_what_is_left() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 0;
    let id = world.ask(lock("k", 5));
    let waits = |world: &World| match world.offered.last().unwrap().1[0] {
        crate::nodes::Frame::Acquire { wait, .. } => wait,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(waits(&world), 5);
    assert!(!world.gate.claimed.contains_key(&id), "nothing of it was accepted");
    world.advance(ms(900));
    world.open_up(conn, 0);
    assert_eq!(waits(&world), 5);
    world.advance(ms(100));
    world.open_up(conn, 0);
    assert_eq!(waits(&world), 4);
    world.advance(ms(3_500));
    world.open_up(conn, usize::MAX);
    assert_eq!(world.acquire("k").wait, 1);
    // DL-6 counts from this sending.
    assert_eq!(world.gate.claimed[&id], world.mono() + SECOND + ms(500));
}

#[test]
fn dl_3_one_byte_accepted_is_never_encoded_again() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 1;
    world.ask(lock("k", 5));
    world.advance(ms(2_000));
    world.open_up(conn, usize::MAX);
    assert_eq!(world.acquire("k").wait, 5, "the frame had begun");
}

#[test]
fn dl_3_the_writer_looks_even_if_no_timer_has_fired() {
    for past in [Duration::ZERO, NANO, 60 * SECOND] {
        let mut world = World::single();
        let conn = world.only();
        world.socket(conn).room = 0;
        let id = world.ask(lock("k", 2));
        let tried = attempt("t");
        let tried = world.ask(tried);
        // The thread was stopped; the socket's event is handled before the timer that was due.
        world.stall(5 * SECOND + past);
        let offered = world.offered.len();
        world.open_up(conn, usize::MAX);
        assert_eq!(world.offered.len(), offered, "nothing may be offered to the socket");
        for id in [id, tried] {
            assert!(matches!(world.outcome(id), Some(AcquireOutcome::NotSent(_))), "{past:?}");
        }
        world.fire();
    }
}

#[test]
fn dl_4_unsent_at_the_deadline_is_not_sent_with_the_last_error() {
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.nodes = vec![Node::Refuses, Node::Swallows];
    world.fire();
    let id = world.ask(lock("k", 1));
    let deadline = world.mono() + SECOND;
    world.advance(SECOND - NANO);
    assert_eq!((world.outcome(id), world.engine.queued()), (None, 1));
    world.advance(NANO);
    assert_eq!(world.ended_at(id), Some(deadline));
    let reason = Reason::new(ReasonKind::Connect).at(0);
    assert_eq!(world.outcome(id), Some(AcquireOutcome::NotSent(reason)));
    assert_eq!((world.engine.queued(), world.counters().not_sent), (0, 1));
}

#[test]
fn dl_4_without_an_error_the_reason_is_none() {
    let mut world = unconnected();
    let id = world.ask(lock("k", 1));
    world.advance(SECOND);
    let reason = Reason::new(ReasonKind::None);
    assert_eq!(world.outcome(id), Some(AcquireOutcome::NotSent(reason)));
    // Later connections carry nothing of it.
    world.nodes[0] = Node::Serves;
    world.advance(5 * SECOND);
    assert_eq!(world.acquires("k"), []);
}

#[test]
fn dl_5_no_answer_closes_that_connection_and_no_other() {
    let mut world = World::ready();
    let id = world.ask(lock("k", 2));
    let other = world.ask(attempt("other"));
    let (conn, elsewhere) = (world.acquire("k").conn, world.acquire("other").conn);
    assert_ne!(conn, elsewhere);
    world.advance(ms(2_500));
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
    assert_eq!(world.state(conn), State::HalfClosed);
    assert_eq!(world.state(elsewhere), State::Open);
    assert_eq!(world.outcome(other), None);
    assert_eq!(world.counters().indeterminate, 1);
}

#[test]
fn dl_5_the_connections_other_requests_share_its_fate() {
    let mut world = World::single();
    let id = world.ask(lock("k", 1));
    let shares = world.ask(lock("l", 100));
    world.advance(ms(1_500));
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
    assert_eq!(world.unknown(shares), ReasonKind::SharedConnection);
}

#[test]
fn dl_6_a_timeout_within_the_grace_is_an_ordinary_one() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(lock("k", 1));
    let other = world.ask(lock("other", 100));
    let owner = world.acquire("k").owner;
    world.advance(ms(1_500) - NANO);
    assert_eq!(world.outcome(id), None);
    world.answer(conn, ServerFrame::TimedOut { owner, key: b"k" });
    assert_eq!(world.outcome(id), Some(AcquireOutcome::TimedOut));
    world.advance(10 * SECOND);
    assert_eq!((world.state(conn), world.outcome(other)), (State::Open, None));
}

#[test]
fn dl_6_the_rounding_of_a_late_sending_counts_too() {
    let mut world = unconnected();
    let id = world.ask(lock("k", 3));
    let deadline = world.mono() + 3 * SECOND;
    let (_, conn, _) = world.dials[0];
    world.advance(ms(1_700));
    world.nodes[0] = Node::Serves;
    world.connect(conn);
    // 1.3 s are left, so the server waits 2 s: 0.7 s beyond the deadline.
    assert_eq!(world.gate.claimed[&id], deadline + ms(700) + ms(500));
    world.advance(ms(1_300) + ms(1_200) - NANO);
    assert_eq!(world.outcome(id), None);
    world.advance(NANO);
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
}

#[test]
fn dl_6_the_grace_is_a_setting() {
    let settings = Settings { response_grace: ms(50), ..settings() };
    let mut world = World::ready_with(settings);
    let id = world.ask(lock("k", 1));
    world.advance(ms(1_050) - NANO);
    assert_eq!(world.outcome(id), None);
    world.advance(NANO);
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
}

#[test]
fn dl_6_a_strict_deadline_is_exact() {
    let settings = Settings { strict_deadline: true, ..settings() };
    let mut world = World::ready_with(settings);
    let id = world.ask(lock("k", 1));
    assert_eq!(world.gate.claimed[&id], world.mono() + SECOND);
    world.advance(SECOND - NANO);
    assert_eq!(world.outcome(id), None);
    world.advance(NANO);
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
}

#[test]
fn dl_6_a_strict_deadline_knows_no_rounding_either() {
    let mut world = World::new(Settings { strict_deadline: true, connections: 1, ..settings() });
    world.nodes[0] = Node::Swallows;
    world.fire();
    let id = world.ask(lock("k", 2));
    let deadline = world.mono() + 2 * SECOND;
    world.advance(ms(300));
    world.connect(world.dials[0].1);
    assert_eq!((world.acquire("k").wait, world.gate.claimed[&id]), (2, deadline));
    world.advance(ms(1_700));
    assert_eq!((world.unknown(id), world.ended_at(id)), (ReasonKind::Deadline, Some(deadline)));
}

#[test]
fn dl_6_a_wait_zero_call_has_the_grace_behind_its_five_seconds() {
    let mut world = World::ready();
    let id = world.ask(attempt("k"));
    world.advance(ms(5_500) - NANO);
    assert_eq!(world.outcome(id), None);
    world.advance(NANO);
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
}

#[test]
fn dl_6_partly_written_at_its_deadline_it_gets_no_further_byte() {
    // The timer first, then the socket; and the other way round, after a stall.
    for socket_first in [false, true] {
        let mut world = World::single();
        let conn = world.only();
        world.socket(conn).room = 5;
        let id = world.ask(lock("k", 1));
        let taken = world.socket(conn).taken.len();
        if socket_first {
            world.stall(SECOND);
            world.open_up(conn, usize::MAX);
        } else {
            world.advance(SECOND);
            assert_eq!(world.unknown(id), ReasonKind::Deadline);
            world.open_up(conn, usize::MAX);
        }
        assert_eq!(world.unknown(id), ReasonKind::Deadline);
        assert_eq!(world.ended_at(id), Some(world.mono()));
        assert_eq!(world.sockets[&conn].taken.len(), taken);
        assert!(world.sockets[&conn].is_mid_frame());
        assert_ne!(world.state(conn), State::Open);
    }
}

#[test]
fn dl_6_just_before_its_deadline_the_rest_goes_out_and_the_grace_holds() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 5;
    let id = world.ask(lock("k", 1));
    world.advance(SECOND - NANO);
    world.open_up(conn, usize::MAX);
    world.advance(ms(500));
    assert_eq!(world.outcome(id), None);
    world.advance(NANO);
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
}

#[test]
fn dl_8_late_timeouts_and_busies_are_definite() {
    let mut world = World::single();
    let conn = world.only();
    let (timed_out, busy) = (world.ask(lock("t", 1)), world.ask(lock("b", 1)));
    let (t, b) = (world.acquire("t").owner, world.acquire("b").owner);
    // Long past the grace: the thread was stopped while the answers came.
    world.put(conn, ServerFrame::TimedOut { owner: t, key: b"t" });
    world.put(conn, ServerFrame::Busy { owner: b, key: b"b" });
    world.stall(60 * SECOND);
    world.fire();
    assert_eq!(world.outcome(timed_out), Some(AcquireOutcome::TimedOut));
    assert_eq!(world.outcome(busy), Some(AcquireOutcome::Busy));
    assert_eq!(world.state(conn), State::Open);
}
