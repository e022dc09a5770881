//! Log messages that a peer can cause as often as it likes.

use crate::core::Time;
use std::time::Duration;

/// At most one message of a kind in so much time.
const INTERVAL: Duration = Duration::from_secs(1);

/// One kind of message.
#[derive(Debug, Default)]
pub(super) struct Notice {
    after: Time,
    suppressed: u64,
}

impl Notice {
    /// Whether to say it now, and how often it was not said since it was.
    pub(super) fn due(&mut self, now: Time) -> Option<u64> {
        if now < self.after {
            self.suppressed += 1;
            return None;
        }
        self.after = now.after(INTERVAL);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// The kinds of messages of the loop.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Too many connections.
    pub(super) refused: Notice,
    /// No descriptor for another connection.
    pub(super) shortage: Notice,
    /// A wrong proof, or a request without one.
    pub(super) auth_failed: Notice,
    /// A malformed frame.
    pub(super) bad_request: Notice,
    /// A peer that took too long.
    pub(super) overdue: Notice,
    /// Admission closed or opened again.
    pub(super) admission: Notice,
    /// A queue that is full.
    pub(super) full_queue: Notice,
    /// Waiters whose turn has come when nothing can be granted any more.
    pub(super) tokenless: Notice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_said_once_a_second_with_the_number_left_out() {
        let mut notice = Notice::default();
        let now = Time::default().after_seconds(9);
        assert_eq!(notice.due(now), Some(0));
        for _ in 0..7 {
            assert_eq!(notice.due(now.after(Duration::from_millis(900))), None);
        }
        assert_eq!(notice.due(now.after(INTERVAL)), Some(7));
        assert_eq!(notice.due(now.after(3 * INTERVAL)), Some(0));
    }
}
