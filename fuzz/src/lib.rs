//! What the fuzz targets do with their input.
//!
//! Each module has a `run` that takes any bytes and panics when an invariant does not hold. The
//! targets in `targets/` hand it what the fuzzer makes up; `tests/replay.rs` hands it the inputs in
//! `corpus/`, so that every run of the tests goes the ways that the fuzzer has found.

pub mod c_abi;
pub mod decode;
pub mod engine;
mod input;
pub mod session;

#[allow(dead_code, reason = "the engine's own tests use more of it")]
#[path = "../../tests/engine/harness.rs"]
mod harness;
#[allow(dead_code, reason = "as above")]
#[path = "../../tests/engine/nodes.rs"]
mod nodes;
