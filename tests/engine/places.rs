//! CON-6: what shares a connection, and what one caller can do to the others.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::ReasonKind;
use lockclient::engine::{AcquireOutcome, ReleaseKind, ReleaseOutcome, Settings};
use lockclient::wire::ServerFrame;
use std::collections::HashSet;

fn with(connections: usize) -> World {
    World::ready_with(Settings { connections, ..settings() })
}

#[test]
fn con_6_kinds_of_callers_do_not_share_where_the_number_allows() {
    for (connections, distinct) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        let mut world = with(connections);
        world.ask(attempt("t"));
        world.ask(lock("b", 30));
        world.ask(ticket("c", 30));
        let conns: HashSet<_> = ["t", "b", "c"].iter().map(|key| world.acquire(key).conn).collect();
        assert_eq!(conns.len(), distinct, "of {connections}");
        if connections == 2 {
            assert_eq!(world.acquire("t").conn, world.acquire("b").conn);
        }
    }
}

#[test]
fn con_6_all_kinds_at_once_each_get_their_connection() {
    // All wait before the first connection is there, which only one of them gets.
    // The timers are looked at before the sending, as the I/O thread does, and after it.
    for timers_first in [true, false] {
        let mut world = World::new(settings());
        world.nodes[0] = Node::Accepts;
        world.fire();
        let ids = [
            world.ask_quietly(ticket("c", 30)),
            world.ask_quietly(attempt("t")),
            world.ask_quietly(lock("b", 30)),
        ];
        let (conn, now) = (world.only(), world.now);
        let (_, owner) = world.probes(conn)[0];
        let mut answer = Vec::new();
        ServerFrame::NotHeld { owner, key: b"_probe" }.encode(&mut answer);
        world.sockets.get_mut(&conn).unwrap().probes.clear();
        world.nodes[0] = Node::Serves;
        world.engine.received(conn, &answer, now);
        if timers_first {
            world.engine.timeout(now);
        }
        world.settle();
        world.advance(ms(1));
        let conns: HashSet<_> = ["t", "b", "c"].iter().map(|key| world.acquire(key).conn).collect();
        assert_eq!(conns.len(), 3);
        assert!(ids.iter().all(|id| world.outcome(*id).is_none()));
    }
}

#[test]
fn con_6_no_more_connections_than_asked_for() {
    for connections in [1, 2, 3, 4, 6] {
        let mut world = with(connections);
        for round in 0..30 {
            world.ask(attempt(&format!("t{round}")));
            world.ask(lock(&format!("b{round}"), 30));
            world.ask(ticket(&format!("c{round}"), 30));
            assert!(world.open().len() <= connections);
        }
        assert_eq!(world.open().len(), connections.min(2 + connections.saturating_sub(2).min(30)));
    }
}

#[test]
fn con_6_connections_are_opened_as_needed() {
    let mut world = with(4);
    for round in 0..20 {
        let key = format!("k{round}");
        let id = world.ask(lock(&key, 30));
        world.grant_it(&key, 1);
        assert_eq!(world.grant(id).token, 1);
    }
    assert_eq!(world.open().len(), 1);
}

#[test]
fn con_6_tickets_take_the_least_loaded() {
    let mut world = with(6);
    for round in 0..40 {
        world.ask(ticket(&format!("c{round}"), 30));
    }
    let mut loads = std::collections::BTreeMap::new();
    for round in 0..40 {
        *loads.entry(world.acquire(&format!("c{round}")).conn).or_insert(0) += 1;
    }
    assert_eq!(loads.values().copied().collect::<Vec<_>>(), [10, 10, 10, 10]);
}

#[test]
fn con_6_a_class_whose_connection_cannot_be_had_shares_another() {
    // The node refuses further connections: what waits goes over the one there is.
    for (first, second) in [(lock("b", 30), attempt("t")), (attempt("t"), lock("b", 30))] {
        let mut world = with(4);
        world.ask(first.clone());
        world.nodes[0] = Node::Refuses;
        world.ask(second.clone());
        world.advance(ms(249));
        assert_eq!(world.acquires(&second.key), []);
        world.advance(ms(1));
        let here = world.acquire(&first.key).conn;
        assert_eq!(world.acquire(&second.key).conn, here);
    }
    let mut world = with(4);
    world.ask(lock("b", 30));
    world.nodes[0] = Node::Refuses;
    world.ask(ticket("c", 30));
    world.advance(SECOND);
    assert_eq!(world.acquires("c").len(), 1);
    // Those that come later need not wait again.
    world.ask(ticket("d", 30));
    assert_eq!(world.acquires("d").len(), 1);
    // Once it can be had they leave the others alone.
    world.nodes[0] = Node::Serves;
    world.advance(6 * SECOND);
    world.ask(ticket("e", 30));
    world.advance(ms(100));
    world.ask(ticket("f", 30));
    assert_ne!(world.acquire("f").conn, world.acquire("b").conn);
}

