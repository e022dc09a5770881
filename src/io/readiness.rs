//! Whether a node serves, as the background thread last found it, for callers to look at without
//! asking: whoever has no time to wait for an answer must not be told that nobody serves.

use crate::sync::{AtomicU64, Ordering};
use crate::ticket::{Readiness, Word};

/// Nothing is known: no node serves yet, or any more.
const UNKNOWN: u64 = 0;

/// The published word.
#[derive(Debug)]
pub(crate) struct Published(AtomicU64);

impl Published {
    pub(crate) fn new() -> Published {
        Published(AtomicU64::new(UNKNOWN))
    }

    /// The background thread: how it is now.
    pub(crate) fn publish(&self, readiness: Option<Readiness>) {
        self.0.store(readiness.map_or(UNKNOWN, Word::pack), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Option<Readiness> {
        let word = self.0.load(Ordering::Relaxed);
        (word != UNKNOWN).then(|| Readiness::unpack(word))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::reason::{Reason, ReasonKind};

    #[test]
    fn what_is_published_is_read() {
        let published = Published::new();
        assert_eq!(published.read(), None);
        let refused = Readiness::Auth(Reason::new(ReasonKind::Auth));
        let refused_at = Readiness::Auth(Reason::new(ReasonKind::Auth).at(u16::MAX));
        for known in [Some(Readiness::Ready), Some(refused), Some(refused_at), None] {
            published.publish(known);
            assert_eq!(published.read(), known);
        }
    }
}
