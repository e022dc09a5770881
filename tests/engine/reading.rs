//! Section 5: what each frame does, in each phase of a connection.

use crate::harness::*;
use crate::nodes::{Frame, Node, State};
use lockclient::ReasonKind;
use lockclient::engine::{
    AcquireOutcome, ConnId, ReleaseKind, ReleaseOutcome, RequestId, Settings,
};
use lockclient::wire::ServerFrame;

fn frame(frame: ServerFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

/// One connection with one acquire of `k`, owner 2, in flight.
fn in_flight() -> (World, ConnId, RequestId) {
    let mut world = World::new(Settings { endpoints: endpoints(2), connections: 1, ..settings() });
    world.nodes[1] = Node::Swallows;
    world.fire();
    let conn = world.open()[0];
    let id = world.ask(lock("k", 30));
    assert_eq!(world.acquire("k").owner, 2);
    (world, conn, id)
}

#[test]
fn read_correlated_answers_complete_their_own_request_whatever_the_order() {
    let (mut world, conn, first) = in_flight();
    let second = world.ask(lock("k", 30));
    let third = world.ask(lock("k", 30));
    world.answer(conn, ServerFrame::Acquired { owner: 4, token: 8, key: b"k" });
    assert_eq!((world.outcome(first), world.outcome(second)), (None, None));
    assert_eq!((world.grant(third).token, world.grant(third).owner), (8, 4));
    world.answer(conn, ServerFrame::Busy { owner: 2, key: b"k" });
    world.answer(conn, ServerFrame::TimedOut { owner: 3, key: b"k" });
    assert_eq!(world.outcome(first), Some(AcquireOutcome::Busy));
    assert_eq!(world.outcome(second), Some(AcquireOutcome::TimedOut));
    let counters = world.counters();
    assert_eq!((counters.acquired, counters.busy, counters.timed_out), (1, 1, 1));
    assert_eq!(counters.in_flight_now, 0);
    assert_eq!(world.state(conn), State::Open);
}

#[test]
fn read_released_and_not_held_are_values() {
    let (mut world, conn, id) = in_flight();
    let released = world.release("r", 5, ReleaseKind::Awaited);
    let not_held = world.release("n", 6, ReleaseKind::Awaited);
    world.answer(conn, ServerFrame::NotHeld { owner: 4, key: b"n" });
    world.answer(conn, ServerFrame::Released { owner: 3, key: b"r" });
    assert_eq!(world.release_outcome(released), Some(ReleaseOutcome::Released));
    let expected = ReleaseOutcome::NotHeld { retried: false };
    assert_eq!(world.release_outcome(not_held), Some(expected));
    assert_eq!((world.state(conn), world.outcome(id)), (State::Open, None));
}

#[test]
fn read_a_mismatch_closes_and_a_grants_token_is_released_first() {
    // Each differs from what is pending (acquire of k: 2; release of r: 3; probe: 1, answered) in
    // owner, in op, or in key.
    let acquired = |owner, key| frame(ServerFrame::Acquired { owner, token: 50, key });
    let cases: [(Vec<u8>, Option<&str>); 12] = [
        (acquired(9, b"k"), Some("k")),
        (acquired(2, b"x"), Some("x")),
        (acquired(3, b"r"), Some("r")),
        (acquired(0, b"k"), Some("k")),
        (frame(ServerFrame::TimedOut { owner: 9, key: b"k" }), None),
        (frame(ServerFrame::TimedOut { owner: 3, key: b"r" }), None),
        (frame(ServerFrame::Busy { owner: 2, key: b"kk" }), None),
        (frame(ServerFrame::Released { owner: 2, key: b"k" }), None),
        (frame(ServerFrame::Released { owner: 3, key: b"k" }), None),
        (frame(ServerFrame::NotHeld { owner: 2, key: b"k" }), None),
        (frame(ServerFrame::NotHeld { owner: 1, key: b"_probe" }), None),
        (frame(ServerFrame::Accepted { proof: &[0; 32] }), None),
    ];
    for (bytes, token_of) in cases {
        let (mut world, conn, id) = in_flight();
        let release = world.release("r", 5, ReleaseKind::Awaited);
        world.bytes(conn, &bytes);
        assert_eq!(world.unknown(id), ReasonKind::Mismatch, "{bytes:?}");
        assert_eq!(world.state(conn), State::Closed);
        assert_eq!(world.release_outcome(release), None, "a release is tried again");
        world.advance(ms(400));
        let tokens: Vec<(String, u64)> = world
            .wire
            .iter()
            .filter(|sent| sent.conn != conn)
            .filter_map(|sent| match &sent.frame {
                Frame::Release { token, key, .. } => Some((key.clone(), *token)),
                _ => None,
            })
            .collect();
        let mut expected = vec![("r".to_owned(), 5)];
        expected.extend(token_of.map(|key| (key.to_owned(), 50)));
        assert_eq!(tokens, expected, "{bytes:?}");
        assert_eq!(world.counters().late_grants, u64::from(token_of.is_some()));
    }
}

#[test]
fn read_an_answer_on_another_connection_is_a_mismatch() {
    let mut world = World::ready();
    let (id, other) = (world.ask(lock("k", 30)), world.ask(attempt("o")));
    let (here, there) = (world.acquire("k").conn, world.acquire("o").conn);
    let owner = world.acquire("k").owner;
    world.answer(there, ServerFrame::Acquired { owner, token: 3, key: b"k" });
    assert_eq!(world.unknown(other), ReasonKind::Mismatch);
    assert_eq!((world.outcome(id), world.state(here)), (None, State::Open));
    assert_eq!(world.releases("k").len(), 1);
}

#[test]
fn read_the_op_has_to_agree_too() {
    // A release and an acquire of the same key, each answered as if it were the other.
    for answer in ["A", "T", "B", "R", "N"] {
        let (mut world, conn, id) = in_flight();
        let release = world.release("k", 5, ReleaseKind::Awaited);
        let ((_, other, _), key) = (world.releases("k")[0], &b"k"[..]);
        world.answer(
            conn,
            match answer {
                "A" => ServerFrame::Acquired { owner: other, token: 50, key },
                "T" => ServerFrame::TimedOut { owner: other, key },
                "B" => ServerFrame::Busy { owner: other, key },
                "R" => ServerFrame::Released { owner: 2, key },
                _ => ServerFrame::NotHeld { owner: 2, key },
            },
        );
        assert_eq!(world.unknown(id), ReasonKind::Mismatch, "{answer}");
        assert_eq!(world.release_outcome(release), None);
    }
}

#[test]
fn read_a_releases_answer_on_another_connection_is_a_mismatch() {
    let mut world = World::ready();
    world.ask(lock("k", 30));
    let release = world.release("r", 5, ReleaseKind::Awaited);
    let other = world.ask(attempt("o"));
    let ((here, owner, _), there) = (world.releases("r")[0], world.acquire("o").conn);
    assert_ne!(here, there);
    world.answer(there, ServerFrame::Released { owner, key: b"r" });
    assert_eq!(world.unknown(other), ReasonKind::Mismatch);
    assert_eq!((world.release_outcome(release), world.state(here)), (None, State::Open));
}

#[test]
fn read_the_second_answer_is_a_mismatch() {
    let (mut world, conn, id) = in_flight();
    world.grant_it("k", 3);
    assert_eq!(world.grant(id).token, 3);
    world.answer(conn, ServerFrame::Acquired { owner: 2, token: 4, key: b"k" });
    assert_eq!(world.state(conn), State::Closed);
    world.advance(ms(400));
    assert_eq!(world.releases("k").iter().map(|r| r.2).collect::<Vec<_>>(), [4]);
}

#[test]
fn read_a_grant_under_a_key_that_no_client_sends_only_closes() {
    let (mut world, conn, id) = in_flight();
    world.answer(conn, ServerFrame::Acquired { owner: 9, token: 3, key: b"a\rb" });
    assert_eq!(world.unknown(id), ReasonKind::Mismatch);
    assert_eq!(world.counters().late_grants, 0);
}

#[test]
fn read_moved_to_a_configured_endpoint_becomes_the_hint() {
    let (mut world, conn, id) = in_flight();
    let queued = world.ask_quietly(lock("q", 30));
    world.answer(conn, ServerFrame::Moved { leader: b"B.:01" });
    assert_eq!(world.unknown(id), ReasonKind::Moved);
    assert_ne!(world.state(conn), State::Open);
    // The hint is dialled, at once, and the endpoint that moved backs off.
    world.fire();
    let dial = *world.dials.last().unwrap();
    assert_eq!((dial.0, dial.2), (world.mono(), 1));
    assert_eq!(world.outcome(queued), None);
    world.nodes[1] = Node::Serves;
    world.connect(dial.1);
    assert_eq!(world.sockets[&world.acquire("q").conn].endpoint, 1);
}

#[test]
fn read_moved_to_a_stranger_is_no_hint() {
    for stranger in ["c:1", "b:2", "a:1b:1", "", "::", "b"] {
        let (mut world, conn, id) = in_flight();
        let at = world.mono();
        world.answer(conn, ServerFrame::Moved { leader: stranger.as_bytes() });
        assert_eq!(world.unknown(id), ReasonKind::Moved);
        world.nodes = vec![Node::Refuses; 2];
        world.advance(2 * SECOND);
        assert!(world.dials.iter().all(|dial| dial.2 < 2));
        // It backs off: half of 50 ms to 50 ms.
        let again = world.dials.iter().find(|dial| dial.0 > at && dial.2 == 0).unwrap().0;
        assert!(again >= at + ms(25) && again <= at + ms(50), "{:?}", again.since(at));
    }
}

#[test]
fn read_a_leader_notice_keeps_the_connection_and_what_waits_on_it() {
    let (mut world, conn, id) = in_flight();
    world.answer(conn, ServerFrame::Leader { leader: b"b:1" });
    assert_eq!((world.state(conn), world.outcome(id)), (State::Open, None));
    let next = world.ask(lock("next", 30));
    assert_eq!(world.acquires("next"), [], "no new acquire goes to this node");
    let dial = *world.dials.last().unwrap();
    assert_eq!(dial.2, 1);
    world.nodes[1] = Node::Serves;
    world.connect(dial.1);
    assert_eq!(world.sockets[&world.acquire("next").conn].endpoint, 1);
    // What waits on the old one is answered there; then it is closed.
    world.answer(conn, ServerFrame::Acquired { owner: 2, token: 6, key: b"k" });
    assert_eq!((world.grant(id).token, world.outcome(next)), (6, None));
    world.fire();
    assert_eq!(world.state(conn), State::Closed);
}

#[test]
fn read_a_leader_notice_that_cannot_be_followed_is_dropped() {
    let (mut world, conn, _) = in_flight();
    world.answer(conn, ServerFrame::Leader { leader: b"b:1" });
    let next = world.ask(lock("next", 30));
    let (_, dial, _) = *world.dials.last().unwrap();
    world.refuse(dial, ReasonKind::Connect);
    assert_eq!(world.acquire("next").conn, conn);
    assert_eq!(world.outcome(next), None);
}

#[test]
fn read_a_leader_notice_of_strangers_or_of_itself_changes_nothing() {
    for leader in ["c:1", "", "a:1", "A.:1"] {
        let (mut world, conn, id) = in_flight();
        let dials = world.dials.len();
        world.answer(conn, ServerFrame::Leader { leader: leader.as_bytes() });
        world.fire();
        world.ask(lock("next", 30));
        assert_eq!(world.acquire("next").conn, conn, "{leader}");
        assert_eq!((world.dials.len(), world.outcome(id)), (dials, None));
    }
}

#[test]
fn read_errors_close_and_back_off_each_by_its_own_schedule() {
    let cases = [
        ("no_leader", ReasonKind::NoLeader, 50, 500),
        ("not_active", ReasonKind::NotActive, 100, 1_000),
        ("auth_failed", ReasonKind::Auth, 500, 15_000),
        ("bad_key", ReasonKind::ServerError, 50, 5_000),
        ("bad_request", ReasonKind::ServerError, 50, 5_000),
        ("whatever_it_is", ReasonKind::ServerError, 50, 5_000),
    ];
    for (code, kind, first, longest) in cases {
        let mut world = World::ready();
        let id = world.ask(lock("k", 30));
        let conn = world.acquire("k").conn;
        let mut at = world.mono();
        let code = code.as_bytes();
        world.answer(conn, ServerFrame::Error { code });
        assert_eq!(world.unknown(id), kind);
        world.nodes[0] = Node::Accepts;
        let mut step = first;
        for _ in 0..12 {
            let before = world.dials.len();
            while world.dials.len() == before {
                let next = world.engine.next_timeout().unwrap();
                world.advance(next.since(world.mono()));
            }
            let (dialed, conn, _) = *world.dials.last().unwrap();
            let waited = dialed.since(at);
            assert!(waited >= ms(step) / 2 && waited <= ms(step), "{kind:?} {step} {waited:?}");
            at = dialed;
            world.answer(conn, ServerFrame::Error { code });
            step = (step * 2).min(longest);
        }
        assert_eq!(step, longest);
    }
}

#[test]
fn read_notices_and_errors_count_while_the_first_probe_is_unanswered() {
    let (moved, notice) = (&b"Mb:1\n"[..], &b"Lb:1\n"[..]);
    let cases = [
        (moved, ReasonKind::Moved, Some(1)),
        (notice, ReasonKind::None, Some(1)),
        (b"Eno_leader\n", ReasonKind::NoLeader, None),
        (b"Enot_active\n", ReasonKind::NotActive, None),
        (b"Ewhat\n", ReasonKind::ServerError, None),
        (b"C01234567890123456789012345678901\n", ReasonKind::Auth, None),
    ];
    for (bytes, kind, hint) in cases {
        let mut world = World::new(Settings { endpoints: endpoints(2), ..settings() });
        world.nodes = vec![Node::Accepts, Node::Swallows];
        world.fire();
        let conn = world.only();
        let id = world.ask(lock("k", 30));
        world.bytes(conn, bytes);
        assert_eq!(world.outcome(id), None, "nothing of it was sent");
        assert_eq!(world.engine.last_error().kind, kind);
        let closed = kind != ReasonKind::None;
        assert_eq!(world.state(conn) == State::Closed, closed, "{kind:?}");
        let hints: Vec<_> = world
            .events
            .iter()
            .filter_map(|event| match event {
                lockclient::engine::Event::Hint { endpoint } => *endpoint,
                _ => None,
            })
            .collect();
        assert_eq!(hints, Vec::from_iter(hint), "{kind:?}");
    }
}

#[test]
fn read_a_lingering_connection_is_listened_to_for_grants_alone() {
    let (mut world, conn, id) = in_flight();
    let at = world.mono();
    world.cancel(id);
    assert_eq!(world.state(conn), State::HalfClosed);
    for bytes in [
        &b"Mb:1\n"[..],
        b"Lb:1\n",
        b"Eno_leader\n",
        b"Eauth_failed\n",
        b"T\0\0\0\0\0\0\0\x02k\n",
        b"R\0\0\0\0\0\0\0\x09k\n",
        b"N\0\0\0\0\0\0\0\x01_probe\n",
        b"C01234567890123456789012345678901\n",
    ] {
        world.bytes(conn, bytes);
        assert_eq!(world.state(conn), State::HalfClosed);
    }
    assert!(
        !world
            .events
            .iter()
            .any(|event| { matches!(event, lockclient::engine::Event::Hint { .. }) })
    );
    assert_eq!(world.engine.last_error().kind, ReasonKind::None);
    // A grant with an owner that nobody knows has a token all the same.
    world.answer(conn, ServerFrame::Acquired { owner: 40, token: 9, key: b"x" });
    assert_eq!(world.counters().late_grants, 1);
    world.advance(SECOND);
    assert_eq!(world.closes[&conn], at + SECOND);
}

#[test]
fn read_no_leader_drops_the_hint() {
    let (mut world, conn, _) = in_flight();
    world.answer(conn, ServerFrame::Leader { leader: b"b:1" });
    world.fire();
    let hinted = world.dials.last().unwrap().1;
    // Somebody else says that there is none: nothing is hinted any more.
    world.answer(conn, ServerFrame::Error { code: b"no_leader" });
    let hints: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            lockclient::engine::Event::Hint { endpoint } => Some(*endpoint),
            _ => None,
        })
        .collect();
    assert_eq!(hints, [Some(1), None]);
    assert_eq!(world.state(hinted), State::Dialing);
}

