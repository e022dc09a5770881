//! What the client's parts cost, each alone: frames, the engine, the hand-off between two threads.
//!
//! `cargo bench -p lockclient-benches`
//!
//! What they cost together, with the system calls between them, shows `benches/compare.sh`.

use divan::{Bencher, black_box, counter::ItemsCount};
use lockclient::clock::{Boot, Mono, Now};
use lockclient::engine::{
    AcquireCall, AcquireOutcome, Class, ConnId, Effect, Engine, Gate, ReleaseCall, ReleaseKind,
    ReleaseOutcome, RequestId, SendResult, Settings,
};
use lockclient::ticket::{Desk, Slot, Waited};
use lockclient::wire::{
    ClientFrame, Decoder, FromClient, FromServer, Key, MAX_FRAME, PROBE_KEY, ServerFrame,
};
use lockclient::{Lease, Wait, WorkBudget};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    divan::main();
}

const KEY: &[u8] = b"bench/own/0001/lock/name";
const FRAMES: usize = 64;

#[divan::bench]
fn encode_an_acquire(bencher: Bencher) {
    let mut out = Vec::with_capacity(MAX_FRAME);
    bencher.bench_local(|| {
        out.clear();
        black_box(ClientFrame::Acquire { wait: 5, lease: 30, owner: 7, key: KEY }).encode(&mut out);
        black_box(&out);
    });
}

#[divan::bench]
fn encode_a_grant(bencher: Bencher) {
    let mut out = Vec::with_capacity(MAX_FRAME);
    bencher.bench_local(|| {
        out.clear();
        black_box(ServerFrame::Acquired { owner: 7, token: 9, key: KEY }).encode(&mut out);
        black_box(&out);
    });
}

/// As one read brings them.
#[divan::bench]
fn decode_64_grants(bencher: Bencher) {
    let mut bytes = Vec::new();
    for owner in 1..=FRAMES as u64 {
        ServerFrame::Acquired { owner, token: 9, key: KEY }.encode(&mut bytes);
    }
    bencher.counter(ItemsCount::new(FRAMES)).bench_local(|| {
        let mut decoder = Decoder::<FromServer>::default();
        let mut rest = black_box(&bytes[..]);
        let mut count = 0;
        while let Some(frame) = decoder.next(&mut rest).expect("well-formed") {
            black_box(frame);
            count += 1;
        }
        assert_eq!(count, FRAMES);
    });
}

/// One byte at a time, the most that can be asked of a decoder.
#[divan::bench]
fn decode_a_grant_by_bytes(bencher: Bencher) {
    let mut bytes = Vec::new();
    ServerFrame::Acquired { owner: 7, token: 9, key: KEY }.encode(&mut bytes);
    bencher.bench_local(|| {
        let mut decoder = Decoder::<FromServer>::default();
        let frames = black_box(&bytes).iter().filter(|byte| {
            let mut rest = std::slice::from_ref(*byte);
            decoder.next(&mut rest).expect("well-formed").is_some()
        });
        assert_eq!(frames.count(), 1);
    });
}

struct Open;

impl Gate for Open {
    fn claim(&mut self, _: RequestId, _: Mono) -> bool {
        true
    }

    fn unclaim(&mut self, _: RequestId) {
        unreachable!("everything is accepted");
    }
}

/// An engine with its I/O done by hand: everything is accepted, and answered when asked for.
struct Driven {
    engine: Engine,
    now: Now,
    decoder: Decoder<FromClient>,
    conn: ConnId,
    answers: Vec<u8>,
    token: u64,
    granted: usize,
    released: usize,
}

impl Driven {
    fn new() -> Driven {
        let settings = Settings {
            endpoints: vec!["a:1".to_owned()],
            secret: None,
            connections: 1,
            connect_timeout: Duration::from_secs(2),
            response_grace: Duration::from_millis(500),
            strict_deadline: false,
            enforce_budget: false,
            busy_retry: false,
            ordered_answers: true,
            idle_probe: Duration::from_secs(60),
            lane: 1024,
            first_owner: 1,
            seed: 1,
            log: false,
        };
        let now = Now { mono: Mono(1_000_000_000), boot: Boot(1_000_000_000) };
        let mut driven = Driven {
            engine: Engine::new(settings, now),
            now,
            decoder: Decoder::default(),
            conn: ConnId(0),
            answers: Vec::new(),
            token: 1,
            granted: 0,
            released: 0,
        };
        driven.engine.timeout(now);
        driven.effects(|_, _, _| {});
        // The probe.
        driven.turn(|_, _, _| {});
        assert!(driven.engine.is_ready());
        driven
    }

