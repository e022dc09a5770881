//! What one acquire and release of a free lock may cost the client's process. Not times, which a
//! busy machine lengthens, but counts. Each bound is a little above what was counted; who makes the
//! client cheaper lowers it, and who has to raise it says why.
//!
//! Instructions are bounded in optimized builds alone: others say nothing about what users get.

/// Instructions, with one thread through the Rust interface. It pauses before each request, so that
/// the background thread has to be woken for every one: the most that a pair can cost.
#[cfg(not(debug_assertions))]
pub(crate) const INSTRUCTIONS_ONE: f64 = 17_500.0;

/// The same through the C interface.
#[cfg(not(debug_assertions))]
pub(crate) const INSTRUCTIONS_ONE_C: f64 = 18_500.0;

/// Instructions, with 64 threads: one send, one read and one turn of the background thread serve
/// many of them.
#[cfg(not(debug_assertions))]
pub(crate) const INSTRUCTIONS_MANY: f64 = 8_500.0;

/// System calls, with one thread, which pauses in the same way.
pub(crate) const SYSCALLS_ONE: f64 = 28.0;

/// System calls, with 64 threads: two waits of the caller, and its share of wakes for many. On a
/// busy machine there are fewer to share them.
pub(crate) const SYSCALLS_MANY: f64 = 4.5;
