//! Tests of sessions in virtual time.

use super::{Fault, Overdue, PROGRESS, Received, Session};
use crate::core::{Answers, ConnectionId, Core, Limits, Time};
use crate::outbox::BATCH;
use crate::secrets::Secret;
use lockclient::wire::{ClientFrame, ServerFrame};
use std::time::Duration;

const LIMITS: Limits =
    Limits { locks: 1000, waiters: 1000, waiters_per_key: 100, waiters_per_connection: 100 };

#[derive(Debug, Default)]
struct Bytes(Vec<u8>);

impl Answers for Bytes {
    fn answer(&mut self, to: ConnectionId, frame: ServerFrame<'_>) {
        assert_eq!(to, ConnectionId(4));
        frame.encode(&mut self.0);
    }
}

struct World {
    session: Session,
    core: Core,
    secrets: Vec<Secret>,
    now: Time,
    out: Bytes,
}

impl World {
    fn new() -> World {
        World::with_nonce(None)
    }

    fn with_nonce(nonce: Option<[u8; 32]>) -> World {
        let now = Time::default().after_seconds(10);
        let mut out = Bytes::default();
        World {
            session: Session::new(ConnectionId(4), nonce, now, &mut out),
            core: Core::new(LIMITS, 1, u64::MAX),
            secrets: vec![Secret::new(&[5; 16]).unwrap()],
            now,
            out,
        }
    }

    fn receive(&mut self, input: &[u8]) -> Received {
        let World { session, core, secrets, now, out } = self;
        session.receive(input, *now, secrets, core, out)
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
    }

    fn overdue(&self) -> Option<Overdue> {
        self.session.overdue(self.now)
    }
}

fn probes(count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for owner in 1..=count {
        ClientFrame::Release { owner, token: 0, key: b"_probe" }.encode(&mut bytes);
    }
    bytes
}

const TICK: Duration = Duration::from_millis(1);

#[test]
fn a_batch_is_at_most_64_requests_and_the_rest_is_left() {
    let mut world = World::new();
    let bytes = probes(150);
    let frame = bytes.len() / 150;
    let mut at = 0;
    for expected in [BATCH, BATCH, 22] {
        let received = world.receive(&bytes[at..]);
        assert_eq!(received, Received { consumed: expected * frame, over: None });
        at += received.consumed;
    }
    assert_eq!(world.core.stats().probes, 150);
}

#[test]
fn any_chunking_gives_the_same_answers() {
    let mut bytes = probes(3);
    ClientFrame::Acquire { wait: 0, lease: 1, owner: 0x0A0A, key: b"k" }.encode(&mut bytes);
    bytes.extend_from_slice(b"?");
    let mut whole = World::new();
    assert_eq!(whole.receive(&bytes).over, Some(Fault::BadRequest));
    for size in 1..bytes.len() {
        let mut world = World::new();
        let over = bytes.chunks(size).map(|chunk| world.receive(chunk).over).collect::<Vec<_>>();
        assert_eq!(over.iter().filter(|over| over.is_some()).count(), 1, "chunks of {size}");
        assert_eq!(world.out.0, whole.out.0, "chunks of {size}");
    }
}

#[test]
fn a_frames_time_begins_with_its_first_byte_and_later_bytes_do_not_prolong_it() {
    let mut world = World::new();
    let bytes = probes(1);
    assert_eq!(world.session.next_deadline(), None);
    world.receive(&bytes[..1]);
    let deadline = world.now.after(PROGRESS);
    world.pass(PROGRESS - TICK);
    world.receive(&bytes[1..9]);
    assert_eq!(world.overdue(), None);
    assert_eq!(world.session.next_deadline(), Some(deadline));
    world.pass(TICK);
    assert_eq!(world.overdue(), Some(Overdue::Frame));
}

#[test]
fn a_frame_that_ends_in_time_ends_its_time() {
    let mut world = World::new();
    let bytes = probes(1);
    world.receive(&bytes[..1]);
    world.pass(PROGRESS - TICK);
    world.receive(&bytes[1..]);
    assert_eq!(world.session.next_deadline(), None);
    world.pass(PROGRESS);
    assert_eq!(world.overdue(), None);
}

