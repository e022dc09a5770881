//! CON-2 to CON-5: where to connect, when, and when a connection may be used.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::ReasonKind;
use lockclient::engine::{AcquireOutcome, ConnId, Settings};
use lockclient::wire::ServerFrame;
use std::time::Duration;

const NANO: Duration = Duration::from_nanos(1);

fn three() -> World {
    World::new(Settings { endpoints: endpoints(3), ..settings() })
}

/// The endpoints dialled, in order.
fn dialled(world: &World) -> Vec<u16> {
    world.dials.iter().map(|dial| dial.2).collect()
}

#[test]
fn con_2_only_configured_endpoints_are_dialled() {
    let mut world = three();
    world.fire();
    for leader in [&b"x:1"[..], b"b:2", b"[::1]:1", b"127.0.0.1:1", b"b:1 ", b"b", b"\xff:1"] {
        let conn = world.open()[0];
        world.answer(conn, ServerFrame::Moved { leader });
        world.advance(SECOND);
    }
    assert!(dialled(&world).iter().all(|endpoint| *endpoint < 3));
    assert!(
        !world.events.iter().any(|event| {
            matches!(event, lockclient::engine::Event::Hint { endpoint: Some(_) })
        })
    );
}

#[test]
fn con_3_the_first_endpoint_that_serves_is_used_and_the_others_are_let_alone() {
    let mut world = three();
    world.fire();
    world.advance(30 * SECOND);
    assert_eq!(dialled(&world), [0]);
}

#[test]
fn con_3_a_dial_that_swallows_does_not_keep_the_others_waiting() {
    let mut world = three();
    world.nodes = vec![Node::Swallows, Node::Swallows, Node::Serves];
    let start = world.mono();
    world.fire();
    let id = world.ask(lock("k", 1));
    world.advance(ms(500));
    let at: Vec<u128> = world.dials.iter().map(|d| d.0.since(start).as_millis()).collect();
    assert_eq!((dialled(&world), at), (vec![0, 1, 2], vec![0, 250, 500]));
    assert_eq!(world.sockets[&world.acquire("k").conn].endpoint, 2);
    assert_eq!(world.outcome(id), None);
    // The others are given up once one serves.
    for (_, conn, endpoint) in &world.dials[..2] {
        assert_eq!(world.state(*conn), State::Closed, "{endpoint}");
    }
    assert_eq!(world.counters().connects_failed, 0);
}

#[test]
fn con_3_the_hint_is_dialled_first_and_dropped_if_it_cannot_be_reached() {
    let mut world = three();
    world.fire();
    let conn = world.only();
    world.nodes = vec![Node::Refuses; 3];
    let before = world.dials.len();
    world.answer(conn, ServerFrame::Moved { leader: b"c:1" });
    world.advance(5 * SECOND);
    assert_eq!(dialled(&world)[before..][..2], [2, 1], "the hint, then in turn");
    let hints: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            lockclient::engine::Event::Hint { endpoint } => Some(*endpoint),
            _ => None,
        })
        .collect();
    assert_eq!(hints, [Some(2), None]);
}

#[test]
fn con_3_a_node_that_serves_outweighs_an_older_hint_that_does_not_answer() {
    let mut world = three();
    world.nodes = vec![Node::Serves, Node::Serves, Node::Swallows];
    world.fire();
    let conn = world.only();
    world.answer(conn, ServerFrame::Moved { leader: b"c:1" });
    world.fire();
    let id = world.ask(lock("k", 5));
    assert_eq!(world.acquires("k"), []);
    // The hinted machine is dead and says nothing. Another is asked after a while, and serves.
    world.advance(ms(250));
    let sent = world.acquire("k");
    assert!(sent.conn > world.dials[1].1);
    assert_eq!(world.sockets[&sent.conn].endpoint, 0, "the other way round is the first again");
    assert_eq!(world.outcome(id), None);
    // A connection that was dialled before the hint was heard proves nothing of the kind.
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.nodes[1] = Node::Swallows;
    world.fire();
    let conn = world.only();
    world.ask(lock("b", 60));
    world.nodes[0] = Node::Swallows;
    world.ask(attempt("t"));
    let (_, opening, to) = *world.dials.last().unwrap();
    assert_eq!(to, 0);
    world.answer(conn, ServerFrame::Leader { leader: b"b:1" });
    world.connect(opening);
    world.ask(lock("k", 5));
    assert_eq!((world.acquires("t"), world.acquires("k")), (vec![], vec![]));
    // And neither does one that has been there all the time.
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.nodes[1] = Node::Swallows;
    world.fire();
    let conn = world.only();
    world.answer(conn, ServerFrame::Leader { leader: b"b:1" });
    world.ask(lock("k", 5));
    world.advance(SECOND);
    assert_eq!(world.acquires("k"), []);
}

