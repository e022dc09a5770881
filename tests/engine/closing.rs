//! CLO-1, CLO-2 and DL-7: the last read, the lingering one, and grants that come too late.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::ReasonKind;
use lockclient::engine::{AcquireOutcome, Event, ReleaseKind, ReleaseOutcome, Settings};
use lockclient::wire::ServerFrame;
use std::time::Duration;

const NANO: Duration = Duration::from_nanos(1);

#[test]
fn dl_7_a_grant_read_exactly_at_the_deadline_counts_and_one_after_it_does_not() {
    for (late, granted) in [(Duration::ZERO, true), (NANO, false)] {
        let mut world = World::single();
        let conn = world.only();
        let id = world.ask(lock("k", 3));
        world.advance(3 * SECOND + late);
        world.grant_it("k", 41);
        if granted {
            assert_eq!(world.grant(id).token, 41);
            assert_eq!(world.releases("k"), []);
        } else {
            assert_eq!(world.unknown(id), ReasonKind::LateGrant);
            assert_eq!(world.releases("k").len(), 1);
            assert_eq!(world.releases("k")[0].2, 41);
            assert!(world.events.contains(&Event::Compensated { token: 41 }));
        }
        assert_eq!(world.state(conn), State::Open, "the connection stays");
        assert_eq!(world.counters().late_grants, u64::from(!granted));
    }
}

#[test]
fn dl_7_a_grant_to_a_wait_zero_call_is_judged_by_its_five_seconds() {
    for (late, granted) in [(Duration::ZERO, true), (NANO, false)] {
        let mut world = World::single();
        let id = world.ask(attempt("k"));
        world.advance(5 * SECOND + late);
        world.grant_it("k", 41);
        assert_eq!(matches!(world.outcome(id), Some(AcquireOutcome::Granted(_))), granted);
    }
}

#[test]
fn dl_7_a_grant_that_waited_in_the_socket_past_the_deadline_is_late() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(lock("k", 3));
    let owner = world.acquire("k").owner;
    world.put(conn, ServerFrame::Acquired { owner, token: 5, key: b"k" });
    world.stall(3 * SECOND + NANO);
    // The socket first: no timer has fired.
    world.read(conn);
    assert_eq!(world.unknown(id), ReasonKind::LateGrant);
    assert_eq!(world.releases("k")[0].2, 5);
    world.fire();
    assert_eq!(world.state(conn), State::Open);
}

#[test]
fn clo_1_answers_that_waited_in_the_socket_close_nothing() {
    let mut world = World::single();
    let conn = world.only();
    let ids = [world.ask(lock("t", 1)), world.ask(lock("a", 1)), world.ask(lock("long", 200))];
    let (t, a) = (world.acquire("t").owner, world.acquire("a").owner);
    world.put(conn, ServerFrame::TimedOut { owner: t, key: b"t" });
    world.put(conn, ServerFrame::Acquired { owner: a, token: 8, key: b"a" });
    // Stopped past every deadline and past every probe; the timers are handled first.
    world.stall(60 * SECOND);
    world.fire();
    assert_eq!(world.outcome(ids[0]), Some(AcquireOutcome::TimedOut));
    assert_eq!(world.unknown(ids[1]), ReasonKind::LateGrant);
    assert_eq!(world.outcome(ids[2]), None);
    assert_eq!((world.state(conn), world.counters().connections_closed), (State::Open, 0));
    assert_eq!(world.releases("a").len(), 1);
}

#[test]
fn clo_1_an_answer_to_the_probe_that_waited_keeps_the_connection() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(lock("k", 200));
    world.nodes[0] = Node::Accepts;
    world.advance(SECOND);
    let (_, owner) = *world.probes(conn).last().unwrap();
    world.put(conn, ServerFrame::NotHeld { owner, key: b"_probe" });
    world.stall(20 * SECOND);
    world.fire();
    assert_eq!((world.state(conn), world.outcome(id)), (State::Open, None));
}

#[test]
fn clo_1_a_first_probe_answered_in_the_socket_makes_the_connection_ready() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Accepts;
    world.fire();
    let conn = world.only();
    let (_, owner) = world.probes(conn)[0];
    world.put(conn, ServerFrame::NotHeld { owner, key: b"_probe" });
    world.stall(20 * SECOND);
    world.fire();
    assert_eq!(world.state(conn), State::Open);
    assert!(world.engine.is_ready());
}

