//! `B`, as it comes and with `busy_retry`.

use crate::harness::*;
use lockclient::engine::{AcquireOutcome, Settings};
use lockclient::wire::ServerFrame;
use lockclient::{Reason, ReasonKind};
use std::collections::HashSet;
use std::time::Duration;

fn retrying() -> World {
    World::ready_with(Settings { busy_retry: true, connections: 1, ..settings() })
}

/// Answers the latest acquire of `key` with `B`.
fn busy(world: &mut World, key: &str) {
    let sent = *world.acquires(key).last().unwrap();
    world.answer(sent.conn, ServerFrame::Busy { owner: sent.owner, key: key.as_bytes() });
}

#[test]
fn busy_is_definite_at_once_and_not_retried() {
    let mut world = World::single();
    let id = world.ask(lock("k", 60));
    busy(&mut world, "k");
    assert_eq!(world.outcome(id), Some(AcquireOutcome::Busy));
    world.advance(60 * SECOND);
    assert_eq!(world.acquires("k").len(), 1);
}

#[test]
fn busy_retry_backs_off_with_jitter_and_draws_a_fresh_owner_each_time() {
    let mut world = retrying();
    let id = world.ask(lock("k", 60));
    let deadline = world.mono() + 60 * SECOND;
    let mut step = ms(20);
    for round in 1..12 {
        let answered = world.mono();
        busy(&mut world, "k");
        assert_eq!((world.engine.queued(), world.counters().in_flight_now), (1, 0));
        assert!(!world.gate.claimed.contains_key(&id));
        while world.acquires("k").len() == round {
            let next = world.engine.next_timeout().unwrap();
            world.advance(next.since(world.mono()));
        }
        let sent = *world.acquires("k").last().unwrap();
        let waited = sent.at.since(answered);
        assert!(waited >= step / 2 && waited <= step, "{round}: {waited:?} of {step:?}");
        // The same deadline.
        let left = deadline.since(sent.at).as_nanos().div_ceil(1_000_000_000);
        assert_eq!(u128::from(sent.wait), left);
        step = (step * 2).min(SECOND);
    }
    let owners: HashSet<u64> = world.acquires("k").iter().map(|sent| sent.owner).collect();
    assert_eq!(owners.len(), 12);
    let last = *world.acquires("k").last().unwrap();
    world.answer(last.conn, ServerFrame::Acquired { owner: last.owner, token: 2, key: b"k" });
    assert_eq!(world.grant(id).owner, last.owner);
    assert_eq!((world.counters().busy, world.counters().acquired), (0, 1));
}

#[test]
fn busy_retry_never_retries_wait_zero() {
    let mut world = retrying();
    let id = world.ask(attempt("k"));
    busy(&mut world, "k");
    assert_eq!(world.outcome(id), Some(AcquireOutcome::Busy));
}

#[test]
fn busy_retry_that_does_not_fit_before_the_deadline_is_busy() {
    let mut world = retrying();
    let id = world.ask(lock("k", 1));
    world.advance(ms(990));
    busy(&mut world, "k");
    assert_eq!(world.outcome(id), Some(AcquireOutcome::Busy));
    // And so is a late answer.
    let mut world = retrying();
    let id = world.ask(lock("k", 1));
    world.advance(ms(1_200));
    busy(&mut world, "k");
    assert_eq!(world.outcome(id), Some(AcquireOutcome::Busy));
}

#[test]
fn busy_retry_that_would_come_just_at_the_deadline_is_busy_at_once() {
    let mut world = retrying();
    world.ask(lock("k", 60));
    busy(&mut world, "k");
    let answered = world.mono();
    world.advance(ms(20));
    let backoff = world.acquires("k")[1].at.since(answered);
    // The same seed: the same backoff.
    for (more, outcome) in [(0, Some(AcquireOutcome::Busy)), (1, None)] {
        let mut world = retrying();
        let id = world.ask(lock("k", 1));
        world.advance(SECOND - backoff - Duration::from_nanos(more));
        busy(&mut world, "k");
        assert_eq!(world.outcome(id), outcome);
    }
}

