//! CON-7: what passes through leaves nothing behind.

use crate::harness::*;
use crate::nodes::Node;
use lockclient::engine::{ReleaseKind, Settings};
use lockclient::wire::ServerFrame;

/// How much the engine holds, by what it would print of itself.
fn held(world: &World) -> usize {
    format!("{:?}", world.engine).len()
}

/// Runs `step` often, and checks that the engine holds no more in the end than after a start.
fn bounded(world: &mut World, mut step: impl FnMut(&mut World, usize)) {
    for round in 0..2_000 {
        step(world, round);
    }
    let (early, mut most) = (held(world), 0);
    for round in 2_000..12_000 {
        step(world, round);
        if round % 100 == 0 {
            most = most.max(held(world));
        }
        // What the driver remembers is not the subject.
        let last = world.wire.len().saturating_sub(8);
        world.wire.drain(..last);
        world.offered.clear();
        world.ends.clear();
        world.events.clear();
    }
    assert!(most < 2 * early + 20_000, "{most} of {early}");
}

#[test]
fn con_7_answered_acquires_leave_nothing() {
    let mut world = World::ready();
    bounded(&mut world, |world, _| {
        world.ask(lock("k", 200));
        world.ask(attempt("t"));
        for key in ["k", "t"] {
            let sent = *world.acquires(key).last().unwrap();
            let key = key.as_bytes();
            world.answer(sent.conn, ServerFrame::TimedOut { owner: sent.owner, key });
        }
    });
    assert_eq!((world.engine.queued(), world.counters().in_flight_now), (0, 0));
}

#[test]
fn con_7_cancelled_calls_leave_nothing_in_queue_and_timers() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Swallows;
    world.fire();
    // One that stays in front of all the others.
    world.ask(lock("first", 255));
    bounded(&mut world, |world, _| {
        for ask in [lock("k", 200), attempt("t"), ticket("c", 200)] {
            let id = world.ask_quietly(ask);
            world.cancel_quietly(id);
            world.gate.withdrawn.clear();
        }
    });
    assert_eq!(world.engine.queued(), 1);
}

#[test]
fn con_7_cancelled_calls_leave_nothing_behind_a_release_of_their_key() {
    let mut world = World::ready();
    world.ask(lock("b", 255));
    world.release("k", 5, ReleaseKind::Guard);
    let mut parked = world.ask(attempt("k"));
    bounded(&mut world, |world, _| {
        world.cancel_quietly(parked);
        world.gate.withdrawn.clear();
        parked = world.ask(attempt("k"));
    });
}

#[test]
fn con_7_releases_leave_nothing() {
    let mut world = World::single();
    bounded(&mut world, |world, round| {
        world.release("k", 5, ReleaseKind::Guard);
        let (conn, owner, _) = *world.releases("k").last().unwrap();
        match round % 1_000 {
            0 => world.end(conn, lockclient::ReasonKind::Eof),
            _ => world.answer(conn, ServerFrame::Released { owner, key: b"k" }),
        }
        if round % 1_000 == 0 {
            world.advance(ms(200));
            for (conn, owner, _) in world.releases("k") {
                if world.open().contains(&conn) {
                    world.answer(conn, ServerFrame::Released { owner, key: b"k" });
                }
            }
        }
    });
}

#[test]
fn con_7_busy_retries_leave_nothing() {
    let settings = Settings { busy_retry: true, connections: 1, ..settings() };
    let mut world = World::ready_with(settings);
    let mut id = world.ask(lock("k", 255));
    bounded(&mut world, |world, round| {
        let sent = *world.acquires("k").last().unwrap();
        if round % 50 == 49 {
            world.answer(sent.conn, ServerFrame::TimedOut { owner: sent.owner, key: b"k" });
            id = world.ask(lock("k", 255));
        } else {
            world.answer(sent.conn, ServerFrame::Busy { owner: sent.owner, key: b"k" });
            let count = world.acquires("k").len();
            while world.acquires("k").len() == count {
                let next = world.engine.next_timeout().unwrap();
                world.advance(next.since(world.mono()));
            }
        }
    });
    assert!(world.outcome(id).is_none());
}

#[test]
fn con_7_lost_connections_leave_nothing() {
    let mut world = World::single();
    bounded(&mut world, |world, round| {
        if round % 20 == 0 {
            world.ask(lock("k", 1));
            let conn = world.only();
            world.end(conn, lockclient::ReasonKind::Eof);
            world.advance(SECOND);
            world.sockets.retain(|_, socket| socket.state == crate::nodes::State::Open);
        }
    });
}

#[test]
fn con_7_many_that_waited_for_one_release_go_on_in_order_and_in_time() {
    let mut world = World::ready();
    world.ask(lock("b", 255));
    world.release("k", 5, ReleaseKind::Guard);
    let (conn, owner, _) = world.releases("k")[0];
    for _ in 0..60_000 {
        world.ask_quietly(ticket("k", 255));
    }
    world.fire();
    assert_eq!((world.acquires("k").len(), world.engine.queued()), (0, 60_000));
    let begun = std::time::Instant::now();
    world.answer(conn, ServerFrame::Released { owner, key: b"k" });
    // A scan for each place would take minutes.
    assert!(begun.elapsed() < 20 * SECOND, "{:?}", begun.elapsed());
    let mut owners = std::collections::HashMap::<_, Vec<u64>>::new();
    for sent in world.acquires("k") {
        owners.entry(sent.conn).or_default().push(sent.owner);
    }
    assert_eq!(owners.values().map(Vec::len).sum::<usize>(), 60_000);
    assert!(owners.values().all(|owners| owners.is_sorted()));
}
