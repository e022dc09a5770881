//! SND-6: the keys that this client is just releasing. An acquire of such a key follows the
//! release on its connection, or waits here until the release has ended; else a drop followed by
//! a try-acquire on another connection could overtake it and meet its own lock.

use super::api::ConnId;
use super::owners::Spread;
use super::slab::Id;
use crate::wire::Key;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Stands for a key. Two keys with one mark, which nobody lives to see, are taken for one: then an
/// acquire waits for a release that is none of its business.
pub(super) type Mark = u64;

#[derive(Debug, Default)]
struct Releasing {
    unsent: u32,
    sent: u32,
    /// Where all that were sent went; `None` once they went to more than one connection.
    conn: Option<ConnId>,
    parked: Vec<Id>,
    /// The parked are looked through for dead ones when there are this many.
    limit: usize,
}

#[derive(Debug)]
pub(super) struct ReleasingKeys {
    keys: HashMap<Mark, Releasing, BuildHasherDefault<Spread>>,
    /// Unknown to whoever chooses the keys, so that nobody can choose them for their marks.
    seed: u64,
}

impl ReleasingKeys {
    pub(super) fn new(seed: u64) -> ReleasingKeys {
        ReleasingKeys { keys: HashMap::default(), seed }
    }

    /// A key's mark: eight bytes at a time, each mixed in by both halves of a product.
    pub(super) fn mark(&self, key: &Key) -> Mark {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |mark: u64, word: u64| {
            let product = u128::from(mark ^ word) * u128::from(ODD);
            (product as u64 ^ (product >> 64) as u64).wrapping_add(self.seed)
        };
        let (words, rest) = key.as_bytes().as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let begin = mix(self.seed, key.as_bytes().len() as u64);
        let mark = words.iter().fold(begin, |mark, word| mix(mark, u64::from_le_bytes(*word)));
        mix(mark, u64::from_le_bytes(last))
    }

    /// A release was taken.
    pub(super) fn begin(&mut self, mark: Mark) {
        self.keys.entry(mark).or_default().unsent += 1;
    }

    /// An unsent release goes out on `conn`. Returns the acquires that waited: they may follow it
    /// now.
    pub(super) fn sent(&mut self, mark: Mark, conn: ConnId) -> Vec<Id> {
        let Some(entry) = self.keys.get_mut(&mark) else { return Vec::new() };
        entry.conn = if entry.sent == 0 { Some(conn) } else { entry.conn.filter(|c| *c == conn) };
        entry.unsent = entry.unsent.saturating_sub(1);
        entry.sent += 1;
        std::mem::take(&mut entry.parked)
    }

    /// A release that had been sent is unsent again.
    pub(super) fn unsent(&mut self, mark: Mark) {
        if let Some(entry) = self.keys.get_mut(&mark) {
            entry.sent = entry.sent.saturating_sub(1);
            entry.unsent += 1;
        }
    }

    /// A release has ended. Returns the acquires that waited for it, once no other does.
    pub(super) fn end(&mut self, mark: Mark, was_sent: bool) -> Vec<Id> {
        let Some(entry) = self.keys.get_mut(&mark) else { return Vec::new() };
        let count = if was_sent { &mut entry.sent } else { &mut entry.unsent };
        *count = count.saturating_sub(1);
        if entry.sent + entry.unsent > 0 {
            return Vec::new();
        }
        self.keys.remove(&mark).map(|entry| entry.parked).unwrap_or_default()
    }

    /// Whether an acquire of `key` may go out on `conn` now. If not it is parked, with those that
    /// are still `waiting`.
    pub(super) fn admit(
        &mut self,
        key: &Key,
        conn: ConnId,
        id: Id,
        waiting: impl Fn(Id) -> bool,
    ) -> bool {
        if self.keys.is_empty() {
            return true;
        }
        #[cfg(canary)]
        if crate::canary!(own_release_goes_first) {
            return true;
        }
        let mark = self.mark(key);
        let Some(entry) = self.keys.get_mut(&mark) else { return true };
        if entry.unsent == 0 && entry.conn == Some(conn) {
            return true;
        }
        if entry.parked.len() > entry.limit {
            entry.parked.retain(|id| waiting(*id));
            entry.limit = 64 + 2 * entry.parked.len();
        }
        entry.parked.push(id);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn snd_6_an_acquire_follows_or_waits() -> Result<(), crate::wire::KeyError> {
        let (key, here, there) = (Key::new(b"k")?, ConnId(1), ConnId(2));
        let mut keys = ReleasingKeys::new(7);
        let mark = keys.mark(&key);
        let all = |_| true;
        assert!(keys.admit(&key, here, 1, all));
        keys.begin(mark);
        assert!(!keys.admit(&key, here, 1, all), "the release has not gone out");
        assert_eq!(keys.sent(mark, here), [1]);
        assert!(keys.admit(&key, here, 1, all));
        assert!(!keys.admit(&key, there, 2, all));
        keys.begin(mark);
        assert_eq!(keys.sent(mark, there), [2]);
        assert!(!keys.admit(&key, here, 3, all) && !keys.admit(&key, there, 4, all), "sent on two");
        assert_eq!(keys.end(mark, true), [0; 0]);
        assert_eq!(keys.end(mark, true), [3, 4]);
        assert!(keys.admit(&key, there, 5, all));
        Ok(())
    }

    #[test]
    fn keys_that_differ_anywhere_have_marks_of_their_own() -> Result<(), crate::wire::KeyError> {
        let keys = ReleasingKeys::new(7);
        let mut marks = HashSet::new();
        for len in 1..=128 {
            let plain = vec![b'k'; len];
            assert!(marks.insert(keys.mark(&Key::new(&plain)?)), "{len}");
            for at in 0..len {
                let mut other = plain.clone();
                other[at] = b'l';
                assert!(marks.insert(keys.mark(&Key::new(&other)?)), "{len} {at}");
            }
        }
        let (one, other) = (keys, ReleasingKeys::new(8));
        let key = Key::new(b"k")?;
        assert_ne!(one.mark(&key), other.mark(&key), "the seed counts");
        Ok(())
    }

    #[test]
    fn snd_6_an_acquire_waits_for_every_release_of_its_key() -> Result<(), crate::wire::KeyError> {
        let (key, here) = (Key::new(b"k")?, ConnId(1));
        let mut keys = ReleasingKeys::new(7);
        let mark = keys.mark(&key);
        let all = |_| true;
        keys.begin(mark);
        keys.begin(mark);
        assert_eq!(keys.sent(mark, here), [0; 0]);
        assert!(!keys.admit(&key, here, 1, all), "the other has not gone out");
        keys.unsent(mark);
        assert_eq!(keys.sent(mark, here), [1]);
        assert!(!keys.admit(&key, here, 2, all), "again only one of them has");
        assert_eq!(keys.end(mark, true), [0; 0]);
        assert!(!keys.admit(&key, here, 3, all), "one has ended, the other has not gone out");
        assert_eq!(keys.end(mark, false), [2, 3]);
        Ok(())
    }
}
