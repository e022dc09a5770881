//! Where a caller and the background thread meet: the slot of one acquire, the thread's table of
//! slots, and the reply to a release. No I/O here, and no clock but the one that ends a caller's
//! sleep: whoever calls brings the time, so that a simulation can use all of it as it is.

mod completions;
mod condvar;
mod desk;
#[cfg(all(loom, test))]
mod models;
mod once;
mod pool;
mod reply;
mod results;
mod sleepers;
mod slot;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use completions::Completions;
pub(crate) use condvar::{Condvar, Condvars};
pub use desk::{Desk, Reclaim};
pub(crate) use pool::Pool;
pub(crate) use reply::{Readiness, Reply, Word};
pub use results::{Cancel, Ending, Take, Waited};
pub(crate) use sleepers::{Sleeper, Sleepers, UNLISTED};
pub(crate) use slot::Hook;
pub use slot::Slot;
