//! Looking at what is held, a piece of the table at a time.

use super::{Core, Time};
use std::time::Duration;

/// A held lock, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The lock's name.
    pub key: String,
    /// The current grant's token.
    pub token: u64,
    /// How long the current lease still runs.
    pub remaining: Duration,
    /// How many wait.
    pub waiters: usize,
}

impl Core {
    /// The held locks whose key begins with `prefix`, at most `limit` (1 or more), among the `places` places
    /// of the table from `from` on. Also the place to go on from; `None` at the table's end.
    ///
    /// A lock stays in its place while it is held, so going through all places shows every lock
    /// that is held throughout, once.
    pub fn inspect(
        &self,
        prefix: &[u8],
        from: u32,
        places: u32,
        limit: usize,
        now: Time,
    ) -> (Vec<Held>, Option<u32>) {
        let end = self.table.slots();
        let mut held = Vec::new();
        let mut place = from;
        while place < end && place - from < places {
            if held.len() == limit {
                return (held, Some(place));
            }
            let lock = self.table.get(place);
            if lock.token != 0 && lock.lease_end > now {
                let key = self.table.key(place);
                if key.starts_with(prefix) {
                    held.push(Held {
                        key: String::from_utf8_lossy(key).into_owned(),
                        token: lock.token,
                        remaining: lock.lease_end.since(now),
                        waiters: lock.queue.len(),
                    });
                }
            }
            place += 1;
        }
        (held, (place < end).then_some(place))
    }
}
