//! What a server counts.

use crate::core;

/// Sizes now, and counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Locks, waiters, and what became of requests.
    pub locks: core::Stats,
    /// Connections now.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub refused: u64,
    /// Connections ended by a wrong proof, or a request before the proof.
    pub auth_failed: u64,
    /// Those among them that were told so late, because their address had failed too often.
    pub auth_slowed: u64,
    /// Connections ended by a malformed frame.
    pub bad_requests: u64,
    /// Connections ended because the peer took too long.
    pub overdue: u64,
    /// Times that reading from a connection was paused because its peer did not read.
    pub paused: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}