#[test]
fn con_3_failures_back_off_with_jitter_up_to_five_seconds() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Refuses;
    world.fire();
    world.advance(60 * SECOND);
    let gaps: Vec<Duration> = world.dials.windows(2).map(|d| d[1].0.since(d[0].0)).collect();
    let mut step = ms(50);
    for gap in &gaps {
        assert!(*gap >= step / 2 && *gap <= step, "{gap:?} of {step:?}");
        step = (step * 2).min(5 * SECOND);
    }
    assert!(gaps.len() > 15);
    // Two clients do not dial in step.
    let mut other = World::new(Settings { seed: 2, ..settings() });
    other.nodes[0] = Node::Refuses;
    other.fire();
    other.advance(SECOND);
    assert_ne!(other.dials[1].0, world.dials[1].0);
}

#[test]
fn con_3_service_ends_the_backoff() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Refuses;
    world.fire();
    world.advance(20 * SECOND);
    world.nodes[0] = Node::Serves;
    world.advance(6 * SECOND);
    let conn = world.only();
    let at = world.mono();
    world.end(conn, ReasonKind::Eof);
    world.advance(ms(50));
    let again = world.dials.last().unwrap().0;
    assert!(again > at && again <= at + ms(50));
}

#[test]
fn con_3_connecting_has_its_own_time_limit() {
    let mut world = World::new(Settings { connect_timeout: ms(1_300), ..settings() });
    world.nodes[0] = Node::Swallows;
    world.fire();
    let (at, conn, _) = world.dials[0];
    world.advance(ms(1_300) - NANO);
    assert_eq!(world.state(conn), State::Dialing);
    world.advance(NANO);
    assert_eq!(world.closes[&conn], at + ms(1_300));
}

#[test]
fn con_3_dials_are_bounded_whatever_happens() {
    // Each node accepts and names the other leader: every dial is answered at once and followed.
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.nodes = vec![Node::Accepts; 2];
    let start = world.mono();
    world.fire();
    for _ in 0..20_000 {
        world.advance(ms(1));
        for conn in world.open() {
            let other = if world.sockets[&conn].endpoint == 0 { b"b:1" } else { b"a:1" };
            world.answer(conn, ServerFrame::Moved { leader: other });
        }
        if world.mono() >= start + 10 * SECOND {
            break;
        }
    }
    assert!(world.dials.len() <= 8 + 100, "{}", world.dials.len());
    assert!(world.dials.len() >= 50, "{}", world.dials.len());
    for (at, _, _) in &world.dials {
        let within = world.dials.iter().filter(|d| d.0 >= *at && d.0 <= *at + SECOND).count();
        assert!(within <= 8 + 10, "{within} in a second");
    }
}

#[test]
fn con_3_no_endpoint_is_passed_over_while_dials_are_short() {
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.nodes = vec![Node::Accepts; 2];
    world.fire();
    // Neither hints at the other: both back off by little, and dials are what is short.
    for _ in 0..5_000 {
        world.advance(ms(1));
        for conn in world.open() {
            world.answer(conn, ServerFrame::Moved { leader: b"x:1" });
        }
    }
    let first = dialled(&world).iter().filter(|endpoint| **endpoint == 0).count();
    let all = world.dials.len();
    assert!(first * 3 >= all && first * 3 <= 2 * all, "{first} of {all}");
}

#[test]
fn con_3_closes_by_deadline_and_cancel_add_no_backoff() {
    for cancel in [false, true] {
        let mut world = World::single();
        let id = world.ask(ticket("k", 1));
        let next = world.ask_quietly(lock("next", 30));
        world.socket(ConnId(1)).room = 0;
        if cancel {
            world.cancel(id);
        } else {
            world.advance(ms(1_500));
        }
        world.fire();
        let (at, conn, _) = *world.dials.last().unwrap();
        assert_eq!(at, world.mono(), "dialled again at once");
        assert_eq!(world.acquire("next").conn, conn);
        assert_eq!(world.outcome(next), None);
        assert_eq!(world.engine.last_error().kind, ReasonKind::None);
    }
}

#[test]
fn con_4_no_acquire_goes_out_before_the_probe_is_answered() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Accepts;
    world.fire();
    let conn = world.only();
    let id = world.ask(lock("k", 30));
    assert_eq!((world.probes(conn).len(), world.acquires("k").len()), (1, 0));
    assert!(!world.engine.is_ready());
    assert_eq!(world.counters().connections_now, 0);
    let (_, owner) = world.probes(conn)[0];
    world.advance(ms(300));
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"_probe" });
    assert_eq!(world.acquire("k").conn, conn);
    assert_eq!((world.outcome(id), world.counters().connects), (None, 1));
    assert_eq!(world.counters().connections_now, 1);
}

