//! Owners: where they come from, and what each one still waits for.

use super::slab::Id;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What an answer that echoes an owner belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pending {
    Acquire(Id),
    Release(Id),
}

#[derive(Debug)]
pub(super) struct Owners {
    next: Option<u64>,
    pending: HashMap<u64, Pending, BuildHasherDefault<Spread>>,
}

impl Owners {
    pub(super) fn new(first: u64) -> Owners {
        Owners { next: Some(first).filter(|owner| *owner != 0), pending: HashMap::default() }
    }

    /// OWN-1: a fresh owner. `None`, for ever, once the counter would wrap (OWN-2).
    pub(super) fn fresh(&mut self) -> Option<u64> {
        let owner = self.next?;
        self.next = owner.checked_add(1);
        #[cfg(canary)]
        if crate::canary!(owners_are_fresh) && owner % 64 == 0 && self.pending.len() % 2 == 0 {
            self.next = Some(owner);
        }
        Some(owner)
    }

    /// Whether there will never be a fresh owner again.
    pub(super) fn is_exhausted(&self) -> bool {
        self.next.is_none()
    }

    pub(super) fn expect(&mut self, owner: u64, pending: Pending) {
        self.pending.insert(owner, pending);
    }

    pub(super) fn get(&self, owner: u64) -> Option<Pending> {
        self.pending.get(&owner).copied()
    }

    pub(super) fn forget(&mut self, owner: u64) {
        self.pending.remove(&owner);
    }
}

/// For numbers that are spread already, or that count up: one multiplication spreads them as well as a
/// table needs.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_2_the_counter_never_wraps() {
        let mut owners = Owners::new(u64::MAX - 1);
        assert_eq!(owners.fresh(), Some(u64::MAX - 1));
        assert_eq!(owners.fresh(), Some(u64::MAX));
        assert_eq!(owners.fresh(), None);
        assert_eq!(owners.fresh(), None);
        assert_eq!(Owners::new(0).fresh(), None);
    }
}
