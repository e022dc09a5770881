//! The `lockd` binary.
fn main() {}
