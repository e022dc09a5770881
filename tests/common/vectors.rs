//! The golden vectors of `tests/wire/vectors.txt`, and frames written as its lines write them.

// Each test program uses a part of this file.
#![allow(dead_code)]

use lockclient::wire::{
    Block, ClientFrame, Decoder, Direction, FromClient, FromServer, Key, KeyError, Malformed,
    ServerFrame,
};
use std::collections::HashMap;

/// One line of the file.
pub(crate) struct Vector {
    /// The whole line.
    pub(crate) line: &'static str,
    pub(crate) name: &'static str,
    pub(crate) frame: Vec<u8>,
    /// `kind field=value...` or `error=name`.
    pub(crate) outcome: &'static str,
    /// What encoding the fields gives, where it is not `frame`.
    pub(crate) again: Option<Vec<u8>>,
}

impl Vector {
    /// The error that the frame must give, if any.
    pub(crate) fn error(&self) -> Option<&'static str> {
        self.outcome.strip_prefix("error=")
    }
}

/// The lines of one direction.
pub(crate) fn vectors<D: Side>() -> Vec<Vector> {
    data_lines(include_str!("../wire/vectors.txt"))
        .filter_map(|line| {
            let mut columns = line.splitn(4, ' ');
            let mut column = || columns.next().unwrap_or_else(|| panic!("short line: {line}"));
            let (sender, name, frame, rest) = (column(), column(), unhex(column()), column());
            let (outcome, again) = match rest.split_once(" again=") {
                Some((outcome, again)) => (outcome, Some(unhex(again))),
                None => (rest, None),
            };
            (sender == D::SENDER).then_some(Vector { line, name, frame, outcome, again })
        })
        .collect()
}

/// The lines of one direction that hold a frame, and not an error.
pub(crate) fn good_vectors<D: Side>() -> Vec<Vector> {
    vectors::<D>().into_iter().filter(|vector| vector.error().is_none()).collect()
}

/// The lines of a data file that are neither blank nor comments.
pub(crate) fn data_lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The lines of the protocol document's code blocks that are marked with `kind`.
pub(crate) fn documented_lines(kind: &str) -> Vec<&'static str> {
    let document = include_str!("../../docs/protocol.md");
    let opening = format!("```{kind}");
    let mut lines = document.lines();
    let mut found = Vec::new();
    while lines.by_ref().any(|line| line == opening) {
        found.extend(lines.by_ref().take_while(|line| *line != "```"));
    }
    found
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    assert!(text.len().is_multiple_of(2) && text.is_ascii(), "not hex: {text}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits"))
        .collect()
}

/// The file's name of an error.
pub(crate) fn error_name(error: Malformed) -> &'static str {
    match error {
        Malformed::UnknownOp(_) => "unknown_op",
        Malformed::Oversized => "oversized",
        Malformed::UnexpectedText => "unexpected_text",
        Malformed::ZeroLease => "zero_lease",
        Malformed::ZeroOwner => "zero_owner",
        Malformed::ZeroToken => "zero_token",
        Malformed::Truncated => "truncated",
        other => panic!("{other:?} has no name in the file"),
    }
}

/// The verdict of `tests/wire/keys.txt` that this result is.
pub(crate) fn verdict(result: &Result<Key, KeyError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(KeyError::Empty) => "empty",
        Err(KeyError::TooLong(_)) => "too_long",
        Err(KeyError::NotUtf8) => "not_utf8",
        Err(KeyError::Space) => "space",
        Err(KeyError::Newline) => "newline",
        Err(KeyError::CarriageReturn) => "cr",
        Err(other) => panic!("{other:?} has no name in the file"),
    }
}

/// A direction whose frames can be written as text, made from it, and encoded.
pub(crate) trait Side: Direction {
    const SENDER: &'static str;
    /// Every op with the length of its fixed header.
    const OPS: &'static [(u8, usize)];
    /// The names of all errors that this direction's frames can give.
    const ERRORS: &'static [&'static str];

    fn describe(frame: &Self::Frame<'_>) -> String;
    fn encode(frame: &Self::Frame<'_>, out: &mut Vec<u8>);
    fn build(fields: &Fields) -> Self::Frame<'_>;
}

impl Side for FromClient {
    const SENDER: &'static str = "client";
    const OPS: &'static [(u8, usize)] = &[(b'A', 10), (b'R', 16), (b'H', 64)];
    const ERRORS: &'static [&'static str] =
        &["unknown_op", "oversized", "truncated", "unexpected_text", "zero_lease", "zero_owner"];

    fn describe(frame: &ClientFrame<'_>) -> String {
        match *frame {
            ClientFrame::Acquire { wait, lease, owner, key } => {
                format!("acquire wait={wait} lease={lease} owner={owner} key={}", hex(key))
            }
            ClientFrame::Release { owner, token, key } => {
                format!("release owner={owner} token={token} key={}", hex(key))
            }
            ClientFrame::Proof { nonce, proof } => {
                format!("proof nonce={} proof={}", hex(nonce), hex(proof))
            }
        }
    }

    fn encode(frame: &ClientFrame<'_>, out: &mut Vec<u8>) {
        frame.encode(out);
    }

    fn build(fields: &Fields) -> ClientFrame<'_> {
        match fields.kind {
            "acquire" => ClientFrame::Acquire {
                wait: fields.number("wait").try_into().expect("a byte"),
                lease: fields.number("lease").try_into().expect("a byte"),
                owner: fields.number("owner"),
                key: fields.bytes("key"),
            },
            "release" => ClientFrame::Release {
                owner: fields.number("owner"),
                token: fields.number("token"),
                key: fields.bytes("key"),
            },
            "proof" => {
                ClientFrame::Proof { nonce: fields.block("nonce"), proof: fields.block("proof") }
            }
            other => panic!("no such client frame: {other}"),
        }
    }
}

