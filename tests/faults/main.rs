//! The client on real sockets, when things go wrong. The names carry the rules that they show.

#[path = "../common/cc.rs"]
mod cc;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/door.rs"]
mod door;
#[path = "../common/fake_node.rs"]
#[allow(dead_code, reason = "a tool for more tests than these")]
mod fake_node;
#[path = "../common/proxy.rs"]
#[allow(dead_code, reason = "a tool for more tests than these")]
mod proxy;

mod batches;
mod busy;
mod cancels;
mod child;
mod closing;
mod deadlines;
mod dials;
mod gate;
mod leases;
mod releases;
mod routing;
mod soak;
mod support;
mod timeouts;
mod tools;
