//! SND-6: in call order, and never into one's own lock.

use crate::harness::*;
use crate::nodes::{Frame, Node, PROBE};
use lockclient::ReasonKind;
use lockclient::engine::{AcquireOutcome, ReleaseKind, Settings};
use lockclient::wire::ServerFrame;

/// The keys of the acquires that went out on open connections, in order.
fn keys(world: &World) -> Vec<String> {
    let key = |sent: &crate::nodes::Sent| match &sent.frame {
        Frame::Acquire { key, .. } => Some(key.clone()),
        _ => None,
    };
    world.wire.iter().filter_map(key).collect()
}

#[test]
fn snd_6_queued_requests_go_out_in_call_order() {
    let mut world = World::new(Settings { connections: 1, ..settings() });
    world.nodes[0] = Node::Swallows;
    world.fire();
    for at in 0..30 {
        let key = format!("k{at:02}");
        world.ask_quietly(match at % 3 {
            0 => attempt(&key),
            1 => lock(&key, 30),
            _ => ticket(&key, 30),
        });
    }
    world.nodes[0] = Node::Serves;
    world.connect(world.dials[0].1);
    let expected: Vec<String> = (0..30).map(|at| format!("k{at:02}")).collect();
    assert_eq!(keys(&world), expected);
}

#[test]
fn snd_6_what_moves_keeps_its_place_over_several_connections() {
    let mut world = World::new(Settings { connections: 1, ..settings() });
    world.new_room = PROBE;
    world.fire();
    for at in 0..10 {
        world.ask(lock(&format!("k{at}"), 60));
    }
    // Each connection takes a byte of one more and dies; the others move on.
    for lost in 0..3 {
        let conn = world.only();
        world.open_up(conn, 1);
        world.end(conn, ReasonKind::Io);
        world.advance(ms(400));
        world.ask(lock(&format!("new{lost}"), 60));
    }
    world.open_up(world.only(), usize::MAX);
    let mut expected: Vec<String> = (3..10).map(|at| format!("k{at}")).collect();
    expected.extend((0..3).map(|at| format!("new{at}")));
    assert_eq!(keys(&world), expected);
    assert_eq!(world.counters().indeterminate, 3);
}

#[test]
fn snd_6_a_busy_retry_keeps_its_place() {
    let settings = Settings { busy_retry: true, connections: 1, ..settings() };
    let mut world = World::ready_with(settings);
    let conn = world.only();
    world.ask(lock("old", 60));
    let owner = world.acquire("old").owner;
    world.answer(conn, ServerFrame::Busy { owner, key: b"old" });
    world.socket(conn).room = 0;
    world.ask(lock("new", 60));
    world.advance(ms(100));
    world.open_up(conn, usize::MAX);
    assert_eq!(keys(&world), ["old", "old", "new"]);
}

#[test]
fn snd_6_an_acquire_follows_the_release_on_its_connection() {
    let mut world = World::single();
    let conn = world.only();
    world.release_quietly("k", 5, ReleaseKind::Guard);
    world.ask(attempt("k"));
    let order: Vec<&Frame> = world.wire.iter().skip(1).map(|sent| &sent.frame).collect();
    assert!(matches!(order[..], [Frame::Release { .. }, Frame::Acquire { .. }]), "{order:?}");
    assert!(world.wire.iter().all(|sent| sent.conn == conn));
}