#[test]
fn read_malformed_unknown_and_ended_streams_close_with_unknown_outcomes() {
    let long = [b"M".as_slice(), &[b'x'; 200]].concat();
    let cases: [(&[u8], ReasonKind); 5] = [
        (b"?", ReasonKind::Malformed),
        (b"A\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0k\n", ReasonKind::Malformed),
        (&long, ReasonKind::Malformed),
        (b"H01234567890123456789012345678901x\n", ReasonKind::Malformed),
        (b"\n", ReasonKind::Malformed),
    ];
    for (bytes, kind) in cases {
        let (mut world, conn, id) = in_flight();
        let at = world.mono();
        world.bytes(conn, bytes);
        assert_eq!(world.unknown(id), kind, "{bytes:?}");
        assert_eq!(world.state(conn), State::Closed);
        assert!(world.engine.next_timeout().is_some_and(|next| next >= at));
    }
    for kind in [ReasonKind::Eof, ReasonKind::Io] {
        let (mut world, conn, id) = in_flight();
        world.end(conn, kind);
        assert_eq!(world.unknown(id), kind);
        assert_eq!(world.state(conn), State::Closed);
        // Cut inside a frame is no better.
        let (mut world, conn, id) = in_flight();
        world.bytes(conn, b"T\0\0\0\0\0\0\0\x02");
        world.end(conn, kind);
        assert_eq!(world.unknown(id), kind);
    }
}

