//! An ear at both directions of a connection: which frames pass, byte by byte. It reads frames by
//! itself, so that the product's codec is not its own witness.

use crate::net::{Begun, Sent};
use crate::record::{Answer, Record};
use crate::world::key_index;

/// The largest frame that a client reads.
const LARGEST: usize = 146;

/// A frame in a batch of the client's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    start: usize,
    end: usize,
    /// Bytes of it that went out before.
    from: u16,
    len: u16,
    what: Sent,
    wait: u8,
    lease: u8,
    key: u16,
}

impl Frame {
    fn taken(&self, count: usize) -> usize {
        count.clamp(self.start, self.end) - self.start
    }

    /// What there is to say of it before it goes: nothing of releases and of begun frames.
    pub(crate) fn encoded(&self, client: u16, link: u32, mono: u64) -> Option<Record> {
        let Sent::Acquire { call, owner } = self.what else { return None };
        if self.from > 0 {
            return None;
        }
        let Frame { wait, lease, key, len, .. } = *self;
        Some(match call {
            Some(call) => Record::Encode { call, owner, wait, lease, key, len, mono },
            None => Record::Stray { client, link, owner, verbatim: true },
        })
    }

    /// What there is to say once the kernel has accepted `count` bytes of the batch.
    pub(crate) fn accepted(&self, client: u16, link: u32, count: usize) -> Option<Record> {
        let taken = self.taken(count) as u16;
        let (from, to, len) = (self.from, self.from + taken, self.len);
        match self.what {
            _ if taken == 0 => None,
            Sent::Acquire { call: Some(call), owner } => {
                Some(Record::AcquireBytes { call, link, owner, from, to, len })
            }
            Sent::Release { owner, token } => {
                Some(Record::ReleaseBytes { client, link, owner, token, from, to, len })
            }
            Sent::Acquire { call: None, .. } | Sent::Proof => None,
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Finds the frames of a batch. `claims` are the calls that were claimed for it, in order; those
/// that have a frame are taken out. False: it does not begin with what must come next.
pub(crate) fn batch(
    bytes: &[u8],
    begun: Option<&Begun>,
    claims: &mut Vec<u32>,
    frames: &mut Vec<Frame>,
) -> bool {
    frames.clear();
    let mut at = 0;
    if let Some(begun) = begun {
        if !bytes.starts_with(&begun.rest) {
            return false;
        }
        at = begun.rest.len();
        let (from, len, what) = (begun.done, begun.len, begun.what);
        frames.push(Frame { start: 0, end: at, from, len, what, wait: 0, lease: 0, key: 0 });
    }
    let mut claimed = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let header = match rest[0] {
            b'A' => 11,
            b'R' => 17,
            b'H' => 65,
            _ => return false,
        };
        let text = rest.get(header..).unwrap_or_default();
        let Some(text) = text.split(|byte| *byte == b'\n').next() else { return false };
        let length = header + text.len() + 1;
        if length > rest.len() {
            return false;
        }
        let (mut wait, mut lease) = (0, 0);
        let what = match rest[0] {
            b'A' => {
                (wait, lease) = (rest[1], rest[2]);
                let call = claims.get(claimed).copied();
                claimed += 1;
                Sent::Acquire { call, owner: number(&rest[3..11]) }
            }
            b'R' => Sent::Release { owner: number(&rest[1..9]), token: number(&rest[9..17]) },
            _ => Sent::Proof,
        };
        let end = at + length;
        let (len, key) = (length as u16, key_index(text));
        frames.push(Frame { start: at, end, from: 0, len, what, wait, lease, key });
        at = end;
    }
    claims.drain(..claimed.min(claims.len()));
    true
}

/// The frame that is begun once `count` bytes of a batch were accepted.
pub(crate) fn begun(
    frames: &[Frame],
    bytes: &[u8],
    count: usize,
    before: Option<Begun>,
) -> Option<Begun> {
    let cut = frames.iter().find(|frame| frame.end > count)?;
    let taken = cut.taken(count);
    if taken == 0 && cut.from == 0 {
        return None;
    }
    if taken == 0 {
        return before;
    }
    let rest = bytes[cut.start + taken..cut.end].to_vec();
    Some(Begun { what: cut.what, done: cut.from + taken as u16, len: cut.len, rest })
}

/// What a client reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard {
    /// An answer to a request.
    Answer { owner: u64, answer: Answer, token: u64, key: u16 },
    /// Something after which the connection must end.
    Fatal,
}

/// Finds the frames in what a client reads; `partial` keeps the start of an unfinished one.
pub(crate) fn read(partial: &mut Vec<u8>, bytes: &[u8], mut hear: impl FnMut(Heard)) {
    if partial.is_empty() {
        let used = frames(bytes, &mut hear);
        partial.extend_from_slice(&bytes[used..]);
    } else {
        partial.extend_from_slice(bytes);
        let used = frames(partial, &mut hear);
        partial.drain(..used);
    }
}

/// Returns how many bytes belong to whole frames. A stream that cannot be read stays so.
fn frames(bytes: &[u8], hear: &mut impl FnMut(Heard)) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let header = match rest[0] {
            b'A' => 17,
            b'T' | b'B' | b'R' | b'N' => 9,
            b'M' | b'L' | b'E' => 1,
            b'C' | b'H' => 33,
            _ => {
                hear(Heard::Fatal);
                return at;
            }
        };
        let text = rest.get(header..).and_then(|rest| {
            let length = rest.iter().position(|byte| *byte == b'\n')?;
            (header + length < LARGEST).then(|| &rest[..length])
        });
        let Some(text) = text else {
            if rest.len() >= LARGEST {
                hear(Heard::Fatal);
            }
            return at;
        };
        at += header + text.len() + 1;
        let answer = match rest[0] {
            b'A' => Answer::Acquired,
            b'T' => Answer::TimedOut,
            b'B' => Answer::Busy,
            b'R' => Answer::Released,
            b'N' => Answer::NotHeld,
            b'M' | b'E' => {
                hear(Heard::Fatal);
                continue;
            }
            _ => continue,
        };
        let token = if answer == Answer::Acquired { number(&rest[9..17]) } else { 0 };
        if answer == Answer::Acquired && token == 0 {
            hear(Heard::Fatal);
            continue;
        }
        hear(Heard::Answer { owner: number(&rest[1..9]), answer, token, key: key_index(text) });
    }
    at
}
