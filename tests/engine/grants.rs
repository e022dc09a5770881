//! GR-2 and GR-4: what provably remains of a lease, and what is done about too little.

use crate::harness::*;
use crate::nodes::{Node, State};
use lockclient::clock::{Boot, Mono};
use lockclient::engine::{AcquireOutcome, Settings};
use lockclient::wire::ServerFrame;
use lockclient::{Lease, ReasonKind};
use std::time::Duration;

const NANO: Duration = Duration::from_nanos(1);

fn leased(key: &str, wait: u64, lease: u64) -> Ask {
    Ask { lease, ..lock(key, wait) }
}

#[test]
fn gr_1_a_grant_carries_its_exact_token() {
    let mut world = World::single();
    for (round, token) in [1, 0x0a0a_0a0a_0a0a_0a0a, 1 << 63, u64::MAX].into_iter().enumerate() {
        let key = format!("k{round}");
        let id = world.ask(lock(&key, 30));
        world.grant_it(&key, token);
        assert_eq!(world.grant(id).token, token);
    }
}

#[test]
fn gr_2_without_newer_proof_it_is_the_acquires_own_sending() {
    let mut world = World::single();
    world.advance(ms(400));
    let sent = world.now.boot;
    let id = world.ask(lock("k", 30));
    world.advance(ms(700));
    world.grant_it("k", 1);
    assert_eq!(world.grant(id).proof, sent);
}

#[test]
fn gr_2_it_is_the_latest_sending_that_was_answered_before_the_grant() {
    // A probe, another acquire, or a release; answered before the grant was read.
    for by in ["probe", "acquire", "release"] {
        let mut world = World::single();
        let conn = world.only();
        world.nodes[0] = Node::Accepts;
        let id = world.ask(lock("k", 30));
        world.advance(ms(1_000));
        let probed = world.now.boot;
        assert_eq!(world.probes(conn).len(), 2);
        let (_, probe) = world.probes(conn)[1];
        world.advance(ms(300));
        let later = world.now.boot;
        world.ask(lock("o", 30));
        world.release("r", 8, lockclient::engine::ReleaseKind::Guard);
        world.advance(ms(100));
        world.answer(conn, ServerFrame::NotHeld { owner: probe, key: b"_probe" });
        let expected = match by {
            "acquire" => {
                let owner = world.acquire("o").owner;
                world.answer(conn, ServerFrame::TimedOut { owner, key: b"o" });
                later
            }
            "release" => {
                let (_, owner, _) = world.releases("r")[0];
                world.answer(conn, ServerFrame::NotHeld { owner, key: b"r" });
                later
            }
            _ => probed,
        };
        world.advance(ms(50));
        world.grant_it("k", 1);
        assert_eq!(world.grant(id).proof, expected, "{by}");
    }
}

#[test]
fn gr_2_an_answer_on_another_connection_proves_nothing() {
    let mut world = World::ready();
    let id = world.ask(lock("k", 30));
    let sent = world.now.boot;
    world.advance(ms(500));
    let other = world.ask(attempt("o"));
    assert_ne!(world.acquire("o").conn, world.acquire("k").conn);
    world.grant_it("o", 2);
    assert_eq!(world.grant(other).proof, world.now.boot);
    world.grant_it("k", 1);
    assert_eq!(world.grant(id).proof, sent);
}

#[test]
fn gr_2_an_answer_read_after_the_grant_proves_nothing_for_it() {
    let mut world = World::single();
    let conn = world.only();
    let first = world.ask(lock("a", 30));
    let sent = world.now.boot;
    world.advance(ms(500));
    world.ask(lock("b", 30));
    let (a, b) = (world.acquire("a").owner, world.acquire("b").owner);
    world.put(conn, ServerFrame::Acquired { owner: a, token: 1, key: b"a" });
    world.put(conn, ServerFrame::Acquired { owner: b, token: 2, key: b"b" });
    world.read(conn);
    assert_eq!(world.grant(first).proof, sent);
}

#[test]
fn gr_2_a_frame_written_in_pieces_counts_from_its_first() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 1;
    let id = world.ask(lock("k", 30));
    let begun = world.now.boot;
    world.advance(ms(800));
    world.open_up(conn, usize::MAX);
    world.grant_it("k", 1);
    assert_eq!(world.grant(id).proof, begun);
}

#[test]
fn gr_2_a_frame_of_which_nothing_was_accepted_counts_from_its_next_try() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 0;
    let id = world.ask(lock("k", 30));
    world.advance(ms(800));
    world.open_up(conn, usize::MAX);
    let sent = world.now.boot;
    world.advance(ms(10));
    world.grant_it("k", 1);
    assert_eq!(world.grant(id).proof, sent);
}

#[test]
fn gr_2_without_ordered_answers_only_its_own_sending_counts() {
    let settings = Settings { ordered_answers: false, connections: 1, ..settings() };
    let mut world = World::ready_with(settings);
    let id = world.ask(lock("k", 60));
    let sent = world.now.boot;
    world.advance(5 * SECOND);
    world.grant_it("k", 1);
    assert_eq!(world.grant(id).proof, sent);
}

/// The instants of the probes of `conn` since `from`, in milliseconds.
fn probes_since(world: &World, from: Mono) -> Vec<u128> {
    let conn = world.only();
    let probes = world.probes(conn);
    probes.iter().filter(|p| p.0 > from).map(|p| p.0.since(from).as_millis()).collect()
}