#[test]
fn each_frame_has_a_time_of_its_own() {
    let mut world = World::new();
    let bytes = probes(1);
    world.receive(&bytes[..3]);
    world.pass(Duration::from_secs(4));
    // The end of one and the beginning of the next, at once.
    world.receive(&[&bytes[3..], &bytes[..3]].concat());
    world.pass(Duration::from_secs(4));
    assert_eq!(world.overdue(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.overdue(), Some(Overdue::Frame));
}

#[test]
fn a_frames_time_stands_still_while_the_server_does_not_read() {
    let mut world = World::new();
    world.receive(&probes(1)[..3]);
    world.pass(Duration::from_secs(3));
    world.session.pause(world.now);
    world.pass(Duration::from_secs(60));
    assert_eq!((world.overdue(), world.session.next_deadline()), (None, None));
    world.session.resume(world.now);
    world.pass(Duration::from_secs(2) - TICK);
    assert_eq!(world.overdue(), None);
    world.pass(TICK);
    assert_eq!(world.overdue(), Some(Overdue::Frame));
}

#[test]
fn a_handshake_has_its_time_whatever_comes_meanwhile() {
    let mut world = World::with_nonce(Some([1; 32]));
    assert!(world.session.is_handshaking());
    world.pass(PROGRESS - TICK);
    world.receive(b"H");
    assert_eq!(world.overdue(), None);
    world.pass(TICK);
    assert_eq!(world.overdue(), Some(Overdue::Handshake));
}

#[test]
fn after_the_handshake_its_time_is_forgotten() {
    let mut world = World::with_nonce(Some([1; 32]));
    let proof = lockclient::wire::client_proof(&[5; 16], &[1; 32], &[2; 32]);
    let mut bytes = Vec::new();
    ClientFrame::Proof { nonce: &[2; 32], proof: &proof }.encode(&mut bytes);
    world.receive(&bytes);
    assert!(!world.session.is_handshaking());
    world.pass(PROGRESS);
    assert_eq!((world.overdue(), world.session.next_deadline()), (None, None));
}

#[test]
fn no_bytes_whatever_break_it() {
    let mut random = 88172645463325252u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % bound
    };
    let mut faults = 0;
    for round in 0..5000 {
        let mut world = World::with_nonce((round % 4 == 0).then_some([1; 32]));
        // Frames that are good but for a byte here and there.
        let mut bytes = Vec::new();
        for owner in 1..=1 + below(20) {
            let key = vec![b'k'; below(130) as usize];
            if below(2) == 0 {
                let (wait, lease) = (below(3) as u8, 1 + below(3) as u8);
                ClientFrame::Acquire { wait, lease, owner, key: &key }.encode(&mut bytes);
            } else {
                ClientFrame::Release { owner, token: below(9), key: &key }.encode(&mut bytes);
            }
        }
        for _ in 0..below(4) {
            let at = below(bytes.len() as u64) as usize;
            bytes[at] = below(256) as u8;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (chunk, _) = rest.split_at(rest.len().min(1 + below(300) as usize));
            let Received { consumed, over } = world.receive(chunk);
            assert!(consumed <= chunk.len());
            if over.is_some() {
                faults += 1;
                break;
            }
            assert!(consumed > 0, "it always goes on");
            rest = &rest[consumed..];
            world.pass(Duration::from_millis(below(2000)));
            world.core.advance(world.now, &mut world.out);
        }
        // Whatever was said is well-formed.
        let mut decoder = lockclient::wire::Decoder::<lockclient::wire::FromServer>::default();
        let mut said = &world.out.0[..];
        while !said.is_empty() {
            let before = said.len();
            let mut rest = said;
            assert!(decoder.next(&mut rest).expect("a well-formed answer").is_some());
            said = &said[before - rest.len()..];
        }
    }
    assert!(faults > 1000, "{faults}");
}