#[test]
fn snd_6_on_another_connection_it_waits_until_the_release_has_ended() {
    for answer in ["R", "N", "lost", "expired"] {
        let mut world = World::ready();
        // The release goes out where acquires last went: the blocking one's connection.
        world.ask(lock("other", 200));
        let here = world.acquire("other").conn;
        world.release("k", 5, ReleaseKind::Guard);
        assert_eq!(world.releases("k")[0].0, here);
        let id = world.ask(attempt("k"));
        let free = world.ask(attempt("free"));
        assert_eq!((world.acquires("k").len(), world.acquires("free").len()), (0, 1));
        let owner = world.releases("k")[0].1;
        match answer {
            "R" => world.answer(here, ServerFrame::Released { owner, key: b"k" }),
            "N" => world.answer(here, ServerFrame::NotHeld { owner, key: b"k" }),
            "lost" => {
                world.end(here, ReasonKind::Eof);
                // It goes out again on the connection that is left, and the acquire behind it.
                let there = world.releases("k")[1].0;
                assert_eq!(world.acquire("free").conn, there);
                let at = |wanted: &dyn Fn(&Frame) -> bool| {
                    world.wire.iter().rposition(|sent| wanted(&sent.frame)).unwrap()
                };
                let release = at(&|f| matches!(f, Frame::Release { key, .. } if key == "k"));
                let acquire = at(&|f| matches!(f, Frame::Acquire { key, .. } if key == "k"));
                assert!(release < acquire);
            }
            _ => {
                world.advance(5 * SECOND);
                // Its own five seconds are over too.
                assert!(matches!(world.outcome(id), Some(AcquireOutcome::NotSent(_))));
                assert_eq!(world.outcome(free), None);
                world.ask(attempt("k"));
            }
        }
        assert_eq!(world.acquires("k").len(), 1, "{answer}");
    }
}

#[test]
fn snd_6_releases_of_one_key_on_two_connections_both_count() {
    let mut world = World::ready();
    world.ask(lock("b", 200));
    world.release("k", 5, ReleaseKind::Guard);
    world.ask(attempt("t"));
    world.release("k", 6, ReleaseKind::Guard);
    let sent = world.releases("k");
    assert_ne!(sent[0].0, sent[1].0);
    world.ask(attempt("k"));
    world.ask(lock("k", 60));
    assert_eq!(world.acquires("k").len(), 0);
    world.answer(sent[0].0, ServerFrame::Released { owner: sent[0].1, key: b"k" });
    assert_eq!(world.acquires("k").len(), 0);
    world.answer(sent[1].0, ServerFrame::Released { owner: sent[1].1, key: b"k" });
    assert_eq!(world.acquires("k").len(), 2);
}

#[test]
fn snd_6_drop_then_try_never_overtakes_over_four_connections() {
    let mut world = World::ready();
    for ask in [attempt("t"), lock("b", 200), ticket("c", 200), ticket("d", 200)] {
        world.ask(ask);
    }
    assert_eq!(world.open().len(), 4);
    for round in 0..200 {
        let id = world.ask(match round % 3 {
            0 => attempt("k"),
            1 => lock("k", 60),
            _ => ticket("k", 60),
        });
        // Whatever order the sockets are read in, the server sees the release first.
        if let Some((conn, owner, _)) = world.releases("k").last().copied() {
            if world.acquires("k").len() == round {
                world.answer(conn, ServerFrame::Released { owner, key: b"k" });
            } else {
                assert_eq!(world.acquires("k").last().unwrap().conn, conn);
                world.answer(conn, ServerFrame::Released { owner, key: b"k" });
            }
        }
        let sent = *world.acquires("k").last().unwrap();
        assert_eq!(world.acquires("k").len(), round + 1);
        let token = round as u64 + 1;
        world.answer(sent.conn, ServerFrame::Acquired { owner: sent.owner, token, key: b"k" });
        assert_eq!(world.grant(id).token, token);
        world.release("k", token, ReleaseKind::Guard);
    }
}

#[test]
fn a_request_has_a_small_number_that_no_other_live_one_has() {
    let mut world = World::single();
    let first = world.ask_quietly(lock("first", 30));
    let second = world.ask_quietly(lock("second", 30));
    world.cancel_quietly(first);
    let third = world.ask_quietly(lock("third", 30));
    assert_eq!((first.slot(), second.slot()), (third.slot(), 1 - third.slot()));
}