#[test]
fn con_6_a_slow_second_connection_is_waited_for_only_a_while() {
    let mut world = with(4);
    world.ask(lock("b", 30));
    world.nodes[0] = Node::Swallows;
    world.ask(attempt("t"));
    world.advance(ms(249));
    assert_eq!(world.acquires("t"), []);
    world.advance(ms(1));
    assert_eq!(world.acquire("t").conn, world.acquire("b").conn);
}

#[test]
fn con_6_tickets_do_not_join_others_because_the_network_is_slow() {
    // Three quarters of a second for a connection: whoever cancels would take the waits along.
    let mut world = with(4);
    world.ask(lock("b", 30));
    world.nodes[0] = Node::Swallows;
    world.ask(ticket("c", 30));
    world.advance(ms(750));
    assert_eq!(world.acquires("c"), []);
    world.nodes[0] = Node::Serves;
    world.connect(world.dials.last().unwrap().1);
    assert_ne!(world.acquire("c").conn, world.acquire("b").conn);
    // But they do not wait for ever.
    let mut world = with(4);
    world.ask(lock("b", 30));
    world.nodes[0] = Node::Swallows;
    world.ask(ticket("c", 30));
    world.advance(SECOND);
    assert_eq!(world.acquires("c").len(), 1);
}

#[test]
fn con_6_a_leader_that_changes_takes_no_class_along() {
    // Long waits of every kind stay on the old node; every kind is served by the new one.
    for connections in [1, 2, 4] {
        let settings = Settings { endpoints: endpoints(2), connections, ..settings() };
        let mut world = World::ready_with(settings);
        for ask in [attempt("t"), lock("b", 200), ticket("c", 200)] {
            world.ask(ask);
        }
        let old = world.acquire("b").conn;
        world.answer(old, ServerFrame::Leader { leader: b"b:1" });
        world.fire();
        for ask in [attempt("t2"), lock("b2", 200), ticket("c2", 200)] {
            let key = ask.key.clone();
            let id = world.ask(ask);
            world.advance(ms(1));
            assert_eq!(world.sockets[&world.acquire(&key).conn].endpoint, 1, "{connections}");
            assert_eq!(world.outcome(id), None);
        }
        assert_eq!(world.state(old), State::Open);
        // What ends there lets its connection go, and nothing else has to happen for that.
        for key in ["t", "b", "c"] {
            let sent = world.acquire(key);
            let key = key.as_bytes();
            world.answer(sent.conn, ServerFrame::Busy { owner: sent.owner, key });
        }
        world.advance(ms(1));
        let open = world.open();
        assert!(open.iter().all(|conn| world.sockets[conn].endpoint == 1), "{connections}");
    }
}

#[test]
fn con_6_a_cancel_storm_leaves_other_waits_alone() {
    let mut world = with(4);
    let mut others = Vec::new();
    for round in 0..8 {
        others.push(world.ask(lock(&format!("b{round}"), 60)));
    }
    others.push(world.ask(attempt("t")));
    let start = world.mono();
    for round in 0..3_000 {
        let id = world.ask(ticket(&format!("c{round}"), 60));
        world.advance(ms(1));
        world.cancel(id);
        if round % 100 == 0 {
            others.push(world.ask(lock(&format!("n{round}"), 60)));
        }
    }
    assert!(others.iter().all(|id| world.outcome(*id).is_none()));
    let seconds = world.mono().since(start).as_secs() as usize;
    assert!(world.dials.len() <= 8 + 10 * (seconds + 1), "{}", world.dials.len());
    // And a connection that others lose is made again while the storm lasts.
    let blocking = world.acquire("b0").conn;
    world.end(blocking, ReasonKind::Eof);
    let again = world.ask(lock("again", 60));
    for round in 0..300 {
        let id = world.ask(ticket(&format!("d{round}"), 60));
        world.advance(ms(1));
        world.cancel(id);
    }
    assert_eq!(world.acquires("again").len(), 1);
    assert_eq!(world.outcome(again), None::<AcquireOutcome>);
}

