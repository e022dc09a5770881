//! Clients, network and lock table in virtual time, from a seed.
//!
//! The engine, the slots and desk where callers meet it, and the lock table with its sessions are
//! the real ones. Between them is a network of bytes, and above them callers; both are drawn from
//! one `u64`. Everything that happens is written to a log, and named predicates are asked about
//! every record of it.

mod batch;
mod caller;
mod client;
mod cluster;
mod disk;
mod effects;
mod faults;
mod ledger;
mod log;
mod net;
mod outages;
mod plan;
mod predicates;
mod record;
mod rng;
mod run;
mod seeds;
mod server;
mod tap;
mod thread;
mod time;
mod world;

pub use batch::{Batch, Summary, run_batch};
pub use faults::{Kind, Skip};
pub use log::Violation;
pub use predicates::{PREDICATES, Predicate};
pub use run::{Report, explain, run, shrink};
pub use seeds::regressions;
pub use world::{Orders, Outcomes};
