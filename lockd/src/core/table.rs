//! The keys that are held, and how to find one.
//!
//! A key is in the table exactly while it is held, so the table's length is the number of locks
//! held. Locks live in numbered slots; buckets are chains through the slots. The bucket array
//! grows by linear hashing, one bucket an insertion, so no insertion ever pays for all the rest.

use super::keys::{Keys, Stored};
use super::queues::Queue;
use super::time::Time;
use std::hash::{BuildHasher, RandomState};

const NONE: u32 = u32::MAX;
const FIRST_BUCKETS: usize = 16;

/// A held lock.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    /// The current grant's token; 0 while the slot is free.
    pub(crate) token: u64,
    /// When the current grant's lease ends.
    pub(crate) lease_end: Time,
    /// Who waits, first come first.
    pub(crate) queue: Queue,
    key: Stored,
    hash: u32,
    /// The next slot of the bucket's chain, or of the free list.
    next: u32,
    /// The current grant's lease, in seconds.
    pub(crate) lease: u8,
}

#[derive(Debug)]
pub(crate) struct Table {
    locks: Vec<Lock>,
    free: u32,
    len: usize,
    keys: Keys,
    buckets: Vec<u32>,
    /// Peers choose the keys: a hash that they could predict would let them build long chains.
    hasher: RandomState,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            locks: Vec::new(),
            free: NONE,
            len: 0,
            keys: Keys::new(),
            buckets: vec![NONE; FIRST_BUCKETS],
            hasher: RandomState::new(),
        }
    }

    /// Locks held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The key's hash, for [`Table::find`] and [`Table::insert`].
    pub(crate) fn hash(&self, key: &[u8]) -> u32 {
        (self.hasher.hash_one(key) >> 32) as u32
    }

    /// The slot of a held key.
    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(hash)];
        while slot != NONE {
            let lock = &self.locks[slot as usize];
            if lock.hash == hash && self.keys.get(lock.key) == key {
                return Some(slot);
            }
            slot = lock.next;
        }
        None
    }

    /// Adds a key that is not held. The caller fills in the grant, whose token is not 0.
    pub(crate) fn insert(&mut self, hash: u32, key: &[u8]) -> u32 {
        self.len += 1;
        if self.len > self.buckets.len() {
            self.split();
        }
        let bucket = self.bucket(hash);
        let lock = Lock {
            token: 0,
            lease_end: Time::default(),
            queue: Queue::default(),
            key: self.keys.store(key),
            hash,
            next: self.buckets[bucket],
            lease: 0,
        };
        let slot = if self.free == NONE {
            self.locks.push(lock);
            u32::try_from(self.locks.len() - 1).expect("admission keeps the locks below 2^32")
        } else {
            let slot = self.free;
            let place = &mut self.locks[slot as usize];
            self.free = place.next;
            *place = lock;
            slot
        };
        self.buckets[bucket] = slot;
        slot
    }

    /// Takes a key out; nobody waits for it.
    pub(crate) fn remove(&mut self, slot: u32) {
        let hash = self.locks[slot as usize].hash;
        let bucket = self.bucket(hash);
        let after = self.locks[slot as usize].next;
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = after;
        } else {
            let mut at = self.buckets[bucket];
            while self.locks[at as usize].next != slot {
                at = self.locks[at as usize].next;
            }
            self.locks[at as usize].next = after;
        }
        let lock = &mut self.locks[slot as usize];
        self.keys.free(lock.key);
        lock.key = Stored::EMPTY;
        lock.token = 0;
        lock.next = self.free;
        self.free = slot;
        self.len -= 1;
    }

    pub(crate) fn get(&self, slot: u32) -> &Lock {
        &self.locks[slot as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Lock {
        &mut self.locks[slot as usize]
    }

    /// The key in `slot`, which is held.
    pub(crate) fn key(&self, slot: u32) -> &[u8] {
        self.keys.get(self.locks[slot as usize].key)
    }

    /// The number of slots: every slot in use is below it.
    pub(crate) fn slots(&self) -> u32 {
        self.locks.len() as u32
    }

    fn bucket(&self, hash: u32) -> usize {
        let hash = hash as usize;
        // Between two powers of two: the buckets below the split point use one bit more.
        let upper = self.buckets.len().next_power_of_two();
        let bucket = hash & (upper - 1);
        if bucket < self.buckets.len() { bucket } else { bucket & (upper / 2 - 1) }
    }

    /// Adds one bucket, and moves to it what belongs there of the bucket it is split from.
    fn split(&mut self) {
        let new = self.buckets.len();
        let old = new - (1 << new.ilog2());
        let mut chain = std::mem::replace(&mut self.buckets[old], NONE);
        self.buckets.push(NONE);
        while chain != NONE {
            let bucket = self.bucket(self.locks[chain as usize].hash);
            let lock = &mut self.locks[chain as usize];
            let next = std::mem::replace(&mut lock.next, self.buckets[bucket]);
            self.buckets[bucket] = chain;
            chain = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn every_key_is_found_and_only_while_it_is_there() {
        let mut table = Table::new();
        let mut model: HashMap<String, u64> = HashMap::new();
        let mut random = 1u64;
        for step in 1..200_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = format!("key-{}", random % 20_000);
            let hash = table.hash(key.as_bytes());
            let found = table.find(hash, key.as_bytes());
            match (found, model.get(&key)) {
                (Some(slot), Some(token)) => {
                    assert_eq!(table.get(slot).token, *token);
                    assert_eq!(table.key(slot), key.as_bytes());
                    if random >> 63 == 0 {
                        table.remove(slot);
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
    fn chains_stay_short_while_the_table_grows() {
        let mut table = Table::new();
        for number in 0..100_000u32 {
            let key = number.to_be_bytes();
            table.insert(table.hash(&key), &key);
        }
        let longest = (0..table.buckets.len())
            .map(|bucket| {
                let mut length = 0;
                let mut slot = table.buckets[bucket];
                while slot != NONE {
                    length += 1;
                    slot = table.locks[slot as usize].next;
                }
                length
            })
            .max();
        assert!(longest < Some(20), "{longest:?}");
    }

    #[test]
    fn slots_are_used_again() {
        let mut table = Table::new();
        for round in 0..10u32 {
            let slots: Vec<u32> = (0..100u32)
                .map(|number| {
                    let key = (round * 100 + number).to_be_bytes();
                    table.insert(table.hash(&key), &key)
                })
                .collect();
            for slot in slots {
                table.remove(slot);
            }
        }
        assert_eq!(table.slots(), 100);
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        let mut table = Table::new();
        let slots = [b"a", b"b", b"c"].map(|key| table.insert(5, key));
        assert_eq!([b"a", b"b", b"c"].map(|key| table.find(5, key)), slots.map(Some));
        assert_eq!(table.find(5, b"d"), None);
        table.remove(slots[1]);
        assert_eq!([b"a", b"b", b"c"].map(|key| table.find(5, key).is_some()), [true, false, true]);
    }

    #[test]
    fn there_are_as_many_buckets_as_there_were_locks_at_most() {
        let mut table = Table::new();
        let key = |number: usize| number.to_be_bytes();
        for round in 0..2 {
            let mut slots = Vec::new();
            for held in 1..=100 {
                slots.push(table.insert(table.hash(&key(held)), &key(held)));
                let most = if round == 0 { held.max(FIRST_BUCKETS) } else { 100 };
                assert_eq!(table.buckets.len(), most);
            }
            for slot in slots {
                table.remove(slot);
            }
        }
    }
}
