//! TCP may cut a stream anywhere: every chunking must give the same frames and the same error.

#[path = "common/vectors.rs"]
mod vectors;

use lockclient::wire::{ClientFrame, Decoder, FromClient, FromServer, Malformed};
use vectors::{Reading, Side, Vector, error_name, good_vectors, hex, read, vectors};

fn whole<D: Side>(stream: &[u8]) -> Reading {
    read::<D>([stream])
}

fn byte_by_byte<D: Side>(stream: &[u8]) -> Reading {
    read::<D>(stream.chunks(1))
}

/// What a stream of these frames, one after the other, must give.
fn expected(frames: &[&Vector]) -> (Vec<u8>, Vec<&'static str>, Option<&'static str>) {
    let mut stream = Vec::new();
    let mut outcomes = Vec::new();
    let mut error = None;
    for vector in frames {
        stream.extend_from_slice(&vector.frame);
        match (error, vector.error()) {
            (None, None) => outcomes.push(vector.outcome),
            (None, fault) => error = fault,
            // Nothing counts after an error.
            (Some(_), _) => {}
        }
    }
    (stream, outcomes, error)
}

fn assert_reading(
    reading: &Reading,
    (frames, error): (&[&str], Option<&str>),
    context: impl Fn() -> String,
) {
    assert_eq!(reading.frames, frames, "{}", context());
    assert_eq!(reading.error.map(error_name), error, "{}", context());
}