impl Side for FromServer {
    const SENDER: &'static str = "server";
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
    const ERRORS: &'static [&'static str] =
        &["unknown_op", "oversized", "truncated", "unexpected_text", "zero_token"];

    fn describe(frame: &ServerFrame<'_>) -> String {
        match *frame {
            ServerFrame::Acquired { owner, token, key } => {
                format!("acquired owner={owner} token={token} key={}", hex(key))
            }
            ServerFrame::TimedOut { owner, key } => {
                format!("timed_out owner={owner} key={}", hex(key))
            }
            ServerFrame::Busy { owner, key } => format!("busy owner={owner} key={}", hex(key)),
            ServerFrame::Released { owner, key } => {
                format!("released owner={owner} key={}", hex(key))
            }
            ServerFrame::NotHeld { owner, key } => {
                format!("not_held owner={owner} key={}", hex(key))
            }
            ServerFrame::Moved { leader } => format!("moved leader={}", hex(leader)),
            ServerFrame::Leader { leader } => format!("leader leader={}", hex(leader)),
            ServerFrame::Error { code } => format!("error code={}", hex(code)),
            ServerFrame::Challenge { nonce } => format!("challenge nonce={}", hex(nonce)),
            ServerFrame::Accepted { proof } => format!("accepted proof={}", hex(proof)),
        }
    }

    fn encode(frame: &ServerFrame<'_>, out: &mut Vec<u8>) {
        frame.encode(out);
    }

    fn build(fields: &Fields) -> ServerFrame<'_> {
        let owner = || fields.number("owner");
        let key = || fields.bytes("key");
        match fields.kind {
            "acquired" => {
                ServerFrame::Acquired { owner: owner(), token: fields.number("token"), key: key() }
            }
            "timed_out" => ServerFrame::TimedOut { owner: owner(), key: key() },
            "busy" => ServerFrame::Busy { owner: owner(), key: key() },
            "released" => ServerFrame::Released { owner: owner(), key: key() },
            "not_held" => ServerFrame::NotHeld { owner: owner(), key: key() },
            "moved" => ServerFrame::Moved { leader: fields.bytes("leader") },
            "leader" => ServerFrame::Leader { leader: fields.bytes("leader") },
            "error" => ServerFrame::Error { code: fields.bytes("code") },
            "challenge" => ServerFrame::Challenge { nonce: fields.block("nonce") },
            "accepted" => ServerFrame::Accepted { proof: fields.block("proof") },
            other => panic!("no such server frame: {other}"),
        }
    }
}

/// The parts of an outcome that is not an error.
pub(crate) struct Fields {
    kind: &'static str,
    numbers: HashMap<&'static str, u64>,
    bytes: HashMap<&'static str, Vec<u8>>,
}

impl Fields {
    pub(crate) fn of(vector: &Vector) -> Fields {
        let mut words = vector.outcome.split(' ');
        let kind = words.next().expect("a kind");
        let mut fields = Fields { kind, numbers: HashMap::new(), bytes: HashMap::new() };
        for word in words {
            let (name, value) = word.split_once('=').expect("field=value");
            if matches!(name, "wait" | "lease" | "owner" | "token") {
                fields.numbers.insert(name, value.parse().expect("a number"));
            } else {
                fields.bytes.insert(name, unhex(value));
            }
        }
        fields
    }

    fn number(&self, name: &str) -> u64 {
        self.numbers[name]
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.bytes[name]
    }

    fn block(&self, name: &str) -> &Block {
        self.bytes(name).try_into().expect("32 bytes")
    }
}

/// What a reader makes of a stream that ends after its last byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) frames: Vec<String>,
    pub(crate) error: Option<Malformed>,
}

/// Decodes a stream that arrives in these chunks.
pub(crate) fn read<'c, D: Side>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Reading {
    let mut decoder = Decoder::<D>::default();
    let mut frames = Vec::new();
    let mut bytes = 0;
    for mut input in chunks {
        bytes += input.len();
        loop {
            match decoder.next(&mut input) {
                Ok(Some(frame)) => frames.push(D::describe(&frame)),
                Ok(None) => break,
                Err(error) => return Reading { frames, error: Some(error) },
            }
            assert!(frames.len() <= bytes, "the decoder makes frames out of nothing");
        }
        assert!(input.is_empty(), "the decoder gave up on {} bytes", input.len());
    }
    Reading { frames, error: decoder.finish().err() }
}

/// What this codec makes of `stream`, as a line of the file says it; several frames are set apart
/// by ` | `.
pub(crate) fn outcome<D: Side>(stream: &[u8]) -> String {
    let mut decoder = Decoder::<D>::default();
    let mut outcomes = Vec::new();
    let mut input = stream;
    loop {
        let before = input;
        let Ok(Some(frame)) = decoder.next(&mut input) else { break };
        let mut again = Vec::new();
        D::encode(&frame, &mut again);
        let mut outcome = D::describe(&frame);
        if again != before[..before.len() - input.len()] {
            outcome += &format!(" again={}", hex(&again));
        }
        outcomes.push(outcome);
        assert!(outcomes.len() <= stream.len(), "the decoder makes frames out of nothing");
    }
    // Either all of it was read, or the decoder has failed for good.
    if let Err(error) = decoder.finish() {
        outcomes.push(format!("error={}", error_name(error)));
    }
    outcomes.join(" | ")
}
