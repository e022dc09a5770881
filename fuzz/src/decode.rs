//! Both decoders on any stream, in any chunks, against a reading of the whole stream that is too
//! simple to be wrong.
//!
//! Input: one byte whose lowest bit is the direction and whose other bits say how many sizes of
//! chunks follow; the sizes; the stream.

use crate::input::Input;
use lockclient::wire::{
    ClientFrame, Decoder, Direction, FromClient, FromServer, MAX_FRAME, Malformed,
    SERVER_READ_LIMIT, ServerFrame,
};

/// # Panics
/// An invariant does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let first = input.byte();
    let sizes = input.bytes(usize::from(first >> 1));
    let stream = input.rest();
    match first & 1 {
        0 => check::<FromServer>(stream, sizes),
        _ => check::<FromClient>(stream, sizes),
    }
}

/// What a reader made of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reading {
    /// Each frame's bytes, as encoding it again gives them.
    frames: Vec<Vec<u8>>,
    /// How the stream ended.
    error: Option<Malformed>,
}

fn check<D: Side>(stream: &[u8], sizes: &[u8]) {
    // Bounded memory: nothing but the decoder itself keeps bytes.
    const { assert!(size_of::<Decoder<FromClient>>() <= SERVER_READ_LIMIT + 32) };
    let expected = simple::<D>(stream);
    assert_eq!(read::<D>([stream]), expected, "whole");
    assert_eq!(read::<D>(stream.chunks(1)), expected, "byte by byte");
    assert_eq!(read::<D>(cut(stream, sizes)), expected, "in chunks of {sizes:?}");
    assert_eq!(stepwise::<D>(stream), expected, "by one decoder for each frame");
}

/// `stream` in chunks of these sizes, 0 included, and the rest in one.
fn cut<'a>(mut stream: &'a [u8], sizes: &[u8]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for size in sizes {
        let (chunk, rest) = stream.split_at(usize::from(*size).min(stream.len()));
        chunks.push(chunk);
        stream = rest;
    }
    chunks.push(stream);
    chunks
}

fn next<D: Side>(
    decoder: &mut Decoder<D>,
    input: &mut &[u8],
) -> Result<Option<Vec<u8>>, Malformed> {
    decoder.next(input).map(|frame| frame.map(|frame| D::encoded(&frame)))
}

fn read<'a, D: Side>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Reading {
    let mut decoder = Decoder::<D>::default();
    let mut reading = Reading::default();
    for mut chunk in chunks {
        loop {
            let before = chunk.len();
            match next(&mut decoder, &mut chunk) {
                Ok(Some(frame)) => {
                    assert!(chunk.len() < before, "a frame of no bytes");
                    reading.frames.push(frame);
                }
                Ok(None) => {
                    assert!(chunk.is_empty(), "bytes were left, and no frame given");
                    break;
                }
                Err(error) => {
                    assert_eq!(decoder.next(&mut &b"\n"[..]).err(), Some(error), "not final");
                    assert_eq!(decoder.finish(), Err(error));
                    reading.error = Some(error);
                    return reading;
                }
            }
        }
    }
    reading.error = decoder.finish().err();
    assert_eq!(decoder.is_mid_frame(), reading.error == Some(Malformed::Truncated));
    reading
}

/// Whoever stops after any frame can go on with a decoder that knows nothing.
fn stepwise<D: Side>(mut stream: &[u8]) -> Reading {
    let mut reading = Reading::default();
    loop {
        let mut decoder = Decoder::<D>::default();
        match next(&mut decoder, &mut stream) {
            Ok(Some(frame)) => reading.frames.push(frame),
            Ok(None) => {
                reading.error = decoder.finish().err();
                return reading;
            }
            Err(error) => {
                reading.error = Some(error);
                return reading;
            }
        }
    }
}

/// The rules of the protocol once more, with the whole stream at hand.
fn simple<D: Side>(mut stream: &[u8]) -> Reading {
    let mut reading = Reading::default();
    while let Some(op) = stream.first() {
        let Some((_, header)) = D::OPS.iter().find(|(known, _)| known == op) else {
            reading.error = Some(Malformed::UnknownOp(*op));
            break;
        };
        let line_feed = (1 + header..stream.len().min(D::LIMIT)).find(|at| stream[*at] == b'\n');
        let Some(end) = line_feed else {
            let too_long = stream.len() >= D::LIMIT;
            reading.error =
                Some(if too_long { Malformed::Oversized } else { Malformed::Truncated });
            break;
        };
        let (frame, rest) = stream.split_at(end + 1);
        stream = rest;
        match D::fault(frame, *header) {
            Some(fault) => {
                reading.error = Some(fault);
                break;
            }
            None => reading.frames.push(D::canonical(frame, *header)),
        }
    }
    reading
}

/// A direction, as the protocol's tables have it.
trait Side: Direction {
    /// Every op, with the length of its fixed header.
    const OPS: &'static [(u8, usize)];

    fn encoded(frame: &Self::Frame<'_>) -> Vec<u8>;

    /// What is wrong with a frame that has its end.
    fn fault(frame: &[u8], header: usize) -> Option<Malformed>;

    /// The frame as it would be written.
    fn canonical(frame: &[u8], header: usize) -> Vec<u8>;
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A server drops one CR before the LF.
fn without_cr(frame: &[u8], header: usize) -> Vec<u8> {
    let text = &frame[1 + header..frame.len() - 1];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    [&frame[..1 + header], text, b"\n"].concat()
}

impl Side for FromClient {
    const OPS: &'static [(u8, usize)] = &[(b'A', 10), (b'R', 16), (b'H', 64)];

    fn encoded(frame: &ClientFrame<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    }

    fn fault(frame: &[u8], header: usize) -> Option<Malformed> {
        match frame[0] {
            b'A' if is_zero(&frame[3..11]) => Some(Malformed::ZeroOwner),
            b'A' if frame[2] == 0 => Some(Malformed::ZeroLease),
            b'R' if is_zero(&frame[1..9]) => Some(Malformed::ZeroOwner),
            b'H' if without_cr(frame, header).len() > 1 + header + 1 => {
                Some(Malformed::UnexpectedText)
            }
            _ => None,
        }
    }

    fn canonical(frame: &[u8], header: usize) -> Vec<u8> {
        without_cr(frame, header)
    }
}

impl Side for FromServer {
    const OPS: &'static [(u8, usize)] = &[
        (b'A', 16),
        (b'T', 8),
        (b'B', 8),
        (b'R', 8),
        (b'N', 8),
        (b'M', 0),
        (b'L', 0),
        (b'E', 0),
        (b'C', 32),
        (b'H', 32),
    ];

    fn encoded(frame: &ServerFrame<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert!(bytes.len() <= MAX_FRAME, "longer than any frame may be");
        bytes
    }

    fn fault(frame: &[u8], header: usize) -> Option<Malformed> {
        match frame[0] {
            b'A' if is_zero(&frame[9..17]) => Some(Malformed::ZeroToken),
            b'C' | b'H' if frame.len() > 1 + header + 1 => Some(Malformed::UnexpectedText),
            _ => None,
        }
    }

    fn canonical(frame: &[u8], _: usize) -> Vec<u8> {
        frame.to_vec()
    }
}
