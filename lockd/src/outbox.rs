//! Answers of one connection that the kernel has not taken yet.

use lockclient::wire::{Decoder, FromServer, ServerFrame};

/// Answers that one send may carry: the next connection has its turn after as many.
pub const BATCH: usize = 64;

/// Sent bytes are given up once there are as many, and they are the larger part.
const COMPACT: usize = 16 * 1024;

/// The answers of one connection, in the order in which they were decided.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// A frame's first byte, at `sent` or before: from here the frames of which no byte was sent
    /// can be told from those that were begun.
    base: usize,
    sent: usize,
    /// Frames from `base` on.
    frames: usize,
}

impl Outbox {
    /// Adds an answer.
    pub fn push(&mut self, frame: ServerFrame<'_>) {
        frame.encode(&mut self.bytes);
        self.frames += 1;
    }

    /// Bytes that are still to be sent.
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// What to send next: at most [`BATCH`] answers, the begun one included.
    pub fn batch(&self) -> &[u8] {
        if self.frames <= BATCH {
            return &self.bytes[self.sent..];
        }
        let mut frames = Frames::from(&self.bytes, self.base);
        let mut count = 0;
        while count < BATCH && frames.next().is_some() {
            if frames.at > self.sent {
                count += 1;
            }
        }
        &self.bytes[self.sent..frames.at]
    }

    /// The kernel took the next `count` bytes.
    pub fn accepted(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            (self.base, self.sent, self.frames) = (0, 0, 0);
        } else if self.frames > BATCH {
            self.rebase();
        }
    }

    /// Where the next answer will be added. Good until the next [`Outbox::accepted`].
    pub fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Takes out the grants before `mark` of which no byte was sent, and tells `each` about them.
    pub fn withdraw_grants(&mut self, mark: usize, mut each: impl FnMut(u64, &[u8])) {
        let mut gone: Vec<(usize, usize)> = Vec::new();
        let mut frames = Frames::from(&self.bytes, self.base);
        while let Some((at, frame)) = frames.next() {
            if let ServerFrame::Acquired { token, key, .. } = frame
                && (self.sent..mark).contains(&at)
            {
                each(token, key);
                gone.push((at, frames.at));
            }
        }
        // One pass, however many there are: what lies between two of them moves down.
        let mut kept = gone.first().map_or(self.bytes.len(), |(at, _)| *at);
        for (number, (_, end)) in gone.iter().enumerate() {
            let until = gone.get(number + 1).map_or(self.bytes.len(), |(at, _)| *at);
            self.bytes.copy_within(*end..until, kept);
            kept += until - end;
        }
        self.bytes.truncate(kept);
        self.frames -= gone.len();
        self.accepted(0);
    }

    /// Gives back the buffer if nothing is pending, for others to use.
    pub(crate) fn take_buffer(&mut self) -> Option<Vec<u8>> {
        let idle = self.bytes.is_empty() && self.bytes.capacity() > 0;
        idle.then(|| std::mem::take(&mut self.bytes))
    }

    /// Whether a buffer would have to be allocated for the next answer.
    pub(crate) fn wants_buffer(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Uses `buffer`, which is empty, for the next answers.
    pub(crate) fn give_buffer(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.bytes.is_empty() && buffer.is_empty());
        self.bytes = buffer;
    }

    /// Moves `base` over the frames that were sent whole.
    fn rebase(&mut self) {
        let mut frames = Frames::from(&self.bytes, self.base);
        let (mut base, mut passed) = (self.base, 0);
        while frames.next().is_some() && frames.at <= self.sent {
            base = frames.at;
            passed += 1;
        }
        self.base = base;
        self.frames -= passed;
        if base > COMPACT && base > self.bytes.len() / 2 {
            self.bytes.drain(..base);
            self.sent -= base;
            self.base = 0;
        }
    }
}

/// Walks over frames that this server encoded itself.
struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    decoder: Decoder<FromServer>,
}

