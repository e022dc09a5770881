//! What the callers and the background thread share.

use super::commands::{Answer, Commands};
use super::readiness::Published;
use super::sys::ForkMark;
use crate::log::Log;
use crate::outcome::{Failure, Shutdown};
use crate::reason::Reason;
use crate::stats::Board;
use crate::sync::{Arc as SyncArc, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::ticket::{Completions, Condvars, Pool, Reply, Sleepers, Slot};
use std::sync::Arc;
use std::thread::JoinHandle;

/// All of a client but its background thread's own business.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fork: ForkMark,
    pub(crate) commands: Commands,
    /// The endpoints' names, for failures and log lines.
    pub(crate) endpoints: Arc<[Arc<str>]>,
    pub(crate) board: Board,
    /// The engine's last connection error, packed.
    pub(crate) last_error: AtomicU64,
    /// Whether a node serves.
    pub(crate) readiness: Published,
    /// Started releases under way, which are bounded like acquires, and apart from them.
    pub(crate) started: AtomicUsize,
    /// Releases that never reached the background thread.
    pub(crate) lost: AtomicU64,
    /// How the background thread ended.
    pub(crate) end: Reply<Shutdown>,
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) condvars: Condvars,
    pub(crate) slots: Pool<Slot>,
    pub(crate) replies: Pool<Answer>,
    pub(crate) completions: SyncArc<Completions>,
    /// Callers that have been blocked for a while.
    pub(crate) sleepers: Sleepers,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Shared {
    /// The last connection error.
    pub(crate) fn last_error(&self) -> Reason {
        Reason::unpack(self.last_error.load(Ordering::Relaxed))
    }

    /// A reason with its endpoint's name.
    pub(crate) fn failure(&self, reason: Reason) -> Failure {
        Failure::new(reason, &self.endpoints)
    }
}
