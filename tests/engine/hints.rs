//! CON-3: what makes the leader hint, what keeps it, and what drops it.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::ReasonKind;
use lockclient::engine::{ConnId, Event, ReleaseKind, Settings};
use lockclient::wire::ServerFrame;

/// Every change of the hint, in order.
fn hints(world: &World) -> Vec<Option<u16>> {
    let hint = |event: &Event| match event {
        Event::Hint { endpoint } => Some(*endpoint),
        _ => None,
    };
    world.events.iter().filter_map(hint).collect()
}

/// Three endpoints. The second was named as the leader, and its connection is ready.
fn led() -> (World, ConnId) {
    let mut world = World::new(Settings { endpoints: endpoints(3), ..settings() });
    world.fire();
    let conn = world.only();
    world.answer(conn, ServerFrame::Leader { leader: b"b:1" });
    world.fire();
    world.fire();
    let conn = world.only();
    assert_eq!((world.sockets[&conn].endpoint, hints(&world)), (1, vec![Some(1)]));
    (world, conn)
}

#[test]
fn con_3_a_leader_whose_connection_ends_is_still_the_leader() {
    let (mut world, conn) = led();
    world.nodes = vec![Node::Refuses, Node::Serves, Node::Refuses];
    world.end(conn, ReasonKind::Eof);
    world.advance(ms(100));
    assert_eq!(world.sockets[&world.only()].endpoint, 1);
    assert_eq!(hints(&world), [Some(1)]);
}

#[test]
fn con_3_a_former_leader_is_let_go_once_its_last_release_is_answered() {
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.fire();
    let former = world.only();
    world.release("r", 5, ReleaseKind::Awaited);
    let owner = world.releases("r")[0].1;
    world.answer(former, ServerFrame::Leader { leader: b"b:1" });
    world.fire();
    world.fire();
    assert_eq!((world.open().len(), world.state(former)), (2, State::Open));
    world.answer(former, ServerFrame::Released { owner, key: b"r" });
    world.fire();
    assert_eq!(world.state(former), State::Closed);
}

#[test]
fn con_3_a_former_leader_whose_socket_took_nothing_of_a_release_is_let_go() {
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.fire();
    let former = world.only();
    world.socket(former).room = 0;
    world.release("r", 5, ReleaseKind::Awaited);
    world.answer(former, ServerFrame::Leader { leader: b"b:1" });
    world.fire();
    world.fire();
    assert_eq!(world.sockets[&world.releases("r")[0].0].endpoint, 1);
    assert_eq!(world.state(former), State::Closed);
}

#[test]
fn con_3_a_leader_that_is_reached_stays_though_it_refuses_another_connection() {
    let (mut world, conn) = led();
    world.ask(lock("k", 30));
    world.nodes[1] = Node::Refuses;
    world.ask(attempt("t"));
    assert_eq!(world.dials.last().unwrap().2, 1);
    assert_eq!(world.engine.last_error().kind, ReasonKind::Connect);
    assert_eq!((world.state(conn), hints(&world)), (State::Open, vec![Some(1)]));
}

#[test]
fn con_3_another_endpoint_that_cannot_be_reached_says_nothing_about_the_leader() {
    let mut world = World::new(Settings { endpoints: endpoints(3), ..settings() });
    world.fire();
    let conn = world.only();
    world.nodes = vec![Node::Refuses, Node::Swallows, Node::Refuses];
    world.answer(conn, ServerFrame::Moved { leader: b"b:1" });
    world.advance(SECOND);
    assert!(world.dials.iter().any(|dial| dial.2 == 2), "the others are tried meanwhile");
    assert_eq!(hints(&world), [Some(1)]);
}

#[test]
fn con_3_a_leader_that_says_it_is_none_is_no_hint_any_more() {
    for answer in [
        ServerFrame::Moved { leader: b"z:1" },
        ServerFrame::Error { code: b"not_active" },
        ServerFrame::Error { code: b"no_leader" },
    ] {
        let (mut world, conn) = led();
        world.answer(conn, answer);
        assert_eq!(hints(&world), [Some(1), None], "{answer:?}");
    }
    // Of the others only "there is none" counts.
    for (answer, expected) in [
        (&b"Mz:1\n"[..], vec![Some(1)]),
        (b"Enot_active\n", vec![Some(1)]),
        (b"Eno_leader\n", vec![Some(1), None]),
    ] {
        let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
        world.nodes[1] = Node::Swallows;
        world.fire();
        let conn = world.only();
        world.ask(lock("k", 30));
        world.answer(conn, ServerFrame::Leader { leader: b"b:1" });
        world.bytes(conn, answer);
        assert_eq!(hints(&world), expected, "{answer:?}");
    }
}
