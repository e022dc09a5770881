//! SND-5: cancelling, by where the request stands.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::engine::{AcquireOutcome, ReleaseKind, Settings};
use lockclient::wire::ServerFrame;
use lockclient::{Reason, ReasonKind};

#[test]
fn snd_5_an_unsent_one_leaves_the_queue() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Swallows;
    world.fire();
    let id = world.ask(lock("k", 30));
    assert_eq!(world.engine.queued(), 1);
    world.cancel(id);
    assert_eq!((world.engine.queued(), world.counters().cancelled), (0, 1));
    world.nodes[0] = Node::Serves;
    world.advance(40 * SECOND);
    assert_eq!(world.acquires("k"), []);
    assert_eq!(world.outcome(id), None, "its caller knows");
    assert_eq!(world.counters().connections_closed, 0);
}

#[test]
fn snd_5_withdrawn_before_the_engine_hears_of_it_nothing_is_sent() {
    let mut world = World::single();
    let id = world.ask_quietly(lock("k", 30));
    world.gate.withdrawn.insert(id);
    let other = world.ask(lock("l", 30));
    assert_eq!((world.acquires("k").len(), world.acquires("l").len()), (0, 1));
    assert_eq!(world.engine.queued(), 1);
    world.cancel(id);
    assert_eq!(world.engine.queued(), 0);
    assert_eq!((world.outcome(id), world.outcome(other)), (None, None));
    // And if its word never comes its entry ends with its deadline.
    let id = world.ask_quietly(lock("k", 1));
    world.gate.withdrawn.insert(id);
    world.advance(SECOND);
    assert_eq!(world.engine.queued(), 0);
}

#[test]
fn snd_5_a_possibly_sent_one_closes_its_connection() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(ticket("k", 30));
    let shares = world.ask(lock("l", 30));
    world.cancel(id);
    assert_eq!(world.state(conn), State::HalfClosed);
    assert_eq!(world.unknown(shares), ReasonKind::SharedConnection);
    assert_eq!(world.outcome(id), None, "its caller knows");
    assert_eq!(world.counters().indeterminate, 2);
    assert_eq!(world.counters().in_flight_now, 0);
}

#[test]
fn snd_5_answers_that_were_read_stand_and_those_in_the_socket_keep_the_connection() {
    for answer in ["T", "B", "A"] {
        let mut world = World::single();
        let conn = world.only();
        let id = world.ask(ticket("k", 30));
        let shares = world.ask(lock("l", 30));
        let owner = world.acquire("k").owner;
        let frame = match answer {
            "T" => ServerFrame::TimedOut { owner, key: b"k" },
            "B" => ServerFrame::Busy { owner, key: b"k" },
            _ => ServerFrame::Acquired { owner, token: 77, key: b"k" },
        };
        world.put(conn, frame);
        world.cancel(id);
        assert_eq!(world.state(conn), State::Open, "{answer}");
        assert_eq!((world.outcome(id), world.outcome(shares)), (None, None));
        let released = world.releases("k");
        let expected: &[(_, u64, u64)] = if answer == "A" { &[(conn, 4, 77)] } else { &[] };
        assert_eq!(released, expected, "{answer}");
        assert_eq!(world.counters().in_flight_now, 1);
        // It may be cancelled twice, and after its end.
        world.cancel_quietly(id);
        world.settle();
        assert_eq!(world.state(conn), State::Open);
    }
}

#[test]
fn snd_5_an_untaken_grant_is_reclaimed_and_its_connection_stays() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(ticket("k", 30));
    world.grant_it("k", 12);
    assert_eq!(world.grant(id).token, 12);
    let key = lockclient::wire::Key::new(b"k").unwrap();
    world.engine.reclaim(key, 12, world.now);
    world.settle();
    assert_eq!(world.releases("k"), [(conn, 3, 12)]);
    assert_eq!(world.state(conn), State::Open);
    let counters = world.counters();
    assert_eq!((counters.acquired, counters.indeterminate, counters.compensations), (0, 1, 1));
}

#[test]
fn snd_5_a_caller_whose_own_wait_ended_counts_as_its_cause_says() {
    let mut world = World::new(settings());
    world.nodes[0] = Node::Swallows;
    let id = world.ask(lock("k", 1));
    world.stall(2 * SECOND);
    world.gate.withdrawn.insert(id);
    world.engine.withdraw(id, Reason::new(ReasonKind::Deadline));
    assert_eq!((world.counters().not_sent, world.counters().cancelled), (1, 0));
    assert_eq!(world.engine.queued(), 0);
}

#[test]
fn snd_5_a_cancel_before_the_last_byte_sends_no_further_one() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 4;
    let id = world.ask(ticket("k", 30));
    let taken = world.sockets[&conn].taken.len();
    world.cancel(id);
    world.open_up(conn, usize::MAX);
    assert_eq!(world.sockets[&conn].taken.len(), taken);
    assert_ne!(world.state(conn), State::Open);
}

#[test]
fn snd_5_cancelling_a_parked_or_a_waiting_retry_is_definite() {
    let mut world = World::ready_with(Settings { busy_retry: true, ..settings() });
    // Parked behind a release on another connection.
    world.release("k", 5, ReleaseKind::Guard);
    let parked = world.ask(lock("k", 30));
    world.ask(attempt("x"));
    let parked_too = world.ask(attempt("k"));
    assert!(world.acquires("k").len() <= 1);
    let backoff = world.ask(lock("b", 30));
    let sent = world.acquire("b");
    world.answer(sent.conn, ServerFrame::Busy { owner: sent.owner, key: b"b" });
    let before = world.counters();
    for id in [parked_too, backoff] {
        world.cancel(id);
    }
    let after = world.counters();
    // The second was sent, and its last answer stands.
    assert_eq!((after.cancelled - before.cancelled, after.busy - before.busy), (1, 1));
    assert_eq!(after.connections_closed, before.connections_closed);
    assert_eq!(world.outcome(parked), None);
    world.advance(5 * SECOND);
    assert_eq!(world.acquires("b").len(), 1);
    assert_eq!(world.outcome(backoff), None::<AcquireOutcome>);
}
