//! On which processor programs run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// While it lives, programs that this thread starts run on one processor alone. Figures for one
/// thread flip with where the scheduler places client and server; on one processor they do not.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// To the last processor that this thread may use: the first tends to serve interrupts.
    ///
    /// # Errors
    /// The system refused.
    pub fn new() -> io::Result<Pinned> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| before.is_set(cpu));
        one.set(last.ok_or_else(|| io::Error::other("no processor"))?);
        sched_setaffinity(None, &one)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Was allowed before; if it is no longer, what follows runs on one processor.
        let _ = sched_setaffinity(None, &self.before);
    }
}
