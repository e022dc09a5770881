//! A lease-based lock server.

#[doc(hidden)]
pub mod core;