#[test]
fn read_frames_before_a_malformed_one_count() {
    let (mut world, conn, id) = in_flight();
    let mut bytes = frame(ServerFrame::Acquired { owner: 2, token: 5, key: b"k" });
    bytes.extend_from_slice(b"?");
    world.bytes(conn, &bytes);
    assert_eq!(world.grant(id).token, 5);
    assert_eq!(world.state(conn), State::Closed);
}

#[test]
fn read_answers_may_come_in_any_chunks() {
    let (mut world, conn, id) = in_flight();
    let bytes = frame(ServerFrame::Acquired { owner: 2, token: 0x0a0a, key: b"k" });
    for byte in &bytes {
        assert_eq!(world.outcome(id), None);
        world.bytes(conn, &[*byte]);
    }
    assert_eq!(world.grant(id).token, 0x0a0a);
}

#[test]
fn read_whatever_the_cause_unsent_requests_stay_queued() {
    for answer in [&b"Mb:1\n"[..], b"Eno_leader\n", b"?", b"Ewhat\n", b"R\0\0\0\0\0\0\0\x09k\n"] {
        let (mut world, conn, id) = in_flight();
        world.socket(conn).room = 0;
        let queued = world.ask(lock("q", 30));
        world.bytes(conn, answer);
        assert!(matches!(world.outcome(id), Some(AcquireOutcome::Indeterminate(_))));
        assert_eq!((world.outcome(queued), world.engine.queued()), (None, 1));
        world.nodes[1] = Node::Refuses;
        world.advance(5 * SECOND);
        assert_eq!(world.acquire("q").owner, 3);
    }
}