#[test]
fn every_frame_split_in_two_anywhere_reads_the_same() {
    fn check<D: Side>() {
        for vector in vectors::<D>() {
            let (stream, frames, error) = expected(&[&vector]);
            for at in 0..=stream.len() {
                let (head, tail) = stream.split_at(at);
                assert_reading(&read::<D>([head, tail]), (&frames, error), || {
                    format!("{} split at {at}", vector.name)
                });
            }
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn every_frame_dribbled_byte_by_byte_reads_the_same() {
    fn check<D: Side>() {
        for vector in vectors::<D>() {
            let (stream, frames, error) = expected(&[&vector]);
            let context = || vector.name.to_owned();
            assert_reading(&byte_by_byte::<D>(&stream), (&frames, error), context);
            let with_gaps = stream.chunks(1).flat_map(|byte| [&[][..], byte, &[]]);
            assert_reading(&read::<D>(with_gaps), (&frames, error), context);
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn all_frames_glued_together_read_the_same_at_every_split() {
    fn check<D: Side>() {
        let good = good_vectors::<D>();
        let (stream, frames, error) = expected(&good.iter().collect::<Vec<_>>());
        assert_eq!(error, None);
        assert_reading(&byte_by_byte::<D>(&stream), (&frames, None), || "dribbled".to_owned());
        for at in 0..=stream.len() {
            let (head, tail) = stream.split_at(at);
            assert_reading(&read::<D>([head, tail]), (&frames, None), || format!("split at {at}"));
        }
        for size in 1..=400 {
            let reading = read::<D>(stream.chunks(size));
            assert_reading(&reading, (&frames, None), || format!("chunks of {size}"));
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

/// The frames before a malformed one count, and nothing after it does.
#[test]
fn a_malformed_frame_ends_the_stream_where_it_stands() {
    fn check<D: Side>() {
        let good = good_vectors::<D>();
        let (first, last) = (&good[0], &good[good.len() - 1]);
        for bad in vectors::<D>().iter().filter(|vector| vector.error().is_some()) {
            // A frame that is merely cut short would go on with what follows.
            let cut = bad.error() == Some("truncated");
            let frames = if cut { vec![first, last, bad] } else { vec![first, last, bad, first] };
            let (stream, frames, error) = expected(&frames);
            let context = || bad.name.to_owned();
            assert_reading(&whole::<D>(&stream), (&frames, error), context);
            assert_reading(&byte_by_byte::<D>(&stream), (&frames, error), context);
            for at in 0..=stream.len() {
                let (head, tail) = stream.split_at(at);
                assert_reading(&read::<D>([head, tail]), (&frames, error), context);
            }
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

/// Cuts `stream` into chunks of random sizes, empty ones included.
fn cut<'s>(random: &mut fastrand::Rng, mut stream: &'s [u8]) -> Vec<&'s [u8]> {
    let largest = [2, 20, 150, 1000][random.usize(..4)];
    let mut chunks = Vec::new();
    while !stream.is_empty() {
        let (chunk, rest) = stream.split_at(random.usize(..=largest).min(stream.len()));
        chunks.push(chunk);
        stream = rest;
    }
    chunks
}

#[test]
fn random_frames_in_random_chunks_read_the_same() {
    fn check<D: Side>() {
        let (good, all) = (good_vectors::<D>(), vectors::<D>());
        (0..1_000).for_each(|seed| run::<D>(&good, &all, seed));
    }
    fn run<D: Side>(good: &[Vector], all: &[Vector], seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut frames: Vec<&Vector> =
            (0..random.usize(..30)).map(|_| &good[random.usize(..good.len())]).collect();
        if random.bool() {
            frames.push(&all[random.usize(..all.len())]);
        }
        let (stream, outcomes, error) = expected(&frames);
        let reading = read::<D>(cut(&mut random, &stream));
        assert_reading(&reading, (&outcomes, error), || format!("seed {seed}"));
    }
    check::<FromClient>();
    check::<FromServer>();
}

/// Damaged streams have no expected outcome, but they must have the same one in any chunks.
#[test]
fn damaged_streams_in_random_chunks_read_the_same() {
    fn check<D: Side>() {
        let good = good_vectors::<D>();
        (0..3_000).for_each(|seed| run::<D>(&good, seed));
    }
    fn run<D: Side>(good: &[Vector], seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut stream = Vec::new();
        for _ in 0..random.usize(1..8) {
            stream.extend_from_slice(&good[random.usize(..good.len())].frame);
        }
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..stream.len());
            match random.u8(..3) {
                0 => stream[at] = random.u8(..),
                1 => stream.insert(at, random.choice([0, b'\n', b'\r', b'A', b'x']).unwrap()),
                _ if stream.len() > 1 => drop(stream.remove(at)),
                _ => {}
            }
        }
        let at_once = whole::<D>(&stream);
        assert_eq!(byte_by_byte::<D>(&stream), at_once, "seed {seed}: {}", hex(&stream));
        let chunked = read::<D>(cut(&mut random, &stream));
        assert_eq!(chunked, at_once, "seed {seed}: {}", hex(&stream));
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn an_error_is_final_however_the_stream_was_chunked() {
    fn check<D: Side>() {
        let good = &good_vectors::<D>()[0];
        for bad in vectors::<D>().iter().filter(|vector| vector.error().is_some()) {
            if bad.error() == Some("truncated") {
                continue;
            }
            for size in [1, 7, 1000] {
                let mut decoder = Decoder::<D>::default();
                let mut found = None;
                for mut chunk in bad.frame.chunks(size) {
                    if let Err(error) = decoder.next(&mut chunk) {
                        found = Some(error);
                        break;
                    }
                }
                let found = found.expect(bad.name);
                assert_eq!(Some(error_name(found)), bad.error(), "{}", bad.name);
                for _ in 0..2 {
                    assert_eq!(decoder.next(&mut &good.frame[..]).err(), Some(found));
                    assert_eq!(decoder.finish(), Err(found), "{}", bad.name);
                }
            }
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn a_decoder_knows_whether_a_frame_has_begun() {
    let good = good_vectors::<FromClient>();
    let mut decoder = Decoder::<FromClient>::default();
    assert!(!decoder.is_mid_frame());
    for vector in &good {
        let (last, start) = vector.frame.split_last().unwrap();
        for byte in start {
            assert!(matches!(decoder.next(&mut &[*byte][..]), Ok(None)));
            assert!(decoder.is_mid_frame(), "{}", vector.name);
            assert_eq!(decoder.finish(), Err(Malformed::Truncated));
        }
        assert!(matches!(decoder.next(&mut &[*last][..]), Ok(Some(_))), "{}", vector.name);
        assert!(!decoder.is_mid_frame(), "{}", vector.name);
        assert_eq!(decoder.finish(), Ok(()));
    }
}

/// A caller may stop after any frame and read on later: `input` stands at the byte after it.
#[test]
fn the_input_is_left_at_the_byte_after_the_frame() {
    let mut stream = Vec::new();
    for owner in 1..=3 {
        ClientFrame::Release { owner, token: owner * 10, key: b"k" }.encode(&mut stream);
    }
    let length = stream.len() / 3;
    for split in 1..length {
        let mut decoder = Decoder::<FromClient>::default();
        let (mut head, mut tail) = stream.split_at(split);
        assert!(matches!(decoder.next(&mut head), Ok(None)));
        assert!(head.is_empty());
        for owner in 1..=3 {
            let frame = decoder.next(&mut tail).unwrap();
            assert_eq!(
                frame,
                Some(ClientFrame::Release { owner, token: owner * 10, key: b"k" }),
                "split at {split}"
            );
            assert_eq!(tail, &stream[length * owner as usize..], "split at {split}");
        }
        assert_eq!(decoder.next(&mut tail), Ok(None));
    }
}