impl<'a> Frames<'a> {
    fn from(bytes: &'a [u8], at: usize) -> Frames<'a> {
        Frames { bytes, at, decoder: Decoder::default() }
    }

    /// The next frame and where it begins; it ends at `at`.
    fn next(&mut self) -> Option<(usize, ServerFrame<'_>)> {
        let begin = self.at;
        let mut rest = &self.bytes[begin..];
        let frame = self.decoder.next(&mut rest);
        self.at = self.bytes.len() - rest.len();
        match frame {
            Ok(Some(frame)) => Some((begin, frame)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(token: u64) -> ServerFrame<'static> {
        ServerFrame::Acquired { owner: 0x0A0A, token, key: b"key" }
    }

    const OTHER: ServerFrame<'static> = ServerFrame::Busy { owner: 7, key: b"other" };
    const GRANT_LEN: usize = 1 + 16 + 3 + 1;
    const OTHER_LEN: usize = 1 + 8 + 5 + 1;

    fn withdrawn(outbox: &mut Outbox, mark: usize) -> Vec<u64> {
        let mut tokens = Vec::new();
        outbox.withdraw_grants(mark, |token, key| {
            assert_eq!(key, b"key");
            tokens.push(token);
        });
        tokens
    }

    fn all(outbox: &mut Outbox) -> Vec<u8> {
        let mut bytes = Vec::new();
        while outbox.pending() > 0 {
            let batch = outbox.batch().to_vec();
            assert!(!batch.is_empty());
            outbox.accepted(batch.len());
            bytes.extend(batch);
        }
        bytes
    }

    #[test]
    fn only_grants_of_which_no_byte_was_sent_are_withdrawn() {
        // Cut everywhere: a grant stays exactly if one of its bytes was sent.
        for sent in 0..=2 * GRANT_LEN + OTHER_LEN {
            let mut outbox = Outbox::default();
            outbox.push(grant(1));
            outbox.push(OTHER);
            outbox.push(grant(2));
            outbox.accepted(sent);
            let expected: &[u64] = match sent {
                0 => &[1, 2],
                _ if sent <= GRANT_LEN + OTHER_LEN => &[2],
                _ => &[],
            };
            assert_eq!(withdrawn(&mut outbox, usize::MAX), expected, "{sent} sent");
            let all = 2 * GRANT_LEN + OTHER_LEN;
            assert_eq!(outbox.pending(), all - sent - expected.len() * GRANT_LEN);
            assert!(withdrawn(&mut outbox, usize::MAX).is_empty(), "only once");
        }
    }

    #[test]
    fn grants_after_the_mark_stay_and_order_is_kept() {
        let mut outbox = Outbox::default();
        outbox.push(grant(1));
        outbox.push(OTHER);
        let mark = outbox.mark();
        outbox.push(grant(2));
        assert_eq!(withdrawn(&mut outbox, mark), [1]);
        let mut expected = Vec::new();
        OTHER.encode(&mut expected);
        grant(2).encode(&mut expected);
        assert_eq!(all(&mut outbox), expected);
    }

    #[test]
    fn a_batch_has_at_most_64_answers_whatever_was_sent_before() {
        for first in [0, 1, GRANT_LEN, 10 * GRANT_LEN + 3] {
            let mut outbox = Outbox::default();
            let mut expected = Vec::new();
            for token in 1..=200 {
                outbox.push(grant(token));
                grant(token).encode(&mut expected);
            }
            outbox.accepted(first);
            let mut sent = expected[..first].to_vec();
            while outbox.pending() > 0 {
                let batch = outbox.batch().to_vec();
                assert!(batch.len() <= BATCH * GRANT_LEN);
                let whole = (sent.len() + batch.len()) % GRANT_LEN == 0;
                assert!(whole, "a batch ends at a frame's end");
                outbox.accepted(batch.len());
                sent.extend(batch);
            }
            assert_eq!(sent, expected);
        }
    }

    #[test]
    fn sent_answers_take_no_room_for_long() {
        let mut outbox = Outbox::default();
        for round in 0..10_000u64 {
            for token in 1..=4 {
                outbox.push(grant(round * 4 + token));
            }
            // A peer that never quite catches up.
            let take = if round == 0 { 3 * GRANT_LEN } else { 4 * GRANT_LEN };
            outbox.accepted(take);
        }
        assert_eq!(outbox.pending(), GRANT_LEN);
        assert!(outbox.bytes.len() <= 2 * COMPACT, "{}", outbox.bytes.len());
    }
}