    /// Sends what there is to send, answers it, and hands grants to `granted` with their key.
    fn turn(&mut self, mut granted: impl FnMut(&mut Engine, Now, u64)) {
        // As much time as a round trip takes.
        self.now.mono.0 += 30_000;
        self.now.boot.0 += 30_000;
        while let Some((conn, bytes)) = self.engine.poll_transmit(self.now, &mut Open) {
            let (mut rest, count) = (bytes, bytes.len());
            while let Some(frame) = self.decoder.next(&mut rest).expect("well-formed") {
                let answer = match frame {
                    ClientFrame::Acquire { owner, key, .. } => {
                        self.token += 1;
                        ServerFrame::Acquired { owner, token: self.token, key }
                    }
                    ClientFrame::Release { owner, key: PROBE_KEY, .. } => {
                        ServerFrame::NotHeld { owner, key: PROBE_KEY }
                    }
                    ClientFrame::Release { owner, key, .. } => ServerFrame::Released { owner, key },
                    other => panic!("{other:?}"),
                };
                answer.encode(&mut self.answers);
            }
            self.engine.transmitted(conn, SendResult::Accepted(count), &mut Open);
        }
        self.engine.received(self.conn, &self.answers, self.now);
        self.answers.clear();
        self.effects(&mut granted);
    }

    fn effects(&mut self, mut granted: impl FnMut(&mut Engine, Now, u64)) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Dial { conn, .. } => {
                    self.conn = conn;
                    self.engine.dialed(conn, Ok([7; 32]), self.now);
                }
                Effect::Acquire { outcome: AcquireOutcome::Granted(grant), .. } => {
                    self.granted += 1;
                    granted(&mut self.engine, self.now, grant.token);
                }
                Effect::Release { outcome: ReleaseOutcome::Released, .. } => self.released += 1,
                Effect::Log(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn acquire(&mut self, key: Key) {
        let lease = Lease::new(Duration::from_secs(30)).expect("in range");
        let call = AcquireCall {
            key,
            wait: Wait::new(Duration::from_secs(5)).expect("in range"),
            lease,
            budget: WorkBudget::new(Duration::from_secs(10), lease).expect("in range"),
            deadline: self.now.mono + Duration::from_secs(5),
            class: Class::Blocking,
        };
        self.engine.acquire(call, self.now);
    }
}

/// Acquire, transmit, receive the grant, release, receive the answer: so many at once.
#[divan::bench(args = [1, 64], sample_size = 50)]
fn engine_pairs(bencher: Bencher, together: usize) {
    let mut driven = Driven::new();
    let keys: Vec<Key> = (0..together)
        .map(|number| Key::new(format!("bench/own/{number:04}/lock/name").as_bytes()))
        .collect::<Result<_, _>>()
        .expect("keys");
    bencher.counter(ItemsCount::new(together)).bench_local(|| {
        let before = (driven.granted, driven.released);
        for key in &keys {
            driven.acquire(*key);
        }
        // Answers come in the order of the requests, so that the next grant is of the next key.
        let mut next = keys.iter();
        driven.turn(|engine, now, token| {
            let key = *next.next().expect("a grant for each key");
            let deadline = now.mono + Duration::from_secs(5);
            let call = ReleaseCall { key, token, kind: ReleaseKind::Awaited, deadline };
            engine.release(call, now);
        });
        driven.turn(|_, _, _| panic!("nothing was asked for"));
        assert_eq!((driven.granted, driven.released), (before.0 + together, before.1 + together));
    });
}

/// An acquire's way to another thread, and its result's way back to the thread that waits for it.
#[divan::bench(sample_size = 50)]
fn hand_off_between_two_threads(bencher: Bencher) {
    let started = Instant::now();
    let clock = move || Mono(started.elapsed().as_nanos() as u64);
    let (sender, requests) = mpsc::channel::<Arc<Slot>>();
    let decider = thread::spawn(move || {
        let mut desk = Desk::new();
        let id = RequestId::unpack(0);
        while let Ok(slot) = requests.recv() {
            desk.admit(id, slot);
            assert!(desk.claim(id, Mono(u64::MAX / 2)));
            assert!(desk.complete(id, AcquireOutcome::Busy).is_none());
            desk.tell();
        }
    });
    let lease = Lease::new(Duration::from_secs(30)).expect("in range");
    let call = AcquireCall {
        key: Key::new(KEY).expect("a key"),
        wait: Wait::new(Duration::from_secs(5)).expect("in range"),
        lease,
        budget: WorkBudget::new(Duration::from_secs(10), lease).expect("in range"),
        deadline: Mono(u64::MAX / 2),
        class: Class::Blocking,
    };
    bencher.bench_local(|| {
        let slot = Arc::new(Slot::new(call.clone(), false));
        sender.send(slot.clone()).expect("the other thread is there");
        assert_eq!(slot.wait(clock, None), Waited::Decided, "its time is not over");
        assert!(slot.is_decided());
    });
    drop(sender);
    decider.join().expect("the other thread");
}