#[test]
fn clo_1_results_first_then_half_closed_and_read_for_grants_alone() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(lock("k", 1));
    let shares = world.ask(lock("s", 100));
    let (k, s) = (world.acquire("k").owner, world.acquire("s").owner);
    world.advance(ms(1_500));
    let closed = world.mono();
    assert_eq!(world.unknown(id), ReasonKind::Deadline);
    assert_eq!(world.unknown(shares), ReasonKind::SharedConnection);
    assert_eq!(world.state(conn), State::HalfClosed);
    // The results stand, whatever still comes; grants are released by their tokens.
    world.advance(ms(900));
    world.answer(conn, ServerFrame::TimedOut { owner: k, key: b"k" });
    world.answer(conn, ServerFrame::Leader { leader: b"a:1" });
    world.answer(conn, ServerFrame::Acquired { owner: s, token: 66, key: b"s" });
    assert_eq!(world.releases("s").len(), 1);
    assert_eq!(world.releases("s")[0].2, 66);
    assert_ne!(world.releases("s")[0].0, conn);
    world.advance(ms(100) - NANO);
    assert_eq!(world.state(conn), State::HalfClosed);
    world.advance(NANO);
    assert_eq!(world.closes[&conn], closed + SECOND);
}

#[test]
fn clo_1_a_grant_that_waited_in_a_lingering_socket_is_caught_after_a_stall() {
    let mut world = World::single();
    let conn = world.only();
    world.ask(lock("k", 1));
    let owner = world.acquire("k").owner;
    world.advance(ms(1_500));
    assert_eq!(world.state(conn), State::HalfClosed);
    world.put(conn, ServerFrame::Acquired { owner, token: 67, key: b"k" });
    world.stall(10 * SECOND);
    world.fire();
    assert_eq!(world.state(conn), State::Closed);
    assert_eq!(world.releases("k").iter().map(|r| r.2).collect::<Vec<_>>(), [67]);
}

#[test]
fn clo_1_a_lingering_connection_ends_with_its_stream_or_with_garbage() {
    for garbage in [false, true] {
        let mut world = World::single();
        let conn = world.only();
        world.ask(lock("k", 1));
        world.advance(ms(1_500));
        assert_eq!(world.state(conn), State::HalfClosed);
        if garbage {
            world.bytes(conn, b"???");
        } else {
            world.end(conn, ReasonKind::Eof);
        }
        assert_eq!(world.closes[&conn], world.mono());
        assert_eq!(world.counters().connections_closed, 1);
    }
}

#[test]
fn clo_1_nothing_possibly_sent_means_nothing_to_linger_for() {
    let mut world = World::single();
    let conn = world.only();
    world.answer(conn, ServerFrame::Error { code: b"no_leader" });
    assert_eq!(world.closes[&conn], world.mono());
}

#[test]
fn clo_1_a_release_is_not_given_up_while_its_answer_waits_in_the_socket() {
    let mut world = World::single();
    let conn = world.only();
    let release = world.release("r", 5, ReleaseKind::Awaited);
    let owner = world.releases("r")[0].1;
    world.put(conn, ServerFrame::Released { owner, key: b"r" });
    world.stall(20 * SECOND);
    world.fire();
    assert_eq!(world.release_outcome(release), Some(ReleaseOutcome::Released));
    assert_eq!(world.state(conn), State::Open);
}

#[test]
fn clo_2_events_of_a_closed_connection_change_nothing() {
    let mut world = World::single();
    let conn = world.only();
    world.end(conn, ReasonKind::Eof);
    world.advance(ms(100));
    let next = world.only();
    assert_ne!(conn, next, "numbers are never used twice");
    let id = world.ask(lock("k", 9));
    let owner = world.acquire("k").owner;
    let mut grant = Vec::new();
    ServerFrame::Acquired { owner, token: 5, key: b"k" }.encode(&mut grant);
    world.engine.received(conn, &grant, world.now);
    world.engine.ended(conn, lockclient::Reason::new(ReasonKind::Eof), world.now);
    world.engine.writable(conn);
    world.engine.drained(conn, world.now);
    world.engine.dialed(conn, Ok(NONCE), world.now);
    world.settle();
    assert_eq!((world.outcome(id), world.state(next)), (None, State::Open));
}

#[test]
fn clo_2_a_dial_that_succeeds_too_late_is_closed_and_no_connection() {
    let mut world = World::new(Settings { connect_timeout: ms(700), ..settings() });
    world.nodes[0] = Node::Swallows;
    world.fire();
    let (at, conn, _) = world.dials[0];
    world.advance(ms(700) - NANO);
    assert_eq!(world.state(conn), State::Dialing);
    world.advance(NANO);
    assert_eq!(world.closes[&conn], at + ms(700));
    assert_eq!(world.engine.last_error().kind, ReasonKind::ConnectTimeout);
    world.engine.dialed(conn, Ok(NONCE), world.now);
    world.settle();
    assert!(!world.engine.is_ready());
}