#[test]
fn busy_retry_that_finds_no_connection_ends_busy_at_the_deadline() {
    // It stands still for the whole time, or once the next try has waited in vain, or never.
    for stalled in [1_000, 500, 0] {
        let mut world = retrying();
        let id = world.ask(lock("k", 1));
        busy(&mut world, "k");
        let conn = world.only();
        world.socket(conn).room = 0;
        world.advance(ms(1_000 - stalled));
        if stalled > 0 {
            world.stall(ms(stalled));
            world.open_up(conn, usize::MAX);
            world.fire();
        }
        assert_eq!(world.outcome(id), Some(AcquireOutcome::Busy), "the last word is definite");
        assert_eq!(world.acquires("k").len(), 1);
    }
}

#[test]
fn snd_5_busy_retry_that_is_cut_short_by_the_clients_end_is_busy() {
    let mut world = retrying();
    let (waits, flies) = (world.ask(lock("w", 60)), world.ask(lock("f", 60)));
    busy(&mut world, "w");
    let sent = world.acquire("f");
    world.put(sent.conn, ServerFrame::Busy { owner: sent.owner, key: b"f" });
    world.engine.shutdown(world.now);
    world.settle();
    assert_eq!(world.outcome(waits), Some(AcquireOutcome::Busy), "it was sent, and answered");
    assert_eq!(world.outcome(flies), Some(AcquireOutcome::Busy));
}

#[test]
fn snd_5_busy_retry_that_is_aborted_is_busy_whether_it_waits_or_stands_in_the_queue() {
    let mut world = retrying();
    let (waits, queued) = (world.ask(lock("w", 60)), world.ask(lock("q", 60)));
    busy(&mut world, "q");
    let conn = world.only();
    world.socket(conn).room = 0;
    // Its backoff is over; the connection takes nothing.
    world.advance(ms(20));
    busy(&mut world, "w");
    let never_sent = world.ask(lock("n", 60));
    assert_eq!(world.engine.queued(), 3);
    world.engine.abort(Reason::new(ReasonKind::Closed));
    world.settle();
    assert_eq!(world.outcome(waits), Some(AcquireOutcome::Busy));
    assert_eq!(world.outcome(queued), Some(AcquireOutcome::Busy));
    assert_eq!(world.outcome(never_sent), Some(AcquireOutcome::Cancelled));
}

#[test]
fn snd_5_busy_retry_that_is_given_up_is_counted_as_busy() {
    for kind in [ReasonKind::Cancelled, ReasonKind::Deadline] {
        let mut world = retrying();
        let id = world.ask(lock("k", 60));
        busy(&mut world, "k");
        world.engine.withdraw(id, Reason::new(kind));
        let counters = world.counters();
        assert_eq!((counters.busy, counters.cancelled, counters.not_sent), (1, 0, 0));
        assert_eq!(world.engine.queued(), 0);
    }
}

#[test]
fn busy_retry_ends_busy_when_nobody_accepts_the_secret_any_more() {
    let mut world = retrying();
    let conn = world.only();
    let answered = world.ask(lock("k", 60));
    busy(&mut world, "k");
    world.socket(conn).room = 0;
    let unsent = world.ask(lock("u", 60));
    world.answer(conn, ServerFrame::Error { code: b"auth_failed" });
    assert_eq!(world.outcome(answered), Some(AcquireOutcome::Busy), "it was sent, and answered");
    assert!(matches!(world.outcome(unsent), Some(AcquireOutcome::Auth(_))));
}

#[test]
fn busy_retry_with_a_strict_deadline_leaves_time_for_the_answer() {
    for (answered, retried) in [(0, true), (400, true), (511, false), (900, false)] {
        let mut world = World::ready_with(Settings {
            busy_retry: true,
            strict_deadline: true,
            response_grace: ms(479),
            // 479 ms and a backoff of at least 10 ms.
            connections: 1,
            ..settings()
        });
        let id = world.ask(lock("k", 1));
        world.advance(ms(answered));
        // The first backoff is 10 to 20 ms.
        busy(&mut world, "k");
        world.advance(ms(20));
        let outcome = if retried { None } else { Some(AcquireOutcome::Busy) };
        assert_eq!(world.outcome(id), outcome, "{answered}");
        assert_eq!(world.acquires("k").len(), 1 + usize::from(retried), "{answered}");
    }
}
