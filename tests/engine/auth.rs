//! CON-3 and CON-4: the handshake, in every order.

use crate::harness::*;
use crate::nodes::{Frame, Node, State};
use lockclient::engine::{AcquireOutcome, ConnId, ReleaseKind, ReleaseOutcome, Settings};
use lockclient::wire::{ServerFrame, client_proof, server_proof};
use lockclient::{Reason, ReasonKind};
use std::time::Duration;

const SECRET: &[u8] = b"sixteen bytes or more";
const THEIRS: [u8; 32] = [9; 32];
const NANO: Duration = Duration::from_nanos(1);

/// Connected, with a secret; nothing said yet.
fn connected() -> (World, ConnId) {
    let secret = Some(SECRET.to_vec());
    let mut world = World::new(Settings { secret, connections: 1, ..settings() });
    world.nodes[0] = Node::Accepts;
    world.fire();
    let conn = world.only();
    (world, conn)
}

fn proofs(world: &World) -> Vec<[u8; 32]> {
    let proof = |sent: &crate::nodes::Sent| match sent.frame {
        Frame::Proof { nonce, proof } => {
            assert_eq!(nonce, NONCE);
            Some(proof)
        }
        _ => None,
    };
    world.wire.iter().filter_map(proof).collect()
}

fn serve(world: &mut World, conn: ConnId) {
    world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
    let proof = server_proof(SECRET, &THEIRS, &NONCE);
    world.answer(conn, ServerFrame::Accepted { proof: &proof });
    let (_, owner) = world.probes(conn)[0];
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"_probe" });
}

#[test]
fn con_4_challenge_proof_accepted_probe_and_only_then_acquires() {
    let (mut world, conn) = connected();
    let id = world.ask(lock("k", 30));
    assert_eq!(world.wire, [], "the server speaks first");
    world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
    assert_eq!(proofs(&world), [client_proof(SECRET, &THEIRS, &NONCE)]);
    assert_eq!(world.wire.len(), 1);
    let proof = server_proof(SECRET, &THEIRS, &NONCE);
    world.answer(conn, ServerFrame::Accepted { proof: &proof });
    assert_eq!((world.probes(conn).len(), world.acquires("k").len()), (1, 0));
    let (_, owner) = world.probes(conn)[0];
    world.answer(conn, ServerFrame::NotHeld { owner, key: b"_probe" });
    assert_eq!(world.acquire("k").conn, conn);
    assert_eq!(world.outcome(id), None);
}

#[test]
fn con_4_a_proof_goes_out_whole_through_a_full_socket() {
    let (mut world, conn) = connected();
    world.socket(conn).room = 0;
    world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
    for _ in 0..66 {
        assert_eq!(proofs(&world), [[0; 32]; 0]);
        world.open_up(conn, 1);
    }
    assert_eq!(proofs(&world).len(), 1);
    world.open_up(conn, usize::MAX);
    let proof = server_proof(SECRET, &THEIRS, &NONCE);
    world.answer(conn, ServerFrame::Accepted { proof: &proof });
    assert_eq!(world.probes(conn).len(), 1);
}

#[test]
fn con_4_until_it_has_proved_itself_a_server_changes_nothing() {
    let others = [
        ServerFrame::Moved { leader: b"b:1" },
        ServerFrame::Leader { leader: b"b:1" },
        ServerFrame::Error { code: b"no_leader" },
        ServerFrame::Error { code: b"not_active" },
        ServerFrame::Acquired { owner: 1, token: 2, key: b"k" },
        ServerFrame::NotHeld { owner: 1, key: b"_probe" },
        ServerFrame::TimedOut { owner: 1, key: b"k" },
    ];
    for frame in others {
        for challenged in [false, true] {
            let secret = Some(SECRET.to_vec());
            let endpoints = endpoints(2);
            let mut world = World::new(Settings { secret, endpoints, ..settings() });
            world.nodes = vec![Node::Accepts, Node::Swallows];
            world.fire();
            let conn = world.only();
            let id = world.ask(lock("k", 60));
            if challenged {
                world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
            }
            world.answer(conn, frame);
            assert_eq!(world.closes[&conn], world.mono());
            assert_eq!(world.engine.last_error().kind, ReasonKind::Malformed);
            assert_eq!((world.outcome(id), world.counters().late_grants), (None, 0));
            assert!(
                !world
                    .events
                    .iter()
                    .any(|event| { matches!(event, lockclient::engine::Event::Hint { .. }) })
            );
        }
    }
}

#[test]
fn con_4_frames_out_of_turn_close_and_are_no_authentication_failure() {
    // A second challenge, and an acceptance before any challenge.
    let (mut world, conn) = connected();
    world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
    world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
    assert_eq!(world.engine.last_error().kind, ReasonKind::Malformed);
    let (mut world, conn) = connected();
    world.answer(conn, ServerFrame::Accepted { proof: &server_proof(SECRET, &THEIRS, &NONCE) });
    assert_eq!(world.engine.last_error().kind, ReasonKind::Malformed);
    let id = world.ask(lock("k", 1));
    assert_eq!(world.outcome(id), None);
    // Both again after the handshake.
    for again in [
        ServerFrame::Challenge { nonce: &THEIRS },
        ServerFrame::Accepted { proof: &server_proof(SECRET, &THEIRS, &NONCE) },
    ] {
        let (mut world, conn) = connected();
        serve(&mut world, conn);
        let id = world.ask(lock("k", 1));
        world.answer(conn, again);
        assert_eq!(world.unknown(id), ReasonKind::Mismatch);
    }
}

