//! A lease-based lock server.

#![forbid(unsafe_code)]

mod admin;
mod config;
#[doc(hidden)]
pub mod core;
mod net;
#[doc(hidden)]
pub mod outbox;
mod secrets;
mod server;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod state;
mod stats;

pub use admin::{LockLine, inspect};
pub use config::{
    Config, DEFAULT_LISTEN, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_LOCKS, DEFAULT_MAX_WAITERS,
    DEFAULT_MAX_WAITERS_PER_CONNECTION,
};
pub use net::Address;
pub use secrets::{MAX_SECRET, MIN_SECRET, Secret};
pub use server::{Handle, Server};
pub use stats::Stats;
