//! The keys that are held, and how to find one.
//!
//! A key is in the table exactly while it is held, so the table's length is the number of locks
//! held. Locks live in numbered slots, and the index says which.
//!
//! With millions of locks time goes into waiting for memory, so what an operation needs is in two
//! cache lines: the index's bucket, and the lock's record. A key that is too long for the record
//! takes a third.

use super::deadlines::{NEVER, Slots};
use super::index::Index;
use super::keys::{Keys, Stored};
use super::pages::Pages;
use super::queues::Queue;
use super::time::Time;
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;

/// The longest key that is kept in the lock's record.
const INLINE: usize = 26;

/// A held lock, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Lock {
    /// The current grant's token; 0 while the slot is free.
    pub(crate) token: u64,
    /// When the current grant's lease ends.
    pub(crate) lease_end: Time,
    /// The earliest deadline that the slot has in the heap of lease ends.
    earliest: Time,
    /// Who waits, first come first.
    pub(crate) queue: Queue,
    /// The key, or the number of the cell that has it.
    key: [u8; INLINE],
    key_len: u8,
    /// The current grant's lease, in seconds.
    pub(crate) lease: u8,
}

const _: () = assert!(size_of::<Lock>() == 64, "one cache line");

impl Lock {
    /// Where the key is, if it is not in the record.
    fn stored(&self) -> Option<Stored> {
        let cell = self.key.first_chunk().expect("a record has room for a number");
        let is_stored = usize::from(self.key_len) > INLINE;
        is_stored.then(|| Stored { cell: u32::from_ne_bytes(*cell), len: self.key_len })
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    locks: Pages<Lock>,
    free: Vec<u32>,
    index: Index,
    /// The keys that are too long for a record.
    keys: Keys,
    /// Peers choose the keys: a hash that they could predict would let them build long chains.
    hasher: SipHasher13,
}

impl Table {
    pub(crate) fn new() -> Table {
        // The standard library's way to random numbers that cannot fail.
        let seed = RandomState::new();
        Table {
            locks: Pages::default(),
            free: Vec::new(),
            index: Index::new(),
            keys: Keys::new(),
            hasher: SipHasher13::new_with_keys(seed.hash_one(0), seed.hash_one(1)),
        }
    }

    /// Locks held.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The key's hash, for [`Table::find`], [`Table::insert`] and [`Table::remove`].
    pub(crate) fn hash(&self, key: &[u8]) -> u32 {
        (self.hasher.hash(key) >> 32) as u32
    }

