//! The locks and atomics of what callers and the background thread share: parking_lot's and std's,
//! or loom's in its model checks.

#[cfg(not(all(loom, test)))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

#[cfg(not(all(loom, test)))]
pub(crate) use real::*;
