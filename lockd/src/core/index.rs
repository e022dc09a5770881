//! From a key's hash to its slot, in one cache line.
//!
//! Linear hashing: the buckets are split one after the other as the index grows, so no insertion
//! pays for all the rest. A bucket is one cache line of hashes and slots, so whoever looks for a
//! key touches no other key's record; what does not fit into it goes to full buckets behind it.

use super::pages::Pages;

const NONE: u32 = u32::MAX;
const FIRST_BUCKETS: u32 = 4;
const ENTRIES: usize = 7;
/// Entries a bucket on average, at most. Those not yet split have up to twice as many.
const LOAD: usize = 4;

/// Only a chain's first bucket may be less than full.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Bucket {
    hashes: [u32; ENTRIES],
    slots: [u32; ENTRIES],
    len: u32,
    /// The full bucket behind it.
    next: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64, "one cache line");

const EMPTY: Bucket = Bucket { hashes: [0; ENTRIES], slots: [0; ENTRIES], len: 0, next: NONE };

impl Bucket {
    fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        let entries = self.hashes.iter().zip(&self.slots).map(|(hash, slot)| (*hash, *slot));
        entries.take(self.len as usize)
    }

    fn set(&mut self, at: usize, (hash, slot): (u32, u32)) {
        self.hashes[at] = hash;
        self.slots[at] = slot;
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    buckets: Pages<Bucket>,
    /// The buckets behind others.
    behind: Pages<Bucket>,
    /// The first of those that are not in use, each of which knows the next.
    free: u32,
    len: usize,
}

impl Index {
    pub(crate) fn new() -> Index {
        let mut buckets = Pages::default();
        for _ in 0..FIRST_BUCKETS {
            buckets.push(EMPTY);
        }
        Index { buckets, behind: Pages::default(), free: NONE, len: 0 }
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot with this hash that `is` the one looked for.
    pub(crate) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut bucket = self.buckets.get(self.home(hash));
        loop {
            for (other, slot) in bucket.entries() {
                if other == hash && is(slot) {
                    return Some(slot);
                }
            }
            if bucket.next == NONE {
                return None;
            }
            bucket = self.behind.get(bucket.next);
        }
    }

    /// The slot that is most likely to be found, without looking at it: nothing but the chain's
    /// first bucket is touched.
    pub(crate) fn guess(&self, hash: u32) -> Option<u32> {
        let mut entries = self.buckets.get(self.home(hash)).entries();
        entries.find(|(other, _)| *other == hash).map(|(_, slot)| slot)
    }

    /// Touches the first bucket of the hash's chain and nothing else.
    pub(crate) fn touch(&self, hash: u32) -> u32 {
        self.buckets.get(self.home(hash)).len
    }