#[test]
fn con_4_a_follower_costs_no_indeterminate() {
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.nodes[0] = Node::Accepts;
    world.fire();
    let conn = world.open()[0];
    let id = world.ask(lock("k", 30));
    world.answer(conn, ServerFrame::Moved { leader: b"b:1" });
    world.fire();
    assert_eq!(world.sockets[&world.acquire("k").conn].endpoint, 1);
    assert_eq!((world.outcome(id), world.counters().indeterminate), (None, 0));
}

#[test]
fn con_4_the_first_probe_has_five_seconds() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Accepts;
    world.fire();
    let (conn, start) = (world.only(), world.mono());
    world.advance(5 * SECOND - NANO);
    assert_eq!(world.state(conn), State::Open);
    world.advance(NANO);
    assert_eq!(world.closes[&conn], start + 5 * SECOND);
    assert_eq!(world.engine.last_error().kind, ReasonKind::HandshakeTimeout);
}

#[test]
fn con_4_released_for_an_answer_to_the_probe_is_a_mismatch() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Accepts;
    world.fire();
    let conn = world.only();
    let (_, owner) = world.probes(conn)[0];
    world.answer(conn, ServerFrame::Released { owner, key: b"_probe" });
    assert_eq!(world.state(conn), State::Closed);
    assert_eq!(world.engine.last_error().kind, ReasonKind::Mismatch);
}

#[test]
fn con_4_an_answer_to_the_probe_echoes_its_owner_and_its_key() {
    for (other, key) in [(1, &b"_probe"[..]), (0, b"k")] {
        let mut world = World::new(settings());
        world.nodes[0] = Node::Accepts;
        world.fire();
        let conn = world.only();
        let (_, owner) = world.probes(conn)[0];
        world.answer(conn, ServerFrame::NotHeld { owner: owner + other, key });
        assert_eq!(world.state(conn), State::Closed);
        assert_eq!(world.engine.last_error().kind, ReasonKind::Mismatch);
    }
}

#[test]
fn con_5_an_idle_connection_is_probed_every_ten_seconds() {
    let mut world = World::ready();
    let (conn, start) = (world.only(), world.mono());
    world.advance(35 * SECOND);
    let at: Vec<u128> =
        world.probes(conn).iter().map(|probe| probe.0.since(start).as_millis()).collect();
    assert_eq!(at, [0, 10_000, 20_000, 30_000]);
    // Whatever was heard counts.
    world.advance(SECOND);
    world.answer(conn, ServerFrame::Leader { leader: b"a:1" });
    let before = world.probes(conn).len();
    world.advance(10 * SECOND - NANO);
    assert_eq!(world.probes(conn).len(), before);
    world.advance(NANO);
    assert_eq!(world.probes(conn).len(), before + 1);
}

#[test]
fn con_5_an_unanswered_probe_stops_acquires_after_a_second_and_closes_after_five() {
    let mut world = World::single();
    let conn = world.only();
    let waits = world.ask(lock("waits", 200));
    world.nodes[0] = Node::Accepts;
    world.advance(SECOND);
    let (probed, _) = *world.probes(conn).last().unwrap();
    assert_eq!(probed, world.mono());
    world.advance(SECOND);
    world.ask(lock("exactly", 30));
    assert_eq!(world.acquires("exactly").len(), 1, "over a second, not at it");
    world.advance(NANO);
    let over = world.ask(lock("over", 30));
    let short = world.ask(lock("short", 1));
    assert_eq!(world.acquires("over"), []);
    world.advance(SECOND);
    assert!(matches!(world.outcome(short), Some(AcquireOutcome::NotSent(_))));
    world.advance((probed + 5 * SECOND).since(world.mono()) - NANO);
    assert_eq!((world.outcome(waits), world.state(conn)), (None, State::Open));
    world.advance(NANO);
    assert_eq!(world.unknown(waits), ReasonKind::Silent);
    assert_eq!(world.outcome(over), None);
    assert_eq!(world.counters().connections_closed, 1);
}

#[test]
fn con_5_an_answer_to_the_probe_lets_acquires_through_again() {
    let mut world = World::single();
    let conn = world.only();
    world.nodes[0] = Node::Accepts;
    world.advance(10 * SECOND);
    let (_, owner) = *world.probes(conn).last().unwrap();
    world.advance(ms(4_999));
    world.ask(lock("k", 30));
    assert_eq!(world.acquires("k"), []);
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"_probe" });
    assert_eq!(world.acquire("k").conn, conn);
    world.advance(SECOND);
    assert_eq!(world.state(conn), State::Open);
}

#[test]
fn con_5_a_socket_that_stays_full_is_silence_too() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 0;
    let start = world.mono();
    let id = world.ask(lock("k", 60));
    world.nodes[0] = Node::Refuses;
    world.advance(15 * SECOND);
    assert_eq!(world.closes[&conn], start + 15 * SECOND);
    assert_eq!(world.outcome(id), None, "not a byte of it left");
}
