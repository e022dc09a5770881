//! SND-6: the keys that this client is just releasing. An acquire of such a key follows the
//! release on its connection, or waits here until the release has ended; else a drop followed by
//! a try-acquire on another connection could overtake it and meet its own lock.

use super::api::ConnId;
use super::slab::Id;
use crate::wire::Key;
use std::collections::HashMap;

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

#[derive(Debug, Default)]
pub(super) struct ReleasingKeys {
    keys: HashMap<Key, Releasing>,
}

impl ReleasingKeys {
    /// A release of `key` was taken.
    pub(super) fn begin(&mut self, key: &Key) {
        self.keys.entry(*key).or_default().unsent += 1;
    }

    /// An unsent release of `key` goes out on `conn`. Returns the acquires that waited: they may
    /// follow it now.
    pub(super) fn sent(&mut self, key: &Key, conn: ConnId) -> Vec<Id> {
        let Some(entry) = self.keys.get_mut(key) else { return Vec::new() };
        entry.conn = if entry.sent == 0 { Some(conn) } else { entry.conn.filter(|c| *c == conn) };
        entry.unsent = entry.unsent.saturating_sub(1);
        entry.sent += 1;
        std::mem::take(&mut entry.parked)
    }

    /// A release of `key` that had been sent is unsent again.
    pub(super) fn unsent(&mut self, key: &Key) {
        if let Some(entry) = self.keys.get_mut(key) {
            entry.sent = entry.sent.saturating_sub(1);
            entry.unsent += 1;
        }
    }

    /// A release of `key` has ended. Returns the acquires that waited for it, once no other does.
    pub(super) fn end(&mut self, key: &Key, was_sent: bool) -> Vec<Id> {
        let Some(entry) = self.keys.get_mut(key) else { return Vec::new() };
        let count = if was_sent { &mut entry.sent } else { &mut entry.unsent };
        *count = count.saturating_sub(1);
        if entry.sent + entry.unsent > 0 {
            return Vec::new();
        }
        self.keys.remove(key).map(|entry| entry.parked).unwrap_or_default()
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
        let Some(entry) = self.keys.get_mut(key) else { return true };
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

    #[test]
    fn snd_6_an_acquire_follows_or_waits() -> Result<(), crate::wire::KeyError> {
        let (key, here, there) = (Key::new(b"k")?, ConnId(1), ConnId(2));
        let mut keys = ReleasingKeys::default();
        let all = |_| true;
        assert!(keys.admit(&key, here, 1, all));
        keys.begin(&key);
        assert!(!keys.admit(&key, here, 1, all), "the release has not gone out");
        assert_eq!(keys.sent(&key, here), [1]);
        assert!(keys.admit(&key, here, 1, all));
        assert!(!keys.admit(&key, there, 2, all));
        keys.begin(&key);
        assert_eq!(keys.sent(&key, there), [2]);
        assert!(!keys.admit(&key, here, 3, all) && !keys.admit(&key, there, 4, all), "sent on two");
        assert_eq!(keys.end(&key, true), [0; 0]);
        assert_eq!(keys.end(&key, true), [3, 4]);
        assert!(keys.admit(&key, there, 5, all));
        Ok(())
    }

    #[test]
    fn snd_6_an_acquire_waits_for_every_release_of_its_key() -> Result<(), crate::wire::KeyError> {
        let (key, here) = (Key::new(b"k")?, ConnId(1));
        let mut keys = ReleasingKeys::default();
        let all = |_| true;
        keys.begin(&key);
        keys.begin(&key);
        assert_eq!(keys.sent(&key, here), [0; 0]);
        assert!(!keys.admit(&key, here, 1, all), "the other has not gone out");
        keys.unsent(&key);
        assert_eq!(keys.sent(&key, here), [1]);
        assert!(!keys.admit(&key, here, 2, all), "again only one of them has");
        assert_eq!(keys.end(&key, true), [0; 0]);
        assert!(!keys.admit(&key, here, 3, all), "one has ended, the other has not gone out");
        assert_eq!(keys.end(&key, false), [2, 3]);
        Ok(())
    }
}
