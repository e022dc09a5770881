//! The client without its sockets and clocks: takes events with a `now`, gives effects.

mod api;

pub use api::*;
