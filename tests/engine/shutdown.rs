//! How the client ends: every caller hears of it, once.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::engine::{AcquireOutcome, ReleaseKind, ReleaseOutcome, Settings};
use lockclient::wire::ServerFrame;
use lockclient::{Reason, ReasonKind};

#[test]
fn end_shutdown_cancels_what_is_unsent_and_reads_before_it_gives_up_what_is_not() {
    let mut world = World::ready();
    let flies = world.ask(lock("f", 60));
    let answered = world.ask(lock("a", 60));
    let partial = {
        let conn = world.acquire("f").conn;
        world.socket(conn).room = 1;
        world.ask(lock("p", 60))
    };
    let queued = world.ask(lock("q", 60));
    let sent = world.acquire("a");
    world.put(sent.conn, ServerFrame::Acquired { owner: sent.owner, token: 6, key: b"a" });
    world.engine.shutdown(world.now);
    world.settle();
    assert_eq!(world.outcome(queued), Some(AcquireOutcome::Cancelled));
    assert_eq!(world.grant(answered).token, 6);
    assert_eq!(
        (world.unknown(flies), world.unknown(partial)),
        (ReasonKind::Closed, ReasonKind::Closed)
    );
    assert_eq!(world.state(sent.conn), State::HalfClosed);
    // A grant in flight is still caught, and its release sent, before the client is done.
    assert!(!world.engine.is_drained());
    let owner = world.acquire("f").owner;
    world.answer(sent.conn, ServerFrame::Acquired { owner, token: 7, key: b"f" });
    world.advance(SECOND);
    assert!(!world.engine.is_drained());
    let (conn, owner, token) = world.releases("f")[0];
    assert_eq!(token, 7);
    world.answer(conn, ServerFrame::Released { owner, key: b"f" });
    assert!(world.engine.is_drained());
    assert_eq!(world.ends.len(), 4);
}

#[test]
fn end_a_shutdown_with_nothing_to_do_is_done_at_once() {
    let mut world = World::ready();
    assert!(!world.engine.is_drained(), "only after a shutdown");
    world.engine.shutdown(world.now);
    world.settle();
    assert!(world.engine.is_drained());
    world.engine.shutdown(world.now);
    let late = world.ask(lock("k", 9));
    assert_eq!(world.outcome(late), Some(AcquireOutcome::Cancelled));
    assert_eq!(world.engine.queued(), 0);
}

#[test]
fn end_an_abort_ends_everything_and_takes_nothing_any_more() {
    let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
    world.nodes[1] = Node::Swallows;
    world.fire();
    let flies = world.ask(lock("f", 60));
    let conn = world.acquire("f").conn;
    world.socket(conn).room = 0;
    let queued = world.ask(lock("q", 60));
    let sent = world.release("r", 4, ReleaseKind::Awaited);
    let cancelled = world.ask(ticket("c", 60));
    world.gate.withdrawn.insert(cancelled);
    let reason = Reason::new(ReasonKind::ThreadEnded);
    world.engine.abort(reason);
    world.settle();
    assert_eq!(world.outcome(flies), Some(AcquireOutcome::Indeterminate(reason)));
    assert_eq!(world.outcome(queued), Some(AcquireOutcome::Cancelled));
    assert_eq!(world.release_outcome(sent), Some(ReleaseOutcome::Unconfirmed(reason)));
    assert!(world.sockets.values().all(|socket| socket.state == State::Closed));
    assert_eq!((world.engine.next_timeout(), world.engine.queued()), (None, 0));
    assert_eq!(world.counters().in_flight_now, 0);
    let late = world.ask(lock("k", 9));
    assert_eq!(world.outcome(late), Some(AcquireOutcome::Cancelled));
    assert_eq!(world.release_quietly("k", 5, ReleaseKind::Awaited), None);
    let dials = world.dials.len();
    world.advance(60 * SECOND);
    assert_eq!(world.dials.len(), dials);
    assert!(world.engine.is_drained());
}

#[test]
fn end_a_cancel_while_closing_changes_nothing() {
    let mut world = World::single();
    let id = world.ask(ticket("k", 60));
    world.engine.shutdown(world.now);
    world.cancel(id);
    world.advance(2 * SECOND);
    assert!(world.engine.is_drained());
    assert_eq!(world.counters().indeterminate, 1);
}