    /// The slot of a held key.
    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |slot| self.key(slot) == key)
    }

    /// Touches what operations on the keys with these hashes will need, in passes of independent
    /// reads: the processor then waits for many of them at once.
    pub(crate) fn fetch(&self, hashes: &[u32]) {
        let touched = hashes.iter().fold(0, |sum, hash| sum ^ self.index.touch(*hash));
        black_box(touched);
        let slots = hashes.iter().filter_map(|hash| self.index.guess(*hash));
        black_box(slots.fold(0, |sum, slot| sum ^ self.locks.get(slot).token));
    }

    /// Adds a key that is not held. The caller fills in the grant, whose token is not 0.
    pub(crate) fn insert(&mut self, hash: u32, key: &[u8]) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.locks.push(Lock {
                token: 0,
                lease_end: Time::default(),
                earliest: NEVER,
                queue: Queue::default(),
                key: [0; INLINE],
                key_len: 0,
                lease: 0,
            }),
        };
        let lock = self.locks.get_mut(slot);
        lock.key_len = key.len() as u8;
        match lock.key.get_mut(..key.len()) {
            Some(inline) => inline.copy_from_slice(key),
            None => {
                let cell = self.keys.store(key).cell;
                lock.key[..4].copy_from_slice(&cell.to_ne_bytes());
            }
        }
        self.index.insert(hash, slot);
        slot
    }

    /// Takes a key out; nobody waits for it. `hash` is the key's.
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        self.index.remove(hash, slot);
        let lock = self.locks.get_mut(slot);
        lock.token = 0;
        if let Some(stored) = lock.stored() {
            self.keys.free(stored);
        }
        self.free.push(slot);
    }

    pub(crate) fn get(&self, slot: u32) -> &Lock {
        self.locks.get(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Lock {
        self.locks.get_mut(slot)
    }

    /// The key in `slot`, which is held.
    pub(crate) fn key(&self, slot: u32) -> &[u8] {
        let lock = self.locks.get(slot);
        match lock.stored() {
            Some(stored) => self.keys.get(stored),
            None => &lock.key[..usize::from(lock.key_len)],
        }
    }

    /// The number of slots: every slot in use is below it.
    pub(crate) fn slots(&self) -> u32 {
        self.locks.len() as u32
    }
}

impl Slots for Table {
    fn earliest(&mut self, slot: u32) -> &mut Time {
        &mut self.locks.get_mut(slot).earliest
    }

    fn count(&self) -> usize {
        self.locks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn every_key_is_found_and_only_while_it_is_there() {
        let mut table = Table::new();
        let mut model: HashMap<String, u64> = HashMap::new();
        let mut random = 1u64;
        for step in 1..200_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Of every length, on both sides of what a record has room for.
            let number = random % 20_000;
            let key = format!("{number:0len$}", len = 5 + number as usize % 124);
            let hash = table.hash(key.as_bytes());
            let found = table.find(hash, key.as_bytes());
            match (found, model.get(&key)) {
                (Some(slot), Some(token)) => {
                    assert_eq!(table.get(slot).token, *token);
                    assert_eq!(table.key(slot), key.as_bytes());
                    if random >> 63 == 0 {
                        table.remove(hash, slot);
                        model.remove(&key);
                    }
                }
                (None, None) => {
                    let slot = table.insert(hash, key.as_bytes());
                    table.get_mut(slot).token = step;
                    model.insert(key, step);
                }
                (found, expected) => panic!("{key}: found {found:?}, expected {expected:?}"),
            }
            assert_eq!(table.len(), model.len());
        }
        assert!(model.len() > 5_000);
        for (key, token) in &model {
            let slot = table.find(table.hash(key.as_bytes()), key.as_bytes()).expect("held");
            assert_eq!(table.get(slot).token, *token);
        }
    }

    #[test]
    fn slots_are_used_again() {
        let mut table = Table::new();
        for round in 0..10u32 {
            let slots: Vec<(u32, u32)> = (0..100u32)
                .map(|number| {
                    let key = (round * 100 + number).to_be_bytes();
                    let hash = table.hash(&key);
                    (hash, table.insert(hash, &key))
                })
                .collect();
            for (hash, slot) in slots {
                table.remove(hash, slot);
            }
        }
        assert_eq!((table.slots(), table.count()), (100, 100));
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        let mut table = Table::new();
        let slots = [b"a", b"b", b"c"].map(|key| table.insert(5, key));
        assert_eq!([b"a", b"b", b"c"].map(|key| table.find(5, key)), slots.map(Some));
        assert_eq!(table.find(5, b"d"), None);
        table.remove(5, slots[1]);
        assert_eq!([b"a", b"b", b"c"].map(|key| table.find(5, key).is_some()), [true, false, true]);
    }

    #[test]
    fn a_keys_hash_is_its_own_and_another_in_every_table() {
        let keys: Vec<[u8; 2]> = (0..1000u16).map(u16::to_be_bytes).collect();
        let hashes =
            |table: &Table| -> Vec<u32> { keys.iter().map(|key| table.hash(key)).collect() };
        let (one, other) = (hashes(&Table::new()), hashes(&Table::new()));
        let same = one.iter().zip(&other).filter(|(one, other)| one == other).count();
        assert!(same < 10, "peers choose the keys, and must not know where they go");
        assert!(one.into_iter().collect::<HashSet<u32>>().len() > 990, "they are spread");
    }
}
