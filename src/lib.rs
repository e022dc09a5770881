//! A blocking client for a lease-based lock service that never lies about an unknown outcome.

#[doc(hidden)]
pub mod wire;
