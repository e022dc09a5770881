//! What tests on real sockets share: a network and a server that do as they are told.
#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod cc;
pub(crate) mod door;
pub(crate) mod fake_node;
pub(crate) mod proxy;
