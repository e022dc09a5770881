//! What the core counts.

use super::histogram::Histogram;

/// Sizes now, and counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Keys held now.
    pub held: usize,
    /// Waiters now.
    pub waiters: usize,
    /// Whether new acquires are let in now.
    pub admitting: bool,
    /// Whether this node may serve now.
    pub active: bool,
    /// Acquires seen.
    pub acquires: u64,
    /// Acquires that joined a queue.
    pub queued: u64,
    /// Grants made, the undone ones included.
    pub grants: u64,
    /// Grants taken back because no byte of the answer had left.
    pub undone: u64,
    /// Acquires answered `T`.
    pub timeouts: u64,
    /// Acquires answered `B`.
    pub busy: u64,
    /// Releases answered `R`.
    pub released: u64,
    /// Releases answered `N`, probes included.
    pub not_held: u64,
    /// Releases of token 0.
    pub probes: u64,
    /// Requests answered `E not_active`.
    pub not_active: u64,
    /// Leases that ended by themselves.
    pub expired: u64,
    /// Waiters that left with their connection.
    pub abandoned: u64,
    /// How long acquires that were granted had waited.
    pub waits: Histogram,
    /// How long grants lasted, until they were released or their lease ended.
    pub holds: Histogram,
}

/// Acquires answered `B` though admission let them in, since the start, by what was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals {
    /// The queue of the key, or of the connection, was full.
    pub full_queue: u64,
    /// They had waited, and when their turn came no token could be issued any more.
    pub tokenless: u64,
}