#[test]
fn con_4_a_server_without_a_secret_stays_silent_and_times_out() {
    let (mut world, conn) = connected();
    let start = world.mono();
    let id = world.ask(lock("k", 30));
    world.advance(5 * SECOND - NANO);
    assert_eq!(world.state(conn), State::Open);
    world.advance(NANO);
    assert_eq!(world.closes[&conn], start + 5 * SECOND);
    assert_eq!(world.engine.last_error().kind, ReasonKind::HandshakeTimeout);
    assert_eq!(world.outcome(id), None);
    // The five seconds are for challenge and acceptance together.
    let (mut world, conn) = connected();
    world.advance(3 * SECOND);
    world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
    world.advance(2 * SECOND);
    assert_eq!(world.state(conn), State::Closed);
}

#[test]
fn con_3_each_kind_of_authentication_failure_ends_what_is_queued() {
    for how in ["refused", "wrong proof", "unexpected challenge"] {
        let secret = (how != "unexpected challenge").then(|| SECRET.to_vec());
        let mut world = World::new(Settings { secret, connections: 1, ..settings() });
        world.nodes[0] = Node::Accepts;
        world.fire();
        let conn = world.only();
        let id = world.ask(lock("k", 30));
        let release = world.release("r", 4, ReleaseKind::Awaited);
        world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
        match how {
            "refused" => world.answer(conn, ServerFrame::Error { code: b"auth_failed" }),
            "wrong proof" => world.answer(conn, ServerFrame::Accepted { proof: &[1; 32] }),
            _ => {}
        }
        let reason = Reason::new(ReasonKind::Auth).at(0);
        assert_eq!(world.outcome(id), Some(AcquireOutcome::Auth(reason)), "{how}");
        assert_eq!(world.ended_at(id), Some(world.mono()));
        assert_eq!(world.release_outcome(release), Some(ReleaseOutcome::Auth(reason)));
        assert_eq!(world.state(conn), State::Closed);
        // So do later calls, at once, until an attempt ends otherwise.
        let later = world.ask(lock("k", 30));
        assert_eq!(world.outcome(later), Some(AcquireOutcome::Auth(reason)));
        assert_eq!((world.engine.queued(), world.counters().not_sent), (0, 2));
    }
}

#[test]
fn con_3_it_takes_every_endpoint_and_nothing_else_counts() {
    let secret = Some(SECRET.to_vec());
    let mut world =
        World::new(Settings { secret, endpoints: endpoints(2), connections: 1, ..settings() });
    world.nodes = vec![Node::Accepts, Node::Refuses];
    world.fire();
    let id = world.ask(lock("k", 200));
    world.answer(world.only(), ServerFrame::Error { code: b"auth_failed" });
    world.advance(ms(60));
    assert_eq!(world.outcome(id), None, "the other only refused to connect");
    for (code, ends) in [(&b"no_leader"[..], false), (b"auth_failed", true)] {
        world.nodes[1] = Node::Accepts;
        world.advance(ms(200));
        let open = world.open();
        let conn = *open.iter().find(|conn| world.sockets[conn].endpoint == 1).unwrap();
        world.answer(conn, ServerFrame::Challenge { nonce: &THEIRS });
        world.answer(conn, ServerFrame::Accepted { proof: &server_proof(SECRET, &THEIRS, &NONCE) });
        world.answer(conn, ServerFrame::Error { code });
        assert_eq!(matches!(world.outcome(id), Some(AcquireOutcome::Auth(_))), ends);
    }
}

#[test]
fn con_3_a_client_that_was_locked_out_finds_its_way_back() {
    let (mut world, conn) = connected();
    world.answer(conn, ServerFrame::Error { code: b"auth_failed" });
    let refused = world.ask(lock("k", 30));
    assert!(matches!(world.outcome(refused), Some(AcquireOutcome::Auth(_))));
    world.advance(SECOND);
    let conn = world.only();
    serve(&mut world, conn);
    let id = world.ask(lock("k", 30));
    assert_eq!((world.acquire("k").conn, world.outcome(id)), (conn, None));
}

#[test]
fn con_3_while_a_connection_serves_calls_go_out_on_it() {
    // The secret was changed: a further connection is refused, the one there is still serves.
    let secret = Some(SECRET.to_vec());
    let mut world = World::new(Settings { secret, ..settings() });
    world.nodes[0] = Node::Accepts;
    world.fire();
    let conn = world.only();
    serve(&mut world, conn);
    world.ask(lock("b", 60));
    let id = world.ask(attempt("t"));
    let further = *world.open().last().unwrap();
    assert_ne!(further, conn);
    world.answer(further, ServerFrame::Error { code: b"auth_failed" });
    world.advance(ms(249));
    assert_eq!(world.acquires("t"), []);
    world.advance(ms(1));
    assert_eq!((world.acquire("t").conn, world.outcome(id)), (conn, None));
    let next = world.ask(lock("next", 60));
    assert_eq!((world.acquire("next").conn, world.outcome(next)), (conn, None));
}

#[test]
fn con_3_releases_that_nobody_waits_for_keep_their_five_seconds() {
    let (mut world, conn) = connected();
    world.release("g", 4, ReleaseKind::Guard);
    world.answer(conn, ServerFrame::Error { code: b"auth_failed" });
    world.release("h", 5, ReleaseKind::Guard);
    world.advance(SECOND);
    let conn = world.only();
    serve(&mut world, conn);
    assert_eq!((world.releases("g").len(), world.releases("h").len()), (1, 1));
}
