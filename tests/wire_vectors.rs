//! The codec against the golden vectors, frame by frame.

#[path = "common/vectors.rs"]
mod vectors;

use lockclient::wire::{
    ClientFrame, FromClient, FromServer, Key, MAX_FRAME, MAX_KEY, Malformed, PROBE_KEY,
    SERVER_READ_LIMIT, ServerFrame,
};
use std::collections::BTreeSet;
use vectors::{
    Fields, Side, data_lines, documented_lines, error_name, good_vectors, outcome, read, vectors,
};

#[test]
fn every_frame_decodes_to_exactly_its_fields_or_its_error() {
    fn check<D: Side>() {
        for vector in vectors::<D>() {
            let reading = read::<D>([&vector.frame[..]]);
            match vector.error() {
                Some(error) => {
                    assert_eq!(reading.frames, [""; 0], "{}", vector.name);
                    assert_eq!(reading.error.map(error_name), Some(error), "{}", vector.name);
                }
                None => {
                    assert_eq!(reading.frames, [vector.outcome], "{}", vector.name);
                    assert_eq!(reading.error, None, "{}", vector.name);
                }
            }
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn every_frame_encodes_to_exactly_its_bytes() {
    fn check<D: Side>() {
        for vector in good_vectors::<D>() {
            let fields = Fields::of(&vector);
            let mut out = b"before".to_vec();
            D::encode(&D::build(&fields), &mut out);
            let expected = vector.again.as_ref().unwrap_or(&vector.frame);
            assert_eq!(out, [b"before", &expected[..]].concat(), "{}", vector.name);
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

/// A vector that was lost from the file would take its check along.
#[test]
fn every_op_and_every_error_has_a_vector() {
    fn check<D: Side>() {
        let ops: BTreeSet<u8> = good_vectors::<D>().iter().map(|vector| vector.frame[0]).collect();
        assert_eq!(ops, D::OPS.iter().map(|(op, _)| *op).collect(), "{}", D::SENDER);
        let errors: BTreeSet<&str> = vectors::<D>().iter().filter_map(|v| v.error()).collect();
        assert_eq!(errors, D::ERRORS.iter().copied().collect(), "{}", D::SENDER);
        let names: BTreeSet<&str> = vectors::<D>().iter().map(|vector| vector.name).collect();
        assert_eq!(names.len(), vectors::<D>().len(), "a name is used twice");
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn every_other_byte_is_an_unknown_op() {
    fn check<D: Side>() {
        for byte in 0..=u8::MAX {
            let known = D::OPS.iter().any(|(op, _)| *op == byte);
            // An unknown op is found by its first byte: no length can be waited for.
            let expected = if known { Malformed::Truncated } else { Malformed::UnknownOp(byte) };
            assert_eq!(read::<D>([&[byte][..]]).error, Some(expected), "{}", D::SENDER);
        }
    }
    check::<FromClient>();
    check::<FromServer>();
}

#[test]
fn every_frame_cut_anywhere_is_truncated() {
    fn check<D: Side>() {
        for vector in good_vectors::<D>() {
            for end in 1..vector.frame.len() {
                let reading = read::<D>([&vector.frame[..end]]);
                assert_eq!(reading.frames, [""; 0], "{} cut at {end}", vector.name);
                assert_eq!(reading.error, Some(Malformed::Truncated), "{} at {end}", vector.name);
            }
        }
        assert_eq!(read::<D>([&[][..]]).error, None, "no bytes are no frame");
    }
    check::<FromClient>();
    check::<FromServer>();
}

/// The limit holds for every op at every length, whether the end comes late or never.
#[test]
fn every_frame_over_the_limit_is_oversized() {
    fn check<D: Side>(limit: usize) {
        for &(op, header) in D::OPS {
            for text in 0..limit + 64 {
                let mut frame = vec![op];
                frame.resize(1 + header, b'\n');
                frame.resize(1 + header + text, b'x');
                let context = format!("{} {} text of {text}", D::SENDER, char::from(op));

                let endless = read::<D>([&frame[..]]).error;
                let over = frame.len() >= limit;
                let expected = if over { Malformed::Oversized } else { Malformed::Truncated };
                assert_eq!(endless, Some(expected), "{context}, no end");

                frame.push(b'\n');
                let ended = read::<D>([&frame[..]]).error;
                let over = frame.len() > limit;
                assert_eq!(ended == Some(Malformed::Oversized), over, "{context}, {ended:?}");
            }
        }
    }
    check::<FromClient>(192);
    check::<FromServer>(146);
}

#[test]
fn the_document_shows_frames_of_the_file() {
    let file: Vec<&str> = data_lines(include_str!("wire/vectors.txt")).collect();
    let shown = documented_lines("vectors");
    assert_eq!(shown.len(), 10);
    for line in shown {
        assert!(file.contains(&line), "not in the file: {line}");
    }
}

/// What the encoder makes for the longest allowed key keeps within what either side may send.
#[test]
fn no_frame_with_a_valid_key_is_larger_than_146_bytes() {
    assert_eq!((MAX_KEY, MAX_FRAME, SERVER_READ_LIMIT), (128, 146, 192));
    let key = &[b'k'; MAX_KEY][..];
    let (owner, token) = (u64::MAX, u64::MAX);
    let length = |frame: ClientFrame<'_>| {
        let mut out = Vec::new();
        frame.encode(&mut out);
        out.len()
    };
    assert_eq!(length(ClientFrame::Acquire { wait: 255, lease: 255, owner, key }), 140);
    assert_eq!(length(ClientFrame::Release { owner, token, key }), 146);
    assert_eq!(length(ClientFrame::Proof { nonce: &[0; 32], proof: &[0; 32] }), 66);
    let length = |frame: ServerFrame<'_>| {
        let mut out = Vec::new();
        frame.encode(&mut out);
        out.len()
    };
    assert_eq!(length(ServerFrame::Acquired { owner, token, key }), 146);
    assert_eq!(length(ServerFrame::TimedOut { owner, key }), 138);
    assert_eq!(length(ServerFrame::Busy { owner, key }), 138);
    assert_eq!(length(ServerFrame::Released { owner, key }), 138);
    assert_eq!(length(ServerFrame::NotHeld { owner, key }), 138);
    assert_eq!(length(ServerFrame::Challenge { nonce: &[0; 32] }), 34);
    assert_eq!(length(ServerFrame::Accepted { proof: &[0; 32] }), 34);
}

#[test]
fn the_probe_is_a_release_of_token_0_with_an_allowed_key() {
    assert!(Key::new(PROBE_KEY).is_ok());
    let mut out = Vec::new();
    ClientFrame::Release { owner: 1, token: 0, key: PROBE_KEY }.encode(&mut out);
    assert_eq!(outcome::<FromClient>(&out), "release owner=1 token=0 key=5f70726f6265");
}
