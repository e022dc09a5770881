//! SND-1 to SND-4: what counts as sent, and what happens to what does not.

use crate::harness::*;
use crate::nodes::{Frame, Node, PROBE, State};
use lockclient::engine::{ReleaseKind, RequestId, Settings};
use lockclient::wire::ServerFrame;
use lockclient::{Reason, ReasonKind};

const KEYS: [&str; 4] = ["first", "2nd", "the-third", "d"];

/// What each frame of the batch takes: op, wait, lease, owner, key, newline.
fn len(key: &str) -> usize {
    1 + 1 + 1 + 8 + key.len() + 1
}

/// Four acquires in one batch, of which the socket takes `cut` bytes.
fn cut_at(cut: usize, fails: bool) -> (World, Vec<RequestId>) {
    let mut world = World::single();
    let conn = world.only();
    let mut ids = Vec::new();
    for key in KEYS {
        ids.push(world.ask_quietly(lock(key, 20)));
    }
    if fails {
        assert_eq!(cut, 0);
        world.socket(conn).fails = Some(Reason::new(ReasonKind::Io).with_os_error(Some(104)));
    }
    world.socket(conn).room = cut;
    world.settle();
    (world, ids)
}

#[test]
fn snd_1_each_frame_of_a_cut_batch_counts_by_its_own_bytes() {
    let total: usize = KEYS.iter().map(|key| len(key)).sum();
    for cut in 0..=total {
        let (mut world, ids) = cut_at(cut, false);
        let conn = world.only();
        let before = world.offered[1].1.clone();
        assert_eq!(before.len(), 4, "one batch");
        let mut start = 0;
        let mut possibly = 0;
        for (key, id) in KEYS.iter().zip(&ids) {
            let sent = cut > start;
            assert_eq!(world.gate.claimed.contains_key(id), sent, "{key} at {cut}");
            possibly += usize::from(sent);
            start += len(key);
        }
        assert_eq!(world.engine.queued(), 4 - possibly, "at {cut}");
        assert_eq!(world.counters().in_flight_now, possibly as u64);
        // The connection is lost: SND-2 for those, SND-3 for the others.
        world.stall(ms(2_500));
        world.end(conn, ReasonKind::Io);
        for id in &ids[..possibly] {
            assert_eq!(world.unknown(*id), ReasonKind::Io, "at {cut}");
        }
        world.advance(ms(100));
        let next = world.only();
        assert_ne!(next, conn);
        let moved: Vec<Frame> = world.offered.iter().filter(|(to, _)| *to == next).fold(
            Vec::new(),
            |mut all, (_, frames)| {
                all.extend(frames.iter().filter(|f| matches!(f, Frame::Acquire { .. })).cloned());
                all
            },
        );
        // The same owners in the same order, with what is left of the same deadlines.
        let expected: Vec<Frame> = before[possibly..]
            .iter()
            .map(|frame| match frame {
                Frame::Acquire { lease, owner, key, .. } => {
                    Frame::Acquire { wait: 18, lease: *lease, owner: *owner, key: key.clone() }
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(moved, expected, "cut at {cut}");
        for id in &ids[possibly..] {
            assert_eq!(world.outcome(*id), None);
        }
    }
}

#[test]
fn snd_1_the_rest_of_a_cut_frame_goes_out_verbatim_before_anything_else() {
    let total: usize = KEYS.iter().map(|key| len(key)).sum();
    for cut in 0..total {
        let (mut world, _) = cut_at(cut, false);
        let conn = world.only();
        let before = world.offered[1].1.clone();
        world.stall(ms(4_500));
        // A release, which goes before acquires, may not go before the rest.
        world.release_quietly("r", 9, ReleaseKind::Guard);
        world.open_up(conn, usize::MAX);
        let after: Vec<Frame> = world
            .wire
            .iter()
            .map(|sent| sent.frame.clone())
            .filter(|frame| matches!(frame, Frame::Acquire { .. } | Frame::Release { .. }))
            .collect();
        let (mut start, mut expected) = (0, Vec::new());
        for (key, frame) in KEYS.iter().zip(&before) {
            let Frame::Acquire { wait, lease, owner, key: of } = frame else { unreachable!() };
            let wait = if cut > start { *wait } else { 16 };
            expected.push(Frame::Acquire { wait, lease: *lease, owner: *owner, key: of.clone() });
            start += len(key);
        }
        let begun = KEYS.iter().scan(0, |end, key| {
            *end += len(key);
            Some(*end - len(key))
        });
        let begun = begun.filter(|start| *start < cut).count();
        let release = Frame::Release { owner: 6, token: 9, key: "r".to_owned() };
        expected.insert(begun, release);
        assert_eq!(after, expected, "cut at {cut}");
    }
}

#[test]
fn snd_1_a_rest_can_be_cut_again_at_every_byte() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 1;
    let (first, second) = (world.ask(lock("a-key", 9)), world.ask(lock("b-key", 9)));
    for _ in 1..len("a-key") {
        assert!(world.acquires("a-key").is_empty());
        assert!(world.gate.claimed.contains_key(&first));
        assert!(!world.gate.claimed.contains_key(&second));
        world.open_up(conn, 1);
    }
    assert_eq!(world.acquires("a-key").len(), 1);
    assert!(!world.gate.claimed.contains_key(&second));
    world.open_up(conn, 0);
    assert!(!world.gate.claimed.contains_key(&second));
    world.open_up(conn, usize::MAX);
    assert!(world.gate.claimed.contains_key(&second));
}

#[test]
fn snd_1_a_failed_send_took_nothing() {
    let (mut world, ids) = cut_at(0, true);
    // The connection is drained, found dead and lost; all four move.
    world.advance(ms(100));
    for (key, id) in KEYS.iter().zip(ids) {
        assert_eq!(world.outcome(id), None);
        assert_eq!(world.acquires(key).len(), 1);
    }
    let reason = Reason::new(ReasonKind::Io).with_os_error(Some(104)).at(0);
    assert_eq!(world.engine.last_error(), reason);
}

#[test]
fn snd_1_what_arrived_before_a_failed_send_is_read_first() {
    let mut world = World::single();
    let conn = world.only();
    let id = world.ask(lock("k", 9));
    let owner = world.acquire("k").owner;
    world.put(conn, ServerFrame::Acquired { owner, token: 3, key: b"k" });
    world.socket(conn).fails = Some(Reason::new(ReasonKind::Io));
    let second = world.ask(lock("l", 9));
    assert_eq!(world.grant(id).token, 3);
    assert_eq!(world.state(conn), State::Closed);
    assert_eq!(world.outcome(second), None);
}

#[test]
fn snd_1_a_failed_send_behind_a_begun_frame_leaves_that_one_unknown() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 3;
    let (begun, behind) = (world.ask(lock("k", 9)), world.ask(lock("l", 9)));
    world.socket(conn).fails = Some(Reason::new(ReasonKind::Io));
    world.open_up(conn, usize::MAX);
    assert_eq!(world.unknown(begun), ReasonKind::Io);
    assert_eq!(world.outcome(behind), None);
    world.advance(ms(100));
    assert_eq!(world.acquires("l").len(), 1);
    assert_eq!(world.acquires("k").len(), 0);
}

#[test]
fn snd_2_possibly_sent_is_never_sent_again() {
    for kind in [ReasonKind::Eof, ReasonKind::Io] {
        let mut world = World::new(Settings { endpoints: endpoints(3), ..settings() });
        world.fire();
        let id = world.ask(lock("k", 30));
        let conn = world.acquire("k").conn;
        world.end(conn, kind);
        assert_eq!(world.unknown(id), kind);
        world.advance(60 * SECOND);
        assert_eq!(world.acquires("k").len(), 1);
        assert_eq!(world.counters().indeterminate, 1);
    }
}

#[test]
fn snd_2_one_byte_is_enough() {
    let mut world = World::single();
    let conn = world.only();
    world.socket(conn).room = 1;
    let id = world.ask(lock("k", 30));
    world.end(conn, ReasonKind::Io);
    assert_eq!(world.unknown(id), ReasonKind::Io);
    world.advance(60 * SECOND);
    assert_eq!(world.acquires("k"), []);
}

#[test]
fn snd_3_a_wait_zero_acquire_tries_several_connections_and_is_seen_once() {
    let mut world = World::new(Settings { endpoints: endpoints(3), ..settings() });
    world.nodes = vec![Node::Refuses, Node::Accepts, Node::Serves];
    // `b` accepts and is full; it dies; `c` serves.
    let id = world.ask(attempt("k"));
    world.advance(ms(300));
    let sent = world.acquire("k");
    assert_eq!((sent.wait, world.sockets[&sent.conn].endpoint), (0, 2));
    assert_eq!(world.outcome(id), None);

    // Connections that take the first probe and then nothing.
    let mut world = World::new(settings());
    world.new_room = PROBE;
    world.fire();
    let id = world.ask(attempt("k"));
    for _ in 0..3 {
        let conn = world.only();
        world.end(conn, ReasonKind::Eof);
        world.advance(ms(200));
    }
    world.new_room = usize::MAX;
    world.end(world.only(), ReasonKind::Eof);
    world.advance(ms(400));
    let offers = world
        .offered
        .iter()
        .flat_map(|(conn, frames)| frames.iter().map(move |frame| (*conn, frame)));
    let owners: Vec<_> = offers
        .filter_map(|(conn, frame)| match frame {
            Frame::Acquire { owner, wait: 0, .. } => Some((conn, *owner)),
            _ => None,
        })
        .collect();
    assert_eq!(owners.len(), 5, "four in vain and one that went out: {owners:?}");
    assert!(owners.iter().all(|(_, owner)| *owner == owners[0].1));
    assert_eq!(world.acquire("k").owner, owners[0].1);
    assert_eq!(world.outcome(id), None);
}

#[test]
fn snd_4_an_answer_finds_its_ticket_even_before_the_send_is_reported() {
    let mut world = World::single();
    let id = world.ask_quietly(lock("k", 9));
    let (conn, bytes) = world.engine.poll_transmit(world.now, &mut world.gate).unwrap();
    let (conn, count) = (conn, bytes.len());
    let frames = world.sockets.get_mut(&conn).unwrap().take(bytes);
    let Frame::Acquire { owner, .. } = frames[0] else { panic!("{frames:?}") };
    let mut answer = Vec::new();
    ServerFrame::Acquired { owner, token: 4, key: b"k" }.encode(&mut answer);
    world.engine.received(conn, &answer, world.now);
    let accepted = lockclient::engine::SendResult::Accepted(count);
    world.engine.transmitted(conn, accepted, &mut world.gate);
    world.settle();
    assert_eq!(world.grant(id).token, 4);
    assert_eq!(world.state(conn), State::Open);
    assert_eq!(world.counters().in_flight_now, 0);
}

#[test]
fn snd_4_an_answer_to_a_frame_that_is_not_whole_is_nobodys() {
    // No honest server can have one. What it says is worth nothing, but a token is a token.
    for granted in [false, true] {
        let mut world = World::single();
        let conn = world.only();
        world.socket(conn).room = 12;
        let id = world.ask(lock("key", 9));
        let owner = 2;
        if granted {
            world.answer(conn, ServerFrame::Acquired { owner, token: 5, key: b"key" });
        } else {
            world.answer(conn, ServerFrame::TimedOut { owner, key: b"key" });
        }
        assert_eq!(world.unknown(id), ReasonKind::Mismatch);
        assert_eq!(world.state(conn), State::Closed);
        world.advance(ms(400));
        assert_eq!(world.releases("key").len(), usize::from(granted));
    }
}
