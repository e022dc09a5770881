//! Decoding allocates nothing, whatever a peer sends and however it arrives.

#[path = "common/counting.rs"]
mod counting;
#[path = "common/vectors.rs"]
mod vectors;

use lockclient::wire::{
    ClientFrame, Decoder, FromClient, FromServer, Key, client_proof, same_proof,
};
use std::cell::Cell;
use std::hint::black_box;
use vectors::{Side, vectors};

thread_local! {
    // Per thread: the test harness allocates on its own meanwhile.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

/// How often `work` allocated on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(1)))), 1);
    assert_eq!(allocations(|| drop(black_box(vec![0; 10]))), 1);
    let grown = allocations(|| {
        let mut bytes = black_box(Vec::with_capacity(1));
        bytes.extend_from_slice(&[0_u8; 1000]);
        black_box(bytes);
    });
    assert_eq!(grown, 2);
}

#[test]
fn decoding_allocates_nothing() {
    fn check<D: Side>() {
        for vector in vectors::<D>() {
            for size in [1, 2, 50, 1000] {
                let mut frames = 0;
                let count = allocations(|| {
                    let mut decoder = Decoder::<D>::default();
                    'stream: for mut chunk in vector.frame.chunks(size) {
                        loop {
                            match decoder.next(&mut chunk) {
                                Ok(Some(frame)) => drop(black_box(frame)),
                                Ok(None) => break,
                                Err(error) => {
                                    black_box(error);
                                    break 'stream;
                                }
                            }
                            frames += 1;
                            assert!(frames <= vector.frame.len());
                        }
                    }
                    let _ = black_box(decoder.finish());
                });
                assert_eq!(count, 0, "{} in chunks of {size}", vector.name);
                assert_eq!(frames, usize::from(vector.error().is_none()), "{}", vector.name);
            }
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn encoding_into_room_that_is_there_allocates_nothing() {
    let owner = black_box(1);
    let mut out = Vec::with_capacity(146);
    let count = allocations(|| {
        ClientFrame::Release { owner, token: 2, key: &[b'k'; 128] }.encode(&mut out);
    });
    assert_eq!((count, out.len()), (0, 146));
}

#[test]
fn checking_keys_and_proofs_allocates_nothing() {
    let count = allocations(|| {
        for bytes in [&b"orders/42"[..], &[b'k'; 128], &[b'k'; 129], b"a b", b"\xff"] {
            let _ =
                black_box(Key::new(bytes).map(|key| (key, key == Key::from_wire(bytes).unwrap())));
        }
        let proof = client_proof(black_box(&[1; 200]), &[2; 32], &[3; 32]);
        black_box(same_proof(&proof, &[4; 32]));
    });
    assert_eq!(count, 0);
}
