//! The background thread and what it owns: every socket of a client, and nothing of any other.

mod commands;
mod dial;
mod driver;
mod links;
#[cfg(all(shuttle, test))]
mod mixes;
#[cfg(all(loom, test))]
mod models;
mod pause;
mod readiness;
mod shared;
mod socket;
pub(crate) mod sys;
mod waker;

#[cfg(test)]
pub(crate) use commands::Script;
pub(crate) use commands::{Audience, BRIEFLY, Command, PATIENTLY, Refused};
pub(crate) use shared::Shared;

use crate::config::Config;
use crate::engine::Settings;
use crate::log::Log;
use crate::outcome::Shutdown;
use crate::quiet::{self, Quiet};
use crate::stats::Board;
use crate::sync::{Arc as SyncArc, AtomicU64, AtomicUsize, Mutex};
use crate::ticket::{Completions, Condvar, Condvars, Pool, Reply, Sleepers};
use commands::Commands;
use driver::Driver;
use readiness::Published;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The thread keeps its buffers on the heap.
const STACK: usize = 512 * 1024;

/// REL-4: places in the release lane, at least. The queue's limit may be less: it bounds what waits
/// unsent, and grants come to what was sent.
const LEAST_LANE: usize = 1024;

/// Starts a client's background thread, and its log thread if there is a callback.
pub(crate) fn start(config: &Config) -> io::Result<Arc<Shared>> {
    quiet::install();
    let mut seed = [0; 8];
    sys::random(&mut seed)?;
    let (waker, receiver) = waker::pair()?;
    let shared = Arc::new(Shared {
        fork: sys::ForkMark::new()?,
        commands: Commands::new(waker, config.queue_limit),
        endpoints: config.endpoints.iter().map(|name| name.as_str().into()).collect(),
        board: Board::new(),
        last_error: AtomicU64::new(0),
        readiness: Published::new(),
        started: AtomicUsize::new(0),
        lost: AtomicU64::new(0),
        end: Reply::new(Condvar::new()),
        log: config.log.as_ref().map(|_| Arc::new(Log::new())),
        condvars: Condvars::new(),
        slots: Pool::new(),
        replies: Pool::new(),
        completions: SyncArc::new(Completions::new()),
        sleepers: Sleepers::new(),
        threads: Mutex::new(Vec::new()),
    });
    let driver = Driver::new(settings(config, u64::from_ne_bytes(seed)), shared.clone(), receiver)?;
    let mut threads = Vec::new();
    if let (Some(log), Some(call)) = (&shared.log, &config.log) {
        threads.push(log.start(call.clone(), shared.endpoints.clone())?);
    }
    match sys::spawn("lockclient-io", STACK, move || run(driver)) {
        Ok(thread) => threads.push(thread),
        Err(error) => {
            if let Some(log) = &shared.log {
                log.finish();
            }
            // It has never called back.
            threads.into_iter().for_each(|thread| drop(thread.join()));
            return Err(error);
        }
    }
    *shared.threads.lock() = threads;
    Ok(shared)
}

fn settings(config: &Config, seed: u64) -> Settings {
    Settings {
        endpoints: config.endpoints.clone(),
        secret: config.secret.clone(),
        connections: config.connections as usize,
        connect_timeout: config.connect_timeout,
        response_grace: config.response_grace,
        strict_deadline: config.strict_deadline,
        enforce_budget: config.enforce_budget,
        busy_retry: config.busy_retry,
        ordered_answers: config.ordered_answers,
        idle_probe: config.idle_probe,
        // Thousands of grants may turn out late in one turn, before the first release can go out.
        lane: config.queue_limit.max(LEAST_LANE),
        first_owner: 1,
        seed,
        log: config.log.is_some(),
    }
}

/// The thread. Whatever ends it, nobody is left waiting (HOST-5).
fn run(driver: Driver) {
    struct Finish(Option<Driver>, Option<io::Result<Shutdown>>);

    impl Drop for Finish {
        fn drop(&mut self) {
            let Some(mut driver) = self.0.take() else { return };
            driver.finish(self.1.as_ref().and_then(|end| end.as_ref().ok()).copied());
            if matches!(self.1, Some(Err(_))) || !driver.is_whole() {
                // The host has closed our descriptors, and may use their numbers for its own
                // files: closing them once more would close those.
                std::mem::forget(driver);
            }
        }
    }

    let _quiet = Quiet::enter();
    let mut finish = Finish(Some(driver), None);
    finish.1 = catch_unwind(AssertUnwindSafe(|| finish.0.as_mut().map(Driver::run))).ok().flatten();
    // What it drops may panic too; the thread must end in order even then.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(finish)));
}