#[test]
fn gr_2_a_waiting_connection_is_probed_every_second_or_quarter_lease() {
    for (lease, every) in [(1, 250), (2, 500), (3, 750), (4, 1_000), (5, 1_000), (255, 1_000)] {
        let mut world = World::single();
        world.advance(ms(123));
        let from = world.mono();
        world.ask(leased("k", 200, lease));
        world.advance(ms(4 * every) + ms(1));
        let expected: Vec<u128> = (1..=4).map(|at| u128::from(at * every)).collect();
        assert_eq!(probes_since(&world, from), expected, "lease {lease}");
    }
}

#[test]
fn gr_2_the_shortest_lease_among_those_that_wait_now_decides() {
    let mut world = World::single();
    let from = world.mono();
    world.ask(leased("long", 200, 60));
    world.advance(ms(100));
    let short = world.ask(leased("short", 200, 1));
    world.advance(ms(899));
    assert_eq!(probes_since(&world, from), [250, 500, 750]);
    // It ends: what remains is probed by its own measure, counted from the newest proof.
    let owner = world.acquire("short").owner;
    world.answer(world.only(), ServerFrame::Busy { owner, key: b"short" });
    assert_eq!(world.outcome(short), Some(AcquireOutcome::Busy));
    let from = from + ms(750);
    world.advance(3 * SECOND);
    let since = probes_since(&world, from);
    assert_eq!(since, [1_000, 2_000, 3_000]);
}

#[test]
fn gr_2_newer_proof_puts_the_probe_off() {
    let mut world = World::single();
    let from = world.mono();
    world.ask(leased("k", 200, 60));
    world.advance(ms(600));
    world.ask(lock("o", 200));
    world.advance(ms(100));
    world.grant_it("o", 4);
    // Proven up to 600 ms: the next is due a second after that.
    world.advance(ms(899));
    assert_eq!(probes_since(&world, from), [0; 0]);
    world.advance(ms(1));
    assert_eq!(probes_since(&world, from), [1_600]);
}

#[test]
fn gr_2_no_second_probe_while_one_is_unanswered() {
    let mut world = World::single();
    let conn = world.only();
    world.nodes[0] = Node::Accepts;
    world.ask(leased("k", 200, 1));
    let from = world.mono();
    world.advance(ms(3_000));
    assert_eq!(probes_since(&world, from), [250]);
    let (_, owner) = world.probes(conn)[1];
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"_probe" });
    world.advance(ms(1));
    assert_eq!(probes_since(&world, from).len(), 2);
}

#[test]
fn gr_2_the_arithmetic_is_a_lower_bound() {
    let lease = Lease::new(10 * SECOND).unwrap();
    for (elapsed, left) in [
        (Duration::ZERO, ms(9_999)),
        (ms(1_000), ms(8_998)),
        (ms(9_000), ms(990)),
        (ms(9_990), Duration::ZERO),
        (ms(60_000), Duration::ZERO),
    ] {
        assert_eq!(lease.proven_remaining(elapsed), left, "{elapsed:?}");
    }
    let given = lease.proven_remaining(Duration::from_nanos(9_989_010_989));
    assert_eq!(given, Duration::from_nanos(10_989_011 - 9_989_010 - 1_000_000));
}

#[test]
fn gr_3_a_suspended_machine_shortens_what_is_proven() {
    let mut world = World::single();
    let id = world.ask(leased("k", 200, 10));
    // Suspended: the monotonic clock stands still, the boot clock does not.
    world.now.boot = Boot(world.now.boot.0 + 10_000_000_000);
    world.grant_it("k", 1);
    assert_eq!(world.unknown(id), ReasonKind::ShortLease);
    assert_eq!(world.releases("k").len(), 1);
}

#[test]
fn gr_4_a_grant_of_which_nothing_remains_is_released() {
    // Least elapsed with nothing left: e + e/1000 + 1 ms >= 1 s.
    let edge = Duration::from_nanos(998_001_999);
    for (elapsed, delivered) in [(edge - NANO, true), (edge, false)] {
        let settings = Settings { ordered_answers: false, connections: 1, ..settings() };
        let mut world = World::ready_with(settings);
        let conn = world.only();
        let id = world.ask(leased("k", 200, 1));
        world.advance(elapsed);
        world.grant_it("k", 71);
        if delivered {
            assert_eq!(world.grant(id).token, 71);
            assert_eq!(world.releases("k"), []);
        } else {
            assert_eq!(world.unknown(id), ReasonKind::ShortLease);
            assert_eq!(world.releases("k")[0].2, 71);
        }
        assert_eq!(world.state(conn), State::Open);
    }
}

#[test]
fn gr_4_the_budget_is_enforced_only_where_that_was_asked_for() {
    for enforce_budget in [false, true] {
        let settings =
            Settings { enforce_budget, ordered_answers: false, connections: 1, ..settings() };
        let ask = || Ask { budget: 4, lease: 5, ..lock("k", 200) };
        let mut world = World::ready_with(settings.clone());
        let id = world.ask(ask());
        // 5 s - 998.001999 ms - 0.998001 ms - 1 ms are 4 s.
        let just_enough = Duration::from_nanos(998_001_999);
        world.advance(just_enough);
        world.grant_it("k", 7);
        assert_eq!(world.grant(id).token, 7);

        let mut world = World::ready_with(settings);
        let id = world.ask(ask());
        world.advance(just_enough + Duration::from_nanos(1));
        world.grant_it("k", 7);
        if enforce_budget {
            assert_eq!(world.unknown(id), ReasonKind::ShortLease);
            assert_eq!(world.releases("k").len(), 1);
        } else {
            assert!(matches!(world.outcome(id), Some(AcquireOutcome::Granted(_))));
        }
    }
}
