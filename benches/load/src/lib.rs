//! Load on lock servers: the servers and the load generators as processes, for the benchmarks and
//! for the bounds on what the client may cost (`tests/gate.rs`).

mod affinity;
mod run;
mod server;

pub use affinity::Pinned;
pub use run::{Extent, Found, Load};
pub use server::Server;
