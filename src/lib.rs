//! A blocking client for a lease-based lock service that never lies about an unknown outcome.

#[cfg(canary)]
#[doc(hidden)]
pub mod canary;
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod ffi;
#[doc(hidden)]
pub mod wire;

mod client;
mod config;
mod endpoint;
mod error;
mod handle;
mod input;
mod io;
mod lock;
mod log;
#[cfg(not(all(shuttle, test)))]
#[cfg_attr(all(loom, test), allow(dead_code, reason = "all but its own models use the checker's"))]
mod mutex;
mod outcome;
mod quiet;
mod reason;
mod stats;
mod sync;
#[doc(hidden)]
pub mod ticket;

pub use client::Client;
pub use config::{Config, ConfigError};
pub use endpoint::EndpointError;
pub use error::Error;
pub use handle::Ticket;
pub use input::*;
pub use lock::Lock;
pub use log::LogLevel;
pub use outcome::{Acquire, Failure, Grant, Outcome, Released, Shutdown, Token};
pub use reason::*;
pub use stats::Stats;
pub use wire::KeyError;
