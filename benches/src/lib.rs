//! What the benchmarks and the cost gate share: servers and load generators as processes.

pub mod affinity;
pub mod load;
pub mod server;