#[test]
fn con_6_lingering_connections_take_nobodys_place() {
    let mut world = with(4);
    for round in 0..5 {
        let id = world.ask(ticket(&format!("c{round}"), 60));
        assert_eq!(world.acquires(&format!("c{round}")).len(), 1);
        world.cancel(id);
    }
    let lingering = world.sockets.values().filter(|s| s.state == State::HalfClosed).count();
    assert_eq!(lingering, 5);
}

#[test]
fn an_answer_gives_no_reason_to_look_after_the_connections() {
    let mut world = World::ready();
    let id = world.ask(lock("k", 60));
    let release = world.release("r", 5, ReleaseKind::Awaited);
    world.fire();
    world.grant_it("k", 5);
    assert_eq!(world.grant(id).token, 5);
    assert!(world.engine.next_timeout() > Some(world.mono()));
    let (conn, owner, _) = world.releases("r")[0];
    world.answer(conn, ServerFrame::Released { owner, key: b"r" });
    assert_eq!(world.release_outcome(release), Some(ReleaseOutcome::Released));
    assert!(world.engine.next_timeout() > Some(world.mono()));
}

#[test]
fn con_6_a_second_connection_for_tickets_is_opened_once_the_first_carries_one() {
    let mut world = with(4);
    let first = world.ask(ticket("a", 30));
    assert_eq!(world.dials.len(), 1);
    world.grant_it("a", 1);
    assert_eq!(world.grant(first).token, 1);
    world.ask(ticket("b", 30));
    assert_eq!((world.dials.len(), world.acquire("b").conn), (1, world.acquire("a").conn));
    world.ask(ticket("c", 30));
    assert_eq!(world.dials.len(), 2);
    world.ask(ticket("d", 30));
    assert_ne!(world.acquire("d").conn, world.acquire("b").conn);
    // There is no third place: nobody has to look after the connections for another ticket.
    world.fire();
    world.ask_quietly(ticket("e", 30));
    assert!(world.engine.next_timeout() > Some(world.mono()));
}

#[test]
fn con_6_the_first_connection_is_for_whoever_came_first() {
    let asks = [attempt("t"), lock("b", 30), ticket("c", 30)];
    for first in 0..3 {
        let mut world = World::new(settings());
        for step in 0..3 {
            world.ask_quietly(asks[(first + step) % 3].clone());
        }
        world.fire();
        for (at, ask) in asks.iter().enumerate() {
            assert_eq!(world.acquires(&ask.key).len(), usize::from(at == first), "{first} {at}");
        }
    }
}

#[test]
fn con_6_one_dial_at_a_time_for_a_kind_of_caller_and_none_before_its_backoff() {
    let mut world = with(4);
    world.ask(lock("b", 30));
    world.nodes[0] = Node::Swallows;
    for _ in 0..5 {
        world.ask(attempt("t"));
    }
    assert_eq!(world.dials.len(), 2);
    let mut world = with(4);
    world.ask(lock("b", 30));
    world.nodes[0] = Node::Refuses;
    for _ in 0..5 {
        world.ask(attempt("t"));
    }
    assert_eq!(world.dials.len(), 2);
    world.advance(ms(50));
    assert_eq!(world.dials.len(), 3);
}

#[test]
fn con_6_who_waits_before_a_full_socket_wakes_nobody() {
    let mut world = with(4);
    world.ask(lock("b", 30));
    let conn = world.only();
    world.socket(conn).room = 0;
    world.nodes[0] = Node::Swallows;
    let id = world.ask(attempt("t"));
    let start = world.mono();
    // The driver's clock stands still while a timer wants to be looked at again and again.
    world.advance(SECOND);
    assert_eq!((world.outcome(id), world.acquires("t")), (None, vec![]));
    assert_eq!((world.counters().queued_now, world.counters().in_flight_now), (1, 1));
    assert_eq!(world.mono(), start + SECOND);
}
