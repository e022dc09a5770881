//! Whether a node serves, as the background thread last found it, for callers to look at without
//! asking: whoever has no time to wait for an answer must not be told that nobody serves.

use crate::reason::Reason;
use crate::sync::{AtomicU64, Ordering};
use crate::ticket::Readiness;

/// In the place of a reason: none has this kind.
const READY: u64 = u64::MAX;

/// The published word. Zero says that nothing is known: no node serves yet, or any more.
#[derive(Debug)]
pub(crate) struct Published(AtomicU64);

impl Published {
    pub(crate) fn new() -> Published {
        Published(AtomicU64::new(0))
    }

    /// The background thread: how it is now.
    pub(crate) fn publish(&self, readiness: Option<Readiness>) {
        let word = match readiness {
            None | Some(Readiness::Closed) => 0,
            Some(Readiness::Ready) => READY,
            Some(Readiness::Auth(reason)) => reason.pack(),
        };
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Option<Readiness> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            READY => Some(Readiness::Ready),
            word => Some(Readiness::Auth(Reason::unpack(word))),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::reason::ReasonKind;

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