    /// Adds an entry.
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        self.len += 1;
        if self.len > LOAD * self.buckets.len() {
            self.split();
        }
        self.add(hash, slot);
    }

    /// Takes out an entry, which is there.
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        let home = self.home(hash);
        if self.buckets.get(home).len == 0 {
            self.pull(home);
        }
        let first = self.buckets.get_mut(home);
        first.len -= 1;
        let last = first.len as usize;
        let filler = (first.hashes[last], first.slots[last]);
        self.len -= 1;
        if filler == (hash, slot) {
            return;
        }
        // The last entry of the first bucket takes its place, wherever in the chain that is.
        let sought = (hash, slot);
        let mut bucket = first;
        loop {
            let at = bucket.entries().position(|entry| entry == sought);
            if let Some(at) = at {
                return bucket.set(at, filler);
            }
            let next = bucket.next;
            assert!(next != NONE, "what is taken out is there");
            bucket = self.behind.get_mut(next);
        }
    }

    /// The number of the bucket where a chain begins.
    fn home(&self, hash: u32) -> u32 {
        let buckets = self.buckets.len() as u32;
        // The buckets that are split already, and those that were added, use one bit more.
        let upper = u32::MAX >> buckets.leading_zeros();
        let home = hash & upper;
        if home < buckets { home } else { hash & (upper >> 1) }
    }

    fn add(&mut self, hash: u32, slot: u32) {
        let home = self.home(hash);
        if self.buckets.get(home).len as usize == ENTRIES {
            self.push(home);
        }
        let bucket = self.buckets.get_mut(home);
        bucket.set(bucket.len as usize, (hash, slot));
        bucket.len += 1;
    }

    /// Puts what is in a full bucket behind it.
    fn push(&mut self, home: u32) {
        let full = std::mem::replace(self.buckets.get_mut(home), EMPTY);
        let number = match self.free {
            NONE => self.behind.push(full),
            number => {
                self.free = std::mem::replace(self.behind.get_mut(number), full).next;
                number
            }
        };
        self.buckets.get_mut(home).next = number;
    }

    /// Puts the bucket behind an empty one into its place.
    fn pull(&mut self, home: u32) {
        let next = self.buckets.get(home).next;
        *self.buckets.get_mut(home) = self.free(next);
    }

    /// Takes a bucket behind others out of use, and gives what was in it.
    fn free(&mut self, number: u32) -> Bucket {
        let freed = self.behind.get_mut(number);
        let content = freed.clone();
        freed.next = self.free;
        self.free = number;
        content
    }

    /// Adds a bucket, and moves to it what belongs there of the one that it is split from.
    fn split(&mut self) {
        let new = self.buckets.push(EMPTY);
        let old = new - (1 << new.ilog2());
        let mut chain = std::mem::replace(self.buckets.get_mut(old), EMPTY);
        loop {
            for (hash, slot) in chain.entries() {
                self.add(hash, slot);
            }
            if chain.next == NONE {
                break;
            }
            chain = self.free(chain.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u32 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 32) as u32
        }
    }

    fn lengths(index: &Index) -> Vec<usize> {
        let mut lengths = Vec::new();
        for home in 0..index.buckets.len() as u32 {
            let mut bucket = index.buckets.get(home);
            let mut length = bucket.len as usize;
            while bucket.next != NONE {
                bucket = index.behind.get(bucket.next);
                assert_eq!(bucket.len as usize, ENTRIES, "only the first is less than full");
                length += ENTRIES;
            }
            lengths.push(length);
        }
        lengths
    }

    /// `mask` says how many different hashes there are: few make long chains.
    fn against_a_set(mask: u32, entries: usize) {
        let mut index = Index::new();
        let mut model = BTreeSet::new();
        let mut random = Random(88172645463325252);
        let mut highest = 0;
        for slot in 0..20 * entries as u32 {
            // Filling up and emptying in turns.
            let filling = (slot as usize / entries).is_multiple_of(2);
            if random.next() % 8 < if filling { 7 } else { 2 } && model.len() < entries {
                let hash = random.next() & mask;
                index.insert(hash, slot);
                model.insert((hash, slot));
            } else if let Some(&entry) = model.range((random.next() & mask, 0)..).next() {
                index.remove(entry.0, entry.1);
                model.remove(&entry);
            }
            highest = highest.max(model.len());
            assert_eq!(index.len(), model.len());
        }
        assert!(highest > entries / 2);
        assert_eq!(lengths(&index).iter().sum::<usize>(), model.len());
        for &(hash, slot) in &model {
            assert_eq!(index.find(hash, |other| other == slot), Some(slot));
            assert!(index.guess(hash).is_none_or(|slot| model.contains(&(hash, slot))));
            assert_eq!(index.find(hash, |_| false), None);
        }
        for (hash, slot) in model {
            index.remove(hash, slot);
            assert_eq!(index.find(hash, |other| other == slot), None);
        }
        assert_eq!(index.len(), 0);
        assert!(index.behind.len() <= highest.div_ceil(ENTRIES), "buckets are used again");
    }

    #[test]
    fn entries_are_found_while_they_are_there_in_short_chains() {
        against_a_set(u32::MAX, 20_000);
    }

    #[test]
    fn entries_are_found_while_they_are_there_in_long_chains() {
        for mask in [0, 1, 0x8000_0000, 0xF, 0x100] {
            against_a_set(mask, 500);
        }
    }

    #[test]
    fn chains_stay_short_while_it_grows() {
        let mut index = Index::new();
        let mut random = Random(1);
        for slot in 0..100_000 {
            index.insert(random.next(), slot);
        }
        let lengths = lengths(&index);
        assert_eq!(lengths.len(), 100_000 / LOAD);
        assert!(lengths.iter().all(|length| *length < 30));
        let behind: usize = lengths.iter().map(|length| length.saturating_sub(ENTRIES)).sum();
        assert!(behind < 100_000 / 10, "{behind} entries are not in a chain's first bucket");
    }
}
