//! What one acquire and release of a free lock may cost the client's process. Not times, which a
//! busy machine lengthens, but counts. Each bound is a little above what was counted; who makes the
//! client cheaper lowers it, and who has to raise it says why.
//!
//! Instructions are bounded in optimized builds alone: others say nothing about what users get.

/// Instructions, with one thread through the Rust interface.
#[cfg(not(debug_assertions))]
pub(crate) const INSTRUCTIONS_ONE: f64 = 20_000.0;

/// The same through the C interface.
#[cfg(not(debug_assertions))]
pub(crate) const INSTRUCTIONS_ONE_C: f64 = 20_500.0;

/// Instructions, with 64 threads: one send, one read and one turn of the background thread serve
/// many of them.
#[cfg(not(debug_assertions))]
pub(crate) const INSTRUCTIONS_MANY: f64 = 10_900.0;

/// System calls, with one thread. It varies with who runs first, the caller that asks or the
/// background thread that is about to sleep: where a wake is needed each time it is the most.
pub(crate) const SYSCALLS_ONE: f64 = 33.0;

/// System calls, with 64 threads: two waits of the caller, two wakes of it.
pub(crate) const SYSCALLS_MANY: f64 = 5.5;
