//! A blocking client for a lease-based lock service that never lies about an unknown outcome.

#[doc(hidden)]
pub mod clock;
mod endpoint;
#[doc(hidden)]
pub mod engine;
mod input;
mod reason;
#[doc(hidden)]
pub mod wire;

pub use endpoint::EndpointError;
pub use input::*;
pub use reason::*;
